/* Keeps a store, and what its server knows beside it, in the rows of a folder, so that a killed server has it again. */
#ifndef GW_PSERVER_FOLDER_FOLDER_H
#define GW_PSERVER_FOLDER_FOLDER_H

#include "pserver/protocol/fields.h"
#include "pserver/store/store.h"

struct gw_ps_folder;

struct gw_ps_folder_options {
    const char *folder;
    /* a line like "workers=3 mode=sync ...": the options on which the rows depend. A folder with another line is
     * refused */
    const char *about;
    /* The owner may keep fields of its own, of at most most_own bytes. own writes them, and reads them at the start;
     * its errors may be any. */
    size_t most_own;
    gw_status (*own)(void *user, struct gw_fields *f);
    void (*log)(void *user, const char *line); /* gets lines "event key=value ..." */
    void *user;
};

/* Fills a new, empty store with what the folder holds. The store must outlive *out. Errors: those of gw_ps_rows_open;
 * GW_ERR_ARGUMENT (the folder belongs to another server), GW_ERR_CAPACITY (it holds more keys, or larger ones, than the
 * server's limits allow), GW_ERR_FRAME_* (something in it was altered; the sentence names the key). */
gw_status gw_ps_folder_open(struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out);
/* What was not committed is lost. NULL is allowed. */
void gw_ps_folder_close(struct gw_ps_folder *folder);

/* The owner's bytes have changed. NULL is allowed. */
void gw_ps_folder_note(struct gw_ps_folder *folder);
/* True if anything has changed since the last good commit. NULL is allowed. */
bool gw_ps_folder_is_due(const struct gw_ps_folder *folder);
/* Looks whether the files are still there. If not, all that was committed is due again, so that the next commit says so
 * and goes on trying. NULL is allowed. */
void gw_ps_folder_look(struct gw_ps_folder *folder);
/* Brings all changes to disk. If that fails, the log says so, and all stays due; it is tried again a second later at
 * the earliest. NULL is allowed. */
void gw_ps_folder_commit(struct gw_ps_folder *folder);

struct gw_ps_folder_info {
    bool exists;              /* there is a folder */
    bool was_there;           /* it held something when it was opened */
    bool durable;             /* what is acknowledged outlives the process: the last commit was good */
    char reason[512];         /* why it was not; "": it was */
    uint64_t commits, failed; /* since the start */
    uint64_t bytes;           /* of its files */
};
/* NULL is allowed. */
struct gw_ps_folder_info gw_ps_folder_info(const struct gw_ps_folder *folder);

#endif
