/* Keeps what a server must know beside its store, so that it goes on after a restart where it was killed: the run, and
 * the clients that take part in it. It does not keep which clients are connected: they connect again by themselves. */
#include "pserver/server/kept.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/protocol/fields.h"
#include "pserver/server/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_EVERY_S 60
#define DEFAULT_KEEP 3

/* Types of records. A number is never used again for another type. */
enum {
    /* first_round u64, agreed_by u32; then 1 u8 and the agreed text, or 0 u8 if nothing is agreed on */
    RUN = GW_PS_KEEP_OWN,
    WORKER = GW_PS_KEEP_OWN + 1, /* rank u32; joined_as, joined_from, agreed_as u64 */
};

enum { RUN_BYTES = 13, WORKER_BYTES = 28 }; /* a record; the agreed text of a run comes on top */

static size_t write_run(const struct gw_ps_server *server, uint8_t *head)
{
    const size_t n = server->agreed ? strlen(server->agreed) : 0;
    struct gw_ps_writer w = {head};
    gw_ps_put64(&w, server->first_round);
    gw_ps_put32(&w, server->agreed_by);
    gw_ps_put8(&w, server->agreed != NULL);
    memcpy(w.at, server->agreed ? server->agreed : "", n);
    return RUN_BYTES + n;
}

static size_t write_worker(const struct gw_ps_server *server, uint32_t rank, uint8_t *head)
{
    const struct gw_ps_worker *worker = &server->workers[rank];
    struct gw_ps_writer w = {head};
    gw_ps_put32(&w, rank);
    gw_ps_put64(&w, worker->joined_as);
    gw_ps_put64(&w, worker->joined_from);
    gw_ps_put64(&w, worker->agreed_as);
    return WORKER_BYTES;
}

void gw_ps_note_run(struct gw_ps_server *server)
{
    uint8_t head[RUN_BYTES + GW_PS_MOST_AGREED];
    gw_ps_keep_note(server->keep, RUN, head, write_run(server, head));
}

void gw_ps_note_worker(struct gw_ps_server *server, uint32_t rank)
{
    uint8_t head[WORKER_BYTES];
    gw_ps_keep_note(server->keep, WORKER, head, write_worker(server, rank, head));
}

static void add_all(void *user, struct gw_ps_keep *keep)
{
    const struct gw_ps_server *server = user;
    uint8_t head[RUN_BYTES + GW_PS_MOST_AGREED];
    gw_ps_keep_add(keep, RUN, head, write_run(server, head));
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (server->workers[r].joined_as || server->workers[r].agreed_as)
            gw_ps_keep_add(keep, WORKER, head, write_worker(server, r, head));
}

static gw_status replay_run(struct gw_ps_server *server, struct gw_ps_reader *r)
{
    server->first_round = gw_ps_get64(r);
    server->agreed_by = gw_ps_get32(r);
    const bool agreed = gw_ps_get8(r);
    const size_t n = (size_t)(r->end - r->at);
    gw_free(server->context, server->agreed);
    server->agreed = NULL;
    r->good = r->good && n <= GW_PS_MOST_AGREED;
    if (!r->good || !agreed)
        return GW_OK;
    server->agreed = gw_calloc(server->context, n + 1, 1);
    if (!server->agreed)
        return GW_ERR_MEMORY;
    memcpy(server->agreed, gw_ps_take(r, n), n);
    return GW_OK;
}

static void replay_worker(struct gw_ps_server *server, struct gw_ps_reader *r)
{
    const uint32_t rank = gw_ps_get32(r);
    r->good = r->good && rank < server->options.n_workers;
    if (!r->good)
        return;
    server->workers[rank].joined_as = gw_ps_get64(r);
    server->workers[rank].joined_from = gw_ps_get64(r);
    server->workers[rank].agreed_as = gw_ps_get64(r);
}

static gw_status replay(void *user, uint8_t type, const void *head, size_t n_head)
{
    struct gw_ps_server *server = user;
    struct gw_ps_reader r = {head, (const uint8_t *)head + n_head, true};
    if (type == RUN)
        GW_TRY(replay_run(server, &r));
    else if (type == WORKER)
        replay_worker(server, &r);
    return r.good && r.at == r.end && type <= WORKER
               ? GW_OK
               : gw_fail(GW_ERR_FRAME_FIELD, "a record of type %u cannot be", type);
}

/* Workers that had come before count as away from now on. */
static void count_as_away(struct gw_ps_server *server)
{
    uint64_t behind;
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        struct gw_ps_worker *worker = &server->workers[r];
        const bool pushed = gw_ps_store_pushes(server->store, r, &behind);
        const bool came = server->options.min_workers || worker->joined_as || worker->agreed_as || pushed;
        worker->came_as = pushed ? GW_PS_SOMEBODY : 0;
        if (came && gw_ps_store_is_present(server->store, r))
            worker->away_since = gw_clock_seconds();
    }
}

static void log_line(const char *line, void *user)
{
    gw_ps_log((struct gw_ps_server *)user, "%s", line);
}

gw_status gw_ps_server_keep(struct gw_ps_server *server)
{
    const gw_ps_server_options *o = &server->options;
    char about[128];
    if (!o->snapshot)
        return GW_OK;
    snprintf(about, sizeof about, "workers=%" PRIu32 " mode=%s min_workers=%" PRIu32 " backup=%" PRIu32, o->n_workers,
             gw_ps_mode_word(o->mode), o->min_workers, o->backup);
    const struct gw_ps_keep_options options = {.keeper = {.folder = o->snapshot,
                                                          .keep = o->snapshot_keep ? o->snapshot_keep : DEFAULT_KEEP,
                                                          .every_s = o->snapshot_every_s ? o->snapshot_every_s
                                                                                         : DEFAULT_EVERY_S,
                                                          .log = log_line,
                                                          .log_user = server},
                                               .about = about,
                                               .own_replay = replay,
                                               .own_snapshot = add_all,
                                               .user = server};
    GW_TRY(gw_ps_keep_open(server->context, server->store, &options, &server->keep));
    if (gw_ps_keep_was_there(server->keep))
        count_as_away(server);
    return GW_OK;
}
