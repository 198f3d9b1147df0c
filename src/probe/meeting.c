/* Lets the members of a measurement wait for each other: all report to rank 0, and rank 0 tells all of them the result.
 */
#include "probe/meeting.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/calls.h"
#include "probe/gradient.h"

#include <math.h>
#include <string.h>

static gw_status send_bytes(const struct gw_meeting *m, uint32_t to, const void *from, size_t n_bytes)
{
    void *bytes = gw_message_alloc(m->context, n_bytes);
    if (!bytes)
        return GW_ERR_MEMORY;
    memcpy(bytes, from, n_bytes);
    gw_status status = gw_link_send(&m->link, to, bytes, n_bytes, m->timeout_ms);
    if (status == GW_ERR_PEER)
        return gw_link_why(&m->link, NULL, NULL);
    return status == GW_OK ? gw_link_flush(&m->link, m->timeout_ms) : status;
}

/* Rank 0 waits for another member, and the others wait for rank 0. This tells them that it is there. No other message
 * has one byte. */
enum { SIGN_BYTES = 1 };

static void give_sign_of_life(const struct gw_meeting *m)
{
    for (uint32_t r = 1; r < m->link.size && m->link.rank == 0; r++)
        gw_ignore(send_bytes(m, r, "", SIGN_BYTES)); /* if one is gone, recv says so */
}

/* Waits for a message of n_bytes. The others wait for rank 0 alone. One that is gone may have heard from rank 0 before;
 * else rank 0 notices. awaited: whom the sentence names if nothing comes. from: who sent it; NULL: not wanted. Rank 0
 * waits half as long again as the others wait in a measurement, because the one that it waits for may itself wait for a
 * silent member, and then says so. */
static gw_status take_bytes(const struct gw_meeting *m, uint32_t awaited, void *to, size_t n_bytes, uint32_t *from)
{
    enum { PARTS = 4 };
    const int most = m->link.rank == 0 ? PARTS + PARTS / 2 : PARTS;
    gw_message message;
    gw_status status;
    for (int parts = 0; parts < most;) {
        status = gw_link_recv(&m->link, m->timeout_ms / PARTS + 1, &message);
        if (status == GW_ERR_TIMEOUT) {
            give_sign_of_life(m);
            parts++;
        } else if (status == GW_OK && m->link.rank > 0 && message.n_bytes == SIGN_BYTES) {
            gw_message_free(message.bytes);
            parts = 0;
        } else if (status != GW_ERR_PEER || m->link.rank == 0 || message.from == 0 || message.from >= m->link.size) {
            break;
        }
    }
    if (status == GW_ERR_TIMEOUT)
        return gw_fail(status, "no report came from rank %u within %d ms", awaited,
                       most * (int)(m->timeout_ms / PARTS));
    GW_TRY(status);
    if (message.n_bytes == n_bytes)
        memcpy(to, message.bytes, n_bytes);
    else
        status = gw_fail(GW_ERR_PEER, "rank %u sent a report of %zu bytes, and must send %zu: it is another version",
                         message.from, message.n_bytes, n_bytes);
    if (from)
        *from = message.from;
    gw_message_free(message.bytes);
    return status;
}

/* A report travels as it lies in memory: its fields have 8 bytes each, and members are of one byte order. */
_Static_assert(sizeof(struct gw_report) == 72, "nine fields, and nothing between them");

static void add_report(struct gw_report *sum, const struct gw_report *other)
{
    sum->seconds = fmax(sum->seconds, other->seconds);
    sum->encode_seconds = fmax(sum->encode_seconds, other->encode_seconds);
    sum->busy = fmax(sum->busy, other->busy);
    sum->bytes_up += other->bytes_up;
    sum->bytes_down += other->bytes_down;
    sum->messages += other->messages;
    sum->stop |= other->stop;
    sum->hash = other->hash == sum->hash ? sum->hash : 0;
}

/* Rank 0: adds what the others report to *sum. */
static gw_status collect(const struct gw_meeting *m, struct gw_report *sum)
{
    bool *came = gw_calloc(m->context, m->link.size, sizeof *came);
    gw_status status = came ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t r = 1; status == GW_OK && r < m->link.size;) {
        struct gw_report other;
        uint32_t from;
        if (came[r]) {
            r++;
            continue;
        }
        status = take_bytes(m, r, &other, sizeof(struct gw_report), &from);
        if (status == GW_OK && came[from])
            status = gw_fail(GW_ERR_PEER, "rank %u reported twice: it is another version", from);
        if (status == GW_OK) {
            add_report(sum, &other);
            came[from] = true;
        }
    }
    gw_free(m->context, came);
    return status;
}

/* Rank 0: tells all the result. It goes on when they have it. */
static gw_status let_go(const struct gw_meeting *m, const struct gw_report *sum)
{
    for (uint32_t r = 1; r < m->link.size; r++)
        GW_TRY(send_bytes(m, r, sum, sizeof(struct gw_report)));
    const double begin = gw_clock_seconds(); /* the time is too short for a sleep */
    while (m->link.size > 1 && gw_clock_seconds() < begin + m->one_way_s)
        ;
    return GW_OK;
}

gw_status gw_meet(struct gw_meeting *m, const struct gw_report *own, struct gw_report *sum)
{
    struct gw_report all = own ? *own : (struct gw_report){0};
    all.stop = m->stop && m->stop(m->stop_user);
    if (m->link.rank > 0) {
        GW_TRY(send_bytes(m, 0, &all, sizeof all));
        GW_TRY(take_bytes(m, 0, &all, sizeof all, NULL));
    } else {
        GW_TRY(collect(m, &all));
        GW_TRY(let_go(m, &all));
    }
    m->stopped = all.stop;
    if (sum)
        *sum = all;
    return m->stopped ? gw_fail(GW_ERR_CLOSED, "the measurement was stopped, as asked") : GW_OK;
}

gw_status gw_meeting_tell(const struct gw_meeting *m, void *bytes, size_t n_bytes)
{
    if (m->link.rank > 0)
        return take_bytes(m, 0, bytes, n_bytes, NULL);
    for (uint32_t r = 1; r < m->link.size; r++)
        GW_TRY(send_bytes(m, r, bytes, n_bytes));
    return GW_OK;
}

/* Takes half of the time to rank 1 and back. Meanwhile all others have reported, and wait. */
gw_status gw_meeting_begin(struct gw_meeting *m)
{
    enum { PINGS = 15 };
    double times[PINGS];
    struct gw_report report = {0};
    if (m->link.rank == 0)
        GW_TRY(collect(m, &report));
    else
        GW_TRY(send_bytes(m, 0, &report, sizeof(struct gw_report)));
    for (int i = 0; i < PINGS && m->link.rank < 2 && m->link.size > 1; i++) {
        const double begin = gw_clock_seconds();
        if (m->link.rank == 0)
            GW_TRY(send_bytes(m, 1, &report, sizeof(struct gw_report)));
        GW_TRY(take_bytes(m, 1 - m->link.rank, &report, sizeof(struct gw_report), NULL));
        if (m->link.rank == 1)
            GW_TRY(send_bytes(m, 0, &report, sizeof(struct gw_report)));
        times[i] = (gw_clock_seconds() - begin) / 2;
    }
    if (m->link.rank > 0)
        return take_bytes(m, 0, &report, sizeof(struct gw_report), NULL);
    if (m->link.size > 1)
        m->one_way_s = gw_median(times, PINGS);
    return let_go(m, &report);
}
