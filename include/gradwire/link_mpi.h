/* The mpi link: every rank of a communicator is a member. It is a library of its own (gradwire-mpi.pc), so that
 * Gradwire itself needs no MPI. Programs that use it include this header besides gradwire.h. */
#ifndef GRADWIRE_LINK_MPI_H
#define GRADWIRE_LINK_MPI_H

#include <gradwire/exchange.h>
#include <gradwire/link.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes this process's end of a link between all ranks of `comm`, with the ranks that they have there. All ranks of
 * comm must call it (it is collective). The link talks over a duplicate of comm, so that its messages do not mix with
 * those of the program or of another link. MPI must have been initialised with MPI_Init_thread and have granted
 * MPI_THREAD_MULTIPLE. If the call fails on one rank, it fails on all.
 *
 * Messages move while some thread is in one of the link's functions. The pipeline thread of an exchange always is.
 * destroy waits up to 2 s until the other members have left too, and all that was sent has arrived. If that takes
 * longer, the duplicate, and the memory that MPI may still read, stay allocated until MPI ends. Destroy links before
 * MPI_Finalize. Errors: GW_ERR_ARGUMENT (comm is null or an intercommunicator, or has more than GW_MAX_WORKERS ranks),
 * GW_ERR_ORDER (MPI is not initialised, or finalised already), GW_ERR_UNSUPPORTED (no MPI_THREAD_MULTIPLE),
 * GW_ERR_MEMORY, GW_ERR_SYSTEM (MPI refused), GW_ERR_PEER (the call failed on another rank). */
GW_API GW_MUST_CHECK gw_status gw_link_mpi_create(gw_context *context, MPI_Comm comm, gw_link *link);

/* Averages values[0..n_elems) over all ranks of `comm`, in place, in one call. It takes the place of MPI_Allreduce:
 *
 *     if (gw_average_mpi(NULL, "ternary", MPI_COMM_WORLD, step, gradient, n, NULL) < 0)
 *         fprintf(stderr, "%s\n", gw_last_error());  // `gradient` holds no average
 *
 * The caller's thread makes all calls of MPI. So every thread level will do, also that of plain MPI_Init, for a thread
 * that may call MPI at all.
 *
 * All ranks of comm must call it (it is collective). It may be called again and again. Each call makes a link and ends
 * it, and so takes longer than a step of an exchange. Programs with steps of a few milliseconds should make an
 * exchange. seed: of random draws; give another one in each call. result: NULL: not wanted. Errors:
 * GW_ERR_UNSUPPORTED (MPI does not let this thread call it; the other ranks do not hear of that), and those of
 * gw_link_mpi_create and gw_average_once. */
GW_API GW_MUST_CHECK gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm comm, uint64_t seed,
                                              float *values, uint64_t n_elems, gw_step_result *result);

#ifdef __cplusplus
}
#endif
#endif
