/* Takes the place of links that this build does not have, and says so. */
#include "base/error.h"
#include "link/loan.h"
#include "link/scheme.h"

#ifndef GW_HAVE_TCP
bool gw_tcp_version(char *text, size_t capacity)
{
    (void)text, (void)capacity;
    return false;
}

gw_status gw_tcp_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links)
{
    (void)context, (void)request, (void)n_links, (void)links;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no tcp link: OpenSSL was not found when it was made");
}

const struct gw_link_loans *gw_link_loans_of(const gw_link *link)
{
    (void)link;
    return NULL;
}

gw_status gw_keys_new(const char *folder, const char *server_folder, const char *client)
{
    (void)folder, (void)server_folder, (void)client;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build makes no keys: OpenSSL was not found when it was made");
}
#endif
