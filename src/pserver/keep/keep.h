/* A store that is there again after the server was killed. Its changes go to a journal, and now and then all of it
 * goes to a snapshot (keeper.h). */
#ifndef GW_PSERVER_KEEP_KEEP_H
#define GW_PSERVER_KEEP_KEEP_H

#include "pserver/keep/journal.h"
#include "pserver/keep/keeper.h"

struct gw_ps_keep;

/* Types of records that are not the store's, from this one on, and below GW_PS_RECORD_END. */
#define GW_PS_KEEP_OWN 128

struct gw_ps_keep_options {
    struct gw_ps_keeper_options keeper;
    /* what the changes' effects depend on, "workers=3 mode=sync ...": a folder of another is refused */
    const char *about;

    /* What its owner keeps beside the store, as records of its own: `own_replay` is given one again, `own_snapshot`
     * notes all of them for a snapshot. Errors: any. NULL: nothing. */
    gw_status (*own_replay)(void *user, uint8_t type, const void *head, size_t n_head);
    void (*own_snapshot)(void *user, struct gw_ps_keep *keep);
    void *user;
};

/* Makes the new, empty store what the folder holds, and keeps all that changes from then on. The store must outlive it.
 * Errors: those of gw_ps_keeper_open; GW_ERR_ARGUMENT (the folder is another server's), GW_ERR_CAPACITY (it holds more
 * keys, or larger ones, than the server's limits allow), GW_ERR_FRAME_FIELD, GW_ERR_FRAME_MISMATCH (it holds what no
 * server has written). */
gw_status gw_ps_keep_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_keep_options *options,
                          struct gw_ps_keep **out);

/* Whether the folder held anything. */
bool gw_ps_keep_was_there(const struct gw_ps_keep *keep);

/* NULL is allowed. */
void gw_ps_keep_close(struct gw_ps_keep *keep);

/* Keeps a record of the owner's. NULL: does nothing. */
void gw_ps_keep_note(struct gw_ps_keep *keep, uint8_t type, const void *head, size_t n_head);

/* Takes a snapshot if it is time for one, and sees to those that are under way. Four times a second or so. */
void gw_ps_keep_look(struct gw_ps_keep *keep);

/* A last snapshot, if anything has happened since the one before; waits for it. What fails is in the log, and
 * journals stay. */
void gw_ps_keep_finish(struct gw_ps_keep *keep);

/* What has changed so far outlives the process. NULL: nothing does. */
bool gw_ps_keep_is_durable(const struct gw_ps_keep *keep);

struct gw_ps_keeper_info gw_ps_keep_info(const struct gw_ps_keep *keep);

#endif
