/* Reads what launchers of several ranks say in the environment. */
#include "members/launcher.h"
#include "base/error.h"
#include "base/host.h"
#include "base/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inner launchers come first. Open MPI sets names of its own. MPICH, Intel MPI and MVAPICH start by Hydra, which sets
 * PMI_*. torchrun and gradwire launch set RANK and WORLD_SIZE. The script of sbatch has SLURM_PROCID and SLURM_NTASKS,
 * too, but only srun sets SLURM_STEP_NUM_TASKS. Tasks of srun have PMIX_RANK if it serves MPI (--mpi=pmix). Within a
 * Slurm job mpirun starts its daemons by srun, so its ranks have the daemons' SLURM_PROCID. A pod of an indexed
 * Kubernetes job has its index. It has WORLD_SIZE only if the job's author sets it. */
static const struct {
    const char *name, *size, *rank;
    const char *mpi, *tcp; /* if this variable is set, MPI or the link tcp can join the ranks; NULL: never */
    bool whole_job;        /* its ranks count through the whole job. Those of RANK are the user's own words, too */
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", NULL, true},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", NULL, true},
    {"a launcher (RANK and WORLD_SIZE)", "WORLD_SIZE", "RANK", NULL, "MASTER_ADDR", false},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "PMI_RANK", NULL, true},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "PMIX_RANK", NULL, true},
    {"mpiexec", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "MPI_LOCALRANKID", NULL, false},
    {"Kubernetes", "WORLD_SIZE", "JOB_COMPLETION_INDEX", NULL, "MASTER_ADDR", true},
};
enum { N_LAUNCHERS = sizeof launchers / sizeof *launchers };

/* Reads a number from the environment. *found false: the variable is not set, or holds no number, which is an error. */
static gw_status whole_number(const char *name, uint32_t *value, bool *found)
{
    const char *text = getenv(name);
    uint64_t number;
    *found = false;
    if (!text || !*text)
        return GW_OK;
    if (!gw_parse_whole(text, UINT32_MAX, &number))
        return gw_fail(GW_ERR_ARGUMENT, "the environment variable %s is \"%.40s\", and must be a whole number", name,
                       text);
    *value = (uint32_t)number;
    *found = true;
    return GW_OK;
}

/* What the two variables of one launcher, or of the user, say. */
struct said {
    const char *name, *rank_name;
    uint32_t size, rank;
    bool has_size, has_rank;
};

static gw_status ask(const char *name, const char *size, const char *rank, struct said *said)
{
    *said = (struct said){.name = name, .rank_name = rank};
    GW_TRY(whole_number(size, &said->size, &said->has_size));
    return whole_number(rank, &said->rank, &said->has_rank);
}

struct gw_launcher gw_launcher_find(void)
{
    for (unsigned i = 0; i < N_LAUNCHERS; i++) {
        struct said s;
        gw_ignore(
            ask(launchers[i].name, launchers[i].size, launchers[i].rank, &s)); /* who uses them refuses bad ones */
        if (s.has_size && s.has_rank)
            return (struct gw_launcher){.name = s.name,
                                        .size = s.size,
                                        .rank = s.rank,
                                        .mpi = launchers[i].mpi && getenv(launchers[i].mpi),
                                        .tcp = launchers[i].tcp && getenv(launchers[i].tcp)};
    }
    return (struct gw_launcher){.size = 1};
}

/* ---- which rank, how many, where ------------------------------------------------------------------------- */

gw_status gw_launcher_place(uint32_t *size, uint32_t *rank)
{
    struct said user, launcher = {.has_rank = false};
    const uint32_t asked = *size;
    GW_TRY(ask("WORLD_SIZE", "WORLD_SIZE", "RANK", &user));
    for (unsigned i = 0; !(launcher.has_size && launcher.has_rank) && i < N_LAUNCHERS; i++)
        if (launchers[i].whole_job)
            GW_TRY(ask(launchers[i].name, launchers[i].size, launchers[i].rank, &launcher));
    const bool launched = launcher.has_size && launcher.has_rank;
    *size = asked ? asked : user.has_size ? user.size : launched ? launcher.size : 0;
    if (*rank != GW_LAUNCHER_NO_RANK || !(user.has_rank || launched))
        return GW_OK;
    const struct said *by = user.has_rank ? &user : &launcher;
    *rank = by->rank;
    if (by->has_size && by->size != *size)
        return gw_fail(GW_ERR_ARGUMENT,
                       by == &user ? "%s is %u, and %s is %u; leave one of them out"
                                   : "%s started %u ranks, and %s is %u; leave that out, or start as many",
                       by->name, by->size, asked ? "--workers" : "WORLD_SIZE", *size);
    /* torchrun gives out ranks of its own, whatever started it. */
    if (by == &user && launched && launcher.size == *size && launcher.rank != *rank && !getenv("TORCHELASTIC_RUN_ID"))
        return gw_fail(GW_ERR_ARGUMENT,
                       "RANK is %u, and %s says that this is rank %u (%s); unset RANK, or give the right one as --rank",
                       *rank, launcher.name, launcher.rank, launcher.rank_name);
    return GW_OK;
}

/* The first machine of a list in Slurm's form: "node07", "node[07-12,15],login1", "a-1,a-2". */
static void first_machine(const char *list, char *name, size_t capacity)
{
    size_t head = strcspn(list, "[,");
    int n = snprintf(name, capacity, "%.*s", (int)head, list);
    if (list[head] != '[' || n < 0 || (size_t)n >= capacity)
        return;
    const char *number = list + head + 1;
    snprintf(name + n, capacity - (size_t)n, "%.*s", (int)strcspn(number, "-,]"), number);
}

/* A port for this step of the job. Other steps of the job get other ports, and so do jobs with near numbers. */
static gw_status port_of_step(uint32_t *port, bool *found)
{
    enum { FIRST = 20000, N_PORTS = 10000, STRIDE = 1009 };
    uint32_t job = 0, step = 0;
    bool of_step;
    GW_TRY(whole_number("SLURM_JOB_ID", &job, found));
    GW_TRY(whole_number("SLURM_STEP_ID", &step, &of_step));
    if (*found)
        *port = (uint32_t)(FIRST + (job + (uint64_t)STRIDE * step) % N_PORTS);
    return GW_OK;
}

gw_status gw_launcher_meeting(uint32_t rank, char *place, size_t capacity)
{
    const char *address = getenv("MASTER_ADDR"), *machines = getenv("SLURM_STEP_NODELIST");
    uint32_t port = 0, node = 0;
    bool has_port, has_node;
    char machine[256];
    place[0] = 0;
    GW_TRY(whole_number("MASTER_PORT", &port, &has_port));
    GW_TRY(whole_number("SLURM_NODEID", &node, &has_node));
    if ((!address || !*address) && machines) {
        first_machine(machines, machine, sizeof machine);
        address = machine;
        if (rank == 0 && node != 0)
            return gw_fail(GW_ERR_ARGUMENT,
                           "rank 0 is not on the first machine of this step (%.100s), where the others would look for "
                           "it; give all ranks its machine as MASTER_ADDR",
                           machines);
    }
    if (!has_port)
        GW_TRY(port_of_step(&port, &has_port));
    if (address && *address && has_port)
        return gw_host_join("MASTER_ADDR", address, port, place, capacity);
    return GW_OK;
}

bool gw_launcher_is_batch_script(void)
{
    return getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_NUM_TASKS");
}
