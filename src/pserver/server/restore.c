/* Keeps what a server must know beside its store, so that it goes on after a restart where it was killed: the run, and
 * the clients that take part in it. It does not keep which clients are connected: they connect again by themselves. */
#include "pserver/server/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/protocol/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RUN_BYTES = 13, WORKER_BYTES = 24 }; /* the agreed text of a run comes on top */

/* For each worker joined_as, joined_from, agreed_as u64. Then the run: first_round u64, agreed_by u32; then 1 u8 and
 * the agreed text, or 0 u8 if nothing is agreed on. */
static size_t write_all(void *user, uint8_t *bytes)
{
    const struct gw_ps_server *server = user;
    const size_t n = server->agreed ? strlen(server->agreed) : 0;
    struct gw_ps_writer w = {bytes};
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        gw_ps_put64(&w, server->workers[r].joined_as);
        gw_ps_put64(&w, server->workers[r].joined_from);
        gw_ps_put64(&w, server->workers[r].agreed_as);
    }
    gw_ps_put64(&w, server->first_round);
    gw_ps_put32(&w, server->agreed_by);
    gw_ps_put8(&w, server->agreed != NULL);
    memcpy(w.at, server->agreed ? server->agreed : "", n);
    return (size_t)(w.at - bytes) + n;
}

static gw_status read_all(void *user, const uint8_t *bytes, size_t n_bytes)
{
    struct gw_ps_server *server = user;
    struct gw_ps_reader r = {bytes, bytes + n_bytes, true};
    for (uint32_t i = 0; i < server->options.n_workers; i++) {
        server->workers[i].joined_as = gw_ps_get64(&r);
        server->workers[i].joined_from = gw_ps_get64(&r);
        server->workers[i].agreed_as = gw_ps_get64(&r);
    }
    server->first_round = gw_ps_get64(&r);
    server->agreed_by = gw_ps_get32(&r);
    const bool agreed = gw_ps_get8(&r);
    const size_t n = (size_t)(r.end - r.at);
    if (!r.good || n > GW_PS_MOST_AGREED)
        return gw_fail(GW_ERR_FRAME_FIELD, "the row of the run is too %s", r.good ? "long" : "short");
    if (!agreed)
        return GW_OK;
    server->agreed = gw_calloc(server->context, n + 1, 1);
    if (!server->agreed)
        return GW_ERR_MEMORY;
    memcpy(server->agreed, r.at, n);
    return GW_OK;
}

void gw_ps_server_commit(struct gw_ps_server *server)
{
    if (server->folder)
        gw_ps_folder_commit(server->folder);
    if (server->held)
        gw_ps_answers_release(server);
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

static void log_line(void *user, const char *line)
{
    gw_ps_log((struct gw_ps_server *)user, "%s", line);
}

gw_status gw_ps_server_restore(struct gw_ps_server *server)
{
    const gw_ps_server_options *o = &server->options;
    char about[128];
    if (!o->snapshot)
        return GW_OK;
    snprintf(about, sizeof about, "workers=%" PRIu32 " mode=%s min_workers=%" PRIu32 " backup=%" PRIu32, o->n_workers,
             gw_ps_mode_word(o->mode), o->min_workers, o->backup);
    const struct gw_ps_folder_options options = {.folder = o->snapshot,
                                                 .about = about,
                                                 .most_own = RUN_BYTES + GW_PS_MOST_AGREED +
                                                             WORKER_BYTES * (size_t)o->n_workers,
                                                 .own_write = write_all,
                                                 .own_read = read_all,
                                                 .log = log_line,
                                                 .user = server};
    GW_TRY(gw_ps_folder_open(server->context, server->store, &options, &server->folder));
    if (gw_ps_folder_was_there(server->folder))
        count_as_away(server);
    return GW_OK;
}
