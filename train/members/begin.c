/* Finds out which ranks this process has, and how many there are in all, from options and the environment. */
#include "base/error.h"
#include "members/launcher.h"
#include "members/members.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Writes one line for all ranks to the log: only rank 0 of those that the launcher started writes it. */
__attribute__((format(printf, 3, 4))) static void say(const struct gw_members_options *o, const struct gw_launcher *by,
                                                      const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!o->request.log || by->rank != 0)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    o->request.log(line, o->request.log_user);
}

/* The first link whose processes have such ranks. */
static const char *link_with(enum gw_link_ranks ranks)
{
    size_t i = 0;
    while (gw_link_schemes[i].ranks != ranks)
        i++;
    return gw_link_schemes[i].name;
}

gw_status gw_members_choose_link(struct gw_members_options *o)
{
    struct gw_launcher by = gw_launcher_find();
    if (o->link)
        return GW_OK;
    o->link = by.size <= 1 ? link_with(GW_LINK_RANKS_HERE)
              : by.tcp     ? link_with(GW_LINK_RANKS_TOLD)
              : by.mpi     ? link_with(GW_LINK_RANKS_KNOWN)
                           : NULL;
    if (by.size <= 1)
        return GW_OK;
    if (o->link) {
        say(o, &by, "%s started %u ranks: they are joined by --link %s", by.name, by.size, o->link);
        return GW_OK;
    }
    return gw_fail(
        GW_ERR_ARGUMENT,
        "%s started %u ranks, and without --link each would train by itself: %s; for that, give --link local", by.name,
        by.size,
        strcmp(by.name, "srun") == 0
            ? "--link tcp joins them, or --link mpi if srun serves MPI (srun --mpi=pmix)"
            : "--link tcp --rendezvous HOST:PORT joins them (or MASTER_ADDR and MASTER_PORT say where)");
}

/* Refuses options for which the scheme has no use. The user meant them for another scheme. */
static gw_status check_options(const struct gw_link_scheme *scheme, const struct gw_members_options *o)
{
    const struct {
        const char *option;
        bool is_given;
        unsigned bit;
    } options[] = {{"--rank", o->rank != GW_LAUNCHER_NO_RANK, GW_LINK_RANK},
                   {"--rendezvous", o->request.rendezvous != NULL, GW_LINK_RENDEZVOUS},
                   {"--advertise", o->request.advertise != NULL, GW_LINK_ADVERTISE},
                   {"--keys", o->request.keys && !o->servers, GW_LINK_KEYS},
                   {"--insecure", o->request.insecure, GW_LINK_INSECURE},
                   {"--spin-us", o->request.spin_us > 0, GW_LINK_SPIN}};
    char links[100];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_given && !(scheme->takes & options[i].bit))
            return gw_fail(GW_ERR_ARGUMENT, "%s is for --link %s, and --link is %s", options[i].option,
                           gw_members_list(options[i].bit, !o->must_meet, " and ", links, sizeof links), scheme->name);
    return GW_OK;
}

/* All ranks are threads of this process. */
static gw_status begin_here(const struct gw_members_options *o, struct gw_members *m)
{
    m->size = m->count = m->request.size = o->workers ? o->workers : 1;
    const struct gw_launcher by = gw_launcher_find();
    if (by.size > 1)
        say(o, &by,
            "%s started %u ranks, and --link is %s: each trains by itself, and needs an --out of its own; without "
            "--link they are joined",
            by.name, by.size, m->scheme->name);
    return GW_OK;
}

/* Options or the launcher tell this process its rank, and where the members meet. */
static gw_status begin_told(const struct gw_members_options *o, struct gw_members *m)
{
    uint32_t size = o->workers, rank = o->rank;
    GW_TRY(gw_launcher_place(&size, &rank));
    if (!o->request.rendezvous) {
        GW_TRY(gw_launcher_meeting(rank, m->rendezvous, sizeof m->rendezvous));
        m->request.rendezvous = m->rendezvous;
    }
    const char *missing = size == 0                     ? "--workers N (or WORLD_SIZE)"
                          : rank == GW_LAUNCHER_NO_RANK ? "--rank R (or RANK)"
                          : !m->request.rendezvous[0]   ? "--rendezvous HOST:PORT (or MASTER_ADDR and MASTER_PORT)"
                                                        : NULL;
    if (missing && gw_launcher_is_batch_script())
        return gw_fail(GW_ERR_ARGUMENT,
                       "this process is no rank of the Slurm job, because srun did not start it; put srun before the "
                       "command, or give it %s",
                       missing);
    if (missing)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the link %s needs %s; gradwire launch -n N -- train ... gives every worker all it needs",
                       m->scheme->name, missing);
    if (rank >= size)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u of %u workers is invalid; ranks are 0 to %u", rank, size, size - 1);
    m->size = m->request.size = size, m->first = m->request.rank = rank, m->count = 1;
    return GW_OK;
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
                   "%s started %u ranks, and MPI sees this one alone: Gradwire's library for MPI is for another MPI; "
                   "start the ranks by that MPI's own mpirun (or srun --mpi=pmix if it knows that), or join them by "
                   "--link tcp",
                   by.name, by.size);
}

/* The link knows the ranks. So the first one is opened now. */
static gw_status begin_known(const struct gw_members_options *o, struct gw_members *m)
{
    GW_TRY(gw_link_open_scheme(NULL, m->scheme, &m->request, 1, &m->opened));
    m->size = m->opened.size, m->first = m->opened.rank, m->count = 1;
    if (o->workers && o->workers != m->size)
        return gw_fail(GW_ERR_ARGUMENT, "--workers is %u, and MPI started %u rank%s; under mpirun it can be left away",
                       o->workers, m->size, m->size == 1 ? "" : "s");
    return check_launcher(m->size, o->workers);
}

gw_status gw_members_begin(const struct gw_members_options *o, struct gw_members *m)
{
    const struct gw_link_scheme *scheme = gw_members_find(o->link);
    char text[200];
    *m = (struct gw_members){.scheme = scheme, .request = o->request};
    if (!scheme)
        return gw_fail(GW_ERR_ARGUMENT, "there is no link \"%s\"; there are %s", o->link,
                       gw_members_list(0, !o->must_meet, " and ", text, sizeof text));
    m->servers =
        (gw_ps_client_options){.struct_bytes = sizeof m->servers,
                               .servers = o->servers,
                               .keys = o->request.keys,
                               .timeout_ms = o->request.timeout_ms,
                               .connect_ms = o->request.timeout_ms}; /* workers may be started before the servers */
    if (o->must_meet && gw_members_is_alone(scheme))
        return gw_fail(GW_ERR_ARGUMENT, "on --link %s members never meet, and they must here", scheme->name);
    GW_TRY(check_options(scheme, o));
    if (!scheme->version(text, sizeof text))
        return gw_fail(GW_ERR_UNSUPPORTED, "this build has no %s link: what it needs was not found when it was made",
                       scheme->name);
    return gw_members_is_alone(scheme)           ? gw_members_begin_alone(o, m)
           : scheme->ranks == GW_LINK_RANKS_HERE ? begin_here(o, m)
           : scheme->ranks == GW_LINK_RANKS_TOLD ? begin_told(o, m)
                                                 : begin_known(o, m);
}
