/* Members as the ranks of an MPI job. */
#include "base/error.h"
#include "members/launcher.h"
#include "members/members.h"

#ifdef GW_HAVE_MPI
#include <gradwire/link_mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool version(char *text, size_t capacity)
{
    char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    MPI_Get_library_version(name, &n);
    snprintf(text, capacity, "%.*s", (int)strcspn(name, ",\n"), name);
    return true;
}

/* Refuses a launcher of another MPI: each of its ranks would be a world of its own. */
static gw_status check_launcher(int size)
{
    struct gw_launcher by = gw_launcher_find();
    char mpi[200];
    if (size > 1 || by.size <= 1)
        return GW_OK;
    version(mpi, sizeof mpi);
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s started %u ranks, and MPI sees this one alone: this build's MPI is %s; start the ranks by its "
                   "own mpirun (or srun --mpi=pmix if it knows that), or join them by --link tcp",
                   by.name, by.size, mpi);
}

static gw_status begin(const struct gw_members_options *o, struct gw_members *m)
{
    int granted, size, rank, begun;
    MPI_Initialized(&begun);
    if (!begun && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &granted) != MPI_SUCCESS)
        return gw_fail(GW_ERR_SYSTEM, "MPI could not be started");
    m->mpi_begun = !begun;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (o->workers && o->workers != (uint32_t)size)
        return gw_fail(GW_ERR_ARGUMENT, "--workers is %u, and MPI started %d rank%s; under mpirun it can be left away",
                       o->workers, size, size == 1 ? "" : "s");
    GW_TRY(check_launcher(size));
    m->size = (uint32_t)size, m->first = (uint32_t)rank, m->count = 1;
    return GW_OK;
}

static gw_status connect_one(const struct gw_members *m, gw_context *context, gw_link *links)
{
    (void)m;
    return gw_link_mpi_create(context, MPI_COMM_WORLD, links);
}

static gw_status connect_links(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    return gw_members_connect_each(m, context, n_links, links, connect_one);
}

/* Ends MPI. If the run has failed, the other ranks get a second to say why. */
static void end(struct gw_members *m, bool failed)
{
    if (m->mpi_begun && failed && m->size > 1) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (m->mpi_begun)
        MPI_Finalize();
    m->mpi_begun = false;
}
#else
static bool version(char *text, size_t capacity)
{
    (void)text, (void)capacity;
    return false;
}
#endif

const struct gw_members_scheme gw_members_mpi = {
    .name = "mpi",
    .help = "they are ranks under mpirun or srun (the default there)",
    .has_launcher = true,
    .version = version,
#ifdef GW_HAVE_MPI
    .begin = begin,
    .connect = connect_links,
    .end = end,
#endif
};
