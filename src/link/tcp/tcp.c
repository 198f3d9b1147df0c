/* The door of the tcp link: it checks the options, makes the group and its endpoints, and lets them meet. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/host.h"
#include "link/tcp/inbox.h"
#include "link/tcp/lifetime.h"
#include "link/tcp/visitor.h"

#include <gradwire/codec.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#define DEFAULT_TIMEOUT_MS 60000

_Static_assert(GW_TCP_MAX_LINKS + 1 <= GW_ZMQ_MOST_DOORS, "a door for every link, and one for the rendezvous");

/* ---- the end ------------------------------------------------------------------------------------------ */

/* Frees a group, also one that is not complete. The sockets of its endpoints must be closed. */
static void free_group(struct gw_tcp_group *group)
{
    gw_tcp_host_end(group->host);
    gw_zmq_net_close(&group->net);
    for (uint32_t l = 0; group->endpoints && l < group->n_links; l++)
        gw_tcp_endpoint_free(group->endpoints[l]);
    gw_free(group->context, group->endpoints);
    gw_free(group->context, group->keys_of);
    gw_free(group->context, group);
}

static void destroy(void *self)
{
    struct gw_tcp_endpoint *endpoint = self;
    struct gw_tcp_group *group = endpoint->group;
    if (!gw_process_is(group->made_in))
        return;
    gw_tcp_endpoint_shut(endpoint);
    if (atomic_fetch_sub_explicit(&group->holders, 1, memory_order_acq_rel) == 1)
        free_group(group);
}

static const gw_link_ops ops = {
    .name = "tcp",
    .send = gw_tcp_send,
    .send_all = gw_tcp_send_all,
    .recv = gw_tcp_recv,
    .fail = gw_tcp_fail,
    .close = gw_tcp_close,
    .destroy = destroy,
};

/* ---- the beginning -------------------------------------------------------------------------------------- */

static gw_status check_options(const gw_tcp_options *options, uint32_t n_links, const gw_link *links)
{
    if (!options || !links)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_tcp_create: %s is NULL", options ? "links" : "options");
    if (options->struct_bytes != sizeof *options)
        return gw_fail(GW_ERR_ARGUMENT, "gw_tcp_options.struct_bytes is %zu, and must be %zu", options->struct_bytes,
                       sizeof *options);
    if (options->size == 0 || options->size > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a link of %u members asked for; 1 to %u are possible", options->size,
                       GW_MAX_WORKERS);
    if (options->rank >= options->size)
        return gw_fail(GW_ERR_ARGUMENT, "the rank is %u; ranks are 0 to %u", options->rank, options->size - 1);
    if (n_links == 0 || n_links > GW_TCP_MAX_LINKS)
        return gw_fail(GW_ERR_ARGUMENT, "%u links asked for; 1 to %u are possible", n_links, GW_TCP_MAX_LINKS);
    if (!options->rendezvous)
        return gw_fail(GW_ERR_ARGUMENT, "no rendezvous is named; it must be HOST:PORT, where rank 0 listens");
    return GW_OK;
}

/* Finds the address where rank 0 listens. Containers start in any order and get their names when they start, and it
 * takes some time until all machines know a name. So an unknown name is looked up again until the deadline. A job of
 * one rank does not wait: nobody else will come. */
static gw_status find_rendezvous(const gw_tcp_options *options, uint32_t timeout_ms, struct gw_zmq_address *rendezvous)
{
    enum { PAUSES = 4 }; /* the pauses between two look-ups; after each pause the program is asked whether to stop */
    const struct timespec pause = {.tv_nsec = (long)(GW_TCP_ASK_SECONDS * 1e9)};
    const double deadline = gw_clock_seconds() + timeout_ms / 1000.0;
    bool unknown, told = false;
    for (;;) {
        gw_status status = gw_zmq_address_parse("the rendezvous", options->rendezvous, false, &unknown, rendezvous);
        if (!unknown || options->size == 1 || gw_clock_seconds() >= deadline)
            return status;
        if (!told && options->log) {
            char line[GW_TCP_TEXT_BYTES];
            snprintf(line, sizeof line, "%s; asking again for %.0f s", gw_last_error(), timeout_ms / 1000.0);
            options->log(line, options->log_user);
        }
        told = true;
        for (int i = 0; i < PAUSES && gw_clock_seconds() < deadline; i++) {
            if (options->stop && options->stop(options->stop_user))
                return gw_fail(GW_ERR_CLOSED, "rank %u was stopped, as asked, before all members had met",
                               options->rank);
            nanosleep(&pause, NULL);
        }
    }
}

/* Finds the address where rank 0 listens for the meeting, and the one where this rank listens for the others. */
static gw_status find_addresses(const gw_tcp_options *options, uint32_t timeout_ms, struct gw_zmq_address *rendezvous,
                                struct gw_zmq_address *own)
{
    GW_TRY(find_rendezvous(options, timeout_ms, rendezvous));
    if (options->advertise)
        GW_TRY(gw_zmq_address_of_host(options->advertise, own));
    else
        GW_TRY(gw_zmq_address_towards(rendezvous, own));
    if (options->keys || options->insecure || (rendezvous->loopback && own->loopback))
        return GW_OK;
    const struct gw_zmq_address *open = rendezvous->loopback ? own : rendezvous;
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s is not a loopback address, and there are no keys: anybody could read and send messages; give "
                   "keys (--keys DIR), or say that you trust the network (--insecure)",
                   gw_zmq_place(open->endpoint));
}

static gw_status set_up(struct gw_tcp_group *group, const gw_tcp_options *options)
{
    GW_TRY(gw_zmq_net_open(&group->net));
    if (zmq_ctx_set(group->net.zmq, ZMQ_MAX_SOCKETS, 64 + 8 * (int)group->n_links) != 0)
        return gw_fail(GW_ERR_SYSTEM, "ZeroMQ has not enough sockets for %u links", group->n_links);
    group->endpoints = gw_calloc(group->context, group->n_links, sizeof group->endpoints[0]);
    if (!group->endpoints)
        return GW_ERR_MEMORY;
    if (!options->keys)
        return GW_OK;
    group->keys_of = gw_calloc(group->context, group->size, sizeof group->keys_of[0]);
    if (!group->keys_of)
        return GW_ERR_MEMORY;
    GW_TRY(gw_zmq_keys_load(group->context, options->keys, &group->net.keys));
    return gw_zmq_gate_open(group->context, group->net.zmq, group->net.keys, &group->net.log, &group->net.gate);
}

/* Does all from listening to the moment when every member has heard from every other. */
static gw_status join(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous,
                      const struct gw_zmq_address *own, char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES])
{
    const double deadline = gw_clock_seconds() + group->timeout_ms / 1000.0;
    for (uint32_t l = 0; l < group->n_links; l++)
        GW_TRY(gw_tcp_endpoint_open(group, l, own, endpoints[l], &group->endpoints[l]));
    GW_TRY(group->rank == 0 ? gw_tcp_receive_guests(group, rendezvous, endpoints, deadline)
                            : gw_tcp_visit(group, rendezvous, endpoints, deadline));
    for (uint32_t l = 0; l < group->n_links; l++)
        GW_TRY(gw_tcp_endpoint_connect(group->endpoints[l]));
    for (uint32_t l = 0; l < group->n_links; l++)
        GW_TRY(gw_tcp_endpoint_await(group->endpoints[l], deadline));
    return GW_OK;
}

/* Tells the others what went wrong, as far as there is a way to them, and takes everything down. */
static gw_status give_up(struct gw_tcp_group *group, gw_status status)
{
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    for (uint32_t l = 0; group->endpoints && l < group->n_links; l++) {
        struct gw_tcp_endpoint *endpoint = group->endpoints[l];
        if (!endpoint)
            continue;
        if (group->session)
            gw_tcp_fail(endpoint, status, sentence);
        gw_tcp_endpoint_shut(endpoint);
    }
    free_group(group);
    return gw_fail(status, "%s", sentence);
}

gw_status gw_link_tcp_create(gw_context *context, const gw_tcp_options *options, uint32_t n_links, gw_link *links)
{
    struct gw_zmq_address rendezvous, own;
    if (links && n_links <= GW_TCP_MAX_LINKS)
        memset(links, 0, n_links * sizeof *links);
    GW_TRY(check_options(options, n_links, links));
    const uint32_t timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    GW_TRY(find_addresses(options, timeout_ms, &rendezvous, &own));
    struct gw_tcp_group *group = gw_calloc(context, 1, sizeof *group);
    if (!group)
        return GW_ERR_MEMORY;
    group->context = context;
    group->made_in = gw_process_now();
    group->rank = options->rank;
    group->size = options->size;
    group->n_links = n_links;
    group->timeout_ms = timeout_ms;
    group->net = (struct gw_zmq_net){.context = context,
                                     .timeout_ms = timeout_ms,
                                     .most_at_once = options->size,
                                     .log = {options->log, options->log_user, 0}};
    group->stop = options->stop;
    group->stop_user = options->stop_user;
    atomic_init(&group->holders, n_links);
    gw_status status = set_up(group, options);
    char endpoints[GW_TCP_MAX_LINKS][GW_ZMQ_ENDPOINT_BYTES];
    if (status == GW_OK)
        status = join(group, &rendezvous, &own, endpoints);
    if (status < 0)
        return give_up(group, status);
    for (uint32_t l = 0; l < n_links; l++)
        links[l] = (gw_link){.ops = &ops, .self = group->endpoints[l], .rank = group->rank, .size = group->size};
    return GW_OK;
}
