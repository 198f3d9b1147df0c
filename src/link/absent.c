/* Takes the place of links that this build does not have, and says so. */
#include "base/error.h"

#include <gradwire/link.h>

#ifndef GW_HAVE_TCP
gw_status gw_link_tcp_create(gw_context *context, const gw_tcp_options *options, uint32_t n_links, gw_link *links)
{
    (void)context, (void)options;
    for (uint32_t l = 0; links && l < n_links; l++)
        links[l] = (gw_link){.ops = NULL};
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no tcp link: OpenSSL was not found when it was made");
}

gw_status gw_keys_new(const char *folder, const char *server_folder, const char *client)
{
    (void)folder, (void)server_folder, (void)client;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build makes no keys: OpenSSL was not found when it was made");
}
#endif
