/* Lets a worker join a run at parameter servers, admit others and leave. At the end it compares its parameters with
 * those of the other workers. */
#include "run/elastic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define STATE_KEY "exchange/state"
#define LOOK_MS 1000 /* between looks whether another worker is still there */

/* ---- what all workers have alike: parameters, moments, moving average ---------------------------------------- */

/* Returns how many arrays there are. They come first. */
static uint32_t arrays_of(const struct gw_worker *w, float *arrays[GW_ARRAYS])
{
    uint32_t n = 0;
    gw_worker_arrays(w, arrays);
    for (int k = 0; k < GW_ARRAYS; k++)
        if (arrays[k])
            arrays[n++] = arrays[k];
    return n;
}

static gw_status init_state(const struct gw_worker *w, gw_ps_client *client, uint32_t n_arrays)
{
    const gw_ps_shape shape = {.n_dims = 2, .dims = {n_arrays, w->team->network.n_storage}};
    return gw_ps_init(client, STATE_KEY,
                      &(gw_ps_key_options){.struct_bytes = sizeof(gw_ps_key_options),
                                           .type = GW_PS_FLOAT32,
                                           .shape = shape});
}

/* Puts the state on the servers, for workers that begin with that round. */
static gw_status put_state(const struct gw_worker *w, gw_ps_client *client, uint64_t round)
{
    float *arrays[GW_ARRAYS];
    const uint32_t n_arrays = arrays_of(w, arrays);
    const size_t n = w->team->network.n_storage;
    GW_TRY(init_state(w, client, n_arrays));
    float *floats = gw_alloc(NULL, n_arrays * n, sizeof *floats);
    if (!floats)
        return GW_ERR_MEMORY;
    for (size_t i = 0; i < n_arrays; i++)
        memcpy(floats + i * n, arrays[i], n * sizeof *floats);
    gw_status status = gw_ps_put(client, STATE_KEY, round, floats, n_arrays * n * sizeof *floats);
    gw_free(NULL, floats);
    return status;
}

static gw_status get_state(struct gw_worker *w, uint64_t round)
{
    float *arrays[GW_ARRAYS];
    const uint32_t n_arrays = arrays_of(w, arrays);
    const size_t n_bytes = w->team->network.n_storage * sizeof(float);
    gw_ps_value value;
    gw_status status = init_state(w, w->elastic.client, n_arrays);
    if (status == GW_ERR_ARGUMENT)
        return gw_fail(
            status,
            "rank %u was not started with the --net, --optimizer, --momentum and --ema of the run on these servers: %s",
            w->rank, gw_last_error());
    GW_TRY(status);
    GW_TRY(gw_ps_get(w->elastic.client, STATE_KEY, round, &value));
    status = value.n_bytes == n_arrays * n_bytes && value.round == round
                 ? GW_OK
                 : gw_fail(GW_ERR_PEER, "the state for round %llu came as that of round %llu, in %zu bytes",
                           (unsigned long long)round, (unsigned long long)value.round, value.n_bytes);
    for (size_t i = 0; status == GW_OK && i < n_arrays; i++)
        memcpy(arrays[i], (const char *)value.bytes + i * n_bytes, n_bytes);
    gw_ps_value_free(&value);
    return status;
}

/* Gets the parameters of a run that has begun. It does not put first parameters: a server that has lost its parameters
 * would take them for those of the run. */
static gw_status parameters_of_run(struct gw_worker *w)
{
    gw_status status = gw_worker_parameters(w, gw_exchange_pull_parameters);
    if (status != GW_ERR_TIMEOUT && status != GW_ERR_PEER)
        return status;
    return gw_fail(status,
                   "%s; a server that has lost this run's parameters must be started with its own --snapshot folder, "
                   "or all of them anew",
                   gw_last_error());
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

/* Each step that was not reached before starts the waiting time again. In mode stale:S a worker joins at once, behind
 * its own last push, whoever is missing. So if it joins again, only a step that it makes then is progress. */
static void note_progress(struct gw_worker *w, uint64_t t)
{
    struct gw_elastic *e = &w->elastic;
    const bool at_once = gw_ps_client_info(e->client).mode != GW_PS_SYNC && e->n_joins > 0 && t == w->team->begin;
    if (t + 1 <= e->reached || at_once)
        return;
    e->reached = t + 1;
    e->last_step = gw_clock_seconds();
}

gw_status gw_elastic_join(struct gw_worker *w, uint64_t *t)
{
    struct gw_team *team = w->team;
    struct gw_elastic *e = &w->elastic;
    uint64_t round;
    w->fetched = false;
    e->options = team->members->servers;
    e->options.rank = w->rank;
    e->options.joins = true;
    GW_TRY(gw_members_client(team->members, &e->options, &e->client));
    if (gw_ps_client_info(e->client).n_workers != team->options->workers)
        return gw_fail(GW_ERR_ARGUMENT, "the parameter servers are for %u workers, and --workers is %u",
                       gw_ps_client_info(e->client).n_workers, team->options->workers);
    GW_TRY(gw_ps_join(e->client, &round));
    if (round == 1 && w->steps_done > 0)
        return gw_fail(GW_ERR_CLOSED,
                       "nobody takes part any more: while rank %u was away after step %llu the others have ended the "
                       "run, or have gone too",
                       w->rank, (unsigned long long)w->steps_done);
    *t = team->begin = round - 1;
    if (*t >= team->steps)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the run on these servers has made %llu steps, and this one is to have %llu: for another run "
                       "start them anew, "
                       "with other folders of snapshots",
                       (unsigned long long)*t, (unsigned long long)team->steps);
    if (*t > 0 && !*team->server_optimizer)
        GW_TRY(get_state(w, round));
    else
        gw_worker_begin(w);
    GW_TRY(gw_worker_exchange(w, e->client));
    if (*w->team->server_optimizer)
        GW_TRY(*t > 0 ? parameters_of_run(w) : gw_worker_parameters(w, gw_exchange_init_parameters));
    if (*t > 0 || e->n_joins > 0)
        gw_train_note(team->callbacks, "rank %u takes part from step %llu of %llu on", w->rank,
                      (unsigned long long)*t + 1, (unsigned long long)team->steps);
    note_progress(w, *t);
    e->n_joins++;
    return GW_OK;
}

void gw_elastic_leave(struct gw_worker *w)
{
    struct gw_elastic *e = &w->elastic;
    gw_exchange_destroy(w->exchange);
    w->exchange = NULL;
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
    if (status == GW_ERR_TIMEOUT && w->steps_done == 0) /* somebody never came: the same would happen again */
        return false;
    if (gw_clock_seconds() - w->elastic.last_step > patience || gw_team_may_stop(team))
        return false;
    gw_train_note(team->callbacks, "rank %u joins again after step %llu: %s", w->rank,
                  (unsigned long long)w->steps_done, gw_last_error());
    return true;
}

/* ---- letting others in --------------------------------------------------------------------------------------- */

static gw_status admit_all(struct gw_worker *w, const gw_ps_presence *presence, uint64_t t)
{
    gw_ps_client *side = w->elastic.side;
    bool ready = false;
    for (uint32_t r = 0; r < w->team->options->workers; r++) {
        if (presence[r] != GW_PS_JOINING)
            continue;
        if (!ready && !*w->team->server_optimizer) /* else the servers have the state */
            GW_TRY(put_state(w, side, t + 1));
        ready = true;
        /* GW_ERR_PEER: that worker has gone again. GW_ERR_ORDER: this one was left out; its next push will say so. */
        gw_status status = gw_ps_admit(side, r, t + 1);
        if (status == GW_OK)
            gw_train_note(w->team->callbacks, "rank %u is let in from step %llu on", r, (unsigned long long)t + 1);
        else if (status != GW_ERR_PEER && status != GW_ERR_ORDER)
            return status;
    }
    return GW_OK;
}

/* Notes it only once: servers say it at every push, until they can write again. */
static void note_unkept(struct gw_worker *w)
{
    if (!gw_ps_take_notice(w->elastic.client, GW_PS_NOTICE_IN_MEMORY) || w->elastic.unkept_noted)
        return;
    w->elastic.unkept_noted = true;
    gw_train_note(w->team->callbacks,
                  "rank %u: a server cannot write its snapshot folder; what it has is lost if it is killed now (its "
                  "log says why)",
                  w->rank);
}

gw_status gw_elastic_admit(struct gw_worker *w, uint64_t t)
{
    struct gw_elastic *e = &w->elastic;
    note_progress(w, t);
    note_unkept(w);
    if (!gw_ps_take_notice(e->client, GW_PS_NOTICE_JOIN))
        return GW_OK;
    gw_ps_client_options options = e->options;
    options.rank = GW_PS_READER, options.joins = false;
    if (!e->side)
        GW_TRY(gw_ps_client_create(NULL, &options, &e->side));
    gw_ps_presence *presence = gw_calloc(NULL, w->team->options->workers, sizeof *presence);
    if (!presence)
        return GW_ERR_MEMORY;
    gw_status status = gw_ps_members(e->side, presence, w->team->options->workers, NULL);
    if (status == GW_OK)
        status = admit_all(w, presence, t);
    gw_free(NULL, presence);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* Makes the key at which a worker puts a number at the end. */
static gw_status init_number(gw_ps_client *side, const char *what, uint32_t rank, char name[64])
{
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    snprintf(name, 64, "exchange/%s of rank %u", what, rank);
    return gw_ps_init(
        side, name, &(gw_ps_key_options){.struct_bytes = sizeof(gw_ps_key_options), .type = GW_PS_INT64, .shape = one});
}

/* Waits for the number of another worker, and gets it. If that worker no longer takes part and has put none, *number
 * does not change. In mode sync all have pushed to the last round, so one that says nothing is stopped, and is taken as
 * gone, too. Without rounds it may be far behind; then only the user ends the wait. begin: since when it is awaited. */
static gw_status number_of(struct gw_worker *w, gw_ps_client *side, const char *what, uint32_t rank, double begin,
                           uint64_t *number)
{
    const struct gw_team *team = w->team;
    const bool sync = gw_ps_client_info(side).mode == GW_PS_SYNC;
    const double timeout = team->options->timeout_s;
    bool there = true, noted = false;
    char name[64];
    gw_ps_presence *presence = gw_calloc(NULL, team->options->workers, sizeof *presence);
    gw_ps_value value = {.bytes = NULL};
    gw_status status = presence ? init_number(side, what, rank, name) : GW_ERR_MEMORY;
    while (status == GW_OK && there && !value.bytes) {
        /* First ask whether it is there: a worker that has left may have put its number before. */
        status = gw_ps_members(side, presence, team->options->workers, NULL);
        const double waited = gw_clock_seconds() - begin;
        const bool late = waited >= 2 * timeout;
        there =
            (presence[rank] == GW_PS_PRESENT && !(sync && late)) || (presence[rank] == GW_PS_AWAY && waited < timeout);
        if (status == GW_OK && (status = gw_ps_get(side, name, team->steps, &value)) == GW_ERR_TIMEOUT)
            status = GW_OK; /* that worker is behind; without rounds, workers end one after the other */
        if (status == GW_OK && !value.bytes && presence[rank] == GW_PS_PRESENT && late && !noted)
            gw_train_note(team->callbacks, "rank %u takes part, and has not ended %.0f seconds after rank %u, which %s",
                          rank, waited, w->rank, sync ? "goes on without it" : "waits for it");
        noted = late;
        if (status == GW_OK && !value.bytes && late && gw_team_may_stop(team)) /* one that ends well gets its files */
            status = gw_fail(GW_ERR_CLOSED, "stopped, as asked, while it waited for the end of rank %u", rank);
    }
    gw_free(NULL, presence);
    if (value.bytes)
        memcpy(number, value.bytes, sizeof *number);
    gw_ps_value_free(&value);
    return status;
}

/* Puts this worker's number, and waits for those of all that take part. *alike: all numbers are the same. */
static gw_status meet(struct gw_worker *w, const char *what, uint64_t own, bool *alike)
{
    gw_ps_client_options options = w->elastic.options;
    gw_ps_client *side;
    const double begin = gw_clock_seconds();
    char name[64];
    options.rank = GW_PS_READER, options.joins = false, options.timeout_ms = LOOK_MS;
    *alike = true;
    GW_TRY(gw_ps_client_create(NULL, &options, &side));
    gw_status status = init_number(side, what, w->rank, name);
    if (status == GW_OK)
        status = gw_ps_put(side, name, w->team->steps, &own, sizeof own);
    for (uint32_t r = 0; r < w->team->options->workers && status == GW_OK; r++) {
        uint64_t other = own;
        if (r != w->rank)
            status = number_of(w, side, what, r, begin, &other);
        *alike = *alike && other == own;
    }
    gw_ps_client_destroy(side);
    return status;
}

gw_status gw_elastic_meet(struct gw_worker *w)
{
    bool alike;
    return meet(w, "end", 0, &alike);
}

gw_status gw_elastic_compare(struct gw_worker *w, bool *identical)
{
    return meet(w, "hash", w->hash, identical);
}
