/* Writes the server's numbers as the JSON that the status page reads. */
#include "status/status.h"
#include "tool.h"

#include <gradwire/context.h>

#include <jansson.h>

#define SHOWN_AWAY 100 /* workers that are not connected */

/* The word for a worker's presence (gw_ps_presence). */
static const char *presence_word(const struct gw_ps_numbers *numbers, uint32_t rank)
{
    static const char *const words[] = {
        [GW_PS_ABSENT] = "absent", [GW_PS_PRESENT] = "present", [GW_PS_AWAY] = "away", [GW_PS_JOINING] = "joining"};
    return words[numbers->workers[rank].presence];
}

static json_t *members_json(const struct gw_ps_numbers *numbers)
{
    json_t *members = json_array();
    for (uint32_t i = 0; i < numbers->n_members; i++) {
        const struct gw_ps_member_numbers *m = &numbers->members[i];
        if (m->rank == GW_PS_READER)
            json_array_append_new(members, json_pack("{s:n, s:o, s:I}", "rank", "address", gw_json_text(m->address),
                                                     "since", (json_int_t)m->since));
        else
            json_array_append_new(members, json_pack("{s:I, s:s, s:o, s:I, s:I, s:I}", "rank", (json_int_t)m->rank,
                                                     "presence", presence_word(numbers, m->rank), "address",
                                                     gw_json_text(m->address), "since", (json_int_t)m->since, "pushes",
                                                     (json_int_t)numbers->workers[m->rank].pushes, "behind",
                                                     (json_int_t)numbers->workers[m->rank].behind));
    }
    return members;
}

static json_t *away_json(const struct gw_ps_numbers *numbers)
{
    json_t *away = json_array();
    for (uint32_t r = 0; r < numbers->n_workers && json_array_size(away) < SHOWN_AWAY; r++)
        if (!numbers->workers[r].connected)
            json_array_append_new(away,
                                  json_pack("{s:I, s:s, s:I, s:I, s:I}", "rank", (json_int_t)r, "presence",
                                            presence_word(numbers, r), "gone", (json_int_t)numbers->workers[r].gone_at,
                                            "pushes", (json_int_t)numbers->workers[r].pushes, "behind",
                                            (json_int_t)numbers->workers[r].behind));
    return away;
}

static json_t *keys_json(const struct gw_ps_numbers *numbers)
{
    json_t *keys = json_array();
    for (uint32_t k = 0; k < numbers->n_keys; k++) {
        const struct gw_ps_key_numbers *key = &numbers->shown[k];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < key->shape.n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)key->shape.dims[d]));
        json_array_append_new(keys,
                              json_pack("{s:o, s:s, s:o, s:I, s:I, s:I}", "name", gw_json_text(key->name), "type",
                                        gw_ps_type_name(key->type), "shape", shape, "rounds", (json_int_t)key->rounds,
                                        "bytes", (json_int_t)key->bytes, "missing", (json_int_t)key->n_missing));
    }
    return keys;
}

static json_t *requests_json(const struct gw_ps_numbers *numbers)
{
    json_t *requests = json_object();
    for (int i = 0; i < GW_PS_OPERATIONS; i++)
        if (tool_status_operation(i))
            json_object_set_new(requests, tool_status_operation(i),
                                json_integer((json_int_t)numbers->counts.requests[i]));
    return requests;
}

/* null if the server has no folder for snapshots. */
static json_t *kept_json(const struct gw_ps_folder_info *kept)
{
    if (!kept->exists)
        return json_null();
    return json_pack("{s:b, s:o, s:I, s:I, s:I}", "durable", kept->durable, "reason", gw_json_text(kept->reason),
                     "bytes", (json_int_t)kept->bytes, "commits", (json_int_t)kept->commits, "failed",
                     (json_int_t)kept->failed);
}

/* Of the server, what does not change. */
static json_t *server_json(const struct gw_ps_numbers *numbers)
{
    const gw_ps_server_options *o = numbers->options;
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "address", gw_json_text(numbers->address),
                     "version", gw_version(), "mode", gw_ps_mode_word(o->mode), "staleness", (json_int_t)o->staleness,
                     "started", (json_int_t)numbers->started, "max_clients", (json_int_t)o->max_clients, "max_keys",
                     (json_int_t)o->max_keys, "max_key_bytes", (json_int_t)o->max_key_bytes, "max_bytes",
                     (json_int_t)o->max_bytes);
}

/* How many rounds each of the last steps had that are over, the oldest first. */
static json_t *history_json(const struct gw_ps_numbers *numbers)
{
    json_t *rounds = json_array();
    for (uint32_t ago = GW_PS_HISTORY_STEPS - 1; ago-- > 0;)
        if (ago < numbers->history.step)
            json_array_append_new(rounds, json_integer(gw_ps_history_ago(&numbers->history, ago)));
    return json_pack("{s:i, s:o}", "step_seconds", GW_PS_HISTORY_SECONDS, "rounds", rounds);
}

/* The rank of the worker that is most behind, the first if several are; null: none is behind. */
static json_t *slowest_json(const struct gw_ps_numbers *numbers)
{
    uint32_t slowest = 0;
    for (uint32_t r = 1; r < numbers->n_workers; r++)
        if (numbers->workers[r].behind > numbers->workers[slowest].behind)
            slowest = r;
    return numbers->workers[slowest].behind > 0 ? json_integer(slowest) : json_null();
}

char *tool_status_json(const struct gw_ps_numbers *numbers)
{
    json_t *json =
        json_pack("{s:o, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "server", server_json(numbers), "history", history_json(numbers), "seconds", numbers->seconds,
                  "clients", (json_int_t)numbers->clients, "workers", (json_int_t)numbers->n_workers,
                  "workers_connected", (json_int_t)numbers->connected, "keys", (json_int_t)numbers->keys, "kept_bytes",
                  (json_int_t)numbers->store.bytes, "rounds", (json_int_t)numbers->store.rounds, "waiting",
                  (json_int_t)numbers->waiting, "refused", (json_int_t)numbers->counts.refused, "bytes_in",
                  (json_int_t)numbers->counts.bytes_in, "bytes_out", (json_int_t)numbers->counts.bytes_out, "slowest",
                  slowest_json(numbers), "requests", requests_json(numbers), "members", members_json(numbers), "away",
                  away_json(numbers), "first_keys", keys_json(numbers), "kept", kept_json(&numbers->folder));
    char *text = tool_json_without_markup(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    return text;
}
