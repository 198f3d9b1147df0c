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

/* For each worker three numbers; then the run: first_round, agreed_by, and the agreed text if there is one. */
static gw_status run_fields(void *user, struct gw_fields *f)
{
    struct gw_ps_server *server = user;
    bool agreed = server->agreed;
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        struct gw_ps_worker *worker = &server->workers[r];
        gw_field_u64(f, &worker->joined_as), gw_field_u64(f, &worker->joined_from);
        gw_field_u64(f, &worker->agreed_as);
    }
    gw_field_u64(f, &server->first_round), gw_field_u32(f, &server->agreed_by), gw_field_flag(f, &agreed);
    const size_t n = !f->writes ? (size_t)(f->end - f->at) : agreed ? strlen(server->agreed) : 0;
    if (!f->good || n > GW_PS_MOST_AGREED)
        return gw_fail(GW_ERR_FRAME_FIELD, "the row of the run is too %s", f->good ? "long" : "short");
    if (!agreed)
        return GW_OK;
    if (!f->writes && !(server->agreed = gw_calloc(server->context, n + 1, 1)))
        return GW_ERR_MEMORY;
    gw_field_bytes(f, server->agreed, n);
    return GW_OK;
}

/* Workers that had come before count as away from now on. */
static void count_as_away(struct gw_ps_server *server)
{
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        struct gw_ps_worker *worker = &server->workers[r];
        const bool pushed = server->store->pushes[r] > 0;
        const bool came = server->options.min_workers || worker->joined_as || worker->agreed_as || pushed;
        worker->came_as = pushed ? GW_PS_SOMEBODY : 0;
        if (came && server->store->present[r])
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
                                                 .own = run_fields,
                                                 .log = log_line,
                                                 .user = server};
    GW_TRY(gw_ps_folder_open(server->store, &options, &server->folder));
    if (gw_ps_folder_info(server->folder).was_there)
        count_as_away(server);
    return GW_OK;
}
