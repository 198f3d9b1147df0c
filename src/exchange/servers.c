/* The link to parameter servers. What a member's pipeline sends to an owner becomes a push and a pull of a key there,
 * and the answer becomes the message that an owner would have sent. Statistics are a float32 key, pulled with max. The
 * frames of a run are a frame key, pulled with decode_average, or with parameters if the servers keep them. The
 * pipeline's thread makes all calls of the client; only the WAKE message comes from another. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "exchange/message.h"
#include "link/message.h"
#include "pserver/client.h"
#include "pserver/message.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* For the server's word about whom it waits for, which comes at the deadline. */
#define GRACE_MS 1500

/* A push or a pull under way. */
struct pending {
    struct pending *next;
    uint64_t ticket;
    uint32_t server;
    struct message_header answer; /* of the message that a pull becomes; type 0: a push */
    void *bytes;                  /* the message that a push was sent from, kept until the server has it */
};

struct servers {
    gw_context *context;
    gw_ps_client *client;
    uint32_t rank, size;
    bool optimized; /* the servers keep parameters */
    struct pending *first, **end;
    pthread_mutex_t lock; /* of: */
    struct gw_message_queue own;
    atomic_bool closed;
    int wake; /* eventfd */
};

struct key_name {
    char text[64];
};

static struct key_name name_of(uint32_t group, uint32_t run)
{
    struct key_name name;
    if (run == MESSAGE_STATS_RUN)
        snprintf(name.text, sizeof name.text, GW_PS_EXCHANGE "group %u/statistics", group);
    else
        snprintf(name.text, sizeof name.text, GW_PS_EXCHANGE "group %u/run %u", group, run);
    return name;
}

static void wake(const struct servers *me)
{
    const uint64_t one = 1;
    while (write(me->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

static struct pending *pend(struct servers *me, uint32_t server)
{
    struct pending *pending = gw_calloc(me->context, 1, sizeof *pending);
    if (!pending)
        return NULL;
    pending->server = server;
    *me->end = pending;
    me->end = &pending->next;
    return pending;
}

/* Takes it out of the list; `at` then leads to the next. */
static void unpend(struct servers *me, struct pending **at)
{
    struct pending *pending = *at;
    *at = pending->next;
    if (me->end == &pending->next)
        me->end = at;
    gw_message_free(pending->bytes);
    gw_free(me->context, pending);
}

/* Drops the last one, which was never sent. */
static gw_status unsent(struct servers *me, gw_status status)
{
    struct pending **at = &me->first;
    while ((*at)->next)
        at = &(*at)->next;
    unpend(me, at);
    return status;
}

/* The answer to the pull becomes a message of that type. */
static gw_status pull(struct servers *me, uint32_t server, const struct message_header *h, const char *key,
                      enum message_type type, gw_ps_method method)
{
    struct pending *pending = pend(me, server);
    if (!pending)
        return GW_ERR_MEMORY;
    pending->answer = *h;
    pending->answer.type = (uint8_t)type;
    pending->answer.flags = 0;
    const bool now = h->type == MESSAGE_PUT || h->type == MESSAGE_GET;
    gw_status status = now ? gw_ps_pull_now_begin(me->client, key, &pending->ticket)
                           : gw_ps_pull_begin(me->client, key, method, NULL, &pending->ticket);
    return status < 0 ? unsent(me, status) : GW_OK;
}

/* Statistics or frames: pushed, and what all workers' come to is pulled at once. */
static gw_status push_and_pull(struct servers *me, uint32_t server, const struct message_header *h, void *bytes,
                               size_t n_bytes)
{
    bool stats = h->type == MESSAGE_STATS;
    struct key_name key = name_of(h->group, stats ? MESSAGE_STATS_RUN : h->run);
    struct pending *push = pend(me, server);
    if (!push) {
        gw_message_free(bytes);
        return GW_ERR_MEMORY;
    }
    push->bytes = bytes;
    const char *body = message_body(bytes);
    gw_status status = h->flags & MESSAGE_FLAG_BAD
                           ? gw_ps_refuse_begin(me->client, key.text,
                                                (uint64_t)gw_get32(body) << 32 | gw_get32(body + 4), &push->ticket)
                           : gw_ps_push_begin(me->client, key.text, body, n_bytes - MESSAGE_HEADER, &push->ticket);
    if (status < 0)
        return unsent(me, status);
    return stats           ? pull(me, server, h, key.text, MESSAGE_SHARED, GW_PS_MAX)
           : me->optimized ? pull(me, server, h, key.text, MESSAGE_PARAMETERS, GW_PS_PARAMETERS)
                           : pull(me, server, h, key.text, MESSAGE_PULL, GW_PS_DECODE_AVERAGE);
}

/* Parameters are asked for, after the first ones were handed over where they came along. */
static gw_status put_or_get(struct servers *me, uint32_t server, const struct message_header *h, void *bytes,
                            size_t n_bytes)
{
    struct key_name key = name_of(h->group, h->run);
    if (h->type == MESSAGE_PUT) {
        struct pending *put = pend(me, server);
        if (!put) {
            gw_message_free(bytes);
            return GW_ERR_MEMORY;
        }
        put->bytes = bytes;
        gw_status status = gw_ps_first_begin(me->client, key.text, message_body(bytes),
                                             (n_bytes - MESSAGE_HEADER) / sizeof(float), &put->ticket);
        if (status < 0)
            return unsent(me, status);
    } else {
        gw_message_free(bytes);
    }
    return pull(me, server, h, key.text, MESSAGE_PARAMETERS, GW_PS_PARAMETERS);
}

static gw_status set_rate(struct servers *me, const char *body)
{
    const uint64_t bits = gw_get64(body);
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    return gw_ps_set_rate(me->client, rate);
}

/* u64 elements, and for frames the codec's specification, perhaps with a 0 and the optimizer's after it. */
static gw_status declare(struct servers *me, uint32_t server, const struct message_header *h, const char *body,
                         size_t n_bytes)
{
    char texts[2 * GW_PS_MAX_NAME + 2] = "";
    const gw_ps_shape shape = {.n_dims = 1, .dims = {gw_get64(body)}};
    const bool frames = h->run != MESSAGE_STATS_RUN;
    n_bytes -= sizeof(uint64_t);
    if (n_bytes >= sizeof texts)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the codec's specification takes more than %d bytes, which parameter servers do not take",
                       GW_PS_MAX_NAME);
    memcpy(texts, body + sizeof(uint64_t), n_bytes);
    texts[n_bytes] = 0;
    const size_t codec_bytes = strlen(texts);
    const char *optimizer = codec_bytes < n_bytes ? texts + codec_bytes + 1 : "";
    if (frames)
        me->optimized = *optimizer != 0;
    if (frames && !me->optimized && gw_ps_client_mode(me->client, NULL) != GW_PS_SYNC)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (their --mode is not sync), so that workers would get "
            "different averages; such servers must keep the parameters themselves");
    if (!frames && gw_ps_client_backup(me->client))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the parameter servers do not wait for all workers (--backup), and this codec needs a number that is "
            "shared by "
            "all: a late worker's gradient could be larger; share=off, another codec, or servers without --backup");
    return gw_ps_init_on(me->client, server, name_of(h->group, h->run).text, frames ? GW_PS_FRAME : GW_PS_FLOAT32,
                         &shape, texts, optimizer);
}

static gw_status agree(struct servers *me, uint32_t server, const char *body, size_t n_bytes)
{
    char *lines = gw_alloc(me->context, n_bytes + 1, 1);
    if (!lines)
        return GW_ERR_MEMORY;
    memcpy(lines, body, n_bytes);
    lines[n_bytes] = 0;
    gw_status status = gw_ps_agree_on(me->client, server, lines);
    gw_free(me->context, lines);
    return status;
}

static gw_status send_to_self(struct servers *me, void *bytes, size_t n_bytes)
{
    const gw_message message = {.from = me->rank, .bytes = bytes, .n_bytes = n_bytes};
    pthread_mutex_lock(&me->lock);
    gw_message_queue_put(&me->own, &message);
    pthread_mutex_unlock(&me->lock);
    wake(me);
    return GW_OK;
}

static gw_status servers_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct servers *me = self;
    (void)timeout_ms;
    if (atomic_load(&me->closed)) {
        gw_message_free(bytes);
        return gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->rank);
    }
    if (to == me->rank)
        return send_to_self(me, bytes, n_bytes);
    uint32_t server = to - me->size;
    if (to < me->size || server >= gw_ps_client_servers(me->client) || n_bytes < MESSAGE_HEADER) {
        gw_message_free(bytes);
        return gw_fail(GW_ERR_ARGUMENT, "rank %u sent to rank %u over a link to parameter servers only", me->rank, to);
    }
    struct message_header h = message_header_read(bytes);
    if (h.type == MESSAGE_STATS || h.type == MESSAGE_PUSH)
        return push_and_pull(me, server, &h, bytes, n_bytes);
    if (h.type == MESSAGE_PUT || h.type == MESSAGE_GET)
        return put_or_get(me, server, &h, bytes, n_bytes);
    const char *body = message_body(bytes);
    gw_status status = h.type == MESSAGE_RATE    ? set_rate(me, body)
                       : h.type == MESSAGE_HELLO ? agree(me, server, body, n_bytes - MESSAGE_HEADER)
                                                 : declare(me, server, &h, body, n_bytes - MESSAGE_HEADER);
    gw_message_free(bytes);
    return status;
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

static bool take_own(struct servers *me, gw_message *message)
{
    uint64_t n;
    pthread_mutex_lock(&me->lock);
    bool took = gw_message_queue_take(&me->own, message);
    pthread_mutex_unlock(&me->lock);
    if (took)
        while (read(me->wake, &n, sizeof n) < 0 && errno == EINTR)
            ;
    return took;
}

/* The message that an owner would have sent. body NULL: room for it. */
static gw_status answer(const struct servers *me, const struct pending *pull, const void *body, size_t n_bytes,
                        gw_message *message)
{
    void *bytes = gw_message_alloc(me->context, MESSAGE_HEADER + n_bytes);
    if (!bytes)
        return GW_ERR_MEMORY;
    message_header_write(bytes, &pull->answer);
    memcpy(message_body(bytes), body, n_bytes);
    *message = (gw_message){.from = me->size + pull->server, .bytes = bytes, .n_bytes = MESSAGE_HEADER + n_bytes};
    return GW_OK;
}

/* A pull's answer, or an error. */
static gw_status take_answer(struct servers *me, struct pending *pull, gw_message *message)
{
    gw_ps_value value;
    gw_status status = gw_ps_wait(me->client, pull->ticket, &value);
    if (status == GW_ERR_NONFINITE) { /* not an error here: the step's verdict */
        uint8_t body[8];
        gw_put32(body, (uint32_t)(gw_ps_refusal(me->client) >> 32));
        gw_put32(body + 4, (uint32_t)gw_ps_refusal(me->client));
        pull->answer.flags = MESSAGE_FLAG_BAD;
        return answer(me, pull, body, sizeof body, message);
    }
    if (status < 0)
        return status;
    status = answer(me, pull, value.bytes, value.n_bytes, message);
    gw_ps_value_free(&value);
    return status;
}

/* Looks through what is under way; *got: a pull was answered. */
static gw_status take(struct servers *me, gw_message *message, bool *got)
{
    *got = false;
    for (struct pending **at = &me->first; *at && !*got;) {
        struct pending *pending = *at;
        if (!gw_ps_client_has(me->client, pending->ticket)) {
            at = &pending->next;
            continue;
        }
        *got = pending->answer.type != 0;
        gw_status status = *got ? take_answer(me, pending, message) : gw_ps_wait(me->client, pending->ticket, NULL);
        unpend(me, at);
        /* A deadline that passed at the server is no deadline of this call: it is over. */
        if (status < 0)
            return status == GW_ERR_TIMEOUT ? gw_fail(GW_ERR_PEER, "%s", gw_last_error()) : status;
    }
    return GW_OK;
}

static gw_status servers_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct servers *me = self;
    double deadline = gw_clock_seconds() + (timeout_ms + (me->first && timeout_ms ? GRACE_MS : 0)) / 1000.0;
    bool got, late = false;
    for (;;) {
        if (atomic_load(&me->closed))
            return gw_fail(GW_ERR_CLOSED, "rank %u received on a link that it has closed", me->rank);
        if (take_own(me, message))
            return GW_OK;
        GW_TRY(take(me, message, &got));
        if (got)
            return GW_OK;
        if (late)
            return gw_fail(GW_ERR_TIMEOUT, "rank %u got no message within %u ms", me->rank, timeout_ms);
        GW_TRY(gw_ps_client_pump(me->client, me->wake, deadline));
        late = gw_clock_seconds() >= deadline;
    }
}

/* ---- the rest ---------------------------------------------------------------------------------------------- */

/* The servers find out that this member is gone; they say so to whoever waits for it. */
static void servers_fail(void *self, gw_status status, const char *why)
{
    (void)self, (void)status, (void)why;
}

static void servers_close(void *self)
{
    struct servers *me = self;
    atomic_store(&me->closed, true);
    wake(me);
}

static void servers_destroy(void *self)
{
    struct servers *me = self;
    while (me->first) {
        gw_ps_client_drop(me->client, me->first->ticket);
        unpend(me, &me->first);
    }
    gw_message_queue_clear(&me->own);
    pthread_mutex_destroy(&me->lock);
    close(me->wake);
    gw_free(me->context, me);
}

static const gw_link_ops servers_ops = {
    .name = "servers",
    .send = servers_send,
    .recv = servers_recv,
    .fail = servers_fail,
    .close = servers_close,
    .destroy = servers_destroy,
};

gw_status gw_link_servers_create(gw_context *context, gw_ps_client *client, gw_link *out)
{
    if (!client || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_servers_create: %s is NULL", client ? "out" : "client");
    if (gw_ps_client_rank(client) >= gw_ps_n_workers(client))
        return gw_fail(GW_ERR_ARGUMENT, "a reader has no gradients to exchange; the client must be a worker");
    struct servers *me = gw_calloc(context, 1, sizeof *me);
    if (!me)
        return GW_ERR_MEMORY;
    me->context = context;
    me->client = client;
    me->rank = gw_ps_client_rank(client);
    me->size = gw_ps_n_workers(client);
    me->end = &me->first;
    me->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (me->wake < 0 || pthread_mutex_init(&me->lock, NULL)) {
        if (me->wake >= 0)
            close(me->wake);
        gw_free(context, me);
        return gw_fail(GW_ERR_SYSTEM, "no eventfd or no lock for the link to servers");
    }
    *out = (gw_link){
        .ops = &servers_ops, .self = me, .rank = me->rank, .size = me->size, .n_owners = gw_ps_client_servers(client)};
    return GW_OK;
}
