/* Workers that own the slices themselves. A worker sends messages over the link to the pipelines of the other members
 * and to its own, and gets messages from them. */
#include "base/clock.h"
#include "base/error.h"
#include "exchange/pipeline.h"
#include "exchange/relay.h"
#include "link/calls.h"

#include <string.h>

/* ---- from the beginning to the end --------------------------------------------------------------------- */

gw_status gw_peers_check_link(const gw_link *link)
{
    const gw_link_ops *ops = link ? link->ops : NULL;
    if (!ops)
        return gw_fail(GW_ERR_ARGUMENT, "there is no link, or none that was made");
    if (!ops->name || !ops->send || !ops->recv || !ops->close || !ops->destroy)
        return gw_fail(GW_ERR_ARGUMENT, "the link lacks a function or its name; only send_all and flush may be NULL");
    if (link->size == 0 || link->size > GW_MAX_WORKERS || link->rank >= link->size)
        return gw_fail(GW_ERR_ARGUMENT, "the link says rank %u of %u; sizes are 1 to %u and ranks below the size",
                       link->rank, link->size, GW_MAX_WORKERS);
    return GW_OK;
}

static gw_status peers_init(struct gw_exchange *ex, const gw_exchange_options *options)
{
    const gw_link *link = &options->link;
    GW_TRY(gw_peers_check_link(link));
    ex->link = *link;
    ex->loans = gw_link_loans_of(link);
    ex->rank = link->rank;
    ex->size = ex->n_owners = link->size;
    ex->leaver = ex->size;
    ex->said_waiting_at = gw_clock_seconds();
    return GW_OK;
}

static void peers_fini(struct gw_exchange *ex)
{
    gw_message_queue_clear(&ex->early);
}

/* Sends every other member the lines that it is to compare with its own. */
static gw_status peers_declare(struct gw_exchange *ex)
{
    const size_t length = strlen(ex->hello);
    void *bytes = gw_buffers_take(&ex->buffers, MESSAGE_HEADER + length);
    if (bytes) {
        message_header_write(bytes, &(struct message_header){.type = MESSAGE_HELLO, .nth_step = MESSAGE_VERSION});
        memcpy(message_body(bytes), ex->hello, length);
    }
    return gw_send_to_others(ex, bytes, MESSAGE_HEADER + length);
}

static void peers_fail(struct gw_exchange *ex, gw_status status, const char *why)
{
    gw_link_fail(&ex->link, status, why);
}

static gw_status peers_flush(struct gw_exchange *ex)
{
    return gw_link_flush(&ex->link, ex->timeout_ms);
}

static void peers_close(struct gw_exchange *ex)
{
    ex->link.ops->close(ex->link.self);
}

/* ---- sending -------------------------------------------------------------------------------------------- */

/* The member to which this worker sends its part: the group's coordinator, the run's owner, or the relay of this
 * worker's machine. */
static uint32_t receiver_of(const struct gw_exchange *ex, const struct group *group, const struct run *run)
{
    if (!run)
        return group->coordinator;
    const uint32_t relay = gw_relay_of(ex, run, ex->rank);
    return relay == ex->rank && !run->round ? run->owner : relay;
}

static gw_status peers_push(struct gw_exchange *ex, struct group *group, struct run *run, void *bytes, size_t n_bytes)
{
    const uint32_t to = receiver_of(ex, group, run);
    gw_count_up(ex, to, n_bytes);
    return gw_send_to(ex, to, bytes, n_bytes);
}

static gw_status peers_lend(struct gw_exchange *ex, struct group *group, struct run *run)
{
    struct gw_loan *push = &run->loans->push, *pull = &run->loans->pull;
    struct message_header header = {
        .type = MESSAGE_PULL, .nth_step = ex->nth_step, .group = group->index, .run = run->index, .step = ex->step};
    push->peer = receiver_of(ex, group, run);
    pull->peer = gw_averages_from(ex, run);
    message_header_write(pull->head, &header);
    header.type = MESSAGE_PUSH;
    message_header_write(push->head, &header);
    pull->body = push->body;
    pull->n_bytes = push->n_bytes;
    ex->loans->expect(ex->link.self, pull);
    gw_count_up(ex, push->peer, sizeof push->head + push->n_bytes);
    return gw_sent(ex, ex->loans->send(ex->link.self, push));
}

static gw_status peers_refuse(struct gw_exchange *ex, struct group *group, struct run *run, struct verdict verdict)
{
    void *bytes = gw_message_bad(ex, run ? MESSAGE_PUSH : MESSAGE_STATS, group, run ? run->index : 0, verdict);
    return peers_push(ex, group, run, bytes, MESSAGE_BAD_BYTES);
}

/* Owners and coordinators send to all without being asked. */
static gw_status peers_pull(struct gw_exchange *ex, struct group *group, struct run *run)
{
    (void)ex, (void)group, (void)run;
    return GW_OK;
}

static gw_status peers_call(struct gw_exchange *ex, void *wake)
{
    return gw_link_send(&ex->link, ex->rank, wake, MESSAGE_HEADER, ex->timeout_ms);
}

/* ---- receiving ------------------------------------------------------------------------------------------ */

static gw_status read_arrival(const struct gw_exchange *ex, const gw_message *message, struct arrival *arrival)
{
    *arrival = (struct arrival){.from = message->from};
    const char *body = message_body(message->bytes);
    arrival->in_place = gw_message_loan(message) != NULL;
    if (!(message_header_read(message->bytes).flags & MESSAGE_FLAG_BAD)) {
        arrival->body = body;
        arrival->n_bytes = message->n_bytes - MESSAGE_HEADER;
        return GW_OK;
    }
    if (message->n_bytes != MESSAGE_BAD_BYTES)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's verdict takes %zu bytes, and must take %d", message->from,
                       message->n_bytes, MESSAGE_BAD_BYTES);
    arrival->verdict = (struct verdict){.bad = true, .tensor = gw_get32(body), .rank = gw_get32(body + 4)};
    if (arrival->verdict.tensor >= ex->n_tensors || arrival->verdict.rank >= ex->size)
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u says that tensor %u of rank %u is not finite; there are %u tensors and %u ranks",
                       message->from, arrival->verdict.tensor, arrival->verdict.rank, ex->n_tensors, ex->size);
    return GW_OK;
}

static gw_status handle_hello(struct gw_exchange *ex, const gw_message *message)
{
    const bool waited = gw_waits_for_hellos(ex);
    GW_TRY(gw_hello_check(ex, message));
    if (waited && !gw_waits_for_hellos(ex))
        gw_finish_step(ex);
    return GW_OK;
}

static gw_status handle_shared(struct gw_exchange *ex, struct group *group, const gw_message *message,
                               const struct arrival *arrival)
{
    if (message->from != group->coordinator || group->state != GROUP_WAITS_SHARED)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent shared numbers of group %u out of turn", message->from,
                       group->index);
    gw_count_down(ex, message->from, message->n_bytes);
    return gw_take_shared(ex, group, arrival);
}

/* The relay of a machine hands averages on to the other workers of the machine. */
static gw_status hand_on(struct gw_exchange *ex, const struct run *run, const gw_message *message)
{
    const struct machine *machine = &ex->machine_of[ex->rank];
    if (!gw_is_relay(ex, run))
        return GW_OK;
    for (uint32_t i = 0; i < machine->n; i++)
        if (ex->by_machine[machine->first + i] != ex->rank)
            GW_TRY(gw_send_copy(ex, ex->by_machine[machine->first + i], message->bytes, message->n_bytes));
    return GW_OK;
}

static gw_status handle_pull(struct gw_exchange *ex, struct group *group, struct run *run, const gw_message *message,
                             const struct arrival *arrival)
{
    const struct gw_loan *loan = gw_message_loan(message);
    const bool comes_first = run->loans && atomic_load(&run->loans->push.lent); /* before the push has left */
    if (message->from != gw_averages_from(ex, run) || !run->pushed || run->pulled || comes_first)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent averages of run %u of group %u out of turn", message->from,
                       run->index, group->index);
    gw_count_down(ex, message->from, message->n_bytes + (loan ? loan->n_bytes : 0));
    if (run->loans && !loan && !ex->account)
        ex->loans->forget(ex->link.self, &run->loans->pull); /* something else came in its place */
    GW_TRY(hand_on(ex, run, message));
    return gw_take_averages(ex, group, run, arrival);
}

static gw_status handle_waiting(struct gw_exchange *ex, const gw_message *message)
{
    const struct message_header h = message_header_read(message->bytes);
    if (h.flags || h.group || h.run || message->n_bytes != MESSAGE_HEADER || message->from == ex->rank)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u says that it waits, in an invalid message of %zu bytes",
                       message->from, message->n_bytes);
    ex->members[message->from].waited_at = gw_clock_seconds();
    return GW_OK;
}

/* Handles a message of another member's pipeline, or of this member's own. If it keeps message->bytes, it sets the
 * pointer to NULL. */
static gw_status handle(struct gw_exchange *ex, gw_message *message)
{
    const uint32_t from = message->from;
    if (message->n_bytes < MESSAGE_HEADER)
        return gw_fail(GW_ERR_FRAME_CUT, "rank %u sent a message of %zu bytes; the header alone takes %d", from,
                       message->n_bytes, MESSAGE_HEADER);
    const struct message_header h = message_header_read(message->bytes);
    if (h.type == MESSAGE_HELLO)
        return handle_hello(ex, message);
    if (h.type == MESSAGE_LEAVE)
        return gw_take_leave(ex, message);
    if (ex->members[from].left)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent a message of type %u after its farewell", from, h.type);
    if (h.type == MESSAGE_WAITING) /* without a HELLO it was said to an earlier exchange on this link */
        return handle_waiting(ex, message);
    if (from != ex->rank && !ex->members[from].said_hello)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent a message of type %u before it said what it is part of", from,
                       h.type);
    const bool of_run = h.type == MESSAGE_PUSH || h.type == MESSAGE_PULL;
    if (h.type < MESSAGE_STATS || h.type > MESSAGE_PULL || h.flags > MESSAGE_FLAG_BAD || h.group >= ex->n_groups ||
        h.run >= (of_run ? ex->groups[h.group].n_runs : 1))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u sent a message of type %u, flags %u, group %u, run %u, which is invalid", from, h.type,
                       h.flags, h.group, h.run);
    /* a member that has finished this step may have begun the next one */
    if (h.nth_step == (uint16_t)(ex->nth_step + 1)) {
        gw_message_queue_put(&ex->early, message);
        message->bytes = NULL;
        return GW_OK;
    }
    if (h.nth_step != ex->nth_step || !ex->running)
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u sent a message of step number %u of the exchange; this member has begun %u", from,
                       h.nth_step, ex->nth_step);
    if (h.step != ex->step)
        return gw_fail(GW_ERR_ORDER,
                       "rank %u has begun step %u, and this member step %u; all members must begin the same", from,
                       h.step, ex->step);
    struct group *group = &ex->groups[h.group];
    struct arrival arrival;
    ex->tally.messages += from != ex->rank;
    GW_TRY(read_arrival(ex, message, &arrival));
    switch (h.type) {
    case MESSAGE_STATS:
        return gw_take_stats(ex, group, &arrival);
    case MESSAGE_SHARED:
        return handle_shared(ex, group, message, &arrival);
    case MESSAGE_PUSH:
        return gw_take_push(ex, group, &group->runs[h.run], &arrival, message);
    default:
        return handle_pull(ex, group, &group->runs[h.run], message, &arrival);
    }
}

/* Messages that came too early in the last step belong to this one. A member that has left sends nothing for it. */
static gw_status peers_begin(struct gw_exchange *ex)
{
    GW_TRY(gw_check_departed(ex));
    struct gw_message_queue early = ex->early;
    ex->early = (struct gw_message_queue){NULL, NULL};
    gw_status status = GW_OK;
    gw_message message;
    while (status == GW_OK && gw_message_queue_take(&early, &message)) {
        status = handle(ex, &message);
        gw_buffers_give(&ex->buffers, message.bytes);
    }
    gw_message_queue_clear(&early);
    return status;
}

static bool is_bare(const gw_message *message, enum message_type type)
{
    return message->n_bytes == MESSAGE_HEADER && message_header_read(message->bytes).type == type;
}

/* Handles the next message. *news: it was one that this member may get on with. */
static gw_status receive_one(struct gw_exchange *ex, uint32_t timeout_ms, bool *stop, bool *news)
{
    gw_message message;
    *news = true;
    gw_status status = gw_link_recv(&ex->link, timeout_ms, &message);
    if (status == GW_ERR_TIMEOUT)
        return GW_NOT_YET;
    /* Who has taken leave may go; without its first message, that was of an earlier exchange on this link. */
    if (status == GW_ERR_PEER && message.from < ex->size && ex->members[message.from].left &&
        ex->members[message.from].said_hello)
        return gw_pipeline_look(ex, NULL, stop); /* a link may say it so often that no wake comes through */
    if (status < 0)
        return ex->running || ex->leaver == ex->size
                   ? status
                   : gw_fail(status, "%s; before that, rank %u had ended its exchange", gw_last_error(), ex->leaver);
    if (message.from == ex->rank && is_bare(&message, MESSAGE_WAKE))
        return gw_pipeline_look(ex, message.bytes, stop);
    *news = !is_bare(&message, MESSAGE_WAITING);
    status = handle(ex, &message);
    gw_buffers_give(&ex->buffers, message.bytes);
    return status;
}

/* How often a member says WAITING: often enough for others whose timeout is shorter than its own. */
static uint32_t waiting_ms(const struct gw_exchange *ex)
{
    enum { MOST_MS = 1000 };
    return ex->timeout_ms / 4 < MOST_MS ? ex->timeout_ms / 4 + 1 : MOST_MS;
}

/* Tells the others, if it is time, that this member owes nothing, so that who waits for it does not take it for silent.
 * That is so whatever has come meanwhile, and whatever this member has sent: somebody may have heard nothing of it in
 * this step. If a connection has ended, `receive` says so. */
static void say_waiting_if_due(struct gw_exchange *ex, double now)
{
    const bool owes = ex->to_measure.n_done < ex->n_tensors; /* its caller has not handed them over */
    if (owes || now < ex->said_waiting_at + waiting_ms(ex) / 1000.0)
        return;
    ex->said_waiting_at = now;
    for (uint32_t r = 0; r < ex->size; r++) {
        void *bytes = r == ex->rank || ex->members[r].left ? NULL : gw_message_alloc(ex->context, MESSAGE_HEADER);
        if (!bytes)
            continue;
        message_header_write(bytes, &(struct message_header){.type = MESSAGE_WAITING,
                                                             .nth_step = ex->nth_step,
                                                             .step = ex->step});
        gw_ignore(gw_link_send(&ex->link, r, bytes, MESSAGE_HEADER, 0));
    }
}

static gw_status peers_receive(struct gw_exchange *ex, uint32_t timeout_ms, bool *stop)
{
    const bool waits = timeout_ms > 0 && gw_waits_for_others(ex);
    uint32_t ms = waits && timeout_ms > waiting_ms(ex) ? waiting_ms(ex) : timeout_ms;
    double deadline = 0;
    bool news;
    if (waits) {
        const double now = gw_clock_seconds();
        say_waiting_if_due(ex, now);
        deadline = now + ms / 1000.0;
    }
    /* All that has come must be read before anybody is taken for silent. No member sends so many in the time. */
    for (uint64_t n = 0; n < 8 * (uint64_t)ex->size; n++) {
        const gw_status status = receive_one(ex, ms, stop, &news);
        if (status != GW_OK || news)
            return status;
        if (!waits)
            break;
        const double left = deadline - gw_clock_seconds();
        ms = left > 0 ? (uint32_t)(left * 1000) + 1 : 0;
    }
    return GW_NOT_YET;
}

const struct gw_owners gw_owners_peers = {
    .init = peers_init,
    .fini = peers_fini,
    .declare = peers_declare,
    .begin = peers_begin,
    .push = peers_push,
    .lend = peers_lend,
    .refuse = peers_refuse,
    .pull = peers_pull,
    .receive = peers_receive,
    .call = peers_call,
    .silent = gw_silent_members,
    .flush = peers_flush,
    .leave = gw_say_leave,
    .fail = peers_fail,
    .close = peers_close,
};
