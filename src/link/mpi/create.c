/* Makes and frees a hub of the mpi link and its endpoints. */
#include "link/mpi/hub.h"

#include "base/clock.h"
#include "base/error.h"

#include <gradwire/codec.h>
#include <gradwire/link_mpi.h>

#include <string.h>

/* Takes memory from the context, all zero. gw_message_free gives it back. */
static void *take(gw_context *context, size_t n_bytes)
{
    void *memory = gw_message_alloc(context, n_bytes);
    return memory ? memset(memory, 0, n_bytes) : NULL;
}

/* ---- endpoints ------------------------------------------------------------------------------------------ */

static void endpoint_free(struct gw_mpi_endpoint *endpoint)
{
    gw_message_queue_clear(&endpoint->inbox);
    gw_mpi_outgoing_free(endpoint->farewell);
    pthread_cond_destroy(&endpoint->arrived);
    gw_message_free(endpoint);
}

static struct gw_mpi_endpoint *endpoint_new(struct gw_mpi_hub *hub, uint32_t rank)
{
    struct gw_mpi_endpoint *endpoint =
        take(hub->context, sizeof *endpoint + (size_t)hub->size * sizeof endpoint->peers[0]);
    if (!endpoint)
        return NULL;
    endpoint->hub = hub;
    endpoint->rank = rank;
    gw_clock_condition_init(&endpoint->arrived);
    endpoint->farewell = gw_mpi_outgoing_new(hub->context, hub->size - 1);
    if (!endpoint->farewell) {
        endpoint_free(endpoint);
        return NULL;
    }
    return endpoint;
}

/* ---- the hub -------------------------------------------------------------------------------------------- */

void gw_mpi_hub_free(struct gw_mpi_hub *hub)
{
    bool runs = gw_mpi_runs();
    if (hub->comm != MPI_COMM_NULL && runs && gw_mpi_is_over(hub))
        MPI_Comm_free(&hub->comm);
    STAILQ_CONCAT(&hub->outgoing, &hub->posted);
    for (struct gw_mpi_outgoing *out; !runs && (out = STAILQ_FIRST(&hub->outgoing));) {
        STAILQ_REMOVE_HEAD(&hub->outgoing, link);
        gw_mpi_outgoing_free(out);
    }
    for (struct gw_mpi_incoming *in; !runs && (in = TAILQ_FIRST(&hub->incoming));) {
        TAILQ_REMOVE(&hub->incoming, in, link);
        gw_message_free(in->bytes);
        gw_message_free(in);
    }
    for (uint32_t i = 0; i < hub->slots; i++)
        if (hub->local[i])
            endpoint_free(hub->local[i]);
    gw_message_free(hub->machine_of);
    gw_message_free(hub->held_up);
    pthread_mutex_destroy(&hub->moving);
    pthread_mutex_destroy(&hub->sending);
    pthread_mutex_destroy(&hub->lock);
    gw_message_free(hub);
}

/* Takes the memory of a hub, and makes the endpoints of this process. */
static gw_status fill(struct gw_mpi_hub *hub, uint32_t process)
{
    hub->machine_of = take(hub->context, hub->size * sizeof *hub->machine_of);
    hub->held_up = take(hub->context, hub->n_processes * sizeof *hub->held_up);
    if (!hub->machine_of || !hub->held_up)
        return GW_ERR_MEMORY;
    for (uint32_t slot = 0; slot < hub->slots; slot++) {
        hub->local[slot] = endpoint_new(hub, process * hub->slots + slot);
        if (!hub->local[slot])
            return GW_ERR_MEMORY;
    }
    return GW_OK;
}

static gw_status hub_new(gw_context *context, MPI_Comm comm, uint32_t size, size_t largest_count, bool one_thread,
                         struct gw_mpi_hub **out)
{
    int level, n_processes, process;
    if (size == 0 || size > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a link of %u members asked for; 1 to %u are possible", size, GW_MAX_WORKERS);
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE && !one_thread)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "the mpi link needs MPI_THREAD_MULTIPLE, which MPI has not granted: start it with "
                       "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted)");
    MPI_Comm_size(comm, &n_processes);
    MPI_Comm_rank(comm, &process);
    const uint32_t slots = size / (uint32_t)n_processes;
    struct gw_mpi_hub *hub = take(context, sizeof *hub + slots * sizeof hub->local[0]);
    if (!hub)
        return GW_ERR_MEMORY;
    hub->context = context;
    hub->made_in = gw_process_now();
    hub->comm = MPI_COMM_NULL;
    hub->stashed = MPI_MESSAGE_NULL;
    hub->largest_count = largest_count;
    hub->size = size;
    hub->n_processes = (uint32_t)n_processes;
    hub->slots = hub->holders = slots;
    STAILQ_INIT(&hub->posted);
    STAILQ_INIT(&hub->outgoing);
    TAILQ_INIT(&hub->incoming);
    pthread_mutex_init(&hub->lock, NULL); /* with default attributes it cannot fail here */
    pthread_mutex_init(&hub->moving, NULL);
    pthread_mutex_init(&hub->sending, NULL);
    gw_status status = fill(hub, (uint32_t)process);
    if (status < 0) {
        gw_mpi_hub_free(hub);
        return status;
    }
    *out = hub;
    return GW_OK;
}

/* Returns GW_OK if `mine` is GW_OK on every rank of comm. Else it returns an error on all of them. */
static gw_status agree(MPI_Comm comm, gw_status mine)
{
    struct {
        int status, rank;
    } own = {mine, 0}, worst = {0, 0};
    MPI_Comm_rank(comm, &own.rank);
    int error = MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MINLOC, comm);
    if (mine < 0)
        return mine;
    if (error)
        return gw_mpi_refused(error, "MPI_Allreduce");
    if (worst.status < 0)
        return gw_fail(GW_ERR_PEER, "rank %d could not make its end of the mpi link: %s", worst.rank,
                       gw_status_text((gw_status)worst.status));
    return GW_OK;
}

/* Asks MPI which processes share a machine, and numbers machines by their lowest rank. Collective. */
static gw_status find_machines(struct gw_mpi_hub *hub)
{
    MPI_Comm here;
    int process, error;
    MPI_Comm_rank(hub->comm, &process);
    error = MPI_Comm_split_type(hub->comm, MPI_COMM_TYPE_SHARED, process, MPI_INFO_NULL, &here);
    if (error)
        return gw_mpi_refused(error, "MPI_Comm_split_type");
    uint32_t leader = (uint32_t)process; /* the first process on the machine */
    error = MPI_Bcast(&leader, 1, MPI_UINT32_T, 0, here);
    MPI_Comm_free(&here);
    if (!error)
        error = MPI_Allgather(&leader, 1, MPI_UINT32_T, hub->machine_of, 1, MPI_UINT32_T, hub->comm);
    if (error)
        return gw_mpi_refused(error, "MPI_Allgather");
    for (uint32_t r = hub->size; r-- > 0;) /* downwards, because the leaders of all processes stand there still */
        hub->machine_of[r] = hub->machine_of[r / hub->slots] * hub->slots;
    return GW_OK;
}

gw_status gw_mpi_open(gw_context *context, MPI_Comm comm, uint32_t size, size_t largest_count, bool one_thread,
                      gw_link *links)
{
    struct gw_mpi_hub *hub = NULL;
    gw_status status = links ? hub_new(context, comm, size, largest_count, one_thread, &hub)
                             : gw_fail(GW_ERR_ARGUMENT, "an mpi link asked for, and no place to put it: link is NULL");
    status = agree(comm, status);
    if (status == GW_OK) {
        int error = MPI_Comm_dup(comm, &hub->comm);
        if (error)
            hub->comm = MPI_COMM_NULL;
        else
            error = MPI_Comm_set_errhandler(hub->comm, MPI_ERRORS_RETURN);
        status = error ? gw_mpi_refused(error, "MPI_Comm_dup") : find_machines(hub);
    }
    if (status < 0) {
        if (hub)
            gw_mpi_hub_free(hub);
        return status;
    }
    for (uint32_t i = 0; i < hub->slots; i++)
        links[i] = (gw_link){.ops = &gw_mpi_ops,
                             .self = hub->local[i],
                             .rank = hub->local[i]->rank,
                             .size = size,
                             .machine_of = hub->machine_of};
    return GW_OK;
}

gw_status gw_mpi_create(gw_context *context, MPI_Comm comm, bool one_thread, gw_link *link)
{
    int begun = 0, between = 0, size = 0;
    if (link)
        *link = (gw_link){.ops = NULL};
    MPI_Initialized(&begun);
    if (!begun)
        return gw_fail(GW_ERR_ORDER, "the mpi link was asked for before MPI_Init_thread");
    if (!gw_mpi_runs())
        return gw_fail(GW_ERR_ORDER, "the mpi link was asked for after MPI_Finalize");
    if (comm == MPI_COMM_NULL)
        return gw_fail(GW_ERR_ARGUMENT, "the mpi link was asked for, and comm is MPI_COMM_NULL");
    MPI_Comm_test_inter(comm, &between);
    if (between)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the mpi link was asked for, and comm is an intercommunicator; merge it with MPI_Intercomm_merge");
    MPI_Comm_size(comm, &size);
    return gw_mpi_open(context, comm, (uint32_t)size, GW_MPI_LARGEST_COUNT, one_thread, link);
}

gw_status gw_link_mpi_create(gw_context *context, MPI_Comm comm, gw_link *link)
{
    return gw_mpi_create(context, comm, false, link);
}
