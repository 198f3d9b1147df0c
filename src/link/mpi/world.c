/* The mpi link for a process that may know nothing of MPI yet, such as the tool or a Python program under mpirun: it
 * starts MPI if nobody has, numbers the ranks as the callers say, and ends MPI. */
#include "link/mpi/world.h"

#include "base/error.h"
#include "link/mpi/hub.h"

#include <gradwire/link_mpi.h>

#include <stdlib.h>
#include <time.h>

/* A start of many processes takes some seconds. */
enum { MEETING_S = 60 };

static bool we_began;
static bool in_vain; /* we waited for the other ranks, and not all came: nobody shall wait for them again */

static void end_mpi(void)
{
    if (we_began && gw_mpi_runs())
        MPI_Finalize();
}

void gw_link_mpi_end(int failed)
{
    int size = 1;
    if (!we_began || !gw_mpi_runs())
        return;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (failed && size > 1) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    end_mpi();
}

static gw_status not_met(void)
{
    return gw_fail(GW_ERR_TIMEOUT,
                   "not all ranks of MPI came within %d s after MPI_Init: look for one that died (srun says so)",
                   MEETING_S);
}

/* Waits until all ranks have begun MPI. If one of them died while it did, MPI would let the others wait for ever: srun
 * ends them only if it runs with --kill-on-bad-exit. */
static gw_status meet(void)
{
    MPI_Request met;
    int all = 0, error = MPI_Ibarrier(MPI_COMM_WORLD, &met);
    const double end = MPI_Wtime() + MEETING_S;
    while (!error && !all && MPI_Wtime() < end) {
        error = MPI_Test(&met, &all, MPI_STATUS_IGNORE);
        if (!error && !all)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    in_vain = !all;
    return error ? gw_mpi_refused(error, "MPI_Ibarrier") : all ? GW_OK : not_met();
}

static gw_status begin_mpi(void)
{
    int begun = 0, granted, over = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    if (over)
        return gw_fail(GW_ERR_ORDER, "the mpi link was asked for after MPI_Finalize");
    if (in_vain)
        return not_met();
    if (begun)
        return GW_OK; /* who began it ends it */
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &granted);
    if (error)
        return gw_mpi_refused(error, "MPI_Init_thread");
    GW_TRY(meet()); /* else this process exits without MPI_Finalize, which would wait for the others, too */
    we_began = true;
    return atexit(end_mpi) ? gw_fail(GW_ERR_SYSTEM, "atexit takes no more functions, so nobody would end MPI") : GW_OK;
}

gw_status gw_link_mpi_world(gw_context *context, uint32_t rank, uint32_t size, gw_link *link)
{
    if (link)
        *link = (gw_link){.ops = NULL};
    GW_TRY(begin_mpi());
    MPI_Comm ordered;
    int n = 0, mine = -1, stands = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (size == 0)
        return gw_link_mpi_create(context, MPI_COMM_WORLD, link);
    if (size != (uint32_t)n)
        return gw_fail(GW_ERR_ARGUMENT,
                       "MPI has %d rank%s here, and the job has %u: start all of it with one mpirun or srun", n,
                       n == 1 ? "" : "s", size);
    int error = MPI_Comm_split(MPI_COMM_WORLD, 0, rank < size ? (int)rank : -1, &ordered);
    if (error)
        return gw_mpi_refused(error, "MPI_Comm_split");
    /* Each of the ranks 0, 1, ... was given once if, and only if, every process got the rank that it asked for. */
    MPI_Comm_rank(ordered, &mine);
    int own = (uint32_t)mine == rank;
    error = MPI_Allreduce(&own, &stands, 1, MPI_INT, MPI_MIN, ordered);
    gw_status status =
        error    ? gw_mpi_refused(error, "MPI_Allreduce")
        : stands ? gw_link_mpi_create(context, ordered, link)
                 : gw_fail(GW_ERR_ARGUMENT,
                           "rank %u of %u: two processes say the same rank, or one says none of the job", rank, size);
    MPI_Comm_free(&ordered);
    return status;
}
