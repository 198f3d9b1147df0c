/* Finds out which ranks this process has and how many there are in all, from options and from the launcher's
 * environment. Then it connects their links. Each scheme, a way in which members reach each other, is in a file of its
 * own. */
#include "members/members.h"
#include "base/append.h"
#include "base/error.h"
#include "members/launcher.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

const struct gw_members_scheme *const gw_members_schemes[] = {&gw_members_local, &gw_members_tcp, &gw_members_mpi,
                                                              &gw_members_servers, NULL};

const struct gw_members_scheme *gw_members_find(const char *name)
{
    for (size_t i = 0; gw_members_schemes[i]; i++)
        if (strcmp(gw_members_schemes[i]->name, name) == 0)
            return gw_members_schemes[i];
    return NULL;
}

const char *gw_members_list(unsigned takes, bool alone, const char *last, char *text, size_t capacity)
{
    const char *name = NULL; /* the newest that is not written yet */
    *text = 0;
    for (size_t i = 0; gw_members_schemes[i]; i++) {
        const struct gw_members_scheme *s = gw_members_schemes[i];
        if ((s->takes & takes) != takes || (s->is_alone && !alone))
            continue;
        if (name)
            gw_append(text, capacity, "%s%s", *text ? ", " : "", name);
        name = s->name;
    }
    if (name)
        gw_append(text, capacity, "%s%s", *text ? last : "", name);
    return text;
}

static bool have(const struct gw_members_scheme *scheme)
{
    char text[200];
    return scheme->version(text, sizeof text);
}

/* ---- who ------------------------------------------------------------------------------------ */

gw_status gw_members_choose_link(struct gw_members_options *o)
{
    struct gw_launcher by = gw_launcher_find();
    if (o->link)
        return GW_OK;
    const struct gw_members_scheme *joins = by.size <= 1 ? &gw_members_local
                                            : by.tcp     ? &gw_members_tcp
                                            : by.mpi     ? &gw_members_mpi
                                                         : NULL;
    o->link = joins ? joins->name : NULL;
    if (by.size <= 1)
        return GW_OK;
    if (o->link) {
        gw_members_say(o, &by, "%s started %u ranks: they are joined by --link %s", by.name, by.size, o->link);
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
static gw_status check_options(const struct gw_members_scheme *scheme, const struct gw_members_options *o)
{
    const struct {
        const char *option;
        bool is_given;
        unsigned bit;
    } options[] = {{"--rank", o->rank != GW_MEMBERS_NO_RANK, GW_MEMBERS_TAKES_RANK},
                   {"--rendezvous", o->rendezvous != NULL, GW_MEMBERS_TAKES_RENDEZVOUS},
                   {"--advertise", o->advertise != NULL, GW_MEMBERS_TAKES_ADVERTISE},
                   {"--keys", o->keys && !o->servers, GW_MEMBERS_TAKES_KEYS},
                   {"--insecure", o->insecure, GW_MEMBERS_TAKES_INSECURE},
                   {"--spin-us", o->spin_us > 0, GW_MEMBERS_TAKES_SPIN}};
    char links[100];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_given && !(scheme->takes & options[i].bit))
            return gw_fail(GW_ERR_ARGUMENT, "%s is for --link %s, and --link is %s", options[i].option,
                           gw_members_list(options[i].bit, !o->must_meet, " and ", links, sizeof links), scheme->name);
    return GW_OK;
}

gw_status gw_members_begin(const struct gw_members_options *o, struct gw_members *m)
{
    const struct gw_members_scheme *scheme = gw_members_find(o->link);
    char links[100];
    *m = (struct gw_members){.scheme = scheme};
    if (!scheme)
        return gw_fail(GW_ERR_ARGUMENT, "there is no link \"%s\"; there are %s", o->link,
                       gw_members_list(0, !o->must_meet, " and ", links, sizeof links));
    m->servers = (gw_ps_client_options){.struct_bytes = sizeof m->servers,
                                        .servers = o->servers,
                                        .keys = o->keys,
                                        .timeout_ms = o->timeout_ms,
                                        .connect_ms = o->timeout_ms}; /* workers may be started before the servers */
    if (o->must_meet && scheme->is_alone)
        return gw_fail(GW_ERR_ARGUMENT, "on --link %s members never meet, and they must here", scheme->name);
    GW_TRY(check_options(scheme, o));
    if (!have(scheme))
        return gw_fail(GW_ERR_UNSUPPORTED, "this build has no %s link: what it needs was not found when it was made",
                       scheme->name);
    return scheme->begin(o, m);
}

/* ---- links ---------------------------------------------------------------------------------- */

/* Makes this process's ranks clients of the servers. */
static gw_status connect_servers(struct gw_members *m)
{
    m->clients = calloc(m->count, sizeof *m->clients);
    if (!m->clients)
        return GW_ERR_MEMORY;
    for (uint32_t n = 0; n < m->count; n++) {
        m->servers.rank = m->first + n;
        GW_TRY(gw_ps_client_create(NULL, &m->servers, &m->clients[n])); /* a client outlives the context, so it gets
                                                                         * none */
    }
    if (gw_ps_client_info(m->clients[0]).n_workers != m->size)
        return gw_fail(GW_ERR_ARGUMENT, "the parameter servers are for %u workers, and this run has %u",
                       gw_ps_client_info(m->clients[0]).n_workers, m->size);
    return GW_OK;
}

gw_status gw_members_connect(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    if (!m->servers.servers || m->scheme->is_alone)
        return m->scheme->connect(m, context, n_links, links);
    GW_TRY(m->scheme->connect(m, context, n_links - 1, links + m->count));
    gw_status status = connect_servers(m);
    for (uint32_t i = m->count; status < 0 && i < n_links * m->count; i++) {
        gw_link_fail(&links[i], status, gw_last_error());
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
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r"); /* it is new at every start of a machine */
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
    if (m->scheme && m->scheme->end)
        m->scheme->end(m, failed);
}
