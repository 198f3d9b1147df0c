/* Finds out which ranks this process has and how many there are in all, from options and from the launcher's
 * environment. Then it connects their links. */
#include "run/members.h"
#include "base/error.h"
#include "run/launcher.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#ifdef GW_HAVE_MPI
#include <gradwire/link_mpi.h>
#include <time.h>
#endif

/* ---- who ------------------------------------------------------------------------------------ */

static gw_status begin_tcp(const struct gw_members_options *o, struct gw_members *m)
{
    uint32_t size = o->workers, rank = o->rank;
    GW_TRY(gw_launcher_place(&size, &rank));
    if (o->rendezvous)
        snprintf(m->rendezvous, sizeof m->rendezvous, "%s", o->rendezvous);
    else
        GW_TRY(gw_launcher_meeting(rank, m->rendezvous, sizeof m->rendezvous));
    const char *missing = size == 0                    ? "--workers N (or WORLD_SIZE)"
                          : rank == GW_MEMBERS_NO_RANK ? "--rank R (or RANK)"
                          : !m->rendezvous[0]          ? "--rendezvous HOST:PORT (or MASTER_ADDR and MASTER_PORT)"
                                                       : NULL;
    if (missing && gw_launcher_is_batch_script())
        return gw_fail(GW_ERR_ARGUMENT,
                       "this process is no rank of the Slurm job, because srun did not start it; put srun before the "
                       "command, or give it %s",
                       missing);
    if (missing)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the link tcp needs %s; gradwire launch -n N -- train ... gives every worker all it needs",
                       missing);
    if (rank >= size)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u of %u workers cannot be; ranks are 0 to %u", rank, size, size - 1);
    m->size = size, m->first = rank, m->count = 1;
    m->tcp = (gw_tcp_options){.struct_bytes = sizeof m->tcp,
                              .rank = rank,
                              .size = size,
                              .rendezvous = m->rendezvous,
                              .advertise = o->advertise,
                              .keys = o->keys,
                              .insecure = o->insecure,
                              .timeout_ms = o->timeout_ms,
                              .log = o->log,
                              .log_user = o->user,
                              .stop = o->stop,
                              .stop_user = o->user};
    return GW_OK;
}

/* The servers know how many workers there are. */
static gw_status begin_servers(const struct gw_members_options *o, struct gw_members *m)
{
    uint32_t rank = o->rank, size = o->workers;
    gw_ps_client *client;
    GW_TRY(gw_launcher_place(&size, &rank));
    if (!o->servers || rank == GW_MEMBERS_NO_RANK)
        return gw_fail(GW_ERR_ARGUMENT, "the link servers needs %s",
                       o->servers ? "--rank R (or RANK)" : "--servers HOST:PORT,...");
    m->size = o->workers;
    if (m->size == 0) {
        m->servers.rank = GW_PS_READER;
        GW_TRY(gw_ps_client_create(NULL, &m->servers, &client));
        m->size = gw_ps_n_workers(client);
        gw_ps_client_destroy(client);
    }
    if (rank >= m->size)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u of %u workers cannot be; ranks are 0 to %u", rank, m->size,
                       m->size - 1);
    m->first = rank, m->count = 1;
    return GW_OK;
}

/* One line for all ranks. */
static void say(const struct gw_members_options *o, const struct gw_launcher *by, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!o->log || by->rank != 0)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    o->log(line, o->user);
}

gw_status gw_members_choose_link(struct gw_members_options *o)
{
#ifdef GW_HAVE_MPI
    const bool have_mpi = true;
#else
    const bool have_mpi = false;
#endif
    struct gw_launcher by = gw_launcher_find();
    if (o->link)
        return GW_OK;
    o->link = by.size <= 1 ? "local" : by.tcp ? "tcp" : by.mpi && have_mpi ? "mpi" : NULL;
    if (by.size <= 1)
        return GW_OK;
    if (o->link) {
        say(o, &by, "%s started %u ranks: they are joined by --link %s", by.name, by.size, o->link);
        return GW_OK;
    }
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s started %u ranks, and without --link each would train by itself: %s; --link local if each shall",
                   by.name, by.size,
                   by.mpi ? "this build has no mpi link, but --link tcp --rendezvous HOST:PORT joins them, or gradwire "
                            "launch -n N -- train ... starts them"
                   : strcmp(by.name, "srun") == 0
                       ? "--link tcp joins them, or --link mpi where srun serves MPI (srun --mpi=pmix)"
                       : "--link tcp --rendezvous HOST:PORT joins them (or MASTER_ADDR and MASTER_PORT say where)");
}

#ifdef GW_HAVE_MPI
/* Ranks of another MPI's launcher are each a world of its own. */
static gw_status check_launcher(int size)
{
    struct gw_launcher by = gw_launcher_find();
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    if (size > 1 || by.size <= 1)
        return GW_OK;
    MPI_Get_library_version(version, &n);
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s started %u ranks, and MPI sees this one alone: this build's MPI is %.*s; start the ranks by its "
                   "own mpirun (or srun --mpi=pmix where it knows that), or join them by --link tcp",
                   by.name, by.size, (int)strcspn(version, ",\n"), version);
}

static gw_status begin_mpi(const struct gw_members_options *o, struct gw_members *m)
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
#else
static gw_status begin_mpi(const struct gw_members_options *o, struct gw_members *m)
{
    (void)o, (void)m;
    return gw_fail(GW_ERR_UNSUPPORTED, "this build has no mpi link: no MPI was found when it was made");
}
#endif

gw_status gw_members_begin(const struct gw_members_options *o, struct gw_members *m)
{
    *m = (struct gw_members){.kind = GW_MEMBERS_LOCAL, .count = o->workers ? o->workers : 1};
    m->servers = (gw_ps_client_options){.struct_bytes = sizeof m->servers,
                                        .servers = o->servers,
                                        .keys = o->keys,
                                        .timeout_ms = o->timeout_ms,
                                        .connect_ms = o->timeout_ms}; /* workers may be started before them */
    bool tcp = strcmp(o->link, "tcp") == 0, mpi = strcmp(o->link, "mpi") == 0,
         servers = strcmp(o->link, "servers") == 0;
    if (!tcp && !mpi && !servers && strcmp(o->link, "local") != 0)
        return gw_fail(GW_ERR_ARGUMENT, "there is no link \"%s\"; there are local, mpi, tcp and servers", o->link);
    if (!tcp && ((o->rank != GW_MEMBERS_NO_RANK && !servers) || o->rendezvous || o->advertise || o->insecure ||
                 (o->keys && !o->servers)))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "--rank, --rendezvous, --advertise, --keys and --insecure are for the link tcp, and --link is %s", o->link);
    if (tcp) {
        m->kind = GW_MEMBERS_TCP;
        return begin_tcp(o, m);
    }
    if (mpi) {
        m->kind = GW_MEMBERS_MPI;
        return begin_mpi(o, m);
    }
    if (servers) {
        m->kind = GW_MEMBERS_SERVERS;
        return begin_servers(o, m);
    }
    m->size = m->count;
    struct gw_launcher by = gw_launcher_find();
    if (by.size > 1)
        say(o, &by,
            "%s started %u ranks, and --link is local: each trains by itself, and needs an --out of its own; without "
            "--link they are joined",
            by.name, by.size);
    return GW_OK;
}

/* ---- links ---------------------------------------------------------------------------------- */

static gw_status connect_one(struct gw_members *m, gw_context *context, gw_link *links)
{
#ifdef GW_HAVE_MPI
    if (m->kind == GW_MEMBERS_MPI)
        return gw_link_mpi_create(context, MPI_COMM_WORLD, links);
#endif
    return gw_link_local_create(context, m->size, links);
}

/* This process's ranks become clients. */
static gw_status connect_servers(struct gw_members *m)
{
    m->clients = calloc(m->count, sizeof *m->clients);
    if (!m->clients)
        return GW_ERR_MEMORY;
    for (uint32_t n = 0; n < m->count; n++) {
        m->servers.rank = m->first + n;
        GW_TRY(gw_ps_client_create(NULL, &m->servers, &m->clients[n])); /* it outlives the context */
    }
    if (gw_ps_n_workers(m->clients[0]) != m->size)
        return gw_fail(GW_ERR_ARGUMENT, "the parameter servers are for %u workers, and this run has %u",
                       gw_ps_n_workers(m->clients[0]), m->size);
    return GW_OK;
}

static gw_status connect_members(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    if (m->kind == GW_MEMBERS_TCP)
        return gw_link_tcp_create(context, &m->tcp, n_links, links);
    for (uint32_t k = 0; k < n_links; k++) {
        gw_status status = connect_one(m, context, links + (size_t)k * m->count);
        for (uint32_t i = 0; status < 0 && i < k * m->count; i++)
            links[i].ops->destroy(links[i].self);
        GW_TRY(status);
    }
    return GW_OK;
}

gw_status gw_members_connect(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    if (m->kind == GW_MEMBERS_SERVERS) { /* the worker joins by itself, perhaps more than once */
        for (uint32_t k = 1; k < n_links; k++)
            GW_TRY(gw_link_local_create(context, 1, &links[k]));
        return GW_OK;
    }
    if (!m->servers.servers)
        return connect_members(m, context, n_links, links);
    GW_TRY(connect_members(m, context, n_links - 1, links + m->count));
    gw_status status = connect_servers(m);
    for (uint32_t i = m->count; status < 0 && i < n_links * m->count; i++) {
        links[i].ops->fail(links[i].self, status, gw_last_error());
        links[i].ops->destroy(links[i].self);
    }
    return status;
}

uint64_t gw_members_machine(void)
{
    char text[256] = "";
    const char *given = getenv("GRADWIRE_MACHINE");
    if (given)
        return XXH3_64bits(given, strlen(given));
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r"); /* new at every start of a machine */
    if (!file || !fgets(text, sizeof text, file))
        gethostname(text, sizeof text - 1);
    if (file)
        fclose(file);
    return XXH3_64bits(text, strlen(text));
}

void gw_members_end(struct gw_members *m, bool failed)
{
    for (uint32_t i = 0; m->clients && i < m->count; i++)
        gw_ps_client_destroy(m->clients[i]);
    free(m->clients);
    m->clients = NULL;
#ifdef GW_HAVE_MPI
    if (m->mpi_begun && failed && m->size > 1) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (m->mpi_begun)
        MPI_Finalize();
#else
    (void)failed;
#endif
    m->mpi_begun = false;
}
