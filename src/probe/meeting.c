/* Lets the members of a measurement wait for each other: all report to rank 0, and rank 0 tells all of them the result.
 */
#include "probe/meeting.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/gradient.h"

#include <string.h>

static gw_status send_bytes(const struct gw_meeting *m, uint32_t to, const void *from, size_t n_bytes)
{
    void *bytes = gw_message_alloc(m->context, n_bytes);
    if (!bytes)
        return GW_ERR_MEMORY;
    memcpy(bytes, from, n_bytes);
    gw_status status = m->link.ops->send(m->link.self, to, bytes, n_bytes, m->timeout_ms);
    if (status == GW_ERR_PEER)
        return gw_link_why(&m->link, NULL, NULL);
    return status == GW_OK && m->link.ops->flush ? m->link.ops->flush(m->link.self, m->timeout_ms) : status;
}

/* The others wait for rank 0 alone. One that is gone may have heard from rank 0 before; else rank 0 notices. */
static gw_status take_bytes(const struct gw_meeting *m, void *to, size_t n_bytes)
{
    gw_message message;
    gw_status status;
    do
        status = gw_link_recv(&m->link, m->timeout_ms, &message);
    while (status == GW_ERR_PEER && m->link.rank > 0 && message.from > 0 && message.from < m->link.size);
    GW_TRY(status);
    if (message.n_bytes == n_bytes)
        memcpy(to, message.bytes, n_bytes);
    else
        status = gw_fail(GW_ERR_PEER, "rank %u sent a report of %zu bytes, and must send %zu: it is another version",
                         message.from, message.n_bytes, n_bytes);
    gw_message_free(message.bytes);
    return status;
}

/* A report travels as fields of 8 bytes, in this order. */
enum { REPORT_BYTES = 64 };

static gw_status send_report(const struct gw_meeting *m, uint32_t to, const struct gw_report *report)
{
    const double numbers[] = {report->seconds, report->encode_seconds, report->busy};
    const uint64_t counts[] = {report->bytes_up, report->bytes_down, report->messages, report->hash, report->settled};
    uint8_t bytes[REPORT_BYTES];
    _Static_assert(sizeof numbers + sizeof counts == REPORT_BYTES, "all fields travel");
    memcpy(bytes, numbers, sizeof numbers);
    memcpy(bytes + sizeof numbers, counts, sizeof counts);
    return send_bytes(m, to, bytes, sizeof bytes);
}

static gw_status take_report(const struct gw_meeting *m, struct gw_report *report)
{
    double numbers[3];
    uint64_t counts[5];
    uint8_t bytes[REPORT_BYTES];
    GW_TRY(take_bytes(m, bytes, sizeof bytes));
    memcpy(numbers, bytes, sizeof numbers);
    memcpy(counts, bytes + sizeof numbers, sizeof counts);
    *report = (struct gw_report){.seconds = numbers[0],
                                 .encode_seconds = numbers[1],
                                 .busy = numbers[2],
                                 .bytes_up = counts[0],
                                 .bytes_down = counts[1],
                                 .messages = counts[2],
                                 .hash = counts[3],
                                 .settled = counts[4]};
    return GW_OK;
}

static void add_report(struct gw_report *sum, const struct gw_report *other)
{
    sum->seconds = other->seconds > sum->seconds ? other->seconds : sum->seconds;
    sum->encode_seconds = other->encode_seconds > sum->encode_seconds ? other->encode_seconds : sum->encode_seconds;
    sum->busy = other->busy > sum->busy ? other->busy : sum->busy;
    sum->bytes_up += other->bytes_up;
    sum->bytes_down += other->bytes_down;
    sum->messages += other->messages;
    sum->hash = other->hash == sum->hash ? sum->hash : 0;
}

gw_status gw_meet(const struct gw_meeting *m, const struct gw_report *own, struct gw_report *sum)
{
    struct gw_report other;
    *sum = *own;
    if (m->link.rank > 0) {
        GW_TRY(send_report(m, 0, own));
        return take_report(m, sum);
    }
    for (uint32_t r = 1; r < m->link.size; r++) {
        GW_TRY(take_report(m, &other));
        add_report(sum, &other);
    }
    for (uint32_t r = 1; r < m->link.size; r++)
        GW_TRY(send_report(m, r, sum));
    const double begin = gw_clock_seconds(); /* the time is too short for a sleep */
    while (m->link.size > 1 && gw_clock_seconds() < begin + m->one_way_s)
        ;
    return GW_OK;
}

gw_status gw_meeting_tell(const struct gw_meeting *m, void *bytes, size_t n_bytes)
{
    if (m->link.rank > 0)
        return take_bytes(m, bytes, n_bytes);
    for (uint32_t r = 1; r < m->link.size; r++)
        GW_TRY(send_bytes(m, r, bytes, n_bytes));
    return GW_OK;
}

/* Takes half of the time to rank 1 and back. */
gw_status gw_meeting_begin(struct gw_meeting *m)
{
    enum { PINGS = 15 };
    double times[PINGS];
    struct gw_report report = {0};
    for (int i = 0; i < PINGS && m->link.rank < 2 && m->link.size > 1; i++) {
        const double begin = gw_clock_seconds();
        if (m->link.rank == 0)
            GW_TRY(send_report(m, 1, &report));
        GW_TRY(take_report(m, &report));
        if (m->link.rank == 1)
            GW_TRY(send_report(m, 0, &report));
        times[i] = (gw_clock_seconds() - begin) / 2;
    }
    if (m->link.rank == 0 && m->link.size > 1)
        m->one_way_s = gw_median(times, PINGS);
    return gw_meet(m, &report, &report);
}
