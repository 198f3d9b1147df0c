/* Moves messages through MPI, for all endpoints of the process. */
#include "link/mpi/hub.h"

#include "base/error.h"

#include <string.h>

/* So many unfinished sends are looked at in one go. Each look lets MPI work on all of them. */
enum { LOOKS = 8 };

gw_status gw_mpi_refused(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, text, &length);
    for (char *at = text; (at = strchr(at, '\n'));) /* MPICH writes several lines, and a sentence is one */
        *at = ' ';
    return gw_fail(GW_ERR_SYSTEM, "%s: %s", call, text);
}

bool gw_mpi_runs(void)
{
    int begun = 0, over = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    return begun && !over;
}

/* Describes n bytes to MPI, which counts with an int: as bytes, or as blocks of `largest` bytes and a rest. */
static int describe(size_t n, size_t largest, int *count, MPI_Datatype *type)
{
    if (n <= largest) {
        *count = (int)n;
        *type = MPI_BYTE;
        return MPI_SUCCESS;
    }
    size_t rest = n % largest;
    int lengths[2] = {(int)(n / largest), (int)rest};
    MPI_Aint at[2] = {0, (MPI_Aint)(n - rest)};
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    *count = 1;
    *type = MPI_DATATYPE_NULL;
    int error = MPI_Type_contiguous((int)largest, MPI_BYTE, &parts[0]);
    if (!error)
        error = MPI_Type_create_struct(2, lengths, at, parts, type);
    if (!error)
        error = MPI_Type_commit(type);
    if (parts[0] != MPI_DATATYPE_NULL)
        MPI_Type_free(&parts[0]);
    return error;
}

/* Frees the type. MPI keeps it until the messages that use it are done. */
static void described(MPI_Datatype *type)
{
    if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL)
        MPI_Type_free(type);
}

/* ---- sending -------------------------------------------------------------------------------------------- */

struct gw_mpi_outgoing *gw_mpi_outgoing_new(gw_context *context, uint32_t n)
{
    struct gw_mpi_outgoing *out = gw_message_alloc(context, sizeof *out + (size_t)n * sizeof out->requests[0]);
    if (!out)
        return NULL;
    *out = (struct gw_mpi_outgoing){.n_requests = n};
    for (uint32_t i = 0; i < n; i++)
        out->requests[i] = MPI_REQUEST_NULL;
    return out;
}

void gw_mpi_outgoing_free(struct gw_mpi_outgoing *out)
{
    if (out)
        gw_message_free(out->bytes);
    gw_message_free(out);
}

gw_status gw_mpi_post(struct gw_mpi_endpoint *me, uint32_t to, enum gw_mpi_kind kind, struct gw_mpi_outgoing *out)
{
    struct gw_mpi_hub *hub = me->hub;
    int count, error;
    MPI_Datatype type;
    const char *call = "MPI_Type_create_struct";
    error = describe(out->n_bytes, hub->largest_count, &count, &type);
    for (uint32_t i = 0; i < out->n_requests && !error; i++) {
        /* Begins with the ranks after this one, so that not all members send to rank 0 at once. */
        uint32_t rank = to == GW_MPI_NOBODY ? (me->rank + 1 + i) % hub->size : to;
        uint32_t slots = me->rank % hub->slots * hub->slots + rank % hub->slots;
        call = "MPI_Isend";
        error = MPI_Isend(out->bytes, count, type, (int)(rank / hub->slots), (int)(slots * GW_MPI_KINDS + kind),
                          hub->comm, &out->requests[i]);
    }
    described(&type);
    /* If one send failed, those before it must still end before the bytes can be freed. */
    pthread_mutex_lock(&hub->lock);
    STAILQ_INSERT_TAIL(&hub->posted, out, link);
    pthread_mutex_unlock(&hub->lock);
    return error ? gw_mpi_refused(error, call) : GW_OK;
}

/* Finds out how many requests of a message are done. */
static gw_status test_requests(struct gw_mpi_outgoing *out)
{
    int one = 1;
    while (out->n_done < out->n_requests && one) {
        int error = MPI_Test(&out->requests[out->n_done], &one, MPI_STATUS_IGNORE);
        if (error)
            return gw_mpi_refused(error, "MPI_Test of a send");
        out->n_done += one != 0;
    }
    return GW_OK;
}

/* Frees what has been sent. Looks at the first of the list, and puts those that are not done at its end. */
static gw_status finish_sends(struct gw_mpi_hub *hub)
{
    struct gw_mpi_outgoing *out, *seen = NULL; /* seen: the first that was put back */
    pthread_mutex_lock(&hub->lock);
    STAILQ_CONCAT(&hub->outgoing, &hub->posted);
    pthread_mutex_unlock(&hub->lock);
    for (int looks = 0; looks < LOOKS && (out = STAILQ_FIRST(&hub->outgoing)) && out != seen;) {
        GW_TRY(test_requests(out));
        STAILQ_REMOVE_HEAD(&hub->outgoing, link);
        if (out->n_done == out->n_requests) {
            gw_mpi_outgoing_free(out);
            continue;
        }
        looks++;
        seen = seen ? seen : out;
        STAILQ_INSERT_TAIL(&hub->outgoing, out, link);
    }
    return GW_OK;
}

/* ---- receiving ------------------------------------------------------------------------------------------ */

/* Starts to receive the next message that MPI has. *found false: there is none. */
static gw_status match(struct gw_mpi_hub *hub, bool *found)
{
    int there = 1, error = MPI_SUCCESS;
    if (hub->stashed == MPI_MESSAGE_NULL)
        error = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, hub->comm, &there, &hub->stashed, &hub->stashed_status);
    *found = there;
    if (error)
        return gw_mpi_refused(error, "MPI_Improbe");
    if (!there)
        return GW_OK;
    MPI_Count n_bytes = 0;
#if MPI_VERSION >= 4
    error = MPI_Get_elements_c(&hub->stashed_status, MPI_BYTE, &n_bytes);
#else
    error = MPI_Get_elements_x(&hub->stashed_status, MPI_BYTE, &n_bytes);
#endif
    if (error)
        return gw_mpi_refused(error, "MPI_Get_elements");
    struct gw_mpi_incoming *in = gw_message_alloc(hub->context, sizeof *in);
    void *bytes = gw_message_alloc(hub->context, (size_t)n_bytes);
    if (!in || !bytes) { /* a later call may have memory */
        gw_message_free(in);
        gw_message_free(bytes);
        return GW_ERR_MEMORY;
    }
    *in = (struct gw_mpi_incoming){.bytes = bytes,
                                   .n_bytes = (size_t)n_bytes,
                                   .source = hub->stashed_status.MPI_SOURCE,
                                   .tag = hub->stashed_status.MPI_TAG,
                                   .request = MPI_REQUEST_NULL};
    int count;
    MPI_Datatype type;
    error = describe(in->n_bytes, hub->largest_count, &count, &type);
    if (!error)
        error = MPI_Imrecv(bytes, count, type, &hub->stashed, &in->request);
    described(&type);
    if (error) {
        gw_message_free(in);
        gw_message_free(bytes);
        return gw_mpi_refused(error, "MPI_Imrecv");
    }
    hub->stashed = MPI_MESSAGE_NULL;
    TAILQ_INSERT_TAIL(&hub->incoming, in, link);
    return GW_OK;
}

/* Hands a complete message to its endpoint, and returns that endpoint. It owns in->bytes. */
static const struct gw_mpi_endpoint *deliver(struct gw_mpi_hub *hub, const struct gw_mpi_incoming *in)
{
    uint32_t kind = (uint32_t)in->tag % GW_MPI_KINDS, slots = (uint32_t)in->tag / GW_MPI_KINDS;
    struct gw_mpi_endpoint *to = hub->local[slots % hub->slots];
    uint32_t from = (uint32_t)in->source * hub->slots + slots / hub->slots;
    bool kept = false;
    pthread_mutex_lock(&hub->lock);
    if (kind == GW_MPI_BYE) {
        to->peers[from].left = true;
        to->n_untold++;
        hub->farewells++;
    } else if (!to->closed) {
        gw_message message = {.from = from, .bytes = in->bytes, .n_bytes = in->n_bytes};
        gw_message_queue_put(&to->inbox, &message);
        kept = true;
    }
    pthread_cond_signal(&to->arrived);
    pthread_mutex_unlock(&hub->lock);
    if (!kept)
        gw_message_free(in->bytes);
    return to;
}

/* Delivers messages that have come completely. A message waits for earlier ones from the same process, but not for
 * those of other processes. */
static gw_status finish_receives(struct gw_mpi_hub *hub, const struct gw_mpi_endpoint *until, bool *reached)
{
    hub->round++;
    for (struct gw_mpi_incoming *in = TAILQ_FIRST(&hub->incoming), *next; in; in = next) {
        int done = 0;
        next = TAILQ_NEXT(in, link);
        if (hub->held_up[in->source] != hub->round) {
            int error = MPI_Test(&in->request, &done, MPI_STATUS_IGNORE);
            if (error)
                return gw_mpi_refused(error, "MPI_Test");
        }
        if (!done) {
            hub->held_up[in->source] = hub->round;
            continue;
        }
        TAILQ_REMOVE(&hub->incoming, in, link);
        if (deliver(hub, in) == until)
            *reached = true;
        gw_message_free(in);
    }
    return GW_OK;
}

static gw_status move(struct gw_mpi_hub *hub, const struct gw_mpi_endpoint *until)
{
    if (!gw_mpi_runs())
        return gw_fail(GW_ERR_CLOSED, "the mpi link ended with MPI: MPI_Finalize has been called");
    gw_status status = finish_sends(hub);
    bool found = true, reached = false;
    while (status == GW_OK && found && !reached) {
        status = match(hub, &found);
        gw_status finished = finish_receives(hub, until, &reached); /* also if there is no memory for more */
        status = status < 0 ? status : finished;
    }
    return status;
}

gw_status gw_mpi_move(struct gw_mpi_hub *hub, const struct gw_mpi_endpoint *until)
{
    if (pthread_mutex_trylock(&hub->moving))
        return GW_OK;
    gw_status status = move(hub, until);
    pthread_mutex_unlock(&hub->moving);
    return status;
}

bool gw_mpi_is_over(struct gw_mpi_hub *hub)
{
    pthread_mutex_lock(&hub->moving);
    pthread_mutex_lock(&hub->lock);
    bool over = STAILQ_EMPTY(&hub->posted) && STAILQ_EMPTY(&hub->outgoing) && TAILQ_EMPTY(&hub->incoming) &&
                hub->farewells == (uint64_t)hub->slots * (hub->size - 1);
    pthread_mutex_unlock(&hub->lock);
    pthread_mutex_unlock(&hub->moving);
    return over;
}
