/* The numbers of a server, as a copy for other threads. The server's one thread writes its numbers into the copy a few
 * times a second. Other threads read the copy. The server never waits for them. */
#ifndef GW_PSERVER_SERVER_NUMBERS_H
#define GW_PSERVER_SERVER_NUMBERS_H

#include "pserver/folder/folder.h"
#include "pserver/protocol/message.h"

#define GW_PS_SHOWN_MEMBERS 1000
#define GW_PS_SHOWN_KEYS 100
#define GW_PS_HISTORY_STEPS 300 /* the history is of the last ten minutes */
#define GW_PS_HISTORY_SECONDS 2 /* of one step */

/* A client that is connected. */
struct gw_ps_member_numbers {
    uint32_t rank;
    char address[64];
    int64_t since; /* seconds of Unix time */
};

struct gw_ps_key_numbers {
    char name[GW_PS_MOST_NAME + 1];
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t rounds, bytes;
    uint32_t n_missing; /* gw_ps_n_missing */
};

/* A worker, connected or not. */
struct gw_ps_worker_numbers {
    uint64_t pushes; /* how often it has pushed to all keys */
    uint64_t behind; /* how many pushes it is behind the foremost worker of each key, summed over all keys */
    bool connected;
    /* Unix time in seconds when it left, if it is not connected; 0: it has not been here since the server began */
    int64_t gone_at;
    uint8_t presence; /* gw_ps_presence */
};

/* What the server counts as it works. bytes_in and bytes_out count whole messages. */
struct gw_ps_counts {
    uint64_t requests[GW_PS_OPERATIONS], refused, bytes_in, bytes_out;
    struct gw_ps_times pushes, pulls; /* times from a request's coming to its answer, for requests that were done */
};

/* How many rounds became whole in each of the last steps of time. */
struct gw_ps_history {
    uint64_t step;                        /* the one that is under way; the first has number 0 */
    uint32_t rounds[GW_PS_HISTORY_STEPS]; /* of step s: at s % GW_PS_HISTORY_STEPS */
};

struct gw_ps_numbers {
    /* what does not change while the server lives: the options, with their defaults filled in, and its address */
    const gw_ps_server_options *options;
    const char *address;
    double seconds;  /* seconds since the start */
    int64_t started; /* Unix time in seconds */
    struct gw_ps_counts counts;
    struct gw_ps_store_info store;
    uint64_t waiting;
    struct gw_ps_history history;
    uint32_t clients, connected; /* connected: workers only */
    struct gw_ps_folder_info folder;
    uint64_t keys; /* that are kept */
    uint32_t n_members, n_keys, n_workers;
    struct gw_ps_member_numbers members[GW_PS_SHOWN_MEMBERS]; /* workers first, by rank */
    struct gw_ps_key_numbers shown[GW_PS_SHOWN_KEYS];         /* the first that were made */
    struct gw_ps_worker_numbers workers[];                    /* by rank */
};

/* From here on the server writes the copy. Call it before gw_ps_server_run. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_numbers_begin(gw_ps_server *server);

/* Takes the numbers that were written last. Any thread may call it, until the server is destroyed. NULL: there is no
 * memory. The caller frees them with gw_ps_numbers_free. */
struct gw_ps_numbers *gw_ps_numbers_take(gw_ps_server *server);
void gw_ps_numbers_free(gw_ps_server *server, struct gw_ps_numbers *numbers);

/* The rounds of a step that is over, the newest first: ago 0 is the last one. 0: the server had not begun yet, or it is
 * too long ago. */
uint32_t gw_ps_history_ago(const struct gw_ps_history *history, uint32_t ago);

/* ---- the server's side ---- */

/* Writes the numbers into the copy, if anybody has asked for one. The server's thread calls it. If another thread is
 * reading just then, it writes them the next time. */
void gw_ps_numbers_note(struct gw_ps_server *server);

/* Adds rounds that have become whole to the step that is under way `seconds` after the server's start. */
void gw_ps_history_note(struct gw_ps_history *history, double seconds, uint64_t rounds);

/* Gives up the copy. */
void gw_ps_numbers_end(struct gw_ps_server *server);

#endif
