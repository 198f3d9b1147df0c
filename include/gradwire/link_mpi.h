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

/* Makes this process's end of a link between all ranks of `comm`, with their numbers there. Collective over comm: the
 * link talks over a duplicate, so that neither the program's own traffic nor another link's mixes with it. MPI must
 * have been initialised with MPI_Init_thread and have granted MPI_THREAD_MULTIPLE. If one rank fails, all do.
 *
 * Messages move while some thread is in one of the link's functions; an exchange's pipeline always is. destroy waits up
 * to 2 s until the other members have left too and everything sent has arrived. After that, what MPI may still read
 * stays allocated, and so does the duplicate, until MPI ends. Destroy links before MPI_Finalize. Errors:
 * GW_ERR_ARGUMENT (comm is null or an intercommunicator, or has more than GW_MAX_WORKERS ranks), GW_ERR_ORDER (MPI is
 * not initialised, or finalised already), GW_ERR_UNSUPPORTED (no MPI_THREAD_MULTIPLE), GW_ERR_MEMORY, GW_ERR_SYSTEM
 * (MPI refused), GW_ERR_PEER (another rank failed to). */
GW_API gw_status gw_link_mpi_create(gw_context *context, MPI_Comm comm, gw_link *link);

/* The same over MPI_COMM_WORLD, for a process whose rank comes from elsewhere (gradwire.torch), and which may not know
 * MPI at all: starts MPI with MPI_Init_thread if nobody has, and then ends it when the process exits. The link's ranks
 * are those that the callers say, each of 0 to size - 1 once; size is that of MPI_COMM_WORLD. Collective over it.
 * Errors: those of gw_link_mpi_create; GW_ERR_ARGUMENT also for another size, or ranks that do not fit together. */
GW_API gw_status gw_link_mpi_world(gw_context *context, uint32_t rank, uint32_t size, gw_link *link);

/* Averages values[0..n_elems) over all ranks of `comm`, in place, as MPI_Allreduce would add them up:
 *
 *     gw_average_mpi(NULL, "ternary", MPI_COMM_WORLD, step, gradient, n, NULL);
 *
 * Collective over comm; may be called again and again. Each call makes a link and ends it, which takes longer than
 * gw_exchange_wait does: programs with a step in a few milliseconds make an exchange. seed: of random draws, another
 * one for each call. Errors: those of gw_link_mpi_create and gw_average_once. */
GW_API gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm comm, uint64_t seed, float *values,
                                uint64_t n_elems, gw_step_result *result);

#ifdef __cplusplus
}
#endif
#endif
