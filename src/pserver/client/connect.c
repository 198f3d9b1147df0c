/* Connects a client to its servers. It reads their addresses and what ZeroMQ tells of the connections, and finds out
 * why a connection fails. */
#include "base/clock.h"
#include "base/error.h"
#include "pserver/client/connect.h"
#include "zmq/socket.h"

#include <stdio.h>
#include <string.h>

/* So many refusals in a row end the attempts. One is not enough: another process may be at the address for a moment.
 * Also, a server that is asked twice is more likely to log the client's address. The second number is for a client that
 * was welcome before. */
#define MOST_REFUSALS 2
#define MOST_REFUSALS_LATER 4
#define TRY_MS 500 /* for the attempt that finds out why no connection can be made */
#define COME_SECONDS                                                                                                   \
    3.0 /* a server that has just come must be reached within this time; ZeroMQ waits less between attempts */

gw_status gw_ps_client_name_servers(struct gw_ps_client *client, const char *text)
{
    while (*text) {
        char place[512];
        size_t length = strcspn(text, ",");
        struct gw_net_address address;
        if (client->n_servers == MOST_SERVERS)
            return gw_fail(GW_ERR_ARGUMENT, "more than %d servers are named", MOST_SERVERS);
        if (length == 0 || length >= sizeof place)
            return gw_fail(GW_ERR_ARGUMENT, "the servers are \"%s\"; they must be HOST:PORT, with commas between",
                           text);
        memcpy(place, text, length);
        place[length] = 0;
        GW_TRY(gw_net_address_parse("a server", place, false, NULL, &address));
        for (uint32_t s = 0; s < client->n_servers; s++)
            if (strcmp(client->servers[s].endpoint, address.endpoint) == 0)
                return gw_fail(GW_ERR_ARGUMENT, "the server %s is named twice; each one is named once", place);
        memcpy(client->servers[client->n_servers++].endpoint, address.endpoint, sizeof address.endpoint);
        text += length + (text[length] == ',');
    }
    return client->n_servers ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "no server is named; it must be HOST:PORT");
}

static gw_status dial(const struct gw_ps_client *client, const struct server *server)
{
    return gw_zmq_connect(server->socket, server->endpoint, client->net.keys ? client->net.keys->server : NULL);
}

void gw_ps_server_redial(const struct gw_ps_client *client, struct server *server)
{
    server->welcome = false;
    server->dial_again = 0;
    zmq_disconnect(server->socket, server->endpoint);
    dial(client, server);
}

gw_status gw_ps_server_connect(struct gw_ps_client *client, uint32_t s)
{
    struct server *server = &client->servers[s];
    const int news = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    const int64_t longest = (int64_t)client->most_bytes;
    char name[32];
    snprintf(name, sizeof name, "news-%u", s);
    server->socket = gw_zmq_socket_new(&client->net, ZMQ_DEALER, false);
    if (!server->socket)
        return GW_ERR_SYSTEM;
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_RECONNECT_IVL, 100));
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_RECONNECT_IVL_MAX, 2000));
    /* A request that is queued for one connection must not go out on the next one, because HELLO must come first there.
     */
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_IMMEDIATE, 1));
    GW_TRY(gw_zmq_monitor(client->net.zmq, server->socket, name, news, &server->events));
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_RCVTIMEO, LOOK_MS));
    if (zmq_setsockopt(server->socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0)
        return gw_fail(GW_ERR_SYSTEM, "no socket for a server: %s", zmq_strerror(zmq_errno()));
    return dial(client, server);
}

bool gw_ps_server_news(struct server *server)
{
    struct gw_zmq_event event;
    bool anew = false;
    while (gw_zmq_next_event(server->events, &event))
        switch (event.what) {
        case ZMQ_EVENT_CONNECTED:
            server->is_reached = true;
            break;
        case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
            anew = true;
            server->n_turned_away = 0;
            break;
        case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            server->is_reached = false;
            server->n_ended++;
            break;
        default: /* ZeroMQ does not connect again after these */
            server->turned_away_by = event;
            server->n_turned_away++;
            server->dial_again = gw_clock_seconds() + RETRY_SECONDS;
        }
    return anew;
}

/* Why the server, or another process at its address, refused this client. */
static gw_status turned_away(const struct gw_ps_client *client, const struct server *server)
{
    const struct gw_zmq_keys *keys = client->net.keys;
    const char *place = gw_net_place(server->endpoint);
    if (server->turned_away_by.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the server at %s refused this client: its identity %s is not in the folder allowed/ there",
                       place, keys ? keys->public_key : "(none)");
    if (server->turned_away_by.value != ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        return gw_fail(GW_ERR_ARGUMENT, "what answers at %s does not speak as a parameter server does", place);
    return keys
               ? gw_fail(GW_ERR_ARGUMENT,
                         "this client has an identity, and the server at %s has none; give both one (--keys DIR), or "
                         "neither",
                         place)
               : gw_fail(GW_ERR_ARGUMENT,
                         "this client has no identity, and the server at %s takes only clients that have one; name the "
                         "folder of one (keys=)",
                         place);
}

/* Why there is no connection. GW_OK: the server has just come. */
static gw_status not_there(struct gw_ps_client *client, struct server *server)
{
    const char *place = gw_net_place(server->endpoint);
    if (server->n_ended > 0)
        return gw_fail(GW_ERR_TIMEOUT,
                       "what is at %s ended %u connections before it had said who it is: it is no parameter server, it "
                       "takes no more connections%s%s%s",
                       place, server->n_ended, client->net.keys ? ", or its identity is not the one that " : "",
                       client->net.keys ? client->net.keys->folder : "",
                       client->net.keys ? " has for it (server.key, or else rendezvous.key)" : "");
    struct gw_net_address there;
    GW_TRY(gw_net_address_parse("a server", place, false, NULL, &there));
    const int error = gw_net_address_try(&there, TRY_MS);
    if (error)
        return gw_fail(GW_ERR_TIMEOUT,
                       "no server is at %s: %s; start it first, or let this client wait longer for it (connect_ms, in "
                       "Python connect_timeout)",
                       place, strerror(error));
    client->reach_by = gw_clock_seconds() + COME_SECONDS;
    gw_ps_server_redial(client, server);
    return GW_OK;
}

gw_status gw_ps_server_look(struct gw_ps_client *client, struct server *server)
{
    const double now = gw_clock_seconds();
    if (server->n_turned_away >= (server->was_welcome ? MOST_REFUSALS_LATER : MOST_REFUSALS)) {
        server->n_turned_away = 0; /* the next call tries again */
        return turned_away(client, server);
    }
    if (server->dial_again != 0 && now >= server->dial_again)
        gw_ps_server_redial(client, server);
    return client->has_met || server->is_reached || now < client->reach_by ? GW_OK : not_there(client, server);
}
