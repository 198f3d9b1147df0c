/* Tests the local link against what every link must do. */
#include "link_conformance.h"

int main(void)
{
    static const struct link_factory factory = {.name = "local", .create = gw_link_local_create};
    return link_conformance(&factory);
}
