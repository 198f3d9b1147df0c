/* Connects a client to its servers, and finds out why a connection fails. */
#include "pserver/client/state.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* So many attempts in a row that fail for the keys end a call. One is not enough: another process may be at the address
 * for a moment. The second number is for a client that was welcome before. */
#define MOST_MISMATCHED 2
#define MOST_MISMATCHED_LATER 4
/* the pause before the next attempt; it doubles up to the longest */
#define PAUSE_SECONDS 0.1
#define LONGEST_PAUSE_SECONDS 0.5
#define CONNECT_SECONDS 10.0 /* the longest that one attempt takes */

/* ---- sending ---------------------------------------------------------------------------------------------- */

static void sent(void *part)
{
    ((struct part *)part)->waits = false;
}

gw_status gw_ps_server_send(struct server *server, const struct gw_ps_request *request, struct part *part)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    const size_t n_bytes = gw_ps_request_write(head, request);
    if (part)
        part->waits = true;
    const gw_status status = gw_net_send_with(&server->c, GW_PS_MESSAGE, head, n_bytes, part ? part->body : NULL,
                                              part ? part->n_bytes : 0, part ? sent : NULL, part);
    return status == GW_ERR_PEER ? GW_OK : status;
}

/* ---- connecting ------------------------------------------------------------------------------------------- */

void gw_ps_server_lost(struct server *server)
{
    const double pause = fmin(ldexp(PAUSE_SECONDS, (int)server->n_failed), LONGEST_PAUSE_SECONDS);
    server->error = server->c.error;
    if (!server->welcome) {
        server->n_failed++;
        server->n_ended += server->is_reached && (server->error == 0 || server->error == ECONNRESET);
    }
    if (server->c.refusal || server->error == EPROTO) {
        server->n_mismatched++;
        if (!server->refused)
            snprintf(server->why, sizeof server->why, "%s", gw_last_error());
    }
    server->welcome = false;
    gw_net_close(&server->c);
    server->dial_at = gw_clock_seconds() + pause;
}

void gw_ps_server_redial(struct server *server)
{
    server->welcome = false;
    gw_net_close(&server->c);
    server->dial_at = 0;
}

/* Begins to connect, and says HELLO. */
static void dial(struct server *server)
{
    const struct gw_ps_client *client = server->client;
    const struct gw_net_address *address = gw_net_host_nth(&server->host, server->n_dialled++);
    const struct gw_ps_request hello = {.operation = GW_PS_HELLO,
                                        .hello_flags = (client->joins ? GW_PS_HELLO_JOINS : 0) |
                                                       (server->was_welcome ? GW_PS_HELLO_AGAIN : 0),
                                        .hello_rank = client->rank,
                                        .incarnation = client->incarnation,
                                        .place = (uint32_t)(server - client->servers),
                                        .n_servers = client->n_servers};
    if (gw_net_dial(&server->c, address, client->identity, server->host.name, client->timeout_ms) < 0) {
        gw_ps_server_lost(server);
        return;
    }
    server->dial_at = gw_clock_seconds();               /* that was now */
    gw_ignore(gw_ps_server_send(server, &hello, NULL)); /* the first message of a connection always finds room */
}

bool gw_ps_server_connect(struct server *server)
{
    if (server->c.connected)
        return true;
    if (server->c.fd < 0 && gw_clock_seconds() >= server->dial_at)
        dial(server);
    if (server->c.fd < 0)
        return false;
    gw_status status = gw_net_establish(&server->c);
    if (status == GW_NOT_YET && gw_clock_seconds() >= server->dial_at + CONNECT_SECONDS) {
        server->c.error = ETIMEDOUT;
        status = GW_ERR_PEER;
    }
    if (status < 0)
        gw_ps_server_lost(server);
    server->is_reached = server->is_reached || status == GW_OK;
    return status == GW_OK;
}

/* ---- why not ---------------------------------------------------------------------------------------------- */

/* Why the keys of both sides do not fit, or what is there is no server. */
static gw_status mismatch(const struct server *server)
{
    const struct gw_net_keys *keys = server->client->identity;
    const char *place = gw_ps_place(server);
    switch (server->c.refusal) {
    case GW_NET_TURNED_AWAY:
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the server at %s refused this client: its certificate %s is not allowed there; its log says why", place,
            gw_net_identity_write(&keys->own).text);
    case GW_NET_NOT_LISTED:
        return gw_fail(GW_ERR_ARGUMENT, "what is at %s is not the server that %s names: %s", place, keys->folder,
                       server->why);
    case GW_NET_WITHOUT_TLS:
    case GW_NET_MET_TLS:
        return gw_fail(
            GW_ERR_ARGUMENT,
            "this client has %s identity, and the server at %s has %s; give both one (--keys DIR, or keys=), "
            "or neither",
            keys ? "an" : "no", place, keys ? "none" : "one");
    default:
        return gw_fail(GW_ERR_ARGUMENT, "what answers at %s does not speak as a parameter server does: %s", place,
                       server->why);
    }
}

/* Why there is no connection. */
static gw_status not_there(const struct server *server)
{
    const char *place = gw_ps_place(server);
    if (server->n_ended > 0)
        return gw_fail(GW_ERR_TIMEOUT,
                       "what is at %s ended %u connections before it had said who it is: it is no parameter server, or "
                       "it takes no more connections",
                       place, server->n_ended);
    return gw_fail(GW_ERR_TIMEOUT,
                   "no server is at %s: %s; start it first, or let this client wait longer for it (connect_ms; in "
                   "Python connect_timeout; of the tool --timeout)",
                   place, strerror(server->error ? server->error : ETIMEDOUT));
}

gw_status gw_ps_server_check(struct server *server)
{
    const struct gw_ps_client *client = server->client;
    if (server->n_mismatched >= (server->was_welcome ? MOST_MISMATCHED_LATER : MOST_MISMATCHED)) {
        server->n_mismatched = 0;
        return mismatch(server);
    }
    if (server->refused)
        return gw_fail(GW_ERR_PEER, "the server at %s %s", gw_ps_place(server), server->why);
    return client->has_met || (server->is_reached && server->n_ended == 0) || gw_clock_seconds() < client->reach_by
               ? GW_OK
               : not_there(server);
}
