/* A world of members for tests of the exchange: threads over the local link, each running steps on gradients that
 * follow from a seed. The same averages are worked out plainly for comparison. Threads write down what they saw; only
 * the main thread asserts. */
#ifndef GW_TESTS_EXCHANGE_WORLD_H
#define GW_TESTS_EXCHANGE_WORLD_H

#include "checks.h"
#include "examples.h"
#include "exchange/state.h"
#include "link/message.h"

#include <gradwire/exchange.h>
#include <gradwire/pserver.h>

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory that counts, and fails once ---------------------------------------------------------------- */

static atomic_long world_live; /* blocks that were taken and not given back, in all contexts */

struct failing {
    atomic_long left; /* how many allocations are left until the one that fails */
};

static void *world_alloc(size_t bytes, void *user)
{
    struct failing *failing = user;
    if (failing && atomic_fetch_sub(&failing->left, 1) == 1)
        return NULL;
    void *memory = malloc(bytes);
    if (memory)
        atomic_fetch_add(&world_live, 1);
    return memory;
}

static void world_free(void *memory, void *user)
{
    (void)user;
    if (memory)
        atomic_fetch_sub(&world_live, 1);
    free(memory);
}

static gw_context *world_context_of(struct failing *failing)
{
    gw_allocator allocator = {world_alloc, world_free, failing};
    gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    gw_context *context;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    return context;
}

static gw_context *world_context(void)
{
    return world_context_of(NULL);
}

/* ---- tensors of very different sizes, alone and in groups ---------------------------------------------------- */

static const uint64_t mixed_sizes[] = {5000, 0, 1, 33001, 7, 70001, 1024};
static const uint32_t one_group[] = {0, 0, 0, 0, 0, 0, 0};
static const uint32_t three_groups[] = {2, 0, 1, 1, 0, 2, 2};

#define N_MIXED (sizeof mixed_sizes / sizeof mixed_sizes[0])

/* ---- the world ----------------------------------------------------------------------------------------- */

#define WORLD_MAX_STEPS 16u
#define WORLD_MAX_SERVERS 3u

struct world;

/* A gradient that is not finite. */
struct poison {
    uint32_t step, rank, tensor;
    uint64_t index;
};

/* Says which member changes the wire choice before every step. Rank 0 begins with fast. The others are one step behind
 * or ahead. */
enum flips { FLIP_NOBODY, FLIP_LEADER, FLIP_ALL };

enum quits { QUIT_NOT, QUIT_DESTROY, QUIT_SILENT, QUIT_WRONG_STEP, QUIT_LEAVE };

struct member {
    struct world *world;
    uint32_t rank;
    pthread_t thread;
    struct failing failing;
    gw_context *context;
    gw_link link;         /* what the exchange gets */
    gw_ps_client *client; /* if servers own the slices, the exchange gets this in place of the link */

    /* A link around the local one. It counts what crosses. With world.chaos it delivers in any order that keeps the
     * order of each pair. */
    gw_link inner;
    struct gw_message_queue *arrived; /* one for each sender */
    uint64_t chaos_state;
    uint32_t n_received; /* from others */

    /* What the thread saw. */
    gw_status status; /* the first status that was not GW_OK */
    char sentence[512];
    gw_status again; /* the status of a gw_exchange_begin after that */
    uint32_t steps_done;
    gw_step_result results[WORLD_MAX_STEPS];
    uint64_t hash[WORLD_MAX_STEPS];   /* of all averages of a step */
    float **average[WORLD_MAX_STEPS]; /* rank 0 only: the average of each tensor */
    gw_tensor_traffic *traffic;       /* of the last step, if world.account is set */
    gw_encoder_condition *conditions; /* after the last step, if world.account is set */
    gw_wire_report wire;              /* after the last step */
};

struct world {
    /* What the test asks for. All other fields are 0. */
    const char *spec;
    uint32_t n; /* members */
    const uint64_t *sizes;
    uint32_t n_tensors, n_steps;
    const uint32_t *group_of;
    uint64_t seed;       /* of gradients and draws */
    uint64_t order_seed; /* of shuffles and pauses */
    bool shuffle, dawdle, chaos, account;
    bool leaves;     /* each member says so when it has made all its steps */
    uint32_t rounds; /* exchanges one after the other on the same links; 0 means 1 */
    uint32_t timeout_ms;
    const uint32_t *machine_of, *link_machines; /* machine_of: of the options; link_machines: of the link */
    uint64_t slice_max;                         /* 0: the format's */
    bool send_all;                              /* the link has a send_all */
    gw_wire wire;                               /* of the options */
    enum flips flips;
    uint32_t n_servers;           /* parameter servers that own the slices; 0: the members do */
    const char *server_optimizer; /* if not NULL, the servers keep parameters, and these take the place of averages */
    gw_ps_mode mode;              /* of the servers */
    /* makes the links of the members, which the exchanges get as they are; NULL: local links, and a link around each */
    void (*meet)(gw_context *context, uint32_t n, gw_link *links);
    const struct poison *poisons;
    uint32_t n_poisons;
    enum quits quits; /* `quitter` does this in step quits_step, after it has submitted quits_after tensors */
    uint32_t quitter, quits_step, quits_after;
    bool drops_averages; /* the averages of the step before quits_step that it sends to rank 0 are lost */
    long late_us;        /* rank 0 begins step quits_step so much later than the others */
    uint32_t victim;     /* the member whose allocation number fails_at fails, counted from gw_exchange_create on; 0:
                          * none */
    long fails_at;
    uint32_t spoils_at; /* the number of the message that arrives altered, of those that rank 0 receives from others,
                         * from 1 on; 0: none */

    /* The test does not set the rest. */
    gw_context *context;
    gw_codec *codec;
    gw_tensor *tensors;
    struct member *members;
    atomic_ullong crossed; /* bytes between different members, but for the first and the last messages */
    atomic_ullong largest; /* bytes of the largest message */
    atomic_uint n_finished;
    pthread_barrier_t round_over;
    gw_ps_server *servers[WORLD_MAX_SERVERS];
    pthread_t server_threads[WORLD_MAX_SERVERS];
};

static uint64_t world_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u; /* this is splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Element i of a gradient. It is bell-shaped with a few outliers. Each tensor has another size of elements. */
static float world_gradient(const struct world *w, uint32_t rank, uint32_t step, uint32_t tensor, uint64_t i)
{
    uint64_t x = world_mix(i ^ world_mix(w->seed ^ world_mix((uint64_t)rank << 40 ^ (uint64_t)step << 20 ^ tensor)));
    int32_t sum = (int32_t)(x & 0xFFFF) + (int32_t)(x >> 16 & 0xFFFF) + (int32_t)(x >> 32 & 0xFFFF) - 98304;
    float g = (float)sum * 1e-6f * (float)(1 + tensor);
    return x >> 56 == 77 ? 20 * g : g;
}

/* The first parameters, which rank 0 hands over. */
static float world_first(const struct world *w, uint32_t tensor, uint64_t i)
{
    return world_gradient(w, 99, 0, tensor, i);
}

/* The rate of a step. If the ranks' rates must not matter, ranks other than 0 give another one. */
static double world_rate(const struct world *w, uint32_t rank, uint32_t step)
{
    return rank && w->mode == GW_PS_SYNC ? 7 : 0.1 / (step + 1);
}

static bool world_poisoned(const struct world *w, uint32_t step)
{
    for (uint32_t p = 0; p < w->n_poisons; p++)
        if (w->poisons[p].step == step)
            return true;
    return false;
}

static void world_fill(const struct world *w, uint32_t rank, uint32_t step, uint32_t tensor, float *g)
{
    for (uint64_t i = 0; i < w->sizes[tensor]; i++)
        g[i] = world_gradient(w, rank, step, tensor, i);
    for (uint32_t p = 0; p < w->n_poisons; p++)
        if (w->poisons[p].step == step && w->poisons[p].rank == rank && w->poisons[p].tensor == tensor)
            g[w->poisons[p].index] = rank % 2 ? NAN : INFINITY;
}

static void world_pause(long microseconds)
{
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

/* ---- the link around the link -------------------------------------------------------------------------- */

static gw_status world_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct member *m = self;
    unsigned long long largest = atomic_load(&m->world->largest);
    while (n_bytes > largest && !atomic_compare_exchange_weak(&m->world->largest, &largest, n_bytes))
        ;
    const uint8_t type = *(uint8_t *)bytes;
    if (to != m->rank && type != MESSAGE_HELLO && type != MESSAGE_LEAVE && type != MESSAGE_WAITING)
        atomic_fetch_add(&m->world->crossed, n_bytes);
    if (m->world->drops_averages && m->rank == m->world->quitter && to == 0 && type == MESSAGE_PULL &&
        message_header_read(bytes).step + 1 == m->world->quits_step) {
        gw_message_free(bytes);
        return GW_OK;
    }
    return m->inner.ops->send(m->inner.self, to, bytes, n_bytes, timeout_ms);
}

/* Flips a bit of a message that has arrived, or cuts it. */
static void world_spoil(struct member *m, gw_message *message)
{
    if (m->rank != 0 || message->from == 0 || ++m->n_received != m->world->spoils_at)
        return;
    uint64_t x = world_mix(m->world->order_seed);
    size_t within = x & 1 && message->n_bytes > 64 ? 64 : message->n_bytes; /* headers are hit more often than their
                                                                             * share */
    if (x >> 1 & 3)
        ((uint8_t *)message->bytes)[(x >> 16) % within] ^= (uint8_t)(1u << (x >> 8 & 7));
    else
        message->n_bytes = (x >> 16) % within;
}

static gw_status world_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct member *m = self;
    if (!m->world->chaos) {
        gw_status status = m->inner.ops->recv(m->inner.self, timeout_ms, message);
        if (status == GW_OK)
            world_spoil(m, message);
        return status;
    }
    for (uint32_t wait = 0;; wait = timeout_ms) {
        gw_status status;
        while ((status = m->inner.ops->recv(m->inner.self, wait, message)) == GW_OK) {
            gw_message_queue_put(&m->arrived[message->from], message);
            wait = 0;
        }
        uint32_t first = (uint32_t)((m->chaos_state = world_mix(m->chaos_state)) % m->world->n);
        for (uint32_t i = 0; i < m->world->n; i++)
            if (gw_message_queue_take(&m->arrived[(first + i) % m->world->n], message))
                return GW_OK;
        if (status != GW_ERR_TIMEOUT || wait == timeout_ms)
            return status;
    }
}

static void world_close(void *self)
{
    struct member *m = self;
    m->inner.ops->close(m->inner.self);
}

static void world_destroy(void *self)
{
    struct member *m = self;
    for (uint32_t r = 0; r < m->world->n; r++)
        gw_message_queue_clear(&m->arrived[r]);
    free(m->arrived);
    gw_link_destroy(&m->inner);
}

/* Sends a copy to each member, as a link without a better way would. */
static gw_status world_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct member *m = self;
    gw_status status = GW_OK;
    for (uint32_t r = 0; r < m->world->n && status == GW_OK; r++) {
        void *copy = r == m->rank ? NULL : gw_message_alloc(m->context, n_bytes);
        if (copy)
            memcpy(copy, bytes, n_bytes);
        if (r != m->rank)
            status = copy ? world_send(self, r, copy, n_bytes, timeout_ms) : GW_ERR_MEMORY;
    }
    gw_message_free(bytes);
    return status;
}

static const gw_link_ops world_ops = {
    .name = "world", .send = world_send, .recv = world_recv, .close = world_close, .destroy = world_destroy};
static const gw_link_ops world_ops_all = {.name = "world, to all",
                                          .send = world_send,
                                          .send_all = world_send_all,
                                          .recv = world_recv,
                                          .close = world_close,
                                          .destroy = world_destroy};

/* ---- a member's thread ---------------------------------------------------------------------------------- */

/* True if all is well. Else it writes down what is wrong, once. */
static bool world_good(struct member *m, gw_status status)
{
    if (status < 0 && m->status == GW_OK) {
        m->status = status;
        snprintf(m->sentence, sizeof m->sentence, "%s", gw_last_error());
    }
    return status == GW_OK;
}

static void world_order(const struct world *w, uint32_t rank, uint32_t step, uint32_t *order)
{
    uint64_t state = world_mix(w->order_seed ^ (uint64_t)rank << 32 ^ step);
    for (uint32_t t = 0; t < w->n_tensors; t++)
        order[t] = w->n_tensors - 1 - t; /* the order of backward */
    for (uint32_t t = w->n_tensors; w->shuffle && t > 1; t--) {
        uint32_t other = (uint32_t)((state = world_mix(state)) % t), swap = order[t - 1];
        order[t - 1] = order[other];
        order[other] = swap;
    }
}

static bool world_step(struct member *m, gw_exchange *ex, uint32_t step, float **gradients)
{
    struct world *w = m->world;
    bool quits = w->quits && m->rank == w->quitter && step == w->quits_step;
    uint32_t order[64];
    world_order(w, m->rank, step, order);
    if (m->rank == 0 && step == w->quits_step && w->late_us)
        world_pause(w->late_us);
    if (w->flips == FLIP_ALL || (w->flips == FLIP_LEADER && m->rank == 0))
        world_good(m, gw_exchange_set(ex, GW_EXCHANGE_WIRE, (step + m->rank) % 2 ? GW_WIRE_SMALL : GW_WIRE_FAST));
    if (w->server_optimizer && !world_good(m, gw_exchange_set(ex, GW_EXCHANGE_RATE, world_rate(w, m->rank, step))))
        return false;
    if (quits && w->quits == QUIT_LEAVE) {
        world_good(m, gw_exchange_leave(ex));
        return false;
    }
    if (!world_good(m, gw_exchange_begin(ex, quits && w->quits == QUIT_WRONG_STEP ? step + 1000 : step)))
        return false;
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        if (quits && i == w->quits_after && w->quits == QUIT_DESTROY)
            return false;
        if (quits && i == w->quits_after && w->quits == QUIT_SILENT)
            while (atomic_load(&w->n_finished) < w->n - 1)
                world_pause(1000);
        if (w->dawdle)
            world_pause((long)(world_mix(w->order_seed ^ m->rank * 77 ^ step * 7 ^ i) % 300));
        world_fill(w, m->rank, step, order[i], gradients[order[i]]);
        if (!world_good(m, gw_exchange_submit(ex, order[i], gradients[order[i]])))
            return false;
    }
    const gw_status status = gw_exchange_wait(ex, &m->results[step]);
    const bool dropped = status == GW_ERR_NONFINITE && !m->results[step].committed;
    if (!dropped && (!world_good(m, status) || !m->results[step].committed))
        return false;
    m->hash[step] = 0;
    for (uint32_t t = 0; t < w->n_tensors && m->results[step].committed; t++) {
        for (uint64_t i = 0; i < w->sizes[t]; i++) {
            uint32_t bits;
            memcpy(&bits, &gradients[t][i], sizeof bits);
            m->hash[step] = world_mix(m->hash[step] ^ bits);
        }
        if (m->rank == 0 && w->sizes[t])
            memcpy(m->average[step][t], gradients[t], w->sizes[t] * sizeof(float));
    }
    m->steps_done++;
    return true;
}

static void world_round(struct member *m, float **gradients)
{
    struct world *w = m->world;
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = w->codec,
                                   .tensors = w->tensors,
                                   .n_tensors = w->n_tensors,
                                   .group_of = w->group_of,
                                   .machine_of = w->machine_of,
                                   .servers = m->client,
                                   .seed = w->seed,
                                   .timeout_ms = w->timeout_ms,
                                   .wire = w->wire,
                                   .server_optimizer = w->server_optimizer};
    if (!m->client) {
        options.link = m->link;
        options.link.machine_of = w->link_machines;
    }
    gw_exchange *ex;
    m->steps_done = 0;
    if (!world_good(m, gw_exchange_create_as(m->context, &options, w->slice_max ? w->slice_max : GW_SLICE_MAX, false,
                                             &ex)))
        return;
    world_good(m, gw_exchange_set(ex, GW_EXCHANGE_ACCOUNT, w->account));
    for (uint32_t t = 0; w->server_optimizer && t < w->n_tensors; t++)
        for (uint64_t i = 0; i < w->sizes[t]; i++)
            gradients[t][i] = world_first(w, t, i);
    if (w->server_optimizer)
        world_good(m, gw_exchange_init_parameters(ex, gradients));
    for (uint32_t step = 0; step < w->n_steps; step++)
        if (!world_step(m, ex, step, gradients))
            break;
    if (m->status < 0)
        m->again = gw_exchange_begin(ex, 99);
    for (uint32_t t = 0; w->account && t < w->n_tensors && m->status == GW_OK; t++)
        world_good(m, gw_exchange_stats(
                          ex, &(gw_stats){.tensor = t, .traffic = &m->traffic[t], .condition = &m->conditions[t]}));
    if (m->status == GW_OK)
        world_good(m, gw_exchange_stats(ex, &(gw_stats){.wire = &m->wire}));
    if (w->leaves && m->status == GW_OK)
        world_good(m, gw_exchange_leave(ex));
    gw_exchange_destroy(ex);
}

static void *world_member(void *argument)
{
    struct member *m = argument;
    struct world *w = m->world;
    float **gradients = calloc(w->n_tensors, sizeof *gradients);
    for (uint32_t t = 0; t < w->n_tensors; t++)
        gradients[t] = malloc((w->sizes[t] + 1) * sizeof(float));
    if (w->fails_at && w->victim == m->rank)
        atomic_store(&m->failing.left, w->fails_at);
    for (uint32_t round = 0; round < (w->rounds ? w->rounds : 1); round++) {
        world_round(m, gradients);
        if (w->rounds)
            pthread_barrier_wait(&w->round_over);
    }
    for (uint32_t t = 0; t < w->n_tensors; t++)
        free(gradients[t]);
    free(gradients);
    atomic_fetch_add(&w->n_finished, 1);
    return NULL;
}

/* ---- parameter servers ------------------------------------------------------------------------------------ */

static void *world_serve(void *server)
{
    return (void *)(intptr_t)gw_ps_server_run(server);
}

static void world_start_servers(struct world *w, char *addresses, size_t n_bytes)
{
    addresses[0] = 0;
    for (uint32_t s = 0; s < w->n_servers; s++) {
        gw_ps_server_options options = {.struct_bytes = sizeof options,
                                        .listen = "127.0.0.1:0",
                                        .n_workers = w->n,
                                        .mode = w->mode,
                                        .staleness = 1};
        assert_int_equal(gw_ps_server_create(w->context, &options, &w->servers[s]), GW_OK);
        assert_int_equal(pthread_create(&w->server_threads[s], NULL, world_serve, w->servers[s]), 0);
        snprintf(addresses + strlen(addresses), n_bytes - strlen(addresses), "%s%s", s ? "," : "",
                 gw_ps_server_address(w->servers[s]));
    }
}

static void world_join_servers(struct member *m, const char *addresses)
{
    gw_ps_client_options options = {.struct_bytes = sizeof options,
                                    .servers = addresses,
                                    .rank = m->rank,
                                    .timeout_ms = m->world->timeout_ms};
    assert_int_equal(gw_ps_client_create(m->context, &options, &m->client), GW_OK);
}

static void world_stop_servers(struct world *w)
{
    void *status;
    for (uint32_t s = 0; s < w->n_servers; s++) {
        gw_ps_server_stop(w->servers[s]);
        pthread_join(w->server_threads[s], &status);
        assert_int_equal((intptr_t)status, GW_OK);
        gw_ps_server_destroy(w->servers[s]);
    }
}

/* ---- running and checking --------------------------------------------------------------------------------- */

static void world_run(struct world *w)
{
    gw_link *links = calloc(w->n, sizeof *links);
    atomic_store(&world_live, 0); /* a test that failed leaves blocks behind */
    w->context = world_context();
    w->members = calloc(w->n, sizeof *w->members);
    w->tensors = calloc(w->n_tensors, sizeof *w->tensors);
    assert_int_equal(gw_codec_parse(w->context, w->spec, &w->codec), GW_OK);
    if (w->meet)
        w->meet(w->context, w->n, links);
    else
        assert_int_equal(gw_link_local_create(w->context, w->n, links), GW_OK);
    pthread_barrier_init(&w->round_over, NULL, w->n);
    char addresses[64 * WORLD_MAX_SERVERS];
    world_start_servers(w, addresses, sizeof addresses);
    for (uint32_t t = 0; t < w->n_tensors; t++)
        w->tensors[t] = (gw_tensor){.id = t, .n_elems = w->sizes[t], .last_layer = t + 1 == w->n_tensors};
    for (uint32_t r = 0; r < w->n; r++) {
        struct member *m = &w->members[r];
        *m = (struct member){.world = w, .rank = r, .inner = links[r], .chaos_state = w->order_seed + r};
        atomic_init(&m->failing.left, LONG_MAX);
        m->context = world_context_of(&m->failing);
        m->link = (gw_link){.ops = w->send_all ? &world_ops_all : &world_ops, .self = m, .rank = r, .size = w->n};
        if (w->meet)
            m->link = links[r];
        if (w->n_servers)
            world_join_servers(m, addresses);
        m->arrived = w->meet ? NULL : calloc(w->n, sizeof *m->arrived);
        m->traffic = calloc(w->n_tensors, sizeof *m->traffic);
        m->conditions = calloc(w->n_tensors, sizeof *m->conditions);
        for (uint32_t step = 0; step < w->n_steps && r == 0; step++) {
            m->average[step] = calloc(w->n_tensors, sizeof **m->average);
            for (uint32_t t = 0; t < w->n_tensors; t++)
                m->average[step][t] = calloc(w->sizes[t] + 1, sizeof(float));
        }
    }
    for (uint32_t r = 0; r < w->n; r++)
        assert_int_equal(pthread_create(&w->members[r].thread, NULL, world_member, &w->members[r]), 0);
    for (uint32_t r = 0; r < w->n; r++)
        pthread_join(w->members[r].thread, NULL);
    free(links);
}

/* Gives everything back. Nothing that came from an allocator may be left. */
static void world_end(struct world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        struct member *m = &w->members[r];
        atomic_store(&m->failing.left, LONG_MAX);
        gw_link_destroy(&m->link);
        gw_ps_client_destroy(m->client);
        gw_context_destroy(m->context);
        free(m->traffic);
        free(m->conditions);
        for (uint32_t step = 0; step < w->n_steps && r == 0; step++) {
            for (uint32_t t = 0; t < w->n_tensors; t++)
                free(m->average[step][t]);
            free(m->average[step]);
        }
    }
    world_stop_servers(w);
    pthread_barrier_destroy(&w->round_over);
    gw_codec_destroy(w->codec);
    gw_context_destroy(w->context);
    free(w->tensors);
    free(w->members);
    assert_int_equal(atomic_load(&world_live), 0);
}

static void world_check_ok(const struct world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        const struct member *m = &w->members[r];
        if (m->status < 0)
            fail_msg("%s, %u members: rank %u: %s", w->spec, w->n, r, m->sentence);
        assert_int_equal(m->steps_done, w->n_steps);
        for (uint32_t step = 0; step < w->n_steps; step++)
            assert_true(m->results[step].committed);
    }
}

/* Works out the averages of one step with the codec's own functions, on whole tensors. encoders[r * n_tensors + t] is
 * that of tensor t and rank r. The encoders keep the codec's state from step to step. */
static void world_reference(const struct world *w, uint32_t step, gw_encoder **encoders, float **averages)
{
    float **gradients = calloc((size_t)w->n * w->n_tensors, sizeof *gradients);
    float **shared = calloc(w->n_tensors, sizeof *shared); /* of each tensor: the largest numbers of all members */
    float largest = 0;
    for (uint32_t t = 0; t < w->n_tensors; t++) {
        float *own = NULL;
        for (uint32_t r = 0; r < w->n; r++) {
            size_t at = (size_t)r * w->n_tensors + t;
            uint64_t n_shared = gw_encoder_traits_of(encoders[at]).n_shared;
            if (r == 0) {
                shared[t] = calloc(n_shared + 1, sizeof(float));
                own = calloc(n_shared + 1, sizeof(float));
            }
            gradients[at] = malloc((w->sizes[t] + 1) * sizeof(float));
            world_fill(w, r, step, t, gradients[at]);
            assert_int_equal(gw_encoder_measure(encoders[at], gradients[at], own, n_shared, NULL), GW_OK);
            for (uint64_t i = 0; i < n_shared; i++) {
                shared[t][i] = fmaxf(shared[t][i], own[i]);
                largest = fmaxf(largest, own[i]);
            }
        }
        free(own);
    }
    for (uint32_t r = 0; r < w->n && gw_codec_traits_of(w->codec).global; r++)
        assert_int_equal(gw_encoders_combine(encoders + (size_t)r * w->n_tensors, w->n_tensors, NULL), GW_OK);
    for (uint32_t t = 0; t < w->n_tensors; t++) {
        const void **frames = calloc(w->n, sizeof *frames);
        size_t *sizes = calloc(w->n, sizeof *sizes);
        uint64_t n_shared = gw_encoder_traits_of(encoders[t]).n_shared;
        for (uint64_t i = 0; i < n_shared && gw_codec_traits_of(w->codec).global; i++)
            shared[t][i] = largest;
        for (uint32_t r = 0; r < w->n; r++) {
            size_t at = (size_t)r * w->n_tensors + t, capacity = gw_encoder_bound(encoders[at], w->sizes[t]);
            gw_draw draw = {.seed = w->seed, .rank = r, .step = step};
            void *frame = malloc(capacity);
            assert_int_equal(gw_encoder_encode(encoders[at], gradients[at], n_shared ? shared[t] : NULL, &draw, 0,
                                               w->sizes[t], frame, capacity, &sizes[r]),
                             GW_OK);
            frames[r] = frame;
        }
        gw_reduce_options options = {.struct_bytes = sizeof options, .codec = w->codec};
        size_t used, capacity = gw_reduce_bound(frames, sizes, w->n);
        void *average = malloc(capacity);
        assert_int_equal(gw_reduce(w->context, frames, sizes, w->n, &options, average, capacity, &used), GW_OK);
        for (uint32_t r = 0; r < w->n; r++) { /* with momentum=, each makes the same of it */
            assert_int_equal(gw_decode(w->context, average, used, averages[t], w->sizes[t]), GW_OK);
            assert_int_equal(gw_encoder_deliver(encoders[(size_t)r * w->n_tensors + t], averages[t], 0, w->sizes[t]),
                             GW_OK);
        }
        free(average);
        for (uint32_t r = 0; r < w->n; r++) {
            free((void *)frames[r]);
            free(gradients[(size_t)r * w->n_tensors + t]);
        }
        free(frames);
        free(sizes);
        free(shared[t]);
    }
    free(shared);
    free(gradients);
    for (size_t i = 0; i < (size_t)w->n * w->n_tensors; i++)
        assert_int_equal(gw_encoder_commit(encoders[i], true), GW_OK);
}

/* Checks that all members hold the same bits in every step that was committed, and that these are the reference's. */
static void world_check_averages(const struct world *w)
{
    float **want = calloc(w->n_tensors, sizeof *want);
    size_t n_encoders = (size_t)w->n * w->n_tensors;
    gw_encoder **encoders = calloc(n_encoders, sizeof *encoders);
    for (size_t i = 0; i < n_encoders; i++)
        assert_int_equal(gw_encoder_create(w->context, w->codec, &w->tensors[i % w->n_tensors], &encoders[i]), GW_OK);
    for (uint32_t t = 0; t < w->n_tensors; t++)
        want[t] = calloc(w->sizes[t] + 1, sizeof(float));
    for (uint32_t step = 0; step < w->n_steps; step++) {
        if (world_poisoned(w, step))
            continue;
        for (uint32_t r = 1; r < w->n; r++)
            if (w->members[r].hash[step] != w->members[0].hash[step])
                fail_msg("%s, step %u: ranks 0 and %u of %u hold different averages", w->spec, step, r, w->n);
        world_reference(w, step, encoders, want);
        for (uint32_t t = 0; t < w->n_tensors; t++)
            if (memcmp(want[t], w->members[0].average[step][t], w->sizes[t] * sizeof(float)))
                fail_msg("%s, %u members, step %u: the average of tensor %u is not what the codec itself gives",
                         w->spec, w->n, step, t);
    }
    for (uint32_t t = 0; t < w->n_tensors; t++)
        free(want[t]);
    free(want);
    for (size_t i = 0; i < n_encoders; i++)
        gw_encoder_destroy(encoders[i]);
    free(encoders);
}

#endif
