/* Averages one array over the ranks of a communicator in one call. */
#include "base/error.h"

#include <gradwire/link_mpi.h>

gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm comm, uint64_t seed, float *values,
                         uint64_t n_elems, gw_step_result *result)
{
    gw_link link;
    GW_TRY(gw_link_mpi_create(context, comm, &link));
    gw_status status = gw_average_once(context, spec, &link, seed, values, n_elems, result);
    link.ops->destroy(link.self);
    return status;
}
