/* What a member says when it fails, in the same way over every link: a message that gw_link_recv tells from others. */
#include "base/clock.h"
#include "base/error.h"
#include "link/calls.h"

#include <stdio.h>
#include <string.h>

/* No other message begins with these 16 bytes. */
static const char mark[] = "\xffgradwire failed";
enum { MARK_BYTES = sizeof mark - 1, MOST_BYTES = MARK_BYTES + 320 };

void gw_link_fail(const gw_link *link, gw_status status, const char *why)
{
    char farewell[MOST_BYTES + 1];
    if (!link || !link->ops)
        return;
    const struct gw_kept_error kept = gw_error_keep();
    why = why && why[0] ? why : gw_status_text(status);
    if (status == GW_ERR_PEER)
        snprintf(farewell, sizeof farewell, "%s%s", mark, why);
    else
        snprintf(farewell, sizeof farewell, "%srank %u %s: %s", mark, link->rank,
                 status == GW_ERR_TIMEOUT ? "gave up" : "failed", why);
    const size_t n_bytes = strlen(farewell);
    for (uint32_t r = 0; r < link->size; r++) {
        void *bytes = r == link->rank ? NULL : gw_message_alloc(NULL, n_bytes);
        if (bytes)
            link->ops->send(link->self, r, memcpy(bytes, farewell, n_bytes), n_bytes, 0); /* it may be gone as well */
    }
    gw_error_put_back(&kept);
}

gw_status gw_link_recv(const gw_link *link, uint32_t timeout_ms, gw_message *message)
{
    char text[MOST_BYTES - MARK_BYTES + 1];
    size_t n = 0;
    if (!link || !link->ops || !message)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_recv: link or message is NULL, or the link was never made");
    GW_TRY(gw_link_take(link, timeout_ms, message));
    const char *bytes = message->bytes;
    if (message->n_bytes <= MARK_BYTES || message->n_bytes > MOST_BYTES || memcmp(bytes, mark, MARK_BYTES) != 0)
        return GW_OK;
    for (size_t i = MARK_BYTES; i < message->n_bytes; i++)
        text[n++] = (unsigned char)bytes[i] < 32 || bytes[i] == 127 ? '?' : bytes[i];
    text[n] = 0;
    gw_message_free(message->bytes);
    *message = (gw_message){.from = link->size};
    return gw_fail(GW_ERR_PEER, "%s", text);
}

gw_status gw_link_why(const gw_link *link, gw_link_look *look, void *user)
{
    enum { SECONDS = 1 }; /* a link may have messages, or tell of members that are gone, without end */
    char sentence[1024];
    gw_message message;
    gw_status heard;
    const double until = gw_clock_seconds() + SECONDS;
    if (!link || !link->ops)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_why: link is NULL, or was never made");
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    do {
        heard = gw_link_recv(link, 0, &message);
        if (heard == GW_OK) {
            heard = look && look(user, &message) == GW_ERR_PEER ? GW_ERR_PEER : GW_OK;
            gw_message_free(message.bytes);
            message.from = link->size;
        }
        if (heard == GW_ERR_PEER && message.from == link->size)
            return heard;
    } while (gw_clock_seconds() < until && /* that somebody is gone is known, and what cannot be says nothing */
             (heard == GW_OK || heard == GW_ERR_PEER || heard == GW_ERR_ARGUMENT));
    return gw_fail(GW_ERR_PEER, "%s", sentence);
}
