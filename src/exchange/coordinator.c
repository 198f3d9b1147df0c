/* A member as a group's coordinator: it finds the largest of all workers' shared numbers, and tells it to all. */
#include "base/error.h"
#include "exchange/pipeline.h"

#include <float.h>
#include <string.h>

gw_status gw_take_stats(struct gw_exchange *ex, struct group *group, const struct arrival *arrival)
{
    if (!group->largest || group->have_stats[arrival->from])
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent statistics of group %u out of turn", arrival->from,
                       group->index);
    gw_verdict_add(&group->stats_verdict, arrival->verdict);
    if (!arrival->verdict.bad) {
        const size_t n_bytes = (size_t)group->n_sent * sizeof(float);
        if (arrival->n_bytes != n_bytes)
            return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's statistics of group %u take %zu bytes, and must take %zu",
                           arrival->from, group->index, MESSAGE_HEADER + arrival->n_bytes, MESSAGE_HEADER + n_bytes);
        const char *at = arrival->body;
        for (uint64_t i = 0; i < group->n_sent; i++) {
            const float number = gw_get_float(at + i * sizeof number);
            if (!(number >= 0 && number <= FLT_MAX))
                return gw_fail(GW_ERR_FRAME_FIELD,
                               "rank %u's statistics of group %u hold %g; finite numbers from 0 up are possible",
                               arrival->from, group->index, (double)number);
            if (number > group->largest[i])
                group->largest[i] = number;
        }
    }
    group->have_stats[arrival->from] = true;
    if (++group->n_stats < ex->size)
        return GW_OK;
    if (group->stats_verdict.bad)
        return gw_send_to_all(ex, gw_message_bad(ex, MESSAGE_SHARED, group, 0, group->stats_verdict),
                              MESSAGE_BAD_BYTES);
    size_t n_bytes = MESSAGE_HEADER + (size_t)group->n_sent * sizeof(float);
    void *bytes = gw_message_new(ex, MESSAGE_SHARED, group, 0, n_bytes);
    if (bytes)
        memcpy(message_body(bytes), group->largest, (size_t)group->n_sent * sizeof(float));
    return gw_send_to_all(ex, bytes, n_bytes);
}
