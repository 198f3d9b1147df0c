/* A folder of snapshots and journals: what was appended is there again after the process was killed. The keeper does
 * not know what the records mean. docs/pserver-snapshots.md says what the files are and how they follow each other.
 *
 * Journal g holds what happened after snapshot g was taken; before generation 1 there was nothing. All calls are of one
 * thread, which a snapshot does not hold up: another writes it, and a third brings the journal to disk about once a
 * second. So what was appended outlives the process at once, and the machine about a second later. */
#ifndef GW_PSERVER_KEEP_KEEPER_H
#define GW_PSERVER_KEEP_KEEPER_H

#include "pserver/store/blob.h"
#include "pserver/keep/records.h"

struct gw_ps_keeper;

struct gw_ps_keeper_options {
    const char *folder;
    uint32_t keep;                             /* snapshots that stay, at least 1 */
    double every_s;                            /* after which a snapshot is due if anything has happened */
    void (*log)(const char *line, void *user); /* "event key=value ...", from the caller's thread; NULL: nowhere */
    void *log_user;
};

/* Makes or locks the folder, and replays what is kept there: the newest whole snapshot, then every journal after it.
 * The torn end of the last journal is cut off. If the newest snapshot is not whole, the one before and all journals
 * since are taken. Nothing is replayed unless everything can be. Errors: GW_ERR_SYSTEM (the folder cannot be used;
 * another server has it; what is there cannot be had whole: the sentence says what can be done), GW_ERR_ARGUMENT,
 * GW_ERR_MEMORY, replay's. */
gw_status gw_ps_keeper_open(gw_context *context, const struct gw_ps_keeper_options *options, gw_ps_replay *replay,
                            void *user, struct gw_ps_keeper **out);

/* Waits for a snapshot that is being written, and brings the journal to disk. NULL is allowed. */
void gw_ps_keeper_close(struct gw_ps_keeper *keeper);

/* Writes a record into the journal; when it returns, the process may be killed. The body is not copied.
 * Errors: GW_ERR_SYSTEM: it may not be there after a restart, and the sentence says why; from then on everything is
 * appended in vain until a snapshot has been written. */
gw_status gw_ps_keeper_append(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                              const void *body, size_t n_body);

/* Whether a snapshot should be taken now; whether there is nothing that one would hold and the last has not. */
bool gw_ps_keeper_due(const struct gw_ps_keeper *keeper);
bool gw_ps_keeper_is_clean(const struct gw_ps_keeper *keeper);

/* A snapshot: begin, a record of everything there is (head is copied, blob gets a hold; NULL: none), end; nothing is
 * appended between. What is appended afterwards is in the next generation's journal. Memory that runs out between is
 * end's error, and so is what the caller failed with (collected: GW_OK, or that). After an error all is as if begin had
 * not been called, and due() waits a while. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY; begin: GW_ERR_ORDER (the last one is
 * still being written). */
gw_status gw_ps_keeper_begin(struct gw_ps_keeper *keeper);
void gw_ps_keeper_add(struct gw_ps_keeper *keeper, uint8_t type, const void *head, size_t n_head,
                      struct gw_ps_blob *blob);
gw_status gw_ps_keeper_end(struct gw_ps_keeper *keeper, gw_status collected);

/* Sees what other threads have finished, and tells the log. Four times a second or so. */
void gw_ps_keeper_look(struct gw_ps_keeper *keeper);

/* Waits for the snapshot that is being written, if any. Errors: why the last one failed, which is GW_ERR_SYSTEM or
 * GW_ERR_MEMORY. */
gw_status gw_ps_keeper_finish(struct gw_ps_keeper *keeper);

struct gw_ps_keeper_info {
    bool durable;                           /* what is appended is kept */
    const char *reason;                     /* why not; valid until the next call */
    bool writing;                           /* a snapshot */
    uint64_t generation;                    /* of the last snapshot; 0: none */
    uint64_t snapshot_bytes, journal_bytes; /* of it; of what came after */
    double snapshot_at;                     /* gw_clock_seconds() when it was finished, or restored from; 0: never */
    uint64_t n_snapshots, n_failed;         /* taken since the start */
};
struct gw_ps_keeper_info gw_ps_keeper_info(const struct gw_ps_keeper *keeper);

#endif
