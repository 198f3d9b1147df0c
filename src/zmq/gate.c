/* Answers ZeroMQ's question whether a connection may come in. It may if its key is on the list. The thread runs only if
 * there are keys. */
#include "zmq/gate.h"
#include "base/error.h"
#include "base/quote.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"
#define LOOK_MS 1000    /* between looks at allowed/ while nobody comes */
#define FIELD_BYTES 256 /* every field of a request is shorter */

enum { VERSION, REQUEST_ID, DOMAIN, ADDRESS, ROUTING_ID, MECHANISM, CREDENTIALS, N_FIELDS };

struct gw_zmq_gate {
    gw_context *context;
    struct gw_zmq_keys *keys;
    struct gw_net_log *log;
    void *socket;
    int stop; /* eventfd */
    pthread_t thread;
    bool read; /* the last time, allowed/ could be read */
};

struct request {
    char fields[N_FIELDS][FIELD_BYTES]; /* each with a closing 0 */
    size_t lengths[N_FIELDS];
};

/* Takes a request, with all its parts. false: it is not a request. */
static bool take_request(void *socket, struct request *request)
{
    int n = 0, more = 1;
    bool good = true;
    while (more) {
        char scrap[FIELD_BYTES];
        char *to = n < N_FIELDS ? request->fields[n] : scrap;
        int bytes = zmq_recv(socket, to, FIELD_BYTES - 1, ZMQ_DONTWAIT);
        if (bytes < 0)
            return false;
        good = good && n < N_FIELDS && bytes < FIELD_BYTES;
        if (n < N_FIELDS && bytes < FIELD_BYTES) {
            to[bytes] = 0;
            request->lengths[n] = (size_t)bytes;
        }
        n++;
        size_t size = sizeof more;
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
    }
    return good && n == N_FIELDS;
}

static void answer(void *socket, const char *request_id, bool allowed, const char *user)
{
    zmq_send(socket, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(socket, request_id, strlen(request_id), ZMQ_SNDMORE);
    zmq_send(socket, allowed ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(socket, "", 0, ZMQ_SNDMORE);
    zmq_send(socket, user, strlen(user), ZMQ_SNDMORE);
    zmq_send(socket, "", 0, 0);
}

/* Looks whether the list of allowed keys has changed. */
static void look_at_folder(struct gw_zmq_gate *gate)
{
    struct gw_zmq_keys *keys = gate->keys;
    const double looked = keys->looked;
    bool changed;
    gw_status status = gw_zmq_keys_look(gate->context, keys, &changed);
    if (keys->looked == looked) /* it is too soon, so nothing was read */
        return;
    if (status < 0 && gate->read)
        gw_net_log(gate->log, "allowed-stays reason=\"%s\"", gw_quote(gw_last_error()).text);
    gate->read = status == GW_OK;
    if (changed)
        gw_net_log(gate->log, "allowed-changed folder=\"%s/allowed\" clients=%u", gw_quote(keys->folder).text,
                   keys->n_allowed);
}

static void *keep_gate(void *argument)
{
    struct gw_zmq_gate *gate = argument;
    struct gw_zmq_keys *keys = gate->keys;
    zmq_pollitem_t items[] = {{gate->socket, 0, ZMQ_POLLIN, 0}, {NULL, gate->stop, ZMQ_POLLIN, 0}};
    for (;;) {
        if (zmq_poll(items, 2, LOOK_MS) < 0) {
            if (zmq_errno() == EINTR)
                continue;
            break;
        }
        if (items[1].revents)
            break;
        look_at_folder(gate);
        struct request request;
        if (!items[0].revents)
            continue;
        memset(&request, 0, sizeof request);
        char key[GW_ZMQ_KEY_CHARS + 1] = "";
        bool good = take_request(gate->socket, &request) && strcmp(request.fields[VERSION], "1.0") == 0;
        if (good && strcmp(request.fields[MECHANISM], "CURVE") == 0 && request.lengths[CREDENTIALS] == 32)
            zmq_z85_encode(key, (const uint8_t *)request.fields[CREDENTIALS], 32);
        bool allowed = key[0] && gw_zmq_keys_allow(keys, key);
        if (!allowed && keys->without_own && strcmp(key, keys->public_key) == 0)
            gw_net_log(gate->log,
                       "refused address=%s reason=\"its identity is this server's own; a client needs one of its own "
                       "(gradwire keys new DIR --client NAME --of %s)\"",
                       request.fields[ADDRESS], gw_quote(keys->folder).text);
        else if (!allowed)
            gw_net_log(gate->log, "refused address=%s reason=\"its identity %s is not in %s/allowed\"",
                       request.fields[ADDRESS], gw_quote(key[0] ? key : "(none)").text, gw_quote(keys->folder).text);
        answer(gate->socket, request.fields[REQUEST_ID], allowed, allowed ? key : "");
    }
    return NULL;
}

gw_status gw_zmq_gate_open(gw_context *context, void *zmq, struct gw_zmq_keys *keys, struct gw_net_log *log,
                           struct gw_zmq_gate **out)
{
    struct gw_zmq_gate *gate = gw_calloc(context, 1, sizeof *gate);
    if (!gate)
        return GW_ERR_MEMORY;
    gate->context = context;
    gate->keys = keys;
    gate->log = log;
    gate->read = true;
    gate->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    gate->socket = zmq_socket(zmq, ZMQ_REP);
    const int linger = 0;
    if (gate->stop >= 0 && gate->socket && zmq_setsockopt(gate->socket, ZMQ_LINGER, &linger, sizeof linger) == 0 &&
        zmq_bind(gate->socket, ZAP_ENDPOINT) == 0 && pthread_create(&gate->thread, NULL, keep_gate, gate) == 0) {
        *out = gate;
        return GW_OK;
    }
    if (gate->socket)
        zmq_close(gate->socket);
    if (gate->stop >= 0)
        close(gate->stop);
    gw_free(context, gate);
    return gw_fail(GW_ERR_SYSTEM, "no thread or socket for the gate that looks at keys");
}

void gw_zmq_gate_close(struct gw_zmq_gate *gate)
{
    if (!gate)
        return;
    const uint64_t one = 1;
    while (write(gate->stop, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(gate->thread, NULL);
    zmq_close(gate->socket);
    close(gate->stop);
    gw_free(gate->context, gate);
}
