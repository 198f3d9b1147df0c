/* The inside of the keeper. keeper_journal.c appends. keeper_snapshot.c takes snapshots. keeper_replay.c reads the
 * files of a folder. keeper_open.c calls them at the beginning and the end. A field belongs to the caller's thread,
 * unless its comment says otherwise. */
#ifndef GW_PSERVER_KEEP_KEEPER_STATE_H
#define GW_PSERVER_KEEP_KEEPER_STATE_H

#include "pserver/keep/folder.h"
#include "pserver/keep/keeper.h"

#include <pthread.h>

#define GW_PS_KEEPER_SENTENCE 512

/* One record of a snapshot that is being collected. */
struct gw_ps_keeper_record {
    struct gw_ps_keeper_record *next;
    struct gw_ps_blob *blob; /* NULL: none */
    uint32_t n_head;
    uint8_t type;
    uint8_t head[];
};

/* A snapshot under way. The caller's thread collects it. Then a thread of its own writes it. */
struct gw_ps_keeper_taking {
    struct gw_ps_keeper_record *first, **last;
    uint64_t generation, n_bytes;
    int old_journal;  /* the journal before it, which must come to disk first; -1: none */
    gw_status failed; /* an error while it was collected */
    pthread_t thread;
    atomic_bool done; /* set by the thread: it has ended, and the fields below can be read */
    gw_status status;
    char sentence[GW_PS_KEEPER_SENTENCE];
    double seconds;
};

struct gw_ps_keeper {
    gw_context *context;
    struct gw_ps_keeper_options options;
    struct gw_ps_folder folder;

    struct gw_ps_records journal;
    /* the journal begins after a gap. It is of use only with the snapshot of its generation, which is not there yet */
    bool gap;
    bool journal_ok; /* all records that were appended are in the journal */
    char reason[GW_PS_KEEPER_SENTENCE];
    double since;         /* when the first record after the begin of the last snapshot came; 0: none has come */
    uint64_t older_bytes; /* bytes of the journals since the last snapshot, without the current one */

    uint64_t snapshot, snapshot_bytes; /* generation of the last snapshot, 0 if there is none; and its bytes */
    double snapshot_at;
    uint64_t n_snapshots, n_failed;
    struct gw_ps_keeper_taking *taking; /* NULL: none */
    gw_status last_status;              /* of the last snapshot */
    char last_sentence[GW_PS_KEEPER_SENTENCE];
    double pause, next_try; /* how long to wait after a failure, and when to try again */

    pthread_t syncer;
    bool has_syncer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing; /* guarded by the lock */
    int sync_fd;  /* guarded by the lock: the current journal */
    /* guarded by the lock: the journal before the current one is not on disk yet, and must come to disk first */
    bool held;
    uint64_t promised; /* guarded by the lock: a server must not start again without the files of this generation */
    /* used by the syncer, once it runs: the generation that is named in the folder's file; UINT64_MAX: none */
    uint64_t told;
    bool not_told;         /* used by the syncer, once it runs: the last time, that file could not be written */
    atomic_bool dirty;     /* something was appended since the last look of the syncer */
    atomic_int sync_error; /* errno of a journal that did not come to disk; 0: none */
    /* guarded by the lock: tell_sentence has not been written to the log yet */
    bool tell_failed;
    char tell_sentence[GW_PS_KEEPER_SENTENCE]; /* guarded by the lock */
};

__attribute__((format(printf, 2, 3))) void gw_ps_keeper_log(struct gw_ps_keeper *keeper, const char *format, ...);

/* keeper_replay.c: replays what the folder holds, and opens the last journal for more. */
gw_status gw_ps_keeper_replay(struct gw_ps_keeper *keeper, gw_ps_replay *replay, void *user);

/* Makes a journal without records. Errors: GW_ERR_SYSTEM; then there is no such file. */
gw_status gw_ps_keeper_new_journal(struct gw_ps_keeper *keeper, uint64_t generation, uint32_t flags,
                                   struct gw_ps_records *out);

/* Notes that from here on the journal is of no use. gw_last_error() says why. */
void gw_ps_keeper_lose(struct gw_ps_keeper *keeper);

/* From now on the syncer brings this journal to disk. held: only once the journal before it is on disk. Its generation
 * is promised, unless the journal begins after a gap. */
void gw_ps_keeper_use_journal(struct gw_ps_keeper *keeper, const struct gw_ps_records *journal, bool held);

/* Promises a generation: the next time that the journal comes to disk, the folder's file names this generation. If its
 * files are missing later, the keeper knows it. */
void gw_ps_keeper_promise(struct gw_ps_keeper *keeper, uint64_t generation);

/* Brings the journal before the current one to disk. Returns errno, or 0. */
int gw_ps_keeper_sync_old(struct gw_ps_keeper *keeper, int fd);

/* Start and stop the syncer, the thread that brings the journal to disk about once a second. Errors: GW_ERR_SYSTEM. */
gw_status gw_ps_keeper_start_syncer(struct gw_ps_keeper *keeper);
void gw_ps_keeper_stop_syncer(struct gw_ps_keeper *keeper);

/* Brings the journal of the descriptor `fd` to disk, and closes fd. The syncer calls this. */
void gw_ps_keeper_sync_now(struct gw_ps_keeper *keeper, int fd, uint64_t promised);

#endif
