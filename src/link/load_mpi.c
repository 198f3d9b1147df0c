/* The row of the mpi link. It is a library of its own, which is loaded if somebody asks for this link. So programs
 * start without MPI, and need none. */
#define _GNU_SOURCE /* dladdr */
#include "base/error.h"
#include "link/mpi/world.h"
#include "link/scheme.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libgradwire_mpi.so.0"
enum { PATH_BYTES = 4096 };

static __typeof__(gw_link_mpi_world) *link_world;
static __typeof__(gw_link_mpi_end) *link_end;

bool gw_mpi_version(char *text, size_t capacity)
{
    snprintf(text, capacity, "if " LIBRARY " is there");
    return true;
}

/* Loads the library that was built or installed with the file `beside`. NULL: there is none. Its symbols are global,
 * because OpenMPI's plug-ins look for OpenMPI's symbols in the whole process. */
static void *load_beside(const char *beside)
{
    static const char *const places[] = {"/", "/../lib/", "/../" GW_LIBDIR "/"};
    const char *slash = strrchr(beside, '/');
    char path[PATH_BYTES + 100];
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        const int n = snprintf(path, sizeof path, "%.*s%s" LIBRARY, (int)(slash - beside), beside, places[i]);
        if (n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    return NULL;
}

/* Looks beside this library, or beside the program if that has it inside; else the system finds it. */
static void *load(void)
{
    const char *given = getenv("GRADWIRE_MPI_LIBRARY");
    char program[PATH_BYTES];
    Dl_info own;
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
    void *library = dladdr(&link_world, &own) && own.dli_fname ? load_beside(own.dli_fname) : NULL;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (!library)
        library = load_beside(program);
    return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
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
                   "the mpi link needs " LIBRARY ", which did not load (%s): install it (Debian: libgradwire-mpi0), or "
                   "join the ranks by tcp",
                   why ? why : "it is of another version");
}

gw_status gw_mpi_load_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links)
{
    GW_TRY(find_functions());
    for (uint32_t l = 0; l < n_links; l++)
        GW_TRY(link_world(context, request->rank, request->size, &links[l]));
    return GW_OK;
}

void gw_mpi_load_end(bool failed)
{
    if (link_end)
        link_end(failed);
}
