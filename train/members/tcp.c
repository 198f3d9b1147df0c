/* Members as processes that meet over TCP. */
#include "base/error.h"
#include "members/launcher.h"
#include "members/members.h"

#include <stdio.h>

#ifdef GW_HAVE_TCP
#include <openssl/crypto.h>
#endif

static bool version(char *text, size_t capacity)
{
#ifdef GW_HAVE_TCP
    snprintf(text, capacity, "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
    return true;
#else
    (void)text, (void)capacity;
    return false;
#endif
}

static gw_status begin(const struct gw_members_options *o, struct gw_members *m)
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
                              .spin_us = o->spin_us,
                              .timeout_ms = o->timeout_ms,
                              .log = o->log,
                              .log_user = o->user,
                              .stop = o->stop,
                              .stop_user = o->user};
    return GW_OK;
}

static gw_status connect_links(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    return gw_link_tcp_create(context, &m->tcp, n_links, links);
}

const struct gw_members_scheme gw_members_tcp = {
    .name = "tcp",
    .help = "they are processes that meet over TCP (gradwire launch starts them)",
    .has_launcher = true,
    .takes = GW_MEMBERS_TAKES_RANK | GW_MEMBERS_TAKES_RENDEZVOUS | GW_MEMBERS_TAKES_ADVERTISE | GW_MEMBERS_TAKES_KEYS |
             GW_MEMBERS_TAKES_INSECURE | GW_MEMBERS_TAKES_SPIN,
    .version = version,
    .begin = begin,
    .connect = connect_links,
};
