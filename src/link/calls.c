/* Calls a link's functions, and checks what they return. */
#include "link/calls.h"
#include "base/error.h"

static gw_status returned(const char *function, gw_status status)
{
    if (status > 0)
        return gw_fail(GW_ERR_ARGUMENT, "the link's %s returned %d; it must return GW_OK or an error (link.h)",
                       function, (int)status);
    if (status < 0 && !gw_last_error()[0])
        return gw_fail(status, "the link's %s failed: %s", function, gw_status_text(status));
    return status;
}

gw_status gw_link_send(const gw_link *link, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    gw_error_clear();
    return returned("send", link->ops->send(link->self, to, bytes, n_bytes, timeout_ms));
}

gw_status gw_link_send_all(const gw_link *link, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    gw_error_clear();
    return returned("send_all", link->ops->send_all(link->self, bytes, n_bytes, timeout_ms));
}

gw_status gw_link_flush(const gw_link *link, uint32_t timeout_ms)
{
    gw_error_clear();
    return link->ops->flush ? returned("flush", link->ops->flush(link->self, timeout_ms)) : GW_OK;
}

gw_status gw_link_take(const gw_link *link, uint32_t timeout_ms, gw_message *message)
{
    *message = (gw_message){.from = link->size};
    gw_error_clear();
    GW_TRY(returned("recv", link->ops->recv(link->self, timeout_ms, message)));
    if (message->from < link->size && (message->bytes || message->n_bytes == 0))
        return GW_OK;
    gw_message_free(message->bytes);
    return gw_fail(GW_ERR_ARGUMENT, "the link's recv gave %zu bytes%s from rank %u; ranks are 0 to %u",
                   message->n_bytes, message->bytes ? "" : " at NULL", message->from, link->size - 1);
}
