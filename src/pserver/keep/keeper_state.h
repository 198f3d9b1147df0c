/* The inside of the keeper. keeper_journal.c appends, keeper_snapshot.c takes snapshots, keeper_replay.c reads what is
 * there, keeper_open.c calls them at the beginning and the end. What is not said to be shared belongs to the caller's
 * thread. */
#ifndef GW_PSERVER_KEEP_KEEPER_STATE_H
#define GW_PSERVER_KEEP_KEEPER_STATE_H

#include "pserver/keep/folder.h"
#include "pserver/keep/keeper.h"

#include <pthread.h>

#define GW_PS_KEEPER_SENTENCE 512

/* A record of a snapshot that is collected. */
struct gw_ps_keeper_record {
    struct gw_ps_keeper_record *next;
    struct gw_ps_blob *blob; /* NULL: none */
    uint32_t n_head;
    uint8_t type;
    uint8_t head[];
};

/* A snapshot under way: collected by the caller's thread, then written by its own. */
struct gw_ps_keeper_taking {
    struct gw_ps_keeper_record *first, **last;
    uint64_t generation, n_bytes;
    int old_journal;  /* the one before, brought to disk first; -1: none */
    gw_status failed; /* while it was collected */
    pthread_t thread;
    atomic_bool done; /* by the thread: what follows can be read */
    gw_status status;
    char sentence[GW_PS_KEEPER_SENTENCE];
    double seconds;
};

struct gw_ps_keeper {
    gw_context *context;
    struct gw_ps_keeper_options options;
    struct gw_ps_folder folder;

    struct gw_ps_records journal;
    bool gap;        /* it begins after a gap: of use with its snapshot only, which is not there yet */
    bool journal_ok; /* all that was appended to it is in it */
    char reason[GW_PS_KEEPER_SENTENCE];
    double since;         /* when the first record came after the last snapshot began; 0: none has */
    uint64_t older_bytes; /* of journals since the last snapshot, but the current one */

    uint64_t snapshot, snapshot_bytes; /* generation of the last one; 0: none */
    double snapshot_at;
    uint64_t n_snapshots, n_failed;
    struct gw_ps_keeper_taking *taking; /* NULL: none */
    gw_status last_status;              /* of the last snapshot */
    char last_sentence[GW_PS_KEEPER_SENTENCE];
    double pause, next_try; /* after failures */

    pthread_t syncer;
    bool has_syncer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;      /* guarded by the lock */
    int sync_fd;       /* guarded by the lock: the current journal */
    bool held;         /* guarded by the lock: the journal before it is not on disk yet, and comes first */
    uint64_t promised; /* guarded by the lock: without the files of this generation it must not start again */
    uint64_t told;     /* the syncer's, once it runs: the generation that the folder's file tells; UINT64_MAX: none */
    bool not_told;     /* the syncer's, once it runs: that file could not be written the last time */
    atomic_bool dirty; /* something was appended since the last look of the syncer */
    atomic_int sync_error;                     /* errno of a journal that did not come to disk; 0: none */
    bool tell_failed;                          /* guarded by the lock: the log has not been told of this sentence yet */
    char tell_sentence[GW_PS_KEEPER_SENTENCE]; /* guarded by the lock */
};

__attribute__((format(printf, 2, 3))) void gw_ps_keeper_log(struct gw_ps_keeper *keeper, const char *format, ...);

/* keeper_replay.c: replays what the folder holds, and opens the last journal for more. */
gw_status gw_ps_keeper_replay(struct gw_ps_keeper *keeper, gw_ps_replay *replay, void *user);

/* Opens a journal of no records. Errors: GW_ERR_SYSTEM, and it is not there then. */
gw_status gw_ps_keeper_new_journal(struct gw_ps_keeper *keeper, uint64_t generation, uint32_t flags,
                                   struct gw_ps_records *out);

/* The journal will be of no use from here on; gw_last_error() says why. */
void gw_ps_keeper_lose(struct gw_ps_keeper *keeper);

/* From now on the syncer brings this one to disk; held: once that before it is there. Its generation is promised, but
 * for one after a gap. */
void gw_ps_keeper_use_journal(struct gw_ps_keeper *keeper, const struct gw_ps_records *journal, bool held);

/* Once the journal is on disk next time, the folder tells that without this generation's files something is missing. */
void gw_ps_keeper_promise(struct gw_ps_keeper *keeper, uint64_t generation);

/* Brings the journal before the current one to disk. Returns errno, or 0. */
int gw_ps_keeper_sync_old(struct gw_ps_keeper *keeper, int fd);

/* The syncer brings the journal to disk about once a second. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_keeper_start_syncer(struct gw_ps_keeper *keeper);
void gw_ps_keeper_stop_syncer(struct gw_ps_keeper *keeper);

/* What the syncer does with the journal of that descriptor, which it closes. */
void gw_ps_keeper_sync_now(struct gw_ps_keeper *keeper, int fd, uint64_t promised);

#endif
