/* Joins a store and a keeper: each change of the store goes to the journal, a snapshot is taken when one is due, and
 * both are replayed at the start. */
#include "pserver/keep/keep.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/keep/snapshot.h"
#include "pserver/store/state.h"

#include <string.h>

/* The type of one more record, beside those of changes, of snapshots and of the owner. */
enum { ABOUT = 64, MOST_ABOUT = 255 };

struct gw_ps_keep {
    gw_context *context;
    struct gw_ps_store *store;
    struct gw_ps_keep_options options;
    struct gw_ps_keeper *keeper;
    char about[MOST_ABOUT + 1];
    bool was_there; /* the folder held something, also the line `about` */
};

/* ---- read ------------------------------------------------------------------------------------------------ */

static gw_status check_about(struct gw_ps_keep *keep, const void *about, size_t n)
{
    keep->was_there = true;
    if (n == strlen(keep->about) && memcmp(about, keep->about, n) == 0)
        return GW_OK;
    return gw_fail(
        GW_ERR_ARGUMENT,
        "the folder of snapshots is of a server with %.*s, and this one has %s; it must be the same, or another folder",
        (int)(n < MOST_ABOUT ? n : MOST_ABOUT), (const char *)about, keep->about);
}

static gw_status replay(void *user, uint8_t type, const void *head, size_t n_head, const void *body, size_t n_body)
{
    struct gw_ps_keep *keep = user;
    const struct gw_ps_snapshot_reader reader = {keep->store, keep->store->options.total};
    if (type == ABOUT)
        return check_about(keep, head, n_head);
    if (type >= GW_PS_KEEP_OWN && keep->options.own_replay)
        return keep->options.own_replay(keep->options.user, type, head, n_head);
    if (type < GW_PS_MOST_CHANGES)
        return gw_ps_journal_apply(keep->store, reader.total, type, head, n_head, body, n_body);
    return gw_ps_snapshot_apply(&reader, type, head, n_head, body, n_body);
}

/* ---- written ---------------------------------------------------------------------------------------------------- */

static void on_change(void *user, const struct gw_ps_change *change)
{
    struct gw_ps_keep *keep = user;
    uint8_t head[GW_PS_CHANGE_BYTES];
    const size_t n_head = gw_ps_journal_write(head, change);
    gw_ps_keeper_append(keep->keeper, (uint8_t)change->kind, head, n_head, change->value ? change->value->bytes : NULL,
                        change->value ? change->value->n_bytes : 0);
}

void gw_ps_keep_note(struct gw_ps_keep *keep, uint8_t type, const void *head, size_t n_head)
{
    if (keep)
        gw_ps_keeper_append(keep->keeper, type, head, n_head, NULL, 0);
}

/* ---- snapshots ----------------------------------------------------------------------------------------------- */

static void add(void *user, uint8_t type, const void *head, size_t n_head, struct gw_ps_blob *blob)
{
    gw_ps_keeper_add(user, type, head, n_head, blob);
}

void gw_ps_keep_add(struct gw_ps_keep *keep, uint8_t type, const void *head, size_t n_head)
{
    gw_ps_keeper_add(keep->keeper, type, head, n_head, NULL);
}

static void take_snapshot(struct gw_ps_keep *keep)
{
    if (gw_ps_keeper_begin(keep->keeper) < 0)
        return;
    gw_ps_keep_add(keep, ABOUT, keep->about, strlen(keep->about));
    gw_status status = gw_ps_snapshot_write(keep->store, add, keep->keeper);
    if (keep->options.own_snapshot)
        keep->options.own_snapshot(keep->options.user, keep);
    gw_ps_keeper_end(keep->keeper, status);
}

void gw_ps_keep_look(struct gw_ps_keep *keep)
{
    gw_ps_keeper_look(keep->keeper);
    if (gw_ps_keeper_due(keep->keeper))
        take_snapshot(keep);
}

void gw_ps_keep_finish(struct gw_ps_keep *keep)
{
    gw_ps_keeper_finish(keep->keeper);
    if (!gw_ps_keeper_is_clean(keep->keeper))
        take_snapshot(keep);
    gw_ps_keeper_finish(keep->keeper);
}

/* ---- beginning and end --------------------------------------------------------------------------------------- */

gw_status gw_ps_keep_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_keep_options *options,
                          struct gw_ps_keep **out)
{
    struct gw_ps_keep *keep = gw_calloc(context, 1, sizeof *keep);
    if (!keep)
        return GW_ERR_MEMORY;
    keep->context = context;
    keep->store = store;
    keep->options = *options;
    strncpy(keep->about, options->about, MOST_ABOUT);
    const uint64_t max_bytes = store->options.max_bytes;
    /* a value that was taken before is taken again, even if the limit is lower now */
    store->options.max_bytes = UINT64_MAX;
    gw_status status = gw_ps_keeper_open(context, &options->keeper, replay, keep, &keep->keeper);
    store->options.max_bytes = max_bytes;
    if (status == GW_OK && !keep->was_there)
        status = gw_ps_keeper_append(keep->keeper, ABOUT, keep->about, strlen(keep->about), NULL, 0);
    if (status < 0) {
        gw_ps_keep_close(keep);
        return status;
    }
    gw_ps_store_watch(store, on_change, keep);
    *out = keep;
    return GW_OK;
}

bool gw_ps_keep_was_there(const struct gw_ps_keep *keep)
{
    return keep && keep->was_there;
}

void gw_ps_keep_close(struct gw_ps_keep *keep)
{
    if (!keep)
        return;
    gw_ps_store_watch(keep->store, NULL, NULL);
    gw_ps_keeper_close(keep->keeper);
    gw_free(keep->context, keep);
}

bool gw_ps_keep_is_durable(const struct gw_ps_keep *keep)
{
    return keep && gw_ps_keeper_info(keep->keeper).durable;
}

struct gw_ps_keeper_info gw_ps_keep_info(const struct gw_ps_keep *keep)
{
    return gw_ps_keeper_info(keep->keeper);
}
