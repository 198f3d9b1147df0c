/* One worker's parameters at the begin of a run, its exchanges, and its last word to the others. */
#include "base/append.h"
#include "base/error.h"
#include "disk/checkpoint.h"
#include "run/team.h"

#include <string.h>

void gw_worker_arrays(const struct gw_worker *w, float *arrays[GW_ARRAYS])
{
    arrays[GW_PARAMS] = w->params;
    arrays[GW_MOMENTUM] = w->snapshot ? w->snapshot : w->moments[0];
    arrays[GW_EMA] = w->ema;
    arrays[GW_VARIANCE] = w->moments[1];
}

void gw_worker_begin(struct gw_worker *w)
{
    const struct gw_team *team = w->team;
    float *const *kept = team->resume.checkpoint.arrays, *arrays[GW_ARRAYS];
    const size_t n_bytes = team->network.n_storage * sizeof(float);
    gw_worker_arrays(w, arrays);
    if (!kept[GW_PARAMS])
        gw_network_init(&team->network, team->options->seed, w->params);
    for (int k = 0; k < GW_ARRAYS; k++)
        if (arrays[k] && kept[k])
            memcpy(arrays[k], kept[k], n_bytes);
        else if (arrays[k] && k == GW_EMA)
            memcpy(w->ema, w->params, n_bytes);
        else if (arrays[k] && k != GW_PARAMS)
            memset(arrays[k], 0, n_bytes);
    if (w->statistics)
        memcpy(w->statistics, w->params + team->network.n_trained, gw_team_n_statistics(team) * sizeof(float));
}

/* Turns options into an identity, which may be twice as long: each line grows by two characters, and has at least
 * three. Options are lines "name value". Those of an identity are "name = value". */
static void write_identity(const char *options, char *identity)
{
    bool in_name = true;
    for (; *options; options++) {
        if (in_name && *options == ' ')
            *identity++ = ' ', *identity++ = '=';
        in_name = *options == '\n' || (in_name && *options != ' ');
        *identity++ = *options;
    }
    *identity = 0;
}

gw_status gw_worker_exchange(struct gw_worker *w, gw_ps_client *servers)
{
    const struct gw_team *team = w->team;
    const struct gw_train_options *o = team->options;
    char options[sizeof team->run_options + 32], identity[2 * sizeof options];
    snprintf(options, sizeof options, "%s", team->run_options);
    if (!*team->server_optimizer) /* rates depend on the length; a server's parameters may be trained further */
        gw_append(options, sizeof options, "steps %llu\n", (unsigned long long)team->steps);
    write_identity(options, identity);
    gw_link link = gw_team_link(team, GW_TEAM_EXCHANGE, w->index);
    /* The trainer itself has compared the machines of its workers. With --flat they are not used. */
    link.machine_of = NULL;
    gw_exchange_options exchange = {.struct_bytes = sizeof exchange,
                                    .codec = team->codec,
                                    .tensors = team->tensors,
                                    .n_tensors = team->network.n_tensors,
                                    .group_of = w->group_of,
                                    .link = link,
                                    .servers = servers,
                                    .machine_of = team->grouped ? team->machine_of : NULL,
                                    .identity = team->alone         ? identity
                                                : team->live.method ? team->live.identity
                                                                    : NULL,
                                    .seed = o->seed,
                                    .timeout_ms = o->timeout_s * 1000,
                                    .wire = gw_team_wire(team),
                                    .server_optimizer = *team->server_optimizer ? team->server_optimizer : NULL};
    return gw_exchange_create(team->context, &exchange, &w->exchange);
}

gw_status gw_worker_full_exchange(struct gw_worker *w, const gw_tensor *tensors, uint32_t n_tensors)
{
    const struct gw_team *team = w->team;
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = team->full_codec,
                                         .tensors = tensors,
                                         .n_tensors = n_tensors,
                                         .link = gw_team_link(team, GW_TEAM_FULL, w->index),
                                         .seed = team->options->seed,
                                         .timeout_ms = team->options->timeout_s * 1000};
    return gw_exchange_create(team->context, &options, &w->full_exchange);
}

gw_status gw_worker_wait(gw_exchange *exchange, gw_step_result *result)
{
    const gw_status status = gw_exchange_wait(exchange, result);
    return status == GW_ERR_NONFINITE ? GW_OK : status;
}

gw_status gw_worker_parameters(struct gw_worker *w, gw_status (*move)(gw_exchange *, float *const *))
{
    const struct gw_network *net = &w->team->network;
    float *values[GW_MAX_TENSORS];
    for (uint32_t t = 0; t < net->n_tensors; t++)
        values[t] = w->params + net->tensors[t].offset;
    return move(w->exchange, values);
}

void gw_team_fail(const struct gw_team *team, uint32_t index, gw_status status, const char *text)
{
    for (uint32_t kind = 0; kind < team->n_links; kind++) {
        gw_link link = gw_team_link(team, kind, index);
        if (link.ops)
            gw_link_fail(&link, status, text);
    }
}
