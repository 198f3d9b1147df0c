/* The conformance suite of links as a library, for links that Python makes (link_test.py). */
#include "link_conformance.h"

GW_API int link_conformance_of(const struct link_factory *factory);

int link_conformance_of(const struct link_factory *factory)
{
    return link_conformance(factory);
}
