/* Joins a store and a keeper: each change of the store goes to the journal, a snapshot is taken when one is due, and
 * both are replayed at the start. */
#include "pserver/persist.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/image.h"
#include "pserver/store_state.h"

#include <string.h>

/* A record's type beside those of changes and images, and the owner's. */
enum { ABOUT = 64, MOST_ABOUT = 255 };

struct gw_ps_persist {
    gw_context *context;
    struct gw_ps_store *store;
    struct gw_ps_persist_options options;
    struct gw_ps_keeper *keeper;
    char about[MOST_ABOUT + 1];
    bool restored;   /* the folder held something, and what it is about */
    bool collecting; /* what is noted is part of a snapshot */
};

/* ---- restored ------------------------------------------------------------------------------------------------ */

static gw_status check_about(struct gw_ps_persist *persist, const void *about, size_t n)
{
    persist->restored = true;
    if (n == strlen(persist->about) && memcmp(about, persist->about, n) == 0)
        return GW_OK;
    return gw_fail(
        GW_ERR_ARGUMENT,
        "the folder of snapshots is of a server with %.*s, and this one has %s; it must be the same, or another folder",
        (int)(n < MOST_ABOUT ? n : MOST_ABOUT), (const char *)about, persist->about);
}

static gw_status replay(void *user, uint8_t type, const void *head, size_t n_head, const void *body, size_t n_body)
{
    struct gw_ps_persist *persist = user;
    const struct gw_ps_image image = {persist->store, persist->store->options.total};
    if (type == ABOUT)
        return check_about(persist, head, n_head);
    if (type >= GW_PS_PERSIST_OWN && persist->options.own_replay)
        return persist->options.own_replay(persist->options.user, type, head, n_head);
    if (type < GW_PS_MOST_CHANGES)
        return gw_ps_change_apply(persist->store, image.total, type, head, n_head, body, n_body);
    return gw_ps_image_apply(&image, type, head, n_head, body, n_body);
}

/* ---- kept ---------------------------------------------------------------------------------------------------- */

static void on_change(void *user, const struct gw_ps_change *change)
{
    struct gw_ps_persist *persist = user;
    uint8_t head[GW_PS_CHANGE_BYTES];
    const size_t n_head = gw_ps_change_write(head, change);
    gw_ps_keeper_append(persist->keeper, (uint8_t)change->kind, head, n_head,
                        change->value ? change->value->bytes : NULL, change->value ? change->value->n_bytes : 0);
}

void gw_ps_persist_note(struct gw_ps_persist *persist, uint8_t type, const void *head, size_t n_head)
{
    if (!persist)
        return;
    if (persist->collecting)
        gw_ps_keeper_add(persist->keeper, type, head, n_head, NULL);
    else
        gw_ps_keeper_append(persist->keeper, type, head, n_head, NULL, 0);
}

/* ---- snapshots ----------------------------------------------------------------------------------------------- */

static void add(void *user, uint8_t type, const void *head, size_t n_head, struct gw_ps_blob *blob)
{
    gw_ps_keeper_add(user, type, head, n_head, blob);
}

static void take_snapshot(struct gw_ps_persist *persist)
{
    if (gw_ps_keeper_begin(persist->keeper) < 0)
        return;
    persist->collecting = true;
    gw_ps_persist_note(persist, ABOUT, persist->about, strlen(persist->about));
    gw_status status = gw_ps_image_write(persist->store, add, persist->keeper);
    if (persist->options.own_image)
        persist->options.own_image(persist->options.user, persist);
    persist->collecting = false;
    gw_ps_keeper_end(persist->keeper, status);
}

void gw_ps_persist_look(struct gw_ps_persist *persist)
{
    gw_ps_keeper_look(persist->keeper);
    if (gw_ps_keeper_due(persist->keeper))
        take_snapshot(persist);
}

void gw_ps_persist_finish(struct gw_ps_persist *persist)
{
    gw_ps_keeper_finish(persist->keeper);
    if (!gw_ps_keeper_is_clean(persist->keeper))
        take_snapshot(persist);
    gw_ps_keeper_finish(persist->keeper);
}

/* ---- beginning and end --------------------------------------------------------------------------------------- */

gw_status gw_ps_persist_open(gw_context *context, struct gw_ps_store *store,
                             const struct gw_ps_persist_options *options, struct gw_ps_persist **out)
{
    struct gw_ps_persist *persist = gw_calloc(context, 1, sizeof *persist);
    if (!persist)
        return GW_ERR_MEMORY;
    persist->context = context;
    persist->store = store;
    persist->options = *options;
    strncpy(persist->about, options->about, MOST_ABOUT);
    const uint64_t max_bytes = store->options.max_bytes;
    store->options.max_bytes = UINT64_MAX; /* what was taken is taken again, also where the limit is lower now */
    gw_status status = gw_ps_keeper_open(context, &options->keeper, replay, persist, &persist->keeper);
    store->options.max_bytes = max_bytes;
    if (status == GW_OK && !persist->restored)
        status = gw_ps_keeper_append(persist->keeper, ABOUT, persist->about, strlen(persist->about), NULL, 0);
    if (status < 0) {
        gw_ps_persist_close(persist);
        return status;
    }
    gw_ps_store_watch(store, on_change, persist);
    *out = persist;
    return GW_OK;
}

bool gw_ps_persist_restored(const struct gw_ps_persist *persist)
{
    return persist && persist->restored;
}

void gw_ps_persist_close(struct gw_ps_persist *persist)
{
    if (!persist)
        return;
    gw_ps_store_watch(persist->store, NULL, NULL);
    gw_ps_keeper_close(persist->keeper);
    gw_free(persist->context, persist);
}

bool gw_ps_persist_is_durable(const struct gw_ps_persist *persist)
{
    return persist && gw_ps_keeper_info(persist->keeper).durable;
}

struct gw_ps_keeper_info gw_ps_persist_info(const struct gw_ps_persist *persist)
{
    return gw_ps_keeper_info(persist->keeper);
}
