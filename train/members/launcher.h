/* Finds out who started this process: mpirun, srun and their like tell their ranks in the environment who they are, how
 * many, and where they are. */
#ifndef GW_TRAIN_LAUNCHER_H
#define GW_TRAIN_LAUNCHER_H

#include <gradwire/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_LAUNCHER_NO_RANK UINT32_MAX

struct gw_launcher {
    const char *name;    /* "mpirun", for sentences; NULL: nobody whose words are known */
    uint32_t size, rank; /* ranks it started, and which this is; without a launcher 1 and 0 */
    bool mpi;            /* MPI_Init joins its ranks */
    bool tcp;            /* it says where they meet, as the link tcp wants it */
};

/* Reads the environment. Of launchers within each other the inner one counts. A script under Slurm is no rank: only
 * what srun starts is. */
struct gw_launcher gw_launcher_find(void);

/* Which rank this is and how many there are, for ranks that MPI does not join. In: what options say; size 0 and
 * GW_LAUNCHER_NO_RANK: nothing. Out: the same, filled up from RANK and WORLD_SIZE, else from mpirun, srun or Kubernetes
 * (JOB_COMPLETION_INDEX); what nobody says stays as it was. GW_ERR_ARGUMENT: they contradict each other, or are no
 * numbers. */
gw_status gw_launcher_place(uint32_t *size, uint32_t *rank);

/* Where the ranks meet, "HOST:PORT": MASTER_ADDR and MASTER_PORT. What they do not say follows from Slurm's step: its
 * first machine, and a port that depends on the numbers of job and step. "" if nobody says it. GW_ERR_ARGUMENT: no
 * number, or this is rank 0 and not on that machine. */
gw_status gw_launcher_meeting(uint32_t rank, char *place, size_t capacity);

/* Whether this runs in a Slurm job, but was not started by srun: so it is one process, and no rank. */
bool gw_launcher_is_batch_script(void);

#endif
