/* The keeper has a folder of snapshots and journals. Records that were appended are there again after the process was
 * killed. The keeper does not know what the records mean. docs/pserver-snapshots.md describes the files and their
 * order.
 *
 * Journal g holds what happened after snapshot g was taken. Before generation 1 there was nothing. One thread makes all
 * calls. A snapshot does not hold it up, because another thread writes it. A third thread, the syncer, brings the
 * journal to disk about once a second. So a record outlives the process as soon as it is appended. About a second later
 * it also outlives a crash of the machine. */
#ifndef GW_PSERVER_KEEP_KEEPER_H
#define GW_PSERVER_KEEP_KEEPER_H

#include "pserver/store/blob.h"
#include "pserver/keep/records.h"

struct gw_ps_keeper;

struct gw_ps_keeper_options {
    const char *folder;
    uint32_t keep;  /* how many snapshots stay, at least 1 */
    double every_s; /* a snapshot is due after so many seconds, if anything has happened */
    /* gets lines "event key=value ...", on the caller's thread; NULL: no log */
    void (*log)(const char *line, void *user);
    void *log_user;
};

/* Opens the folder, and makes it if it is missing. Replays what is kept there: the newest whole snapshot, then every
 * journal after it. If the last journal ends in the middle of a record, that record is cut off. If the newest snapshot
 * is not whole, the one before it is taken, with all journals since. Nothing is replayed unless all of it can be.
 * Errors: GW_ERR_SYSTEM (the folder cannot be used; another server has it; or the files are not complete: the sentence
 * says what can be done), GW_ERR_ARGUMENT, GW_ERR_MEMORY, and those of `replay`. */
gw_status gw_ps_keeper_open(gw_context *context, const struct gw_ps_keeper_options *options, gw_ps_replay *replay,
                            void *user, struct gw_ps_keeper **out);

/* Waits for a snapshot that is being written, and brings the journal to disk. NULL is allowed. */
void gw_ps_keeper_close(struct gw_ps_keeper *keeper);

/* Writes a record into the journal. When it returns, the process may be killed, and the record is kept. The body is not
 * copied. Errors: GW_ERR_SYSTEM (the record may not be there after a restart; the sentence says why). From then on no
 * record is kept until a snapshot has been written. */
gw_status gw_ps_keeper_append(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                              const void *body, size_t n_body);

/* due: true if a snapshot should be taken now. is_clean: true if nothing has changed since the last snapshot. */
bool gw_ps_keeper_due(const struct gw_ps_keeper *keeper);
bool gw_ps_keeper_is_clean(const struct gw_ps_keeper *keeper);

/* Take a snapshot: call begin, then add for each record of all that there is, then end. Append nothing in between. add
 * copies the head, and takes a hold of its own on the blob; blob NULL: the record has no body. Records that are
 * appended afterwards go to the journal of the next generation. collected: GW_OK, or the error with which the caller
 * failed to collect the records. end returns that error, and also reports if add had no memory. After an error all is
 * as if begin had not been called, and gw_ps_keeper_due is false for a while. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY;
 * begin: GW_ERR_ORDER (the last snapshot is still being written). */
gw_status gw_ps_keeper_begin(struct gw_ps_keeper *keeper);
void gw_ps_keeper_add(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                      struct gw_ps_blob *blob);
gw_status gw_ps_keeper_end(struct gw_ps_keeper *keeper, gw_status collected);

/* Looks what the other threads have finished, and tells the log. Call it about four times a second. */
void gw_ps_keeper_look(struct gw_ps_keeper *keeper);

/* Waits for the snapshot that is being written, if there is one. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY (the last
 * snapshot failed). */
gw_status gw_ps_keeper_finish(struct gw_ps_keeper *keeper);

struct gw_ps_keeper_info {
    bool durable;                           /* records that are appended are kept */
    const char *reason;                     /* why they are not; valid until the next call */
    bool writing;                           /* a snapshot is being written */
    uint64_t generation;                    /* of the last snapshot; 0: none */
    uint64_t snapshot_bytes, journal_bytes; /* bytes of the last snapshot, and of the journals after it */
    /* gw_clock_seconds() when the last snapshot was finished, or was restored; 0: never */
    double snapshot_at;
    uint64_t n_snapshots, n_failed; /* how many were taken, and how many failed, since the start */
};
struct gw_ps_keeper_info gw_ps_keeper_info(const struct gw_ps_keeper *keeper);

#endif
