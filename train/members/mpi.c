/* Members as the ranks of an MPI job. The mpi link is a library of its own, which is loaded if somebody asks for this
 * link. So the tool starts without MPI, and needs none. */
#include "base/error.h"
#include "members/launcher.h"
#include "members/members.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libgradwire_mpi.so.0"

/* Those of <gradwire/link_mpi.h>, which needs an MPI. */
static gw_status (*link_world)(gw_context *context, uint32_t rank, uint32_t size, gw_link *link);
static void (*link_end)(int failed);

static bool version(char *text, size_t capacity)
{
    snprintf(text, capacity, "if " LIBRARY " is there");
    return true;
}

/* Loads the library that was built or installed with this program, else the system's. Its symbols are global, because
 * OpenMPI's plug-ins look for OpenMPI's symbols in the whole process. */
static void *load(void)
{
    static const char *const places[] = {"/", "/../lib/", "/../" GW_LIBDIR "/"};
    const char *given = getenv("GRADWIRE_MPI_LIBRARY");
    char path[4096 + 100];
    if (given)
        return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
    const ssize_t n = readlink("/proc/self/exe", path, 4096);
    path[n > 0 ? n : 0] = 0;
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(slash, (size_t)(path + sizeof path - slash), "%s" LIBRARY, places[i]);
        if (access(path, R_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    return dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
}

static gw_status find_functions(void)
{
    void *library = load();
    if (library) {
        *(void **)&link_world = dlsym(library, "gw_link_mpi_world");
        *(void **)&link_end = dlsym(library, "gw_link_mpi_end");
    }
    if (link_world && link_end)
        return GW_OK;
    const char *why = dlerror();
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--link mpi needs " LIBRARY ", which did not load (%s): install it (Debian: libgradwire-mpi0), or "
                   "join the ranks by --link tcp",
                   why ? why : "it is of another version");
}

/* Refuses a launcher of another MPI: each of its ranks would be a world of its own. Refuses also to be alone, if nobody
 * has said so: somebody who names this link wants workers. */
static gw_status check_launcher(uint32_t size, uint32_t workers)
{
    struct gw_launcher by = gw_launcher_find();
    if (size > 1 || (by.size <= 1 && (by.mpi || workers == 1)))
        return GW_OK;
    if (by.size <= 1)
        return gw_fail(GW_ERR_ARGUMENT,
                       "no mpirun or srun started this process, so it would be the only worker: put mpirun -n N before "
                       "the command, or give --workers 1 if one is what you want");
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s started %u ranks, and MPI sees this one alone: " LIBRARY " is for another MPI; start the ranks "
                   "by that MPI's own mpirun (or srun --mpi=pmix if it knows that), or join them by --link tcp",
                   by.name, by.size);
}

static gw_status begin(const struct gw_members_options *o, struct gw_members *m)
{
    GW_TRY(find_functions());
    GW_TRY(link_world(NULL, 0, 0, &m->mpi_first));
    m->size = m->mpi_first.size, m->first = m->mpi_first.rank, m->count = 1;
    if (o->workers && o->workers != m->size)
        return gw_fail(GW_ERR_ARGUMENT, "--workers is %u, and MPI started %u rank%s; under mpirun it can be left away",
                       o->workers, m->size, m->size == 1 ? "" : "s");
    return check_launcher(m->size, o->workers);
}

static gw_status connect_one(struct gw_members *m, gw_context *context, gw_link *links)
{
    if (!m->mpi_first.ops)
        return link_world(context, 0, 0, links);
    *links = m->mpi_first;
    m->mpi_first = (gw_link){0};
    return GW_OK;
}

static gw_status connect_links(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    return gw_members_connect_each(m, context, n_links, links, connect_one);
}

/* If the run has failed, the other ranks get a second to say why. */
static void end(struct gw_members *m, bool failed)
{
    if (m->mpi_first.ops)
        m->mpi_first.ops->destroy(m->mpi_first.self);
    m->mpi_first = (gw_link){0};
    if (link_end)
        link_end(failed);
}

const struct gw_members_scheme gw_members_mpi = {
    .name = "mpi",
    .help = "they are ranks under mpirun or srun (the default there)",
    .has_launcher = true,
    .version = version,
    .begin = begin,
    .connect = connect_links,
    .end = end,
};
