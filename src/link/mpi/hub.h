/* The inside of the mpi link. A hub is a process's part of one link: a communicator of its own, and the endpoints of
 * the process's ranks. A program has one endpoint in each process. Tests put several into one process, with the same
 * code.
 *
 * A message of the link is one MPI message. Its source, destination and tag tell the ranks of sender and receiver and
 * the kind of the message, so the bytes are only the message's own. A thread that is in recv, send or destroy moves
 * messages for the whole process (progress.c). Only one thread does so at a time, so that messages of a pair stay in
 * order.
 *
 * This library is separate from libgradwire, and may call only its public functions. So it takes memory with
 * gw_message_alloc, and has a base/process.c of its own. */
#ifndef GW_LINK_MPI_HUB_H
#define GW_LINK_MPI_HUB_H

#include "base/process.h"
#include "link/message.h"

#include <mpi.h>
#include <pthread.h>
#include <sys/queue.h>

#define GW_MPI_NOBODY UINT32_MAX

/* MPI counts with an int. A message with more bytes than this is sent as blocks of so many bytes, and a rest. */
#define GW_MPI_LARGEST_COUNT (1u << 30)

enum gw_mpi_kind { GW_MPI_DATA, GW_MPI_BYE, GW_MPI_KINDS };

/* A message on its way out, to one rank or to several from the same memory. */
struct gw_mpi_outgoing {
    STAILQ_ENTRY(gw_mpi_outgoing) link;
    void *bytes; /* freed when all requests are done */
    size_t n_bytes;
    uint32_t n_requests, n_done; /* the first n_done of them are done */
    MPI_Request requests[];
};

/* A message on its way in. */
struct gw_mpi_incoming {
    TAILQ_ENTRY(gw_mpi_incoming) link;
    MPI_Request request;
    void *bytes;
    size_t n_bytes;
    int source, tag;
};

struct gw_mpi_hub;

/* One rank of this process. */
struct gw_mpi_endpoint {
    struct gw_mpi_hub *hub;
    uint32_t rank;

    struct gw_mpi_outgoing *farewell; /* made beforehand; NULL once it was sent */

    /* Used under the hub's lock. */
    pthread_cond_t arrived;
    struct gw_message_queue inbox;
    bool closed;
    uint32_t n_untold; /* members that have left, and recv has not said so */
    struct {
        bool left, told; /* told: recv has said so */
    } peers[];
};

struct gw_mpi_hub {
    gw_context *context;
    gw_process made_in;
    MPI_Comm comm; /* MPI_COMM_NULL: not made yet */
    size_t largest_count;
    uint32_t size, n_processes;
    /* how many ranks each process has: 1, and in tests 100 at most, so that every tag is below 32,767, which all MPIs
     * allow. Rank r lives in process r / slots, in slot r % slots */
    uint32_t slots;
    uint32_t *machine_of; /* [size]: the lowest rank on the same machine */

    /* Held while a message is handed to MPI. So an endpoint sends nothing after its farewell. And MPI never sees two
     * sends at a time: Open MPI's ob1 (4.1.4 and 5.0.7, at least) loses the order of messages if threads send at the
     * same time, once it has counted 65,536 messages to a process. */
    pthread_mutex_t sending;

    pthread_mutex_t lock;
    STAILQ_HEAD(gw_mpi_outgoings, gw_mpi_outgoing) posted; /* handed to MPI, and not looked at since */
    uint32_t holders;                                      /* endpoints not destroyed yet */

    /* Used by the thread that moves messages, which holds `moving`. */
    pthread_mutex_t moving;
    struct gw_mpi_outgoings outgoing;
    TAILQ_HEAD(, gw_mpi_incoming) incoming; /* for each source, in the order in which they were sent */
    /* a message that was matched when there was no memory for it; or MPI_MESSAGE_NULL */
    MPI_Message stashed;
    MPI_Status stashed_status;
    uint64_t round;
    uint64_t *held_up;  /* [n_processes]: the last round in which a message of that process was not complete */
    uint64_t farewells; /* how many farewells all local endpoints have received */

    struct gw_mpi_endpoint *local[]; /* [slots], of this process */
};

/* ---- create.c ---- */

/* Makes the endpoints of this process. Each process of comm has size / n_processes ranks. links[] gets the links of
 * this process's ranks, in ascending order. one_thread: the thread that calls this makes all calls of the links, too,
 * so MPI need not allow more threads. Collective over comm. */
gw_status gw_mpi_open(gw_context *context, MPI_Comm comm, uint32_t size, size_t largest_count, bool one_thread,
                      gw_link *links);

/* gw_link_mpi_create with one_thread, as above. */
gw_status gw_mpi_create(gw_context *context, MPI_Comm comm, bool one_thread, gw_link *link);

/* Frees the hub and its endpoints. If MPI still runs, memory that MPI may still use is not freed. */
void gw_mpi_hub_free(struct gw_mpi_hub *hub);

/* ---- endpoint.c ---- */

extern const gw_link_ops gw_mpi_ops;

/* ---- progress.c ---- */

/* Turns MPI's error number into a status and a sentence. */
gw_status gw_mpi_refused(int error, const char *call);

/* True if MPI may be called: it is initialised and not finalised. */
bool gw_mpi_runs(void);

/* Memory for a message to n ranks, with no bytes yet. NULL if there is none. */
struct gw_mpi_outgoing *gw_mpi_outgoing_new(gw_context *context, uint32_t n);
void gw_mpi_outgoing_free(struct gw_mpi_outgoing *out);

/* Hands `out` to MPI for rank `to`, or for all but `me` (to: GW_MPI_NOBODY). It owns `out`, also if it fails. The
 * caller must hold the hub's `sending`. */
gw_status gw_mpi_post(struct gw_mpi_endpoint *me, uint32_t to, enum gw_mpi_kind kind, struct gw_mpi_outgoing *out);

/* Moves messages: frees those that were sent, and delivers those that came. It ends if there are no more, or if the
 * endpoint `until` (may be NULL) has got one. If another thread is moving messages, it returns at once. Errors:
 * GW_ERR_SYSTEM; GW_ERR_MEMORY (a later call may go on). */
gw_status gw_mpi_move(struct gw_mpi_hub *hub, const struct gw_mpi_endpoint *until);

/* True if all that this process sent has left, and no member will send anything any more. */
bool gw_mpi_is_over(struct gw_mpi_hub *hub);

#endif
