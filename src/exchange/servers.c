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

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* At the deadline the server says for whom it waits. This is how long the client waits for that after the deadline. */
#define GRACE_MS 1500

#define PULL_PARAMETERS "the pull of parameters"

/* What the answer to a request holds. */
enum awaited { AWAITS_NOTHING, AWAITS_SHARED, AWAITS_AVERAGES, AWAITS_PARAMETERS };

/* A request under way. */
struct pending {
    struct pending *next;
    uint64_t ticket;
    enum awaited awaited;
    const char *what;    /* what was sent to the server, in the words of an error's sentence */
    uint32_t owner;      /* the number of the server */
    struct group *group; /* NULL: the request is about all groups */
    struct run *run;
    void *bytes; /* the message that a push was sent from, kept until the server has it; else NULL */
};

struct servers {
    gw_ps_client *client;
    struct pending *first, **end;
    _Atomic(void *) wake; /* the wake of the caller, until the pipeline has taken it; NULL: there is none */
    int event;            /* an eventfd, which a call writes to */
};

/* ---- from the beginning to the end --------------------------------------------------------------------------- */

static gw_status servers_init(struct gw_exchange *ex, const gw_exchange_options *options)
{
    gw_ps_client *client = options->servers;
    if (gw_ps_client_rank(client) >= gw_ps_n_workers(client))
        return gw_fail(GW_ERR_ARGUMENT, "a reader has no gradients to exchange; the client must be a worker");
    struct servers *me = ex->servers = gw_calloc(ex->context, 1, sizeof *me);
    if (!me)
        return GW_ERR_MEMORY;
    me->client = client;
    me->end = &me->first;
    me->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (me->event < 0)
        return gw_fail(GW_ERR_SYSTEM, "no eventfd for an exchange through servers");
    ex->rank = gw_ps_client_rank(client);
    ex->size = ex->first_owner = gw_ps_n_workers(client);
    ex->n_owners = gw_ps_client_servers(client);
    return GW_OK;
}

/* The number of the owner that answers for a run, or for a group's statistics (run NULL). */
static uint32_t owner_of(const struct group *group, const struct run *run)
{
    return run ? run->owner : group->coordinator;
}

static struct pending *pend(struct gw_exchange *ex, const char *what, uint32_t owner, enum awaited awaited)
{
    struct servers *me = ex->servers;
    struct pending *pending = gw_calloc(ex->context, 1, sizeof *pending);
    if (!pending)
        return NULL;
    pending->what = what;
    pending->owner = owner;
    pending->awaited = awaited;
    *me->end = pending;
    me->end = &pending->next;
    return pending;
}

/* As pend, for a request about a run, or about a group's statistics (run NULL). */
static struct pending *pend_run(struct gw_exchange *ex, const char *what, struct group *group, struct run *run,
                                enum awaited awaited)
{
    struct pending *pending = pend(ex, what, owner_of(group, run), awaited);
    if (pending) {
        pending->group = group;
        pending->run = run;
    }
    return pending;
}

/* Takes a request out of the list. Then `at` points to the next one. */
static void unpend(struct gw_exchange *ex, struct pending **at)
{
    struct pending *pending = *at;
    *at = pending->next;
    if (ex->servers->end == &pending->next)
        ex->servers->end = at;
    gw_buffers_give(&ex->buffers, pending->bytes);
    gw_free(ex->context, pending);
}

static void servers_fini(struct gw_exchange *ex)
{
    struct servers *me = ex->servers;
    if (!me)
        return;
    while (me->first) {
        gw_ps_client_drop(me->client, me->first->ticket);
        unpend(ex, &me->first);
    }
    gw_message_free(atomic_load(&me->wake));
    if (me->event >= 0)
        close(me->event);
    gw_free(ex->context, me);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

struct key_name {
    char text[64];
};

/* The name of the key of a run. run NULL: of the group's statistics. */
static struct key_name name_of(const struct group *group, const struct run *run)
{
    struct key_name name;
    if (run)
        snprintf(name.text, sizeof name.text, GW_PS_EXCHANGE "group %u/run %u", group->index, run->index);
    else
        snprintf(name.text, sizeof name.text, GW_PS_EXCHANGE "group %u/statistics", group->index);
    return name;
}

static gw_status declare_key(struct gw_exchange *ex, const struct group *group, const struct run *run)
{
    const gw_ps_shape shape = {.n_dims = 1, .dims = {run ? run->n_elems : group->n_sent}};
    return gw_ps_init_on(ex->servers->client, owner_of(group, run) - ex->first_owner, name_of(group, run).text,
                         run ? GW_PS_FRAME : GW_PS_FLOAT32, &shape, run ? gw_codec_canonical(ex->codec) : "",
                         run && ex->optimizer ? ex->optimizer : "");
}

/* Checks that these servers can own the slices. */
static gw_status check_servers(const struct gw_exchange *ex)
{
    const gw_ps_client *client = ex->servers->client;
    bool shares = false;
    for (uint32_t g = 0; g < ex->n_groups; g++)
        shares = shares || ex->groups[g].n_sent;
    if (strlen(gw_codec_canonical(ex->codec)) > GW_PS_MOST_NAME)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the codec's specification has %zu bytes; with parameter servers at most %d are possible",
                       strlen(gw_codec_canonical(ex->codec)), GW_PS_MOST_NAME);
    if (!ex->optimizer && gw_ps_client_mode(client, NULL) != GW_PS_SYNC)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (their --mode is not sync), so that workers would get "
            "different averages; such servers must keep the parameters themselves");
    if (shares && gw_ps_client_backup(client))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (--backup), and this codec needs a number that is "
            "shared by "
            "all: a late worker's gradient could be larger; share=off, another codec, or servers without --backup");
    return GW_OK;
}

/* Tells the servers what must be the same on all members, so that they compare it. Then makes the keys on the servers.
 */
static gw_status servers_declare(struct gw_exchange *ex)
{
    for (uint32_t s = 0; s < ex->n_owners; s++)
        GW_TRY(gw_ps_agree_on(ex->servers->client, s, ex->hello));
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

/* Drops the last request if sending it failed. */
static gw_status sent(struct gw_exchange *ex, gw_status status)
{
    struct pending **at = &ex->servers->first;
    if (status >= 0)
        return GW_OK;
    while ((*at)->next)
        at = &(*at)->next;
    unpend(ex, at);
    return status;
}

static gw_status servers_begin(struct gw_exchange *ex, double rate)
{
    return gw_ps_set_rate(ex->servers->client, rate);
}

static uint64_t number_of(struct verdict verdict)
{
    return verdict.bad ? (uint64_t)verdict.tensor << 32 | verdict.rank : GW_PS_NO_REFUSAL;
}

static gw_status servers_push(struct gw_exchange *ex, struct group *group, struct run *run, void *bytes, size_t n_bytes)
{
    gw_ps_client *client = ex->servers->client;
    const struct key_name key = name_of(group, run);
    const size_t n_body = n_bytes - MESSAGE_HEADER;
    struct pending *push =
        pend_run(ex, run ? "the push of gradients" : "the push of statistics", group, run, AWAITS_NOTHING);
    if (!push) {
        gw_message_free(bytes);
        return GW_ERR_MEMORY;
    }
    push->bytes = bytes;
    gw_count_up(ex, owner_of(group, run), n_bytes);
    if (run && ex->optimizer) /* this push counts only after the step's verdict */
        return sent(ex, gw_ps_push_pending_begin(client, key.text, message_body(bytes), n_body, &push->ticket));
    return sent(ex, gw_ps_push_begin(client, key.text, message_body(bytes), n_body, &push->ticket));
}

static gw_status servers_refuse(struct gw_exchange *ex, struct group *group, struct run *run, struct verdict verdict)
{
    struct pending *refusal = pend_run(ex, "the refusal", group, run, AWAITS_NOTHING);
    if (!refusal)
        return GW_ERR_MEMORY;
    gw_count_up(ex, owner_of(group, run), MESSAGE_BAD_BYTES);
    return sent(ex, gw_ps_refuse_begin(ex->servers->client, name_of(group, run).text, number_of(verdict),
                                       &refusal->ticket));
}

/* Any run that the server owns. NULL if there is none. */
static const struct run *any_run_of(const struct gw_exchange *ex, uint32_t owner, const struct group **group)
{
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        *group = &ex->groups[g];
        for (uint32_t i = 0; i < (*group)->n_runs; i++)
            if ((*group)->runs[i].owner == owner)
                return &(*group)->runs[i];
    }
    return NULL;
}

static gw_status servers_judge(struct gw_exchange *ex, struct verdict verdict)
{
    for (uint32_t s = 0; s < ex->n_owners; s++) {
        const struct group *group;
        const struct run *run = any_run_of(ex, ex->first_owner + s, &group);
        struct pending *judgement = run ? pend(ex, "the verdict on the step", run->owner, AWAITS_NOTHING) : NULL;
        if (!run)
            continue;
        if (!judgement)
            return GW_ERR_MEMORY;
        gw_count_up(ex, run->owner, MESSAGE_BAD_BYTES);
        GW_TRY(sent(ex, gw_ps_judge_begin(ex->servers->client, name_of(group, run).text, number_of(verdict),
                                          &judgement->ticket)));
    }
    return GW_OK;
}

static gw_status servers_pull(struct gw_exchange *ex, struct group *group, struct run *run)
{
    const enum awaited awaited = !run ? AWAITS_SHARED : ex->optimizer ? AWAITS_PARAMETERS : AWAITS_AVERAGES;
    const gw_ps_method method = !run ? GW_PS_MAX : ex->optimizer ? GW_PS_PARAMETERS : GW_PS_DECODE_AVERAGE;
    const char *what = !run ? "the pull of shared numbers" : ex->optimizer ? PULL_PARAMETERS : "the pull of averages";
    struct pending *pull = pend_run(ex, what, group, run, awaited);
    if (!pull)
        return GW_ERR_MEMORY;
    return sent(ex, gw_ps_pull_begin(ex->servers->client, name_of(group, run).text, method, NULL, &pull->ticket));
}

static gw_status servers_put(struct gw_exchange *ex, struct group *group, struct run *run, void *values)
{
    struct pending *put = pend_run(ex, "the first parameters", group, run, AWAITS_NOTHING);
    if (!put) {
        gw_message_free(values);
        return GW_ERR_MEMORY;
    }
    put->bytes = values;
    return sent(ex,
                gw_ps_first_begin(ex->servers->client, name_of(group, run).text, values, run->n_elems, &put->ticket));
}

static gw_status servers_get(struct gw_exchange *ex, struct group *group, struct run *run)
{
    struct pending *get = pend_run(ex, PULL_PARAMETERS, group, run, AWAITS_PARAMETERS);
    if (!get)
        return GW_ERR_MEMORY;
    return sent(ex, gw_ps_pull_now_begin(ex->servers->client, name_of(group, run).text, &get->ticket));
}

static gw_status servers_call(struct gw_exchange *ex, void *wake)
{
    const uint64_t one = 1;
    atomic_store(&ex->servers->wake, wake);
    while (write(ex->servers->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
    return GW_OK;
}

/* ---- receiving -----------------------------------------------------------------------------------------------------
 */

struct words {
    char text[64];
};

/* What was sent, for a sentence. */
static struct words words_of(const struct pending *request)
{
    struct words words = {""};
    gw_append(words.text, sizeof words.text, "%s", request->what);
    if (request->group)
        gw_append(words.text, sizeof words.text, " of group %u", request->group->index);
    return words;
}

/* Handles the answer to a pull, or its error. */
static gw_status take_answer(struct gw_exchange *ex, const struct pending *pull)
{
    gw_ps_value value;
    struct group *group = pull->group;
    struct arrival arrival = {.from = owner_of(group, pull->run)};
    gw_status status = gw_ps_wait(ex->servers->client, pull->ticket, &value);
    if (status == GW_ERR_NONFINITE) { /* this is no error: it is the step's verdict */
        const uint64_t refusal = gw_ps_refusal(ex->servers->client);
        arrival.verdict = (struct verdict){.bad = true, .tensor = (uint32_t)(refusal >> 32), .rank = (uint32_t)refusal};
    } else if (status < 0) {
        return status;
    }
    arrival.body = value.bytes;
    arrival.n_bytes = value.n_bytes;
    ex->tally.messages++;
    gw_count_down(ex, arrival.from, arrival.verdict.bad ? MESSAGE_BAD_BYTES : MESSAGE_HEADER + value.n_bytes);
    status = pull->awaited == AWAITS_SHARED     ? gw_take_shared(ex, group, &arrival)
             : pull->awaited == AWAITS_AVERAGES ? gw_take_averages(ex, group, pull->run, &arrival)
                                                : gw_take_parameters(ex, group, pull->run, &arrival);
    gw_ps_value_free(&value);
    return status;
}

/* Looks through all requests that are under way, and handles those that were answered. *got: one of them was a pull. */
static gw_status take(struct gw_exchange *ex, bool *got)
{
    struct servers *me = ex->servers;
    *got = false;
    for (struct pending **at = &me->first; *at && !*got;) {
        const struct pending *pending = *at;
        if (!gw_ps_client_has(me->client, pending->ticket)) {
            at = &(*at)->next;
            continue;
        }
        *got = pending->awaited != AWAITS_NOTHING;
        const gw_status status = *got ? take_answer(ex, pending) : gw_ps_wait(me->client, pending->ticket, NULL);
        unpend(ex, at);
        GW_TRY(status);
    }
    return GW_OK;
}

/* Waits until something may have come. It also reads what a call of the program wrote to the eventfd. The call had left
 * its wake before it wrote. */
static gw_status wait_for_news(const struct servers *me, double deadline)
{
    uint64_t n;
    GW_TRY(gw_ps_client_pump(me->client, me->event, deadline));
    while (read(me->event, &n, sizeof n) < 0 && errno == EINTR)
        ;
    return GW_OK;
}

static gw_status servers_receive(struct gw_exchange *ex, uint32_t timeout_ms, bool *stop)
{
    struct servers *me = ex->servers;
    const double deadline = gw_clock_seconds() + (timeout_ms + (me->first && timeout_ms ? GRACE_MS : 0)) / 1000.0;
    for (bool got, late = false;; late = gw_clock_seconds() >= deadline) {
        void *wake = atomic_exchange(&me->wake, NULL);
        if (wake)
            return gw_pipeline_look(ex, wake, stop);
        GW_TRY(take(ex, &got));
        if (got)
            return GW_OK;
        if (late)
            return GW_NOT_YET;
        GW_TRY(wait_for_news(me, deadline));
    }
}

/* The oldest request that a server has not answered. NULL: it has answered all. */
static const struct pending *oldest_of(const struct servers *me, uint32_t owner)
{
    const struct pending *pending = me->first;
    while (pending && pending->owner != owner)
        pending = pending->next;
    return pending;
}

/* If workers are missing, the servers' answers name them. So the silent ones here are servers that owe an answer. */
static bool servers_silent(const struct gw_exchange *ex, bool any)
{
    const struct servers *me = ex->servers;
    char who[448] = "";
    (void)any;
    for (uint32_t s = 0; s < ex->n_owners; s++) {
        const struct pending *request = oldest_of(me, ex->first_owner + s);
        if (request)
            gw_append(who, sizeof who, "%s at %s did not answer %s", who[0] ? "; the one" : "the parameter server",
                      gw_ps_client_place(me->client, s), words_of(request).text);
    }
    if (!who[0])
        return false;
    gw_fail(GW_ERR_TIMEOUT, "%s within %u ms", who, ex->timeout_ms);
    return true;
}

/* Does nothing: the servers find out that this member is gone, and tell the workers that wait for it. */
static void servers_fail(struct gw_exchange *ex, gw_status status, const char *why)
{
    (void)ex, (void)status, (void)why;
}

const struct gw_owners gw_owners_servers = {
    .leave_out = true,
    .init = servers_init,
    .fini = servers_fini,
    .declare = servers_declare,
    .begin = servers_begin,
    .push = servers_push,
    .judge = servers_judge,
    .refuse = servers_refuse,
    .pull = servers_pull,
    .put = servers_put,
    .get = servers_get,
    .receive = servers_receive,
    .call = servers_call,
    .silent = servers_silent,
    .fail = servers_fail,
};
