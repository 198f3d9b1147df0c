/* Finds out who started this process: mpirun, srun and their like tell their ranks in the environment how many they
 * are.
 */
#ifndef GW_TRAIN_LAUNCHER_H
#define GW_TRAIN_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

struct gw_launcher {
    const char *name;    /* "mpirun", for sentences; NULL: nobody whose words are known */
    uint32_t size, rank; /* ranks it started, and which this is; without a launcher 1 and 0 */
    bool mpi;            /* MPI_Init joins its ranks */
    bool tcp;            /* it says where they meet, as the link tcp wants it */
};

/* Reads the environment. Of launchers within each other the inner one counts. A script under Slurm is no rank: only
 * what srun starts is. */
struct gw_launcher gw_launcher_find(void);

#endif
