/* Copies the server's numbers for other threads. */
#include "pserver/server/numbers.h"
#include "base/clock.h"
#include "base/memory.h"
#include "pserver/server/state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static size_t copy_bytes(const struct gw_ps_server *server)
{
    return sizeof *server->numbers + server->options.n_workers * sizeof *server->numbers->workers;
}

/* ---- written down by the server's thread --------------------------------------------------------------------- */

static void note_member(struct gw_ps_numbers *numbers, const struct gw_ps_member *member)
{
    struct gw_ps_member_numbers *to = &numbers->members[numbers->n_members++];
    to->rank = member->rank;
    to->since = member->since;
    snprintf(to->address, sizeof to->address, "%s", member->c.peer.host);
}

static void note_members(const struct gw_ps_server *server, struct gw_ps_numbers *numbers)
{
    numbers->n_members = 0;
    numbers->connected = 0;
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        if (server->workers[r].member && numbers->n_members < GW_PS_SHOWN_MEMBERS)
            note_member(numbers, server->workers[r].member);
        numbers->workers[r].connected = server->workers[r].member != NULL;
        numbers->workers[r].gone_at = server->workers[r].gone_at;
        numbers->connected += numbers->workers[r].connected;
        numbers->workers[r].presence = gw_ps_presence_of(server, r);
        numbers->workers[r].pushes = server->store->pushes[r];
        numbers->workers[r].behind = gw_ps_store_behind(server->store, r);
    }
    const struct gw_ps_member *m = LIST_FIRST(&server->members);
    for (; m && numbers->n_members < GW_PS_SHOWN_MEMBERS; m = LIST_NEXT(m, link))
        if (m->rank == GW_PS_READER)
            note_member(numbers, m);
}

static void note_keys(const struct gw_ps_server *server, struct gw_ps_numbers *numbers)
{
    const struct gw_ps_key *key;
    uint32_t n = 0;
    for (; n < GW_PS_SHOWN_KEYS && (key = gw_ps_store_key(server->store, n)); n++) {
        struct gw_ps_key_numbers *to = &numbers->shown[n];
        snprintf(to->name, sizeof to->name, "%s", key->name);
        to->type = key->type;
        to->shape = key->shape;
        to->rounds = key->whole.number;
        to->bytes = key->bytes;
        to->n_missing = gw_ps_n_missing(server->store, key);
    }
    numbers->n_keys = n;
}

void gw_ps_history_note(struct gw_ps_history *history, double seconds, uint64_t rounds)
{
    const uint64_t step = (uint64_t)(seconds / GW_PS_HISTORY_SECONDS);
    for (uint64_t missed = 0; history->step < step; missed++) {
        if (missed == GW_PS_HISTORY_STEPS) /* nothing is left of what was before */
            history->step = step - 1;
        history->rounds[++history->step % GW_PS_HISTORY_STEPS] = 0;
    }
    history->rounds[step % GW_PS_HISTORY_STEPS] += (uint32_t)rounds;
}

void gw_ps_numbers_note(struct gw_ps_server *server)
{
    struct gw_ps_numbers *numbers = server->numbers;
    if (!numbers || pthread_mutex_trylock(&server->numbers_lock) != 0)
        return;
    const uint64_t rounds_before = numbers->store.rounds;
    numbers->seconds = gw_clock_seconds() - server->started;
    numbers->counts = server->counts;
    numbers->store = server->store->info;
    numbers->keys = server->store->names.n;
    numbers->waiting = server->n_waiting;
    gw_ps_history_note(&numbers->history, numbers->seconds, numbers->store.rounds - rounds_before);
    numbers->clients = server->n_members;
    numbers->folder = gw_ps_folder_info(server->folder);
    note_members(server, numbers);
    note_keys(server, numbers);
    pthread_mutex_unlock(&server->numbers_lock);
}

/* ---- read by others ------------------------------------------------------------------------------------------ */

gw_status gw_ps_numbers_begin(gw_ps_server *server)
{
    struct gw_ps_numbers *numbers = gw_calloc(server->context, 1, copy_bytes(server));
    if (!numbers)
        return GW_ERR_MEMORY;
    pthread_mutex_init(&server->numbers_lock, NULL); /* with default attributes it cannot fail here */
    numbers->n_workers = server->options.n_workers;
    numbers->options = &server->options;
    numbers->address = server->own.place;
    numbers->started = (int64_t)time(NULL) - (int64_t)(gw_clock_seconds() - server->started);
    numbers->store = server->store->info; /* its rounds were made before the server began */
    server->numbers = numbers;
    gw_ps_numbers_note(server);
    return GW_OK;
}

void gw_ps_numbers_end(struct gw_ps_server *server)
{
    if (!server->numbers)
        return;
    pthread_mutex_destroy(&server->numbers_lock);
    gw_free(server->context, server->numbers);
}

struct gw_ps_numbers *gw_ps_numbers_take(gw_ps_server *server)
{
    struct gw_ps_numbers *copy = gw_alloc(server->context, 1, copy_bytes(server));
    if (!copy)
        return NULL;
    pthread_mutex_lock(&server->numbers_lock);
    memcpy(copy, server->numbers, copy_bytes(server));
    pthread_mutex_unlock(&server->numbers_lock);
    return copy;
}

void gw_ps_numbers_free(gw_ps_server *server, struct gw_ps_numbers *numbers)
{
    gw_free(server->context, numbers);
}

uint32_t gw_ps_history_ago(const struct gw_ps_history *history, uint32_t ago)
{
    return ago + 1 < GW_PS_HISTORY_STEPS && ago < history->step
               ? history->rounds[(history->step - 1 - ago) % GW_PS_HISTORY_STEPS]
               : 0;
}
