/* Makes the values that a client hands out, and multiplies them by a scale that lives on another server. The fields of
 * each part were checked when it came (answer.h). */
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "pserver/client/values.h"
#include "pserver/client/tickets.h"
#include "wire/bytes.h"

#include <inttypes.h>
#include <string.h>

void gw_ps_take_value(struct gw_ps_client *client, struct ticket *ticket, gw_ps_value *out)
{
    const struct gw_ps_reply *reply = &ticket->parts[0].reply;
    *out = (gw_ps_value){.type = (gw_ps_type)reply->type,
                         .shape = reply->shape,
                         .round = reply->round,
                         .n_pushes = reply->n_pushes,
                         .bytes = ticket->value,
                         .n_bytes = ticket->n_bytes,
                         .hold = client->context};
    ticket->value = NULL;
    if (ticket->n_parts == 1)
        return;
    struct gw_ps_asked asked = gw_ps_asked_of(client, ticket->first, &ticket->parts[0]);
    asked.shape = ticket->shape;
    out->shape = gw_ps_answer_shape(&asked);
}

gw_status gw_ps_scale_value(struct gw_ps_client *client, const struct ticket *ticket, const gw_ps_value *scale,
                            gw_ps_value *out)
{
    const float by = gw_get_float(scale->bytes);
    if (client->servers[0].mode == GW_PS_SYNC && scale->round != out->round)
        return gw_fail(GW_ERR_ORDER,
                       "round %" PRIu64 " of \"%s\" is pulled, and of its scale_key it is round %" PRIu64
                       "; both take part in every round: push to both equally often (a reader: try again)",
                       out->round, ticket->parts[0].request.key, scale->round);
    const gw_float_env before = gw_float_enter();
    uint8_t *at = out->bytes;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        const struct part *part = &ticket->parts[p];
        const float factor = ticket->averages ? by / (float)part->reply.n_pushes : by;
        uint64_t n_elems;
        gw_ps_shape_elems(&part->reply.shape, &n_elems); /* shape and length were checked before */
        for (; n_elems > 0; n_elems--, at += sizeof(float))
            gw_put_float(at, gw_get_float(at) * factor);
    }
    gw_float_leave(before);
    return GW_OK;
}

void gw_ps_value_free(gw_ps_value *value)
{
    if (!value)
        return;
    gw_free(value->hold, value->bytes);
    *value = (gw_ps_value){0};
}
