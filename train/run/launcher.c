/* Reads what launchers of several ranks say in the environment. */
#include "run/launcher.h"

#include <stdlib.h>

/* The inner ones first. Open MPI sets its own names; MPICH, Intel MPI and MVAPICH start by Hydra, which sets PMI_*.
 * torchrun and gradwire launch set RANK and WORLD_SIZE. sbatch's script has SLURM_PROCID and SLURM_NTASKS too, but
 * SLURM_STEP_NUM_TASKS is srun's alone; its tasks have PMIX_RANK if it serves MPI (--mpi=pmix). */
static const struct {
    const char *name, *size, *rank;
    const char *mpi, *tcp; /* MPI joins them, or the link tcp can, where this variable is set; NULL: never */
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", NULL},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", NULL},
    {"a launcher (RANK and WORLD_SIZE)", "WORLD_SIZE", "RANK", NULL, "MASTER_ADDR"},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "PMI_RANK", NULL},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "PMIX_RANK", NULL},
    {"mpiexec", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "MPI_LOCALRANKID", NULL},
};

static bool number(const char *name, uint32_t *value)
{
    const char *text = getenv(name);
    char *end;
    unsigned long parsed = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : UINT32_MAX;
    if (parsed > INT32_MAX || *end)
        return false;
    *value = (uint32_t)parsed;
    return true;
}

struct gw_launcher gw_launcher_find(void)
{
    struct gw_launcher found = {.size = 1};
    for (unsigned i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (!number(launchers[i].size, &found.size) || !number(launchers[i].rank, &found.rank))
            continue;
        found.name = launchers[i].name;
        found.mpi = launchers[i].mpi && getenv(launchers[i].mpi);
        found.tcp = launchers[i].tcp && getenv(launchers[i].tcp);
        return found;
    }
    return (struct gw_launcher){.size = 1};
}
