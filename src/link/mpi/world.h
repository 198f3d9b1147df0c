/* What gw_link_open finds by name in the library of the mpi link, for addresses of mpi: (load_mpi.c). */
#ifndef GW_LINK_MPI_WORLD_H
#define GW_LINK_MPI_WORLD_H

#include <gradwire/link.h>

/* Makes a link over MPI_COMM_WORLD. If MPI is not initialised, the call starts it, waits until all ranks have done so,
 * and MPI ends when the process exits. rank: the caller's rank in the link; each of 0 to size - 1 is given once. size:
 * that of MPI_COMM_WORLD. size 0: the ranks and their number are MPI's own, and `rank` is ignored; link->rank and
 * link->size tell them. All its processes must call it (it is collective). Errors: those of gw_link_mpi_create;
 * GW_ERR_ARGUMENT also for another size, or ranks that do not fit together; GW_ERR_TIMEOUT if the call started MPI,
 * and a rank did not come within 60 s: then the process should exit, because MPI is of no more use. */
GW_API GW_MUST_CHECK gw_status gw_link_mpi_world(gw_context *context, uint32_t rank, uint32_t size, gw_link *link);

/* Ends MPI before the process exits, if gw_link_mpi_world has started it; else it does nothing. Destroy all links
 * before. failed: if it is not 0, this process has failed: the call waits a second, so that the other ranks can say
 * why, and ends them and this process with MPI_Abort. */
GW_API void gw_link_mpi_end(int failed);

#endif
