/* Makes the pipeline's messages and sends them to other members over the link, and counts what crosses. */
#include "base/error.h"
#include "exchange/pipeline.h"
#include "exchange/relay.h"
#include "link/calls.h"

#include <string.h>

void *gw_message_new(struct gw_exchange *ex, enum message_type type, const struct group *group, uint32_t run,
                     size_t n_bytes)
{
    void *bytes = gw_buffers_take(&ex->buffers, n_bytes);
    if (bytes)
        message_header_write(bytes, &(struct message_header){.type = (uint8_t)type,
                                                             .nth_step = ex->nth_step,
                                                             .group = group->index,
                                                             .run = run,
                                                             .step = ex->step});
    return bytes;
}

void *gw_message_bad(struct gw_exchange *ex, enum message_type type, const struct group *group, uint32_t run,
                     struct verdict verdict)
{
    uint8_t *bytes = gw_message_new(ex, type, group, run, MESSAGE_BAD_BYTES);
    if (bytes) {
        bytes[1] = MESSAGE_FLAG_BAD;
        gw_put32(bytes + MESSAGE_HEADER, verdict.tensor);
        gw_put32(bytes + MESSAGE_HEADER + 4, verdict.rank);
    }
    return bytes;
}

/* A farewell may say why a send failed. It counts only behind its sender's HELLO. Nobody needs other messages now. */
static gw_status look_for_leave(void *exchange, const gw_message *message)
{
    struct gw_exchange *ex = exchange;
    if (message->n_bytes < MESSAGE_HEADER)
        return GW_OK;
    const uint8_t type = message_header_read(message->bytes).type;
    if (type == MESSAGE_HELLO)
        return gw_hello_check(ex, message);
    if (type != MESSAGE_LEAVE)
        return GW_OK;
    GW_TRY(gw_take_leave(ex, message));
    return gw_check_departed(ex);
}

gw_status gw_sent(struct gw_exchange *ex, gw_status status)
{
    return status == GW_ERR_PEER ? gw_link_why(&ex->link, look_for_leave, ex) : status;
}

gw_status gw_send_to(struct gw_exchange *ex, uint32_t to, void *bytes, size_t n_bytes)
{
    return bytes ? gw_sent(ex, gw_link_send(&ex->link, to, bytes, n_bytes, ex->timeout_ms)) : GW_ERR_MEMORY;
}

gw_status gw_send_copy(struct gw_exchange *ex, uint32_t to, const void *bytes, size_t n_bytes)
{
    void *copy = gw_buffers_take(&ex->buffers, n_bytes);
    if (copy)
        memcpy(copy, bytes, n_bytes);
    return gw_send_to(ex, to, copy, n_bytes);
}

/* If the link has no send_all, this member begins with the ranks after its own, so that not all members send to rank 0
 * at once. */
gw_status gw_send_to_others(struct gw_exchange *ex, void *bytes, size_t n_bytes)
{
    if (!bytes)
        return GW_ERR_MEMORY;
    gw_status status = GW_OK;
    if (ex->link.ops->send_all && ex->size > 1)
        return gw_sent(ex, gw_link_send_all(&ex->link, bytes, n_bytes, ex->timeout_ms));
    for (uint32_t i = 1; i + 1 < ex->size && status == GW_OK; i++)
        status = gw_send_copy(ex, (ex->rank + i) % ex->size, bytes, n_bytes);
    if (status == GW_OK && ex->size > 1)
        return gw_send_to(ex, (ex->rank + ex->size - 1) % ex->size, bytes, n_bytes);
    gw_buffers_give(&ex->buffers, bytes);
    return status;
}

gw_status gw_send_to_all(struct gw_exchange *ex, void *bytes, size_t n_bytes)
{
    if (!bytes)
        return GW_ERR_MEMORY;
    if (ex->size == 1)
        return gw_send_to(ex, ex->rank, bytes, n_bytes);
    gw_status status = gw_send_copy(ex, ex->rank, bytes, n_bytes);
    if (status == GW_OK)
        return gw_send_to_others(ex, bytes, n_bytes);
    gw_message_free(bytes);
    return status;
}

void gw_count_up(struct gw_exchange *ex, uint32_t to, size_t n_bytes)
{
    if (to != ex->rank)
        ex->tally.bytes_up += n_bytes;
    if (!gw_same_machine(ex, to, ex->rank))
        ex->tally.bytes_between_machines_up += n_bytes;
}

void gw_count_down(struct gw_exchange *ex, uint32_t from, size_t n_bytes)
{
    if (from != ex->rank)
        ex->tally.bytes_down += n_bytes;
    if (!gw_same_machine(ex, from, ex->rank))
        ex->tally.bytes_between_machines_down += n_bytes;
}
