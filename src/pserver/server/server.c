/* The server: one thread, its connections, the store. It does a request at once if it can. If a request must wait, it
 * goes to its key's queue. Nothing blocks. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "pserver/server/state.h"

#include <gradwire/codec.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_AWAY_MS 2000
#define DEFAULT_KEYS (1ull << 20)
#define DEFAULT_KEY_BYTES (1ull << 30)
#define DEFAULT_CLIENTS 1024
#define MOST_NEWCOMERS 256u /* the most connections that have not said HELLO */
#define SPARE_NEWCOMERS 64u /* and how many besides those that may become clients */
#define SPARE_FILES 32u     /* descriptors that connections leave to the folder */
/* how long the server still handles requests that have come, when it must end */
#define END_SECONDS 1.0
#define NAP_SECONDS 0.01  /* between two looks, then, whether answers have left */
#define LOOK_SECONDS 0.25 /* between looks for requests whose deadline has passed */

/* ---- running ------------------------------------------------------------------------------------------------ */

static bool anything_waits(const struct gw_ps_server *server)
{
    for (const struct gw_ps_member *m = LIST_FIRST(&server->members); m; m = LIST_NEXT(m, link))
        if (m->c.first)
            return true;
    return false;
}

/* The end of the server: requests that have come are answered, and their changes are kept. */
static gw_status end(struct gw_ps_server *server)
{
    const double deadline = gw_clock_seconds() + END_SECONDS;
    bool stop, waits = false;
    while (gw_clock_seconds() < deadline &&
           (gw_ps_connections_turn(server, waits ? NAP_SECONDS : 0, &stop) || (waits = anything_waits(server))))
        ;
    gw_ps_folder_look(server->folder);
    gw_ps_server_commit(server);
    while (gw_ps_folder_is_due(server->folder) && gw_clock_seconds() < deadline + END_SECONDS) { /* it tries again */
        nanosleep(&(struct timespec){.tv_nsec = (long)(NAP_SECONDS * 1e9)}, NULL);
        gw_ps_server_commit(server);
    }
    return gw_ps_folder_is_due(server->folder)
               ? gw_fail(GW_ERR_SYSTEM, "the last changes are lost: %s", gw_ps_folder_info(server->folder).reason)
               : GW_OK;
}

gw_status gw_ps_server_run(gw_ps_server *server)
{
    if (!server)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_server_run: server is NULL");
    GW_TRY(gw_process_check(server->made_in, "this parameter server"));
    for (bool stop = false;;) {
        gw_ps_connections_turn(server, LOOK_SECONDS, &stop);
        if (stop)
            return end(server);
        double now = gw_clock_seconds();
        if (now >= server->next_look) {
            server->next_look = now + LOOK_SECONDS;
            gw_ps_connections_look(server);
            gw_ps_members_check_keys(server);
            gw_ps_members_look(server);
            gw_ps_joins_look(server);
            gw_ps_waiting_expire(server);
            gw_ps_requests_go_on(server);
            gw_ps_folder_look(server->folder);
            gw_ps_server_commit(server);
            gw_ps_members_sweep(server);
            gw_ps_numbers_note(server);
        }
    }
}

void gw_ps_server_stop(gw_ps_server *server)
{
    if (server && gw_process_is(server->made_in)) /* both processes have the eventfd */
        eventfd_write(server->stop, 1);
}

/* ---- beginning and end -------------------------------------------------------------------------------------- */

static gw_status check_options(const gw_ps_server_options *options)
{
    if (!options->listen)
        return gw_fail(GW_ERR_ARGUMENT, "no address to listen at; it must be HOST:PORT");
    if (options->n_workers == 0 || options->n_workers > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a server for %u workers; 1 to %u are possible", options->n_workers,
                       (unsigned)GW_MAX_WORKERS);
    if (options->mode > GW_PS_ASYNC)
        return gw_fail(GW_ERR_ARGUMENT, "the mode is %u; there is no such mode", (unsigned)options->mode);
    if (options->missing > GW_PS_MISSING_STOP)
        return gw_fail(GW_ERR_ARGUMENT, "what to do without a worker is %u; there is no such choice",
                       (unsigned)options->missing);
    if (options->min_workers > options->n_workers ||
        (options->min_workers && options->missing != GW_PS_MISSING_CONTINUE))
        return gw_fail(GW_ERR_ARGUMENT,
                       "the first round is to have %u of %u workers; all can be, or fewer if the server continues "
                       "without some of them",
                       options->min_workers, options->n_workers);
    if (options->backup >= options->n_workers || (options->backup && options->mode != GW_PS_SYNC))
        return gw_fail(GW_ERR_ARGUMENT,
                       "%u of %u workers as backup; fewer than all can be, of a server whose rounds are synchronous",
                       options->backup, options->n_workers);
    return GW_OK;
}

static void fill_defaults(gw_ps_server_options *options)
{
    options->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    options->away_ms = options->away_ms ? options->away_ms : DEFAULT_AWAY_MS;
    if (options->missing == GW_PS_MISSING_CONTINUE && options->min_workers == 0)
        options->min_workers = options->n_workers;
    options->max_keys = options->max_keys ? options->max_keys : DEFAULT_KEYS;
    options->max_key_bytes = options->max_key_bytes ? options->max_key_bytes : DEFAULT_KEY_BYTES;
    options->max_bytes = options->max_bytes ? options->max_bytes : gw_machine_bytes() / 4 * 3;
    options->max_clients = options->max_clients ? options->max_clients : options->n_workers + DEFAULT_CLIENTS;
}

static gw_status watch(const struct gw_ps_server *server, int fd, const void *of)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = (void *)(uintptr_t)of};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return gw_fail(GW_ERR_SYSTEM, "no epoll for the server: %s", strerror(errno));
    return GW_OK;
}

static gw_status listen_at(struct gw_ps_server *server, const struct gw_net_address *address)
{
    const uint32_t most = server->options.max_clients + SPARE_NEWCOMERS;
    const struct gw_net_listener_options options = {.context = server->context,
                                                    .keys = server->keys,
                                                    .log = &server->log_of_newcomers,
                                                    .of = "server",
                                                    .most = most < MOST_NEWCOMERS ? most : MOST_NEWCOMERS,
                                                    .spare_files = SPARE_FILES,
                                                    .timeout_ms = server->options.timeout_ms,
                                                    .most_header = GW_PS_HEAD_BYTES};
    GW_TRY(gw_net_listener_open(&server->listener, &options));
    GW_TRY(gw_net_listen(&server->listener, address, &server->own));
    return watch(server, server->listener.epoll, &server->listener);
}

static gw_status set_up(struct gw_ps_server *server, const struct gw_net_address *address)
{
    gw_context *context = server->context;
    const gw_ps_server_options *o = &server->options;
    server->log = (struct gw_net_log){.line = o->log, .user = o->log_user, .most = 4096, .a_second = 4};
    server->log_of_newcomers = (struct gw_net_log)GW_NET_LOG_OF_NEWCOMERS(o->log, o->log_user);
    if (o->keys)
        GW_TRY(gw_net_keys_load(context, o->keys, GW_NET_SERVER, &server->log, &server->keys));
    server->workers = gw_calloc(context, o->n_workers, sizeof *server->workers);
    if (!server->workers)
        return GW_ERR_MEMORY;
    GW_TRY(gw_ps_store_create(context, o, &server->bytes, gw_ps_waiting_wake, server, &server->store));
    GW_TRY(gw_ps_server_restore(server));
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->stop < 0 || server->epoll < 0)
        return gw_fail(GW_ERR_SYSTEM, "no eventfd or epoll for the server: %s", strerror(errno));
    GW_TRY(watch(server, server->stop, &server->stop));
    return listen_at(server, address);
}

gw_status gw_ps_server_create(gw_context *context, const gw_ps_server_options *options, gw_ps_server **out)
{
    struct gw_net_address address;
    if (out)
        *out = NULL;
    if (!options || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_server_create: %s is NULL", options ? "out" : "options");
    gw_ps_server_options own;
    GW_TRY(GW_TAKE_OPTIONS(gw_ps_server_options, options, &own));
    options = &own;
    GW_TRY(check_options(options));
    GW_TRY(gw_net_address_parse("the address to listen at", options->listen, true, &address));
    if (!options->keys && !options->insecure && !address.loopback)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "%s is not a loopback address, and clients need no identity: anybody could read and change what is kept; "
            "give the server one (--keys DIR), or say that you trust the network (--insecure)",
            address.place);
    struct gw_ps_server *server = gw_calloc(context, 1, sizeof *server);
    if (!server)
        return GW_ERR_MEMORY;
    server->context = context;
    server->made_in = gw_process_now();
    server->options = *options;
    server->stop = server->epoll = -1;
    STAILQ_INIT(&server->held);
    server->first_round = 1;
    server->started = gw_clock_seconds();
    fill_defaults(&server->options);
    gw_status status = set_up(server, &address);
    if (status < 0) {
        gw_ps_server_destroy(server);
        return status;
    }
    *out = server;
    return GW_OK;
}

const char *gw_ps_server_address(const gw_ps_server *server)
{
    return server ? server->own.place : NULL;
}

void gw_ps_server_destroy(gw_ps_server *server)
{
    if (!server || !gw_process_is(server->made_in))
        return;
    const struct gw_kept_error kept = gw_error_keep();
    while (!LIST_EMPTY(&server->members))
        gw_ps_member_leave(server, LIST_FIRST(&server->members));
    gw_ps_members_sweep(server);
    gw_ps_folder_close(server->folder);
    gw_ps_store_destroy(server->store);
    gw_ps_numbers_end(server);
    gw_free(server->context, server->workers);
    gw_free(server->context, server->agreed);
    gw_net_listener_close(&server->listener);
    gw_net_keys_free(server->keys);
    if (server->stop >= 0)
        close(server->stop);
    if (server->epoll >= 0)
        close(server->epoll);
    gw_free(server->context, server);
    gw_error_put_back(&kept);
}
