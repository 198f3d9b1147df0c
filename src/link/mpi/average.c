/* Averages one array over the ranks of a communicator in one call. */
#include "base/error.h"
#include "link/mpi/hub.h"

#include <gradwire/link_mpi.h>

/* Checks that MPI lets this thread call it. If not, no other rank hears of it: that would take MPI. */
static gw_status check_thread(void)
{
    int level = MPI_THREAD_MULTIPLE, is_main = 1;
    if (gw_mpi_runs()) {
        MPI_Query_thread(&level);
        MPI_Is_thread_main(&is_main);
    }
    if (level < MPI_THREAD_SERIALIZED && !is_main)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "gw_average_mpi was called on a thread that may not call MPI: MPI has granted only the thread "
                       "that started it; call it there, or start MPI with "
                       "MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &granted)");
    return GW_OK;
}

gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm comm, uint64_t seed, float *values,
                         uint64_t n_elems, gw_step_result *result)
{
    gw_link link;
    GW_TRY(check_thread());
    GW_TRY(gw_mpi_create(context, comm, true, &link));
    gw_status status = gw_average_once(context, spec, &link, seed, values, n_elems, result);
    gw_link_destroy(&link);
    return status;
}
