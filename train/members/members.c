/* Finds schemes, connects the members' links, and ends a membership. */
#include "members/members.h"
#include "base/append.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

const struct gw_link_scheme *gw_members_nth(size_t i)
{
    return i < gw_link_n_schemes ? &gw_link_schemes[i] : i == gw_link_n_schemes ? &gw_members_servers : NULL;
}

const struct gw_link_scheme *gw_members_find(const char *name)
{
    const struct gw_link_scheme *s;
    for (size_t i = 0; (s = gw_members_nth(i)); i++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

const char *gw_members_list(unsigned takes, bool alone, const char *last, char *text, size_t capacity)
{
    const char *name = NULL; /* the newest that is not written yet */
    *text = 0;
    const struct gw_link_scheme *s;
    for (size_t i = 0; (s = gw_members_nth(i)); i++) {
        if ((s->takes & takes) != takes || (gw_members_is_alone(s) && !alone))
            continue;
        if (name)
            gw_append(text, capacity, "%s%s", *text ? ", " : "", name);
        name = s->name;
    }
    if (name)
        gw_append(text, capacity, "%s%s", *text ? last : "", name);
    return text;
}

/* ---- clients -------------------------------------------------------------------------------- */

gw_status gw_members_client(const struct gw_members *m, const gw_ps_client_options *options, gw_ps_client **out)
{
    enum { SLICE_MS = 250, SLICES_TO_TELL = 4 };
    const struct gw_link_request *r = &m->request;
    gw_ps_client_options own = *options;
    char line[600];
    own.no_wait = true;
    GW_TRY(gw_ps_client_create(NULL, &own, out)); /* a client outlives the context, so it gets none */
    gw_status status;
    for (int slice = 1; (status = gw_ps_client_meet(*out, SLICE_MS)) == GW_NOT_YET; slice++) {
        if (r->stop && r->stop(r->stop_user)) {
            status = gw_fail(GW_ERR_CLOSED, "stopped, as asked, before the parameter servers had answered");
            break;
        }
        if (slice != SLICES_TO_TELL || !r->log)
            continue;
        snprintf(line, sizeof line, "waiting for the parameter servers %.450s, for at most %.0f s", own.servers,
                 own.timeout_ms / 1000.0);
        r->log(line, r->log_user);
    }
    if (status == GW_OK)
        return GW_OK;
    gw_ps_client_destroy(*out);
    *out = NULL;
    return status;
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
        GW_TRY(gw_members_client(m, &m->servers, &m->clients[n]));
    }
    if (gw_ps_client_info(m->clients[0]).n_workers != m->size)
        return gw_fail(GW_ERR_ARGUMENT, "the parameter servers are for %u workers, and this run has %u",
                       gw_ps_client_info(m->clients[0]).n_workers, m->size);
    return GW_OK;
}

/* The first of the links may be open already. */
static gw_status open_links(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    const uint32_t n_opened = m->opened.ops && n_links > 0;
    if (n_opened) {
        *links = m->opened;
        m->opened = (gw_link){.ops = NULL};
    }
    gw_status status = gw_link_open_scheme(context, m->scheme, &m->request, n_links - n_opened, links + n_opened);
    if (status < 0 && n_opened)
        gw_link_destroy(links);
    return status;
}

gw_status gw_members_connect(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    if (!m->servers.servers || gw_members_is_alone(m->scheme))
        return open_links(m, context, n_links, links);
    GW_TRY(open_links(m, context, n_links - 1, links + m->count));
    gw_status status = connect_servers(m);
    for (uint32_t i = m->count; status < 0 && i < n_links * m->count; i++) {
        gw_link_fail(&links[i], status, gw_last_error());
        gw_link_destroy(&links[i]);
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
    gw_link_destroy(&m->opened);
    if (m->scheme && m->scheme->end)
        m->scheme->end(failed);
}
