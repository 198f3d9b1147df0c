/* The public measurement of a link and codecs: checks the arguments, agrees with the other members, measures, and tells
 * all members what rank 0 found. */
#include <gradwire/probe.h>

#include "plan/profile.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "exchange/owners.h"
#include "probe/probe.h"
#include "wire/hash.h"

#include <math.h>
#include <string.h>

enum { RUNS = 3, MOST_RUNS = 1000, MOST_ELEMENTS = 1 << 20, TIMEOUT_MS = 60000 };
enum { MOST_FIGURES = 3 + 7 * GW_PLAN_MAX_CODECS };

/* Where the numbers stand that rank 0 tells: those of the link, and then of each codec. Returns how many they are. */
static size_t find_figures(struct gw_probe *p, double *at[MOST_FIGURES])
{
    size_t n = 0;
    at[n++] = &p->link.alpha_ms;
    at[n++] = &p->link.ms_per_byte;
    at[n++] = &p->link.latency_ms;
    for (size_t k = 0; k < p->n_codecs; k++) {
        gw_profile_codec *c = &p->costs[k];
        at[n++] = &c->compress_ms_fixed;
        at[n++] = &c->compress_ms_per_element;
        at[n++] = &c->decompress_ms_per_element;
        at[n++] = &c->bytes_per_element;
        at[n++] = &c->measure_ms_fixed;
        at[n++] = &c->measure_ms_per_element;
        at[n++] = &c->busy_ms_per_element;
    }
    return n;
}

static gw_status check(const gw_probe_options *o)
{
    if (!o->exchange.ops || !o->meeting.ops || o->exchange.self == o->meeting.self)
        return gw_fail(GW_ERR_ARGUMENT, "a measurement needs two links, `exchange` and `meeting`");
    GW_TRY(gw_peers_check_link(&o->exchange));
    GW_TRY(gw_peers_check_link(&o->meeting));
    if (o->exchange.size < 2 || o->exchange.size != o->meeting.size || o->exchange.rank != o->meeting.rank)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the links join %u and %u members, and must join the same 2 or more, with the same ranks",
                       o->exchange.size, o->meeting.size);
    if (!o->codecs || o->n_codecs == 0 || o->n_codecs > GW_PLAN_MAX_CODECS)
        return gw_fail(GW_ERR_ARGUMENT, "%u codecs are to be measured; 1 to %u are possible", o->n_codecs,
                       GW_PLAN_MAX_CODECS);
    for (uint32_t k = 0; k < o->n_codecs; k++)
        if (!o->codecs[k] || gw_codec_traits_of(o->codecs[k]).one_group)
            return gw_fail(GW_ERR_ARGUMENT, "codec %u %s", k,
                           o->codecs[k] ? "decides for all tensors at once: they are one group, and there is nothing "
                                          "to plan"
                                        : "is NULL");
    if (strcmp(gw_codec_traits_of(o->codecs[0]).canonical, "none") != 0)
        return gw_fail(GW_ERR_ARGUMENT, "the first codec is %s, and must be none: the link is measured with floats",
                       gw_codec_traits_of(o->codecs[0]).canonical);
    if (o->runs > MOST_RUNS)
        return gw_fail(GW_ERR_ARGUMENT, "%u runs of each point; %u are the most", o->runs, MOST_RUNS);
    return GW_OK;
}

/* Checks layers and codecs alone. Any member can do that. */
static gw_status check_profile(const gw_probe_options *o, const gw_profile_codec *costs)
{
    const gw_profile profile = {.struct_bytes = sizeof profile,
                                .layers = o->layers,
                                .n_layers = o->n_layers,
                                .link.members = o->exchange.size,
                                .codecs = costs,
                                .n_codecs = o->n_codecs};
    return gw_profile_check(&profile);
}

/* Checks that all members are about to measure the same. */
static gw_status agree(struct gw_probe_member *m)
{
    const struct gw_probe *p = m->probe;
    const struct gw_hash *hash = gw_hash_now();
    struct gw_report own = {.hash = 0}, sum;
    const uint64_t numbers[] = {p->runs, p->most_elements, p->n_codecs, p->n_layers};
    own.hash = hash->whole(numbers, sizeof numbers, 0);
    for (size_t k = 0; k < p->n_codecs; k++)
        own.hash = hash->whole(p->specs[k], strlen(p->specs[k]), own.hash);
    for (uint32_t l = 0; l < p->n_layers; l++)
        own.hash = hash->whole(&p->layers[l].n_elems, sizeof p->layers[l].n_elems, own.hash);
    own.hash |= 1; /* 0 means that members differ */
    GW_TRY(gw_meet(&m->meeting, &own, &sum));
    return sum.hash ? GW_OK
                    : gw_fail(GW_ERR_ARGUMENT, "the members are not about to measure the same: codecs, layers, runs or "
                                               "most_elements differ");
}

/* Gives rank 0's figures to all members. The others check them, because they come from outside. */
static gw_status tell(struct gw_probe_member *m)
{
    double figures[MOST_FIGURES], *at[MOST_FIGURES];
    const size_t n = find_figures(m->probe, at);
    for (size_t i = 0; i < n; i++)
        figures[i] = *at[i];
    GW_TRY(gw_meeting_tell(&m->meeting, figures, n * sizeof *figures));
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(figures[i]) || figures[i] < 0)
            return gw_fail(GW_ERR_PEER, "rank 0 sent an invalid cost of %g", figures[i]);
        *at[i] = figures[i];
    }
    return GW_OK;
}

static void say(const struct gw_probe_member *m, const char *what)
{
    if (m->link.rank == 0 && m->probe->next)
        m->probe->next(m->probe->user, what);
}

gw_status gw_probe_all(struct gw_probe_member *m)
{
    GW_TRY(agree(m));
    say(m, "messages");
    GW_TRY(gw_probe_messages(m));
    for (size_t k = 0; k < m->probe->n_codecs; k++) {
        say(m, m->probe->specs[k]);
        GW_TRY(gw_probe_codec(m, k));
    }
    return GW_OK;
}

/* All members meet when they have measured, or were stopped together. So the links are free. */
static gw_status leave(struct gw_probe_member *m, gw_status status)
{
    const bool stopped = m->meeting.stopped;
    m->meeting.stop = NULL, m->meeting.stopped = false;
    if (status == GW_OK || stopped) {
        const struct gw_kept_error kept = gw_error_keep();
        GW_TRY(gw_meet(&m->meeting, NULL, NULL));
        gw_error_put_back(&kept);
    }
    m->meeting.stopped = stopped;
    return status;
}

/* Tells the other members why this one ends, as an exchange does. They wait for it on one of the two links. */
static gw_status failed(const gw_probe_options *o, gw_status status)
{
    if (status < 0 && status != GW_ERR_ARGUMENT) {
        gw_link_fail(&o->exchange, status, gw_last_error());
        gw_link_fail(&o->meeting, status, gw_last_error());
    }
    return status;
}

gw_status gw_probe_measure(gw_context *context, const gw_probe_options *o, gw_profile_link *link,
                           gw_profile_codec *costs)
{
    if (!o || !link || !costs)
        return gw_fail(GW_ERR_ARGUMENT, "gw_probe_measure: options, link or costs is NULL");
    gw_probe_options own;
    GW_TRY(GW_TAKE_OPTIONS(gw_probe_options, o, &own));
    o = &own;
    GW_TRY(check(o));
    struct gw_probe *p = gw_calloc(context, 1, sizeof *p);
    if (!p)
        return failed(o, GW_ERR_MEMORY);
    p->runs = o->runs ? o->runs : RUNS;
    p->most_elements = o->most_elements ? o->most_elements : MOST_ELEMENTS;
    p->n_codecs = o->n_codecs;
    p->layers = o->layers;
    p->n_layers = o->n_layers;
    p->link.run_elements = GW_PROBE_RUN_ELEMENTS;
    p->link.members = o->exchange.size;
    for (uint32_t k = 0; k < o->n_codecs; k++) {
        p->codecs[k] = o->codecs[k];
        p->costs[k].spec = p->specs[k] = gw_codec_traits_of(o->codecs[k]).canonical;
    }
    struct gw_probe_member member = {.probe = p,
                                     .link = o->exchange,
                                     .meeting = {.context = context,
                                                 .link = o->meeting,
                                                 .timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS,
                                                 .stop = o->stop,
                                                 .stop_user = o->stop_user}};
    gw_status status = check_profile(o, p->costs);
    if (status == GW_OK) {
        status = gw_meeting_begin(&member.meeting);
        if (status == GW_OK)
            status = gw_probe_all(&member);
        status = leave(&member, status == GW_OK ? tell(&member) : status);
    }
    if (status == GW_OK) {
        *link = p->link;
        memcpy(costs, p->costs, o->n_codecs * sizeof *costs);
    }
    gw_free(context, p);
    return member.meeting.stopped ? status : failed(o, status);
}
