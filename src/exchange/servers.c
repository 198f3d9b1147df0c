/* Parameter servers that own the slices. What a worker pushes to an owner is a push to a key there, and what comes back
 * is a pull of it. Statistics are a float32 key, pulled with max. The frames of a run are a frame key, pulled with
 * decode_average, or with parameters if the servers keep them. The pipeline's thread makes all calls of the client. */
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "exchange/pipeline.h"
#include "pserver/client/for_exchange.h"
#include "pserver/protocol/message.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

/* At the deadline the server says for whom it waits. This is how long the client waits for that after the deadline, and
 * for an answer to the question whether a server is still there. */
#define GRACE_MS 1500

/* The most pulls that are under way at a server, because it lets at most 1,024 requests of a client wait for other
 * workers. Further pulls are held back, first in, first out. Pushes are not, and a pull is held back only behind older
 * ones. So no two workers wait for each other. */
#define MOST_PULLS 512

/* A request under way, or a pull that is held back. */
struct pending {
    TAILQ_ENTRY(pending) link; /* in a list of its server */
    uint64_t request;
    gw_ps_method method; /* of a pull; 0: it is none */
    const char *what;    /* what was sent to the server, in the words of an error's sentence */
    uint32_t owner;      /* the number of the server */
    struct group *group; /* NULL: the request is about all groups */
    struct run *run;     /* NULL: it is about a group's statistics */
    void *bytes;         /* the message that a push was sent from, kept until the server has it; else NULL */
};

TAILQ_HEAD(pendings, pending);

/* What is asked of one server. */
struct asked {
    struct pendings sent, held; /* the oldest first */
    uint32_t n_pulls;           /* how many of `sent` are pulls */
    uint64_t probe;             /* the request that asks whether the server is still there */
};

struct servers {
    gw_ps_client *client;
    struct asked *asked; /* by the number of the server, from 0 */
    uint32_t n_sent;
    _Atomic(void *) wake; /* the wake of the caller, until the pipeline has taken it; NULL: there is none */
    int event;            /* an eventfd, which a call writes to */
};

/* ---- from the beginning to the end --------------------------------------------------------------------------- */

static gw_status servers_init(struct gw_exchange *ex, const gw_exchange_options *options)
{
    gw_ps_client *client = options->servers;
    GW_TRY(gw_ps_client_ready(client));
    const struct gw_ps_client_facts facts = gw_ps_client_facts(client);
    const uint32_t n_workers = gw_ps_client_info(client).n_workers;
    if (facts.rank >= n_workers)
        return gw_fail(GW_ERR_ARGUMENT, "a reader has no gradients to exchange; the client must be a worker");
    struct servers *me = ex->servers = gw_calloc(ex->context, 1, sizeof *me);
    if (!me)
        return GW_ERR_MEMORY;
    me->client = client;
    me->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    me->asked = gw_calloc(ex->context, facts.n_servers, sizeof *me->asked);
    if (!me->asked)
        return GW_ERR_MEMORY;
    for (uint32_t s = 0; s < facts.n_servers; s++) {
        TAILQ_INIT(&me->asked[s].sent);
        TAILQ_INIT(&me->asked[s].held);
    }
    if (me->event < 0)
        return gw_fail(GW_ERR_SYSTEM, "no eventfd for an exchange through servers");
    ex->rank = facts.rank;
    ex->size = ex->first_owner = n_workers;
    ex->n_owners = facts.n_servers;
    return GW_OK;
}

/* The number of the owner that answers for a run, or for a group's statistics (run NULL). */
static uint32_t owner_of(const struct group *group, const struct run *run)
{
    return run ? run->owner : group->coordinator;
}

static struct asked *asked_of(const struct gw_exchange *ex, uint32_t owner)
{
    return &ex->servers->asked[owner - ex->first_owner];
}

/* Makes a request about a run, or about a group's statistics (run NULL). NULL: there is no memory. */
static struct pending *pend(struct gw_exchange *ex, const char *what, struct group *group, struct run *run)
{
    struct pending *pending = gw_calloc(ex->context, 1, sizeof *pending);
    if (pending)
        *pending = (struct pending){.what = what, .owner = owner_of(group, run), .group = group, .run = run};
    return pending;
}

/* Forgets a request that was sent, or whose sending failed. */
static void unpend(struct gw_exchange *ex, struct pending *pending)
{
    struct asked *asked = asked_of(ex, pending->owner);
    TAILQ_REMOVE(&asked->sent, pending, link);
    asked->n_pulls -= pending->method != 0;
    ex->servers->n_sent--;
    gw_buffers_give(&ex->buffers, pending->bytes);
    gw_free(ex->context, pending);
}

/* Sends a request. If that fails, it is forgotten. */
static gw_status ask(struct gw_exchange *ex, struct pending *pending, const struct gw_ps_request *request,
                     const void *body, size_t n_bytes)
{
    struct asked *asked = asked_of(ex, pending->owner);
    TAILQ_INSERT_TAIL(&asked->sent, pending, link);
    asked->n_pulls += pending->method != 0;
    ex->servers->n_sent++;
    const gw_status status = gw_ps_client_begin(ex->servers->client, pending->owner - ex->first_owner, request, body,
                                                n_bytes, pending, &pending->request);
    if (status < 0)
        unpend(ex, pending);
    return status;
}

/* Makes a request that is no pull, and sends it. bytes: the message in which the body lies; the call owns it. */
static gw_status tell(struct gw_exchange *ex, const char *what, struct group *group, struct run *run,
                      const struct gw_ps_request *request, void *bytes, const void *body, size_t n_bytes)
{
    struct pending *pending = pend(ex, what, group, run);
    if (!pending) {
        gw_message_free(bytes);
        return GW_ERR_MEMORY;
    }
    pending->bytes = bytes;
    return ask(ex, pending, request, body, n_bytes);
}

static void servers_fini(struct gw_exchange *ex)
{
    struct servers *me = ex->servers;
    if (!me)
        return;
    for (uint32_t s = 0; me->asked && s < ex->n_owners; s++) {
        struct asked *asked = &me->asked[s];
        for (struct pending *pending; (pending = TAILQ_FIRST(&asked->sent));) {
            gw_ps_client_drop(me->client, pending->request);
            unpend(ex, pending);
        }
        for (struct pending *pending; (pending = TAILQ_FIRST(&asked->held));) {
            TAILQ_REMOVE(&asked->held, pending, link);
            gw_free(ex->context, pending);
        }
    }
    gw_message_free(atomic_load(&me->wake));
    if (me->event >= 0)
        close(me->event);
    gw_free(ex->context, me->asked);
    gw_free(ex->context, me);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* A request about the key of a run. run NULL: of the group's statistics. */
static struct gw_ps_request request_of(enum gw_ps_operation operation, const struct group *group, const struct run *run)
{
    struct gw_ps_request request = {.operation = operation};
    if (run)
        snprintf(request.key, sizeof request.key, GW_PS_EXCHANGE "group %u/run %u", group->index, run->index);
    else
        snprintf(request.key, sizeof request.key, GW_PS_EXCHANGE "group %u/statistics", group->index);
    return request;
}

static gw_status declare_key(struct gw_exchange *ex, const struct group *group, const struct run *run)
{
    struct gw_ps_request init = request_of(GW_PS_INIT, group, run);
    init.type = run ? GW_PS_FRAME : GW_PS_FLOAT32;
    init.shape = (gw_ps_shape){.n_dims = 1, .dims = {run ? run->n_elems : group->n_sent}};
    snprintf(init.codec, sizeof init.codec, "%s", run ? gw_codec_traits_of(ex->codec).canonical : "");
    snprintf(init.optimizer, sizeof init.optimizer, "%s", run && ex->optimizer ? ex->optimizer : "");
    return gw_ps_client_do(ex->servers->client, owner_of(group, run) - ex->first_owner, &init, NULL, 0);
}

/* Checks that these servers can own the slices. */
static gw_status check_servers(const struct gw_exchange *ex)
{
    const gw_ps_client *client = ex->servers->client;
    bool shares = false;
    for (uint32_t g = 0; g < ex->n_groups; g++)
        shares = shares || ex->groups[g].n_sent;
    if (strlen(gw_codec_traits_of(ex->codec).canonical) > GW_PS_MOST_NAME)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the codec's specification has %zu bytes; with parameter servers at most %d are possible",
                       strlen(gw_codec_traits_of(ex->codec).canonical), GW_PS_MOST_NAME);
    if (!ex->optimizer && gw_ps_client_info(client).mode != GW_PS_SYNC)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (their --mode is not sync), so that workers would get "
            "different averages; such servers must keep the parameters themselves");
    if (shares && gw_ps_client_facts(client).backup)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (--backup), and this codec needs a number that all "
            "share: a late worker's gradient could be larger; share=off, another codec, or servers without --backup");
    return GW_OK;
}

/* Tells the servers what must be the same on all members, so that they compare it. Then makes the keys on the servers.
 */
static gw_status servers_declare(struct gw_exchange *ex)
{
    const struct gw_ps_request agree = {.operation = GW_PS_AGREE};
    for (uint32_t s = 0; s < ex->n_owners; s++)
        GW_TRY(gw_ps_client_do(ex->servers->client, s, &agree, ex->hello, strlen(ex->hello)));
    GW_TRY(check_servers(ex));
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        const struct group *group = &ex->groups[g];
        if (group->n_sent)
            GW_TRY(declare_key(ex, group, NULL));
        for (uint32_t r = 0; r < group->n_runs; r++)
            GW_TRY(declare_key(ex, group, &group->runs[r]));
    }
    ex->n_hellos = ex->size - 1; /* no HELLO comes from other members */
    return GW_OK;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static uint64_t number_of(struct verdict verdict)
{
    return verdict.bad ? (uint64_t)verdict.tensor << 32 | verdict.rank : GW_PS_NOT_REFUSED;
}

static gw_status servers_push(struct gw_exchange *ex, struct group *group, struct run *run, void *bytes, size_t n_bytes)
{
    struct gw_ps_request push = request_of(GW_PS_PUSH, group, run);
    push.push_kind = run && ex->optimizer ? GW_PS_PUSH_PENDING : GW_PS_PUSH_PLAIN; /* until the step's verdict */
    push.rate = ex->rate;
    gw_count_up(ex, owner_of(group, run), n_bytes);
    return tell(ex, run ? "the push of gradients" : "the push of statistics", group, run, &push, bytes,
                message_body(bytes), n_bytes - MESSAGE_HEADER);
}

static gw_status servers_refuse(struct gw_exchange *ex, struct group *group, struct run *run, struct verdict verdict)
{
    struct gw_ps_request refusal = request_of(GW_PS_PUSH, group, run);
    refusal.push_kind = GW_PS_PUSH_REFUSED;
    refusal.refusal = number_of(verdict);
    refusal.rate = ex->rate;
    gw_count_up(ex, owner_of(group, run), MESSAGE_BAD_BYTES);
    return tell(ex, "the refusal", group, run, &refusal, NULL, NULL, 0);
}

/* Any run that the server owns. NULL if there is none. */
static struct run *any_run_of(const struct gw_exchange *ex, uint32_t owner, const struct group **group)
{
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        *group = &ex->groups[g];
        for (uint32_t i = 0; i < (*group)->n_runs; i++)
            if ((*group)->runs[i].owner == owner)
                return &(*group)->runs[i];
    }
    return NULL;
}

static gw_status servers_give_verdict(struct gw_exchange *ex, struct verdict verdict)
{
    for (uint32_t s = 0; s < ex->n_owners; s++) {
        const struct group *group;
        struct run *run = any_run_of(ex, ex->first_owner + s, &group);
        if (!run)
            continue;
        struct gw_ps_request given = request_of(GW_PS_VERDICT, group, run);
        given.refusal = number_of(verdict);
        gw_count_up(ex, run->owner, MESSAGE_BAD_BYTES);
        GW_TRY(tell(ex, "the verdict on the step", NULL, run, &given, NULL, NULL, 0));
    }
    return GW_OK;
}

/* Sends the pulls that were held back, as far as there is room for them. */
static gw_status let_go(struct gw_exchange *ex, struct asked *asked)
{
    for (struct pending *pending; asked->n_pulls < MOST_PULLS && (pending = TAILQ_FIRST(&asked->held));) {
        struct gw_ps_request pull = request_of(GW_PS_PULL, pending->group, pending->run);
        pull.method = (uint8_t)pending->method;
        pull.as_it_is = ex->operation != OPERATION_STEP; /* whatever this worker has pushed */
        TAILQ_REMOVE(&asked->held, pending, link);
        GW_TRY(ask(ex, pending, &pull, NULL, 0));
    }
    return GW_OK;
}

static gw_status servers_pull(struct gw_exchange *ex, struct group *group, struct run *run)
{
    const char *what = !run            ? "the pull of shared numbers"
                       : ex->optimizer ? "the pull of parameters"
                                       : "the pull of averages";
    struct pending *pending = pend(ex, what, group, run);
    if (!pending)
        return GW_ERR_MEMORY;
    pending->method = !run ? GW_PS_MAX : ex->optimizer ? GW_PS_PARAMETERS : GW_PS_DECODE_AVERAGE;
    TAILQ_INSERT_TAIL(&asked_of(ex, pending->owner)->held, pending, link);
    return let_go(ex, asked_of(ex, pending->owner));
}

static gw_status servers_put(struct gw_exchange *ex, struct group *group, struct run *run, void *values)
{
    struct gw_ps_request first = request_of(GW_PS_PUT, group, run);
    first.put_kind = GW_PS_PUT_FIRST;
    return tell(ex, "the first parameters", group, run, &first, values, values, (size_t)run->n_elems * sizeof(float));
}

static gw_status servers_call(struct gw_exchange *ex, void *wake)
{
    atomic_store(&ex->servers->wake, wake);
    eventfd_write(ex->servers->event, 1);
    return GW_OK;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* Handles the value that answers a pull, or the error in its place. */
static gw_status take_value(struct gw_exchange *ex, const struct pending *pull, gw_status status,
                            const gw_ps_value *value)
{
    struct arrival arrival = {.from = pull->owner, .body = value->bytes, .n_bytes = value->n_bytes};
    if (status == GW_ERR_NONFINITE && ex->operation == OPERATION_STEP) { /* this is no error: it is the verdict */
        const uint64_t refusal = gw_ps_refusal(ex->servers->client);
        const struct verdict verdict = {.bad = true, .tensor = (uint32_t)(refusal >> 32), .rank = (uint32_t)refusal};
        if (verdict.tensor >= ex->n_tensors || verdict.rank >= ex->size)
            return gw_fail(GW_ERR_FRAME_FIELD,
                           "the parameter server at %s says that tensor %u of rank %u is not finite; there are %u "
                           "tensors and %u ranks",
                           gw_ps_client_place(ex->servers->client, pull->owner - ex->first_owner), verdict.tensor,
                           verdict.rank, ex->n_tensors, ex->size);
        arrival.verdict = verdict;
    } else if (status < 0) {
        return status;
    }
    ex->tally.messages++;
    gw_count_down(ex, arrival.from, arrival.verdict.bad ? MESSAGE_BAD_BYTES : MESSAGE_HEADER + value->n_bytes);
    return pull->method == GW_PS_MAX              ? gw_take_shared(ex, pull->group, &arrival)
           : pull->method == GW_PS_DECODE_AVERAGE ? gw_take_averages(ex, pull->group, pull->run, &arrival)
                                                  : gw_take_parameters(ex, pull->group, pull->run, &arrival);
}

#define SILENCE_BYTES 448 /* of a list of servers, and what each of them did not answer */

/* Adds to the list. group NULL: the request was about all groups. */
static void silence_add(char *list, const struct gw_exchange *ex, uint32_t server, const char *what,
                        const struct group *group)
{
    gw_append(list, SILENCE_BYTES, "%s at %s did not answer %s", list[0] ? "; the one" : "the parameter server",
              gw_ps_client_place(ex->servers->client, server), what);
    if (group)
        gw_append(list, SILENCE_BYTES, " of group %u", group->index);
}

/* A request has waited too long. The last error says for which workers; a server said so, or it is the client's own
 * deadline. But the workers may be waiting for another server that is silent. So before they are named, every server is
 * asked whether it is there. */
static gw_status workers_or_servers(struct gw_exchange *ex)
{
    struct servers *me = ex->servers;
    const struct gw_kept_error kept = gw_error_keep();
    const double deadline = gw_clock_seconds() + GRACE_MS / 1000.0;
    char silence[SILENCE_BYTES] = "";
    gw_status status = GW_OK;
    uint32_t n = 0;
    while (n < ex->n_owners &&
           (status = gw_ps_client_begin(me->client, n, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, NULL, 0,
                                        NULL, &me->asked[n].probe)) == GW_OK)
        n++;
    for (uint32_t s = 0; s < n; s++) {
        const double left = status == GW_OK ? deadline - gw_clock_seconds() : 0;
        const gw_status told =
            gw_ps_wait(me->client, me->asked[s].probe, left > 0 ? (uint32_t)(left * 1000) + 1 : 0, NULL);
        if (told != GW_NOT_YET && told != GW_ERR_TIMEOUT) /* the latter: it is gone, and the client's time is over */
            continue;
        gw_ps_client_drop(me->client, me->asked[s].probe);
        silence_add(silence, ex, s, "the question who takes part", NULL);
    }
    if (status == GW_OK && silence[0]) /* a busy server may be late, so what was said before is said, too */
        return gw_fail(GW_ERR_TIMEOUT, "%s within %d ms; before that: %s", silence, GRACE_MS, kept.sentence);
    gw_error_put_back(&kept);
    return GW_ERR_TIMEOUT;
}

/* Handles requests that were answered, until one of them was a pull. *got: one was. */
static gw_status take(struct gw_exchange *ex, bool *got)
{
    gw_ps_client *client = ex->servers->client;
    void *tag;
    *got = false;
    for (uint64_t request; !*got && (request = gw_ps_client_answered(client, &tag)) != 0;) {
        const struct pending done = *(struct pending *)tag;
        gw_ps_value value;
        gw_status status = gw_ps_wait(client, request, GW_PS_NO_LIMIT, &value);
        unpend(ex, tag);
        if (status == GW_ERR_TIMEOUT)
            return workers_or_servers(ex);
        *got = done.method != 0;
        if (*got)
            status = take_value(ex, &done, status, &value);
        gw_ps_value_free(&value);
        GW_TRY(status);
        GW_TRY(let_go(ex, asked_of(ex, done.owner)));
    }
    return GW_OK;
}

static gw_status servers_receive(struct gw_exchange *ex, uint32_t timeout_ms, bool *stop)
{
    struct servers *me = ex->servers;
    const double grace_ms = me->n_sent && timeout_ms ? GRACE_MS : 0;
    const double deadline = gw_clock_seconds() + (timeout_ms + grace_ms) / 1000.0;
    for (bool got, late = false;; late = gw_clock_seconds() >= deadline) {
        void *wake = atomic_exchange(&me->wake, NULL);
        if (wake)
            return gw_pipeline_look(ex, wake, stop);
        GW_TRY(take(ex, &got));
        if (got)
            return GW_OK;
        if (late)
            return GW_NOT_YET;
        eventfd_t n;
        GW_TRY(gw_ps_client_pump(me->client, me->event, deadline));
        eventfd_read(me->event, &n); /* the call that wrote it had left its wake before */
    }
}

/* If workers are missing, the servers' answers name them. So the silent ones here are servers that owe an answer. */
static bool servers_silent(const struct gw_exchange *ex, double since)
{
    char silence[SILENCE_BYTES] = "";
    (void)since;
    for (uint32_t s = 0; s < ex->n_owners; s++) {
        const struct pending *oldest = TAILQ_FIRST(&ex->servers->asked[s].sent);
        if (oldest)
            silence_add(silence, ex, s, oldest->what, oldest->group);
    }
    if (!silence[0])
        return false;
    gw_fail(GW_ERR_TIMEOUT, "%s within %u ms", silence, ex->timeout_ms);
    return true;
}

const struct gw_owners gw_owners_servers = {
    .init = servers_init,
    .fini = servers_fini,
    .declare = servers_declare,
    .push = servers_push,
    .give_verdict = servers_give_verdict,
    .refuse = servers_refuse,
    .pull = servers_pull,
    .put = servers_put,
    .receive = servers_receive,
    .call = servers_call,
    .silent = servers_silent,
};
