/* Takes the place of parameter servers as owners in a build without OpenSSL, which has no clients. */
#include "exchange/owners.h"

#ifndef GW_HAVE_TCP
const struct gw_owners gw_owners_servers = {NULL};
#endif
