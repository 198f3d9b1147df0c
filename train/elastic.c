#include "elastic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define STATE_KEY "exchange/state"
#define HASH_KEY "exchange/hash"

/* ---- what all workers have alike: parameters, moments, moving average ---------------------------------------- */

struct parts {
    float *at[4];
    size_t n; /* of them */
};

static struct parts parts_of(const struct gw_worker *w)
{
    float *const all[] = {w->params, w->moments[0], w->moments[1], w->ema};
    struct parts parts = {.n = 0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            parts.at[parts.n++] = all[i];
    return parts;
}

static gw_status init_state(const struct gw_worker *w, gw_ps_client *client, const struct parts *parts)
{
    const gw_ps_shape shape = {.n_dims = 2, .dims = {parts->n, w->team->network.n_storage}};
    return gw_ps_init_parameter(client, STATE_KEY, GW_PS_FLOAT32, &shape);
}

/* For those who begin with that round. */
static gw_status put_state(const struct gw_worker *w, gw_ps_client *client, uint64_t round)
{
    const struct parts parts = parts_of(w);
    const size_t n = w->team->network.n_storage;
    GW_TRY(init_state(w, client, &parts));
    float *floats = gw_alloc(NULL, parts.n * n, sizeof *floats);
    if (!floats)
        return GW_ERR_MEMORY;
    for (size_t i = 0; i < parts.n; i++)
        memcpy(floats + i * n, parts.at[i], n * sizeof *floats);
    gw_status status = gw_ps_put_parameter(client, STATE_KEY, round, floats, parts.n * n * sizeof *floats);
    gw_free(NULL, floats);
    return status;
}

static gw_status get_state(struct gw_worker *w, uint64_t round)
{
    const struct parts parts = parts_of(w);
    const size_t n_bytes = w->team->network.n_storage * sizeof(float);
    gw_ps_value value;
    GW_TRY(init_state(w, w->elastic.client, &parts));
    GW_TRY(gw_ps_get_parameter(w->elastic.client, STATE_KEY, round, &value));
    gw_status status = value.n_bytes == parts.n * n_bytes && value.round == round
                           ? GW_OK
                           : gw_fail(GW_ERR_PEER, "the state for round %llu came as that of round %llu, in %zu bytes", (unsigned long long)round,
                                     (unsigned long long)value.round, value.n_bytes);
    for (size_t i = 0; status == GW_OK && i < parts.n; i++)
        memcpy(parts.at[i], (const char *)value.bytes + i * n_bytes, n_bytes);
    gw_ps_value_free(&value);
    w->version++;
    return status;
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

gw_status gw_elastic_join(struct gw_worker *w, uint64_t *t)
{
    struct gw_team *team = w->team;
    struct gw_elastic *e = &w->elastic;
    uint64_t round;
    e->options = team->members->servers;
    e->options.rank = w->rank;
    e->options.joins = true;
    GW_TRY(gw_ps_client_create(NULL, &e->options, &e->client));
    if (gw_ps_n_workers(e->client) != team->options->workers)
        return gw_fail(GW_ERR_ARGUMENT, "the parameter servers are for %u workers, and --workers is %u", gw_ps_n_workers(e->client),
                       team->options->workers);
    GW_TRY(gw_ps_join(e->client, &round));
    if (round == 1 && w->steps_done > 0)
        return gw_fail(GW_ERR_CLOSED, "nobody takes part any more: while rank %u was away after step %llu the others have ended the run, or have gone too",
                       w->rank, (unsigned long long)w->steps_done);
    *t = team->begin = round - 1;
    if (*t > team->steps)
        return gw_fail(GW_ERR_ARGUMENT, "the servers are at step %llu, and this run is to have %llu", (unsigned long long)*t,
                       (unsigned long long)team->steps);
    if (*t > 0)
        GW_TRY(get_state(w, round));
    else
        gw_worker_begin(w);
    GW_TRY(gw_link_servers_create(team->context, e->client, &e->link));
    GW_TRY(gw_worker_exchange(w, e->link));
    if (*t > 0 || e->n_joins > 0)
        gw_train_note(team->callbacks, "rank %u takes part from step %llu of %llu on", w->rank, (unsigned long long)*t + 1,
                      (unsigned long long)team->steps);
    e->last_step = gw_clock_seconds();
    e->n_joins++;
    return GW_OK;
}

void gw_elastic_leave(struct gw_worker *w)
{
    struct gw_elastic *e = &w->elastic;
    gw_exchange_destroy(w->exchange);
    w->exchange = NULL;
    if (e->link.ops)
        e->link.ops->destroy(e->link.self);
    e->link = (gw_link){.ops = NULL};
    gw_ps_client_destroy(e->client);
    gw_ps_client_destroy(e->side);
    e->client = e->side = NULL;
}

bool gw_elastic_goes_on(struct gw_worker *w, gw_status status)
{
    const struct gw_team *team = w->team;
    const double patience = 2.0 * team->options->timeout_s;
    if (status != GW_ERR_PEER && status != GW_ERR_TIMEOUT)
        return false;
    if (gw_clock_seconds() - w->elastic.last_step > patience || (team->callbacks && team->callbacks->stop && team->callbacks->stop(team->callbacks->user)))
        return false;
    gw_train_note(team->callbacks, "rank %u joins again after step %llu: %s", w->rank, (unsigned long long)w->steps_done, gw_last_error());
    return true;
}

/* ---- letting others in --------------------------------------------------------------------------------------- */

static gw_status side_client(struct gw_worker *w, gw_ps_client **side)
{
    struct gw_elastic *e = &w->elastic;
    gw_ps_client_options options = e->options;
    options.rank = GW_PS_READER;
    options.joins = false;
    if (!e->side)
        GW_TRY(gw_ps_client_create(NULL, &options, &e->side));
    *side = e->side;
    return GW_OK;
}

static gw_status admit_all(struct gw_worker *w, gw_ps_client *side, const uint8_t *presence, uint64_t t)
{
    bool ready = false;
    for (uint32_t r = 0; r < w->team->options->workers; r++) {
        if (presence[r] != GW_PS_JOINING)
            continue;
        if (!ready)
            GW_TRY(put_state(w, side, t + 1));
        ready = true;
        gw_status status = gw_ps_admit(side, r, t + 1);
        if (status == GW_OK)
            gw_train_note(w->team->callbacks, "rank %u is let in from step %llu on", r, (unsigned long long)t + 1);
        else if (status != GW_ERR_PEER) /* that one: it has gone again */
            return status;
    }
    return GW_OK;
}

gw_status gw_elastic_admit(struct gw_worker *w, uint64_t t)
{
    gw_ps_client *side;
    w->elastic.last_step = gw_clock_seconds();
    if (!gw_ps_is_asked(w->elastic.client))
        return GW_OK;
    GW_TRY(side_client(w, &side));
    uint8_t *presence = gw_calloc(NULL, w->team->options->workers, 1);
    if (!presence)
        return GW_ERR_MEMORY;
    gw_status status = gw_ps_members(side, presence, NULL);
    if (status == GW_OK)
        status = admit_all(w, side, presence, t);
    gw_free(NULL, presence);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* The exchange is over, so its client can be used: one more round, of hashes. */
gw_status gw_elastic_compare(struct gw_worker *w, bool *identical)
{
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    gw_ps_client *client = w->elastic.client;
    gw_exchange_destroy(w->exchange);
    w->exchange = NULL;
    *identical = true;
    GW_TRY(gw_ps_init_parameter(client, HASH_KEY, GW_PS_INT64, &one));
    GW_TRY(gw_ps_push_parameter(client, HASH_KEY, &w->hash, sizeof w->hash));
    const gw_ps_method ends[] = {GW_PS_MIN, GW_PS_MAX};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        gw_ps_value value;
        GW_TRY(gw_ps_pull_parameter(client, HASH_KEY, ends[i], NULL, &value));
        *identical = *identical && memcmp(value.bytes, &w->hash, sizeof w->hash) == 0;
        gw_ps_value_free(&value);
    }
    return GW_OK;
}
