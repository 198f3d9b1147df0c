/* Makes and ends clients, and tells what they know of their servers. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "pserver/client/state.h"
#include "pserver/client/for_exchange.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>

#define DEFAULT_TIMEOUT_MS 60000
#define DEFAULT_CONNECT_MS 3000
#define BYE_SECONDS 1.0 /* the longest that a client waits at its end */
#define POLL_MS 100

/* ---- what it knows ------------------------------------------------------------------------------------------- */

gw_ps_info gw_ps_client_info(const gw_ps_client *client)
{
    if (!client)
        return (gw_ps_info){0};
    const struct gw_ps_answer *hello = &client->servers[0].hello;
    return (gw_ps_info){.n_workers = hello->n_workers, .mode = (gw_ps_mode)hello->mode, .staleness = hello->staleness};
}

bool gw_ps_take_notice(gw_ps_client *client, gw_ps_notice notice)
{
    return client && atomic_exchange(notice == GW_PS_NOTICE_JOIN ? &client->join : &client->in_memory, false);
}

struct gw_ps_client_facts gw_ps_client_facts(const gw_ps_client *client)
{
    struct gw_ps_client_facts facts = {.rank = client->rank, .n_servers = client->n_servers};
    for (uint32_t s = 0; s < client->n_servers; s++)
        facts.backup |= client->servers[s].hello.backup > 0;
    return facts;
}

const char *gw_ps_client_place(const gw_ps_client *client, uint32_t server)
{
    return gw_ps_place(&client->servers[server]);
}

uint64_t gw_ps_refusal(const gw_ps_client *client)
{
    return client->refusal;
}

/* ---- meeting the servers ------------------------------------------------------------------------------------- */

/* Makes the error: why the server has not said welcome. */
static gw_status not_met(const struct gw_ps_client *client, const struct server *server)
{
    if (server->first_refused != 0)
        return gw_fail(GW_ERR_PEER, "the server at %s refused this client: %s", gw_ps_place(server), server->why);
    return gw_fail(GW_ERR_TIMEOUT, "the server at %s did not answer within %u ms: %s", gw_ps_place(server),
                   client->timeout_ms,
                   server->is_reached ? "it took the connection and said nothing" : "no connection to it came about");
}

/* Checks that all servers have the same mode and the same number of workers. */
static gw_status are_alike(const struct gw_ps_client *client)
{
    const struct server *first = &client->servers[0];
    for (uint32_t s = 1; s < client->n_servers; s++) {
        const struct server *other = &client->servers[s];
        if (other->hello.mode != first->hello.mode || other->hello.staleness != first->hello.staleness ||
            other->hello.n_workers != first->hello.n_workers)
            return gw_fail(GW_ERR_PEER, "the servers at %s and at %s have not the same --mode and --workers",
                           gw_ps_place(first), gw_ps_place(other));
    }
    return GW_OK;
}

gw_status gw_ps_client_meet(gw_ps_client *client, uint32_t ms)
{
    GW_TRY(gw_ps_client_check(client, "gw_ps_client_meet"));
    const double until = gw_clock_seconds() + ms / 1000.0;
    if (client->has_met)
        return GW_OK;
    for (uint32_t s = 0; s < client->n_servers; s++)
        while (!client->servers[s].welcome) {
            if (gw_clock_seconds() >= client->meet_by)
                return not_met(client, &client->servers[s]);
            if (gw_clock_seconds() >= until)
                return GW_NOT_YET;
            GW_TRY(gw_ps_client_pump(client, -1, until < client->meet_by ? until : client->meet_by));
        }
    GW_TRY(are_alike(client));
    client->has_met = true;
    return GW_OK;
}

/* ---- beginning and end ------------------------------------------------------------------------------------- */

/* Reads a list "HOST:PORT,...". */
static gw_status name_servers(struct gw_ps_client *client, const char *text)
{
    while (*text) {
        char place[512];
        size_t length = strcspn(text, ",");
        if (client->n_servers == MOST_SERVERS)
            return gw_fail(GW_ERR_ARGUMENT, "more than %d servers are named", MOST_SERVERS);
        if (length == 0 || length >= sizeof place || (text[length] && !text[length + 1]))
            return gw_fail(GW_ERR_ARGUMENT, "the servers are \"%s\"; they must be HOST:PORT, with commas between",
                           text);
        memcpy(place, text, length);
        place[length] = 0;
        struct server *server = &client->servers[client->n_servers];
        const double left = 1000 * (client->meet_by - gw_clock_seconds()); /* for all names together */
        const struct gw_net_patience patience = {.ms = left > 0 ? (uint32_t)left : 0};
        GW_TRY(gw_net_host_parse("a server", place, false, &patience, &server->host));
        for (uint32_t s = 0; s < client->n_servers; s++)
            if (strcmp(gw_ps_place(&client->servers[s]), gw_ps_place(server)) == 0)
                return gw_fail(GW_ERR_ARGUMENT, "the server %s is named twice; each one is named once", place);
        server->client = client;
        gw_net_init(&server->c, client->context);
        client->n_servers++;
        text += length + (text[length] == ',');
    }
    return client->n_servers ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "no server is named; it must be HOST:PORT");
}

static gw_status set_up(struct gw_ps_client *client, const gw_ps_client_options *options)
{
    GW_TRY(name_servers(client, options->servers ? options->servers : ""));
    if (getrandom(&client->incarnation, sizeof client->incarnation, 0) != sizeof client->incarnation)
        return gw_fail(GW_ERR_SYSTEM, "no random number from the system: %s", strerror(errno));
    if (options->keys)
        GW_TRY(gw_net_keys_load(client->context, options->keys, GW_NET_CLIENT, NULL, &client->identity));
    for (uint32_t n = 0; n < client->n_servers; n++)
        gw_ps_server_connect(&client->servers[n]);
    return options->no_wait ? GW_OK : gw_ps_client_meet(client, UINT32_MAX);
}

/* Says BYE to the servers, and waits a moment until they have ended the connections. Then the ranks of this client are
 * free. If a BYE does not arrive, the servers notice the end of the connection. */
static void say_goodbye(struct gw_ps_client *client)
{
    const double deadline = gw_clock_seconds() + BYE_SECONDS;
    for (uint32_t s = 0; s < client->n_servers; s++)
        if (client->servers[s].welcome)
            gw_ignore(gw_ps_server_send(&client->servers[s], &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL));
    for (uint32_t s = 0; s < client->n_servers; s++) {
        struct server *server = &client->servers[s];
        struct gw_net_message message;
        while (server->welcome && gw_clock_seconds() < deadline) {
            struct pollfd fd = {server->c.fd, (short)(server->c.first ? POLLIN | POLLOUT : POLLIN), 0};
            poll(&fd, 1, POLL_MS);
            gw_ignore(gw_net_flush(&server->c));
            gw_status status = GW_NOT_YET;
            while (gw_clock_seconds() < deadline && (status = gw_net_next(&server->c, &message)) == GW_OK)
                gw_net_consume(&server->c); /* a server may send without end */
            server->welcome = status == GW_NOT_YET;
        }
    }
}

gw_status gw_ps_client_create(gw_context *context, const gw_ps_client_options *options, gw_ps_client **out)
{
    if (out)
        *out = NULL;
    if (!options || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_client_create: %s is NULL", options ? "out" : "options");
    gw_ps_client_options own;
    GW_TRY(GW_TAKE_OPTIONS(gw_ps_client_options, options, &own));
    options = &own;
    struct gw_ps_client *client = gw_calloc(context, 1, sizeof *client);
    if (!client)
        return GW_ERR_MEMORY;
    client->context = context;
    client->made_in = gw_process_now();
    client->rank = options->rank;
    client->joins = options->joins;
    client->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    const uint32_t connect_ms = options->connect_ms ? options->connect_ms : DEFAULT_CONNECT_MS;
    client->meet_by = gw_clock_seconds() + client->timeout_ms / 1000.0;
    client->reach_by = fmin(gw_clock_seconds() + connect_ms / 1000.0, client->meet_by);
    client->next_id = MOST_SERVERS;
    client->most_bytes = gw_machine_bytes() / 4 * 3;
    TAILQ_INIT(&client->open);
    TAILQ_INIT(&client->answered);
    client->keys.context = context;
    gw_status status = set_up(client, options);
    if (status < 0) {
        gw_ps_client_destroy(client);
        return status;
    }
    *out = client;
    return GW_OK;
}

void gw_ps_client_destroy(gw_ps_client *client)
{
    if (!client || !gw_process_is(client->made_in))
        return;
    const struct gw_kept_error kept = gw_error_keep();
    say_goodbye(client);
    for (uint32_t s = 0; s < client->n_servers; s++)
        gw_net_close(&client->servers[s].c);
    for (struct request *request; (request = TAILQ_FIRST(&client->open)) || (request = TAILQ_FIRST(&client->answered));)
        gw_ps_request_free(client, request);
    gw_net_keys_free(client->identity);
    gw_ps_keys_free(client);
    gw_free(client->context, client);
    gw_error_put_back(&kept);
}
