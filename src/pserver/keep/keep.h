/* Keeps a store so that a killed server has it again after a restart. Changes of the store go to a journal. Now and
 * then the whole store goes to a snapshot (keeper.h). */
#ifndef GW_PSERVER_KEEP_KEEP_H
#define GW_PSERVER_KEEP_KEEP_H

#include "pserver/keep/journal.h"
#include "pserver/keep/keeper.h"

struct gw_ps_keep;

/* Records of the owner have types from this one on, below GW_PS_RECORD_END. */
#define GW_PS_KEEP_OWN 128

struct gw_ps_keep_options {
    struct gw_ps_keeper_options keeper;
    /* a line like "workers=3 mode=sync ...": the options on which the effect of changes depends. A folder with another
     * line is refused */
    const char *about;

    /* The owner may keep records of its own beside the store. own_replay gets such a record again at the start; its
     * errors may be any. own_snapshot adds all of them to a snapshot (gw_ps_keep_add). NULL: the owner keeps none. */
    gw_status (*own_replay)(void *user, uint8_t type, const void *head, size_t n_head);
    void (*own_snapshot)(void *user, struct gw_ps_keep *keep);
    void *user;
};

/* Fills a new, empty store with what the folder holds, and keeps all changes from then on. The store must outlive *out.
 * Errors: those of gw_ps_keeper_open; GW_ERR_ARGUMENT (the folder belongs to another server), GW_ERR_CAPACITY (it holds
 * more keys, or larger ones, than the server's limits allow), GW_ERR_FRAME_FIELD, GW_ERR_FRAME_MISMATCH (it holds
 * something that no server has written). */
gw_status gw_ps_keep_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_keep_options *options,
                          struct gw_ps_keep **out);

/* True if the folder held anything. */
bool gw_ps_keep_was_there(const struct gw_ps_keep *keep);

/* Ends the keeping. NULL is allowed. */
void gw_ps_keep_close(struct gw_ps_keep *keep);

/* Keeps a new record of the owner, in the journal. keep NULL: does nothing. */
void gw_ps_keep_note(struct gw_ps_keep *keep, uint8_t type, const void *head, size_t n_head);

/* Adds a record of the owner to the snapshot that is being taken. For own_snapshot only. */
void gw_ps_keep_add(struct gw_ps_keep *keep, uint8_t type, const void *head, size_t n_head);

/* Takes a snapshot if one is due, and looks whether one has ended. Call it about four times a second. */
void gw_ps_keep_look(struct gw_ps_keep *keep);

/* Takes a last snapshot, if anything has changed since the one before, and waits for it. If it fails, the log says so,
 * and the journals stay. */
void gw_ps_keep_finish(struct gw_ps_keep *keep);

/* True if all changes so far outlive the process. keep NULL: false. */
bool gw_ps_keep_is_durable(const struct gw_ps_keep *keep);

struct gw_ps_keeper_info gw_ps_keep_info(const struct gw_ps_keep *keep);

#endif
