/* Finds out which launcher started this process. mpirun, srun and similar programs set environment variables for each
 * rank: its number, how many ranks there are, and where they run. */
#ifndef GW_TRAIN_LAUNCHER_H
#define GW_TRAIN_LAUNCHER_H

#include <gradwire/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_LAUNCHER_NO_RANK UINT32_MAX

struct gw_launcher {
    const char *name;    /* "mpirun", for sentences; NULL: no launcher that is known */
    uint32_t size, rank; /* how many ranks it started, and the rank of this process; without a launcher 1 and 0 */
    bool mpi;            /* true: MPI_Init joins its ranks */
    bool tcp;            /* true: it says where the ranks meet, as the link tcp needs it */
};

/* Reads the environment. If one launcher started another, the inner one counts. Under Slurm only a process that srun
 * started is a rank; the batch script is not. */
struct gw_launcher gw_launcher_find(void);

/* Finds rank and size, for ranks that MPI does not join. Before the call, *size and *rank hold what the options say; 0
 * and GW_LAUNCHER_NO_RANK mean nothing. The call fills in a missing number from RANK and WORLD_SIZE, else from mpirun,
 * srun or Kubernetes (JOB_COMPLETION_INDEX). If none of them has it, it stays as it was. GW_ERR_ARGUMENT: they
 * contradict each other, or are no numbers. */
gw_status gw_launcher_place(uint32_t *size, uint32_t *rank);

/* Finds where the ranks meet, "HOST:PORT": MASTER_ADDR and MASTER_PORT. If one of them is not set, it comes from
 * Slurm's step: the step's first machine, and a port that depends on the numbers of job and step. "": it is not known.
 * GW_ERR_ARGUMENT: the port is no number, or this is rank 0 and runs on another machine. */
gw_status gw_launcher_meeting(uint32_t rank, char *place, size_t capacity);

/* True if this process runs in a Slurm job, but srun did not start it. Then it is one process, and no rank. */
bool gw_launcher_is_batch_script(void);

#endif
