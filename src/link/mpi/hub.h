/* The mpi link's inside. A hub is a process's part of one link: a communicator of its own, and the endpoints of the
 * process's ranks. A program has one endpoint a process; tests put several into one, over the same code.
 *
 * A message is one MPI message: the gradwire ranks of sender and receiver, and what kind it is, stand in source,
 * destination and tag, so that the bytes are the message's alone. Whoever is in recv, send or destroy moves messages
 * for the whole process (progress.c); one thread at a time, so that those of a pair stay in order.
 *
 * This library stands apart from libgradwire, of whose functions it may call the public ones only: memory is
 * gw_message_alloc's. */
#ifndef GW_LINK_MPI_HUB_H
#define GW_LINK_MPI_HUB_H

#include "link/message.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#define GW_MPI_NOBODY UINT32_MAX

/* Where more bytes than this go, MPI's int counts blocks of so many (and a rest). */
#define GW_MPI_LARGEST_COUNT (1u << 30)

#define GW_MPI_WHY_BYTES 320 /* of the sentence that goes with a failure */

enum gw_mpi_kind { GW_MPI_DATA, GW_MPI_FAIL, GW_MPI_BYE, GW_MPI_KINDS };

/* A message on its way out, to one rank or to several from the same memory. */
struct gw_mpi_outgoing {
    struct gw_mpi_outgoing *next;
    void *bytes; /* freed when all requests are done */
    size_t n_bytes;
    uint32_t n_requests, n_done; /* the first n_done of them are done */
    MPI_Request requests[];
};

/* A message on its way in. */
struct gw_mpi_incoming {
    struct gw_mpi_incoming *next;
    MPI_Request request;
    void *bytes;
    size_t n_bytes;
    int source, tag;
};

/* What an endpoint knows of another. */
struct gw_mpi_peer {
    bool failed, left;
    char *why; /* if it failed: the message that said so */
};

struct gw_mpi_hub;

/* One rank of this process. */
struct gw_mpi_endpoint {
    struct gw_mpi_hub *hub;
    uint32_t rank;

    /* Held while a message is handed to MPI: none of this endpoint may follow its farewell. */
    pthread_mutex_t sending;
    struct gw_mpi_outgoing *failure, *farewell; /* taken beforehand; NULL once said */

    /* Under the hub's lock. */
    pthread_cond_t arrived;
    struct gw_message_queue inbox;
    bool sleeping; /* recv waits on `arrived` and nobody has woken it yet */
    bool closed;
    uint32_t failed_peer; /* the first member that told us it failed, or GW_MPI_NOBODY */
    struct gw_mpi_peer peers[];
};

struct gw_mpi_hub {
    gw_context *context;
    MPI_Comm comm; /* MPI_COMM_NULL: not made yet */
    size_t largest_count;
    uint32_t size, n_processes, n_local;
    uint32_t slots; /* the most ranks that share a process; a rank's slot is its number among those of its process */
    struct gw_mpi_endpoint **local; /* [n_local], of this process */
    uint32_t *process_of, *slot_of; /* [size] */
    uint32_t *machine_of;           /* [size]: the lowest rank on the same machine; scratch behind it */
    uint32_t *rank_at;              /* [n_processes * slots] */

    pthread_mutex_t lock;
    struct gw_mpi_outgoing *posted; /* handed to MPI, not looked at since */
    uint32_t holders;               /* endpoints not destroyed yet */

    /* Held by the thread that moves messages. */
    pthread_mutex_t moving;
    struct gw_mpi_outgoing *outgoing, **outgoing_end;
    struct gw_mpi_incoming *incoming, **incoming_end; /* in the order of their sending, for each source */
    MPI_Message stashed;                              /* matched, but there was no memory for it; or MPI_MESSAGE_NULL */
    MPI_Status stashed_status;
    uint64_t round;
    uint64_t *held_up;  /* [n_processes] the round in which a message of that source was found unfinished */
    uint64_t farewells; /* received, by all local endpoints */
};

/* ---- create.c ---- */

/* Makes the endpoints of this process: rank r lives in process process_of[r] of comm (NULL: rank is process). links[]
 * gets this process's, in the order of ranks. Collective over comm. */
gw_status gw_mpi_open(gw_context *context, MPI_Comm comm, uint32_t size, const uint32_t *process_of,
                      size_t largest_count, gw_link *links);

/* Gives back what can be: not what MPI may still use, if MPI is not over. */
void gw_mpi_hub_free(struct gw_mpi_hub *hub);

/* ---- endpoint.c ---- */

extern const gw_link_ops gw_mpi_ops;

/* ---- progress.c ---- */

/* MPI's error number as a status and a sentence. */
gw_status gw_mpi_refused(int error, const char *call);

/* MPI can be called. */
bool gw_mpi_runs(void);

/* Memory for a message to n ranks, with no bytes yet. NULL if there is none. */
struct gw_mpi_outgoing *gw_mpi_outgoing_new(gw_context *context, uint32_t n);
void gw_mpi_outgoing_free(struct gw_mpi_outgoing *out);

/* Hands `out` to MPI for rank `to`, or for all but `me` (to: GW_MPI_NOBODY). Owns `out`, also if it fails.
 * me->sending is held. */
gw_status gw_mpi_post(struct gw_mpi_endpoint *me, uint32_t to, enum gw_mpi_kind kind, struct gw_mpi_outgoing *out);

/* Moves messages: frees those sent, and delivers those that came, until there are no more or `until` (may be NULL) has
 * one. Where another thread is at it, returns at once. Errors: GW_ERR_SYSTEM; GW_ERR_MEMORY, after which a later call
 * goes on. */
gw_status gw_mpi_move(struct gw_mpi_hub *hub, const struct gw_mpi_endpoint *until);

/* Everything of this process has left, and no member will send anything any more. */
bool gw_mpi_is_over(struct gw_mpi_hub *hub);

#endif
