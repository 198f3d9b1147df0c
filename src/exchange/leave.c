/* Farewells of members that own the slices: tells the others that this member leaves, and notes which of them left
 * first. */
#include "base/error.h"
#include "exchange/pipeline.h"
#include "link/calls.h"

/* True if a member has made fewer steps than this one has begun. Between steps: fewer than this one begins with the
 * next step. No more steps of that member will come. */
static bool lacks_leaver(const struct gw_exchange *ex)
{
    return ex->leaver < ex->size && (int16_t)(ex->nth_step + !ex->running - ex->leaver_step) > 0;
}

/* Some of the others may have left already, so this goes on after an error. */
void gw_say_leave(struct gw_exchange *ex)
{
    const bool lacks = lacks_leaver(ex);
    const struct message_header header = {.type = MESSAGE_LEAVE, .nth_step = ex->nth_step};
    ex->members[ex->rank].left = true;
    for (uint32_t r = 0; r < ex->size; r++) {
        /* from malloc, as in gw_link_fail: who leaves because its memory is short says so all the same */
        uint8_t *bytes = r == ex->rank ? NULL : gw_message_alloc(NULL, MESSAGE_LEAVE_BYTES);
        if (!bytes)
            continue;
        message_header_write(bytes, &header);
        gw_put32(bytes + MESSAGE_HEADER, lacks ? ex->leaver : ex->rank);
        gw_put32(bytes + MESSAGE_HEADER + 4, lacks ? ex->leaver_step : ex->nth_step);
        gw_ignore(gw_link_send(&ex->link, r, bytes, MESSAGE_LEAVE_BYTES, ex->timeout_ms));
    }
}

/* The leaver itself has told all others. But its words travel on another connection than this member's, so a member
 * may hear of this one's end first. That is why this farewell names the leaver. A failure would be too much: some may
 * still end the step before this one. */
gw_status gw_check_departed(struct gw_exchange *ex)
{
    if (!lacks_leaver(ex))
        return GW_OK;
    gw_say_leave(ex);
    ex->others_know = true;
    return gw_fail(GW_ERR_PEER, "rank %u has ended its exchange%s; all members must make the same number of steps",
                   ex->leaver, ex->running ? ", and this rank has begun one more step" : "");
}

gw_status gw_take_leave(struct gw_exchange *ex, const gw_message *message)
{
    const struct message_header h = message_header_read(message->bytes);
    const uint32_t from = message->from;
    if (h.flags || h.group || h.run || h.step || message->n_bytes != MESSAGE_LEAVE_BYTES || from == ex->rank ||
        ex->members[from].left)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent an invalid farewell of %zu bytes", from, message->n_bytes);
    ex->members[from].left = true;
    if (!ex->members[from].said_hello) /* it was said to an earlier exchange on this link */
        return GW_OK;
    const uint32_t first = gw_get32((const uint8_t *)message->bytes + MESSAGE_HEADER);
    const uint32_t its_step = gw_get32((const uint8_t *)message->bytes + MESSAGE_HEADER + 4);
    if (first >= ex->size || its_step > UINT16_MAX || (first == ex->rank && !ex->members[first].left))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u says that rank %u left first, after step number %u, which is invalid", from, first,
                       its_step);
    if (first != ex->rank && (ex->leaver == ex->size || (int16_t)(its_step - ex->leaver_step) < 0)) {
        ex->leaver = first;
        ex->leaver_step = (uint16_t)its_step;
    }
    return ex->running ? gw_check_departed(ex) : GW_OK;
}
