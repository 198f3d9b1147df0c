/* Serves the status page over HTTP, by one thread. The number of those who look, the bytes of a request and the seconds
 * of silence are limited. If more come than there are places, the one that has asked nothing for longest goes. */
#include "net/address.h"
#include "status/status.h"
#include "status_page.h" /* page.html, as bytes */
#include "tool.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_CONNECTIONS 64u
#define MOST_ENDING 16u /* connections that have lost their place, and are not closed yet */
#define IDLE_SECONDS 10u
#define REQUEST_BYTES ((size_t)16 << 10) /* of a request's lines, and of an answer's head */

struct place {
    MHD_socket socket; /* MHD_INVALID_SOCKET: free */
    uint64_t asked;    /* when it came, or asked last; the number counts all that came and asked */
};

struct tool_status {
    gw_ps_server *server;
    struct MHD_Daemon *daemon;
    char url[GW_NET_PLACE_BYTES + 16];
    struct place places[MOST_CONNECTIONS]; /* only the thread that serves touches these */
    uint64_t n_asked;
};

/* ---- places ---------------------------------------------------------------------------------------------------- */

/* The place of the connection that has been silent for the longest time, or a free one. Only a whole request counts as
 * asking. So half a request, or a byte now and then, keeps no place. */
static struct place *longest_silent(struct place *places)
{
    struct place *found = places;
    for (size_t i = 0; i < MOST_CONNECTIONS; i++) {
        if (places[i].socket == MHD_INVALID_SOCKET)
            return &places[i];
        if (places[i].asked < found->asked)
            found = &places[i];
    }
    return found;
}

/* A connection begins or ends. The library keeps its place with it. A connection that loses its place is shut down. It
 * ends when the library looks at it the next time. */
static void on_connection(void *user, struct MHD_Connection *connection, void **kept,
                          enum MHD_ConnectionNotificationCode what)
{
    struct tool_status *status = user;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info)
        return;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct place *place = longest_silent(status->places);
        if (place->socket != MHD_INVALID_SOCKET)
            shutdown(place->socket, SHUT_RDWR);
        *place = (struct place){.socket = info->connect_fd, .asked = ++status->n_asked};
        *kept = place;
    } else { /* by now another connection may have the place */
        struct place *place = *kept;
        if (place && place->socket == info->connect_fd)
            place->socket = MHD_INVALID_SOCKET;
    }
}

static void keep_place(struct tool_status *status, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct place *place = info ? info->socket_context : NULL;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (place && info && place->socket == info->connect_fd)
        place->asked = ++status->n_asked;
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_answer(struct MHD_Connection *connection, unsigned code, const char *type,
                                   const void *bytes, size_t n_bytes, enum MHD_ResponseMemoryMode whose)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(n_bytes, (void *)bytes, whose);
    if (!response) {
        if (whose == MHD_RESPMEM_MUST_FREE)
            free((void *)bytes);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(
        response, "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    enum MHD_Result queued = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned code, const char *text)
{
    return send_answer(connection, code, "text/plain; charset=utf-8", text, strlen(text), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result send_numbers(struct tool_status *status, struct MHD_Connection *connection, const char *type,
                                    char *(*write)(const struct gw_ps_numbers *numbers))
{
    struct gw_ps_numbers *numbers = gw_ps_numbers_take(status->server);
    char *text = numbers ? write(numbers) : NULL;
    gw_ps_numbers_free(status->server, numbers);
    if (!text)
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for the answer\n");
    return send_answer(connection, MHD_HTTP_OK, type, text, strlen(text), MHD_RESPMEM_MUST_FREE);
}

/* Sends "ok". If the server acknowledges what may not outlive its process, although it should, sends why. */
static enum MHD_Result send_health(struct tool_status *status, struct MHD_Connection *connection)
{
    struct gw_ps_numbers *numbers = gw_ps_numbers_take(status->server);
    if (!numbers)
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for the answer\n");
    char text[sizeof numbers->folder.reason + 64] = "ok\n";
    const bool bad = numbers->folder.exists && !numbers->folder.durable;
    if (bad)
        snprintf(text, sizeof text, "in memory only: %s\n", numbers->folder.reason);
    gw_ps_numbers_free(status->server, numbers);
    return send_answer(connection, bad ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, "text/plain; charset=utf-8", text,
                       strlen(text), MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **request)
{
    (void)version, (void)upload;
    struct tool_status *status = user;
    if (!*request)
        keep_place(status, connection);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
    if (!*request) { /* this is the first of two calls; an answer in the first would end the connection */
        *request = status;
        return MHD_YES;
    }
    if (*upload_bytes) { /* the body of a GET is not looked at */
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(path, "/") == 0)
        return send_answer(connection, MHD_HTTP_OK, "text/html; charset=utf-8", status_page, sizeof status_page,
                           MHD_RESPMEM_PERSISTENT);
    if (strcmp(path, "/status.json") == 0)
        return send_numbers(status, connection, "application/json", tool_status_json);
    if (strcmp(path, "/metrics") == 0)
        return send_numbers(status, connection, "text/plain; version=0.0.4; charset=utf-8", tool_status_metrics);
    if (strcmp(path, "/health") == 0)
        return send_health(status, connection);
    return send_text(connection, MHD_HTTP_NOT_FOUND, "there are /, /status.json, /metrics and /health\n");
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

static gw_status parse_address(const char *listen, bool insecure, struct gw_net_address *address)
{
    char whole[300];
    bool only_port = listen[0] && strspn(listen, "0123456789") == strlen(listen);
    snprintf(whole, sizeof whole, "%s%s", only_port ? "127.0.0.1:" : "", listen);
    gw_status status = gw_net_address_parse("the address of the status page", whole, true, address);
    if (status == GW_OK && !address->loopback && !insecure)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "%s is not a loopback address, and the status page asks nobody for keys: anybody could read what the "
            "server is doing; give a loopback address, or --insecure if you trust the network",
            address->place);
    return status;
}

/* Returns a socket that listens, at *own, or -1 with errno set. If libmicrohttpd makes the socket, errno is lost:
 * version 1.0 leaves that of its own cleaning up. */
static int listen_at(const struct gw_net_address *address, struct gw_net_address *own)
{
    const int family = address->socket.any.sa_family, on = 1, off = 0;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* Old connections of a server that has ended do not hold the port. [::] is all addresses of the machine, as it is
     * for the parameter server's own socket. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) &&
        bind(fd, &address->socket.any, address->socket_bytes) == 0 && listen(fd, SOMAXCONN) == 0 &&
        gw_net_address_of_socket(fd, false, own) == GW_OK)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bool start(struct tool_status *status, int fd)
{
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD;
    for (size_t i = 0; i < MOST_CONNECTIONS; i++)
        status->places[i].socket = MHD_INVALID_SOCKET;
    status->daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, on_request, status, MHD_OPTION_LISTEN_SOCKET, fd,
                         MHD_OPTION_CONNECTION_LIMIT, MOST_CONNECTIONS + MOST_ENDING, MHD_OPTION_CONNECTION_TIMEOUT,
                         IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
                         on_connection, status, MHD_OPTION_END);
    return status->daemon != NULL;
}

int tool_status_open(gw_ps_server *server, const char *listen, bool insecure, struct tool_status **out)
{
    struct gw_net_address address, own;
    gw_status parsed = parse_address(listen, insecure, &address);
    if (parsed == GW_OK)
        parsed = gw_ps_numbers_begin(server);
    if (parsed < 0)
        return tool_exit_status_of_use(parsed);
    struct tool_status *status = tool_alloc(1, sizeof *status);
    if (!status)
        return TOOL_FAILED;
    status->server = server;
    const int fd = listen_at(&address, &own);
    if (fd < 0 || !start(status, fd)) { /* the program ends then, and its socket with it */
        tool_fail("the status page cannot listen at %s: %s", address.place,
                  fd >= 0               ? "no memory or threads"
                  : errno == EADDRINUSE ? "another program listens there; end it, or give --metrics another port"
                                        : strerror(errno));
        free(status);
        return TOOL_FAILED;
    }
    snprintf(status->url, sizeof status->url, "http://%s/", own.place);
    *out = status;
    return TOOL_DONE;
}

const char *tool_status_url(const struct tool_status *status)
{
    return status->url;
}

void tool_status_close(struct tool_status *status)
{
    if (!status)
        return;
    MHD_stop_daemon(status->daemon);
    free(status);
}
