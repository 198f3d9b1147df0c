/* The client's calls. Each of them begins a request, and then waits for its answer. */
#include "base/clock.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "base/options.h"
#include "pserver/client/state.h"
#include "pserver/client/for_exchange.h"
#include "pserver/protocol/methods.h"
#include "wire/bytes.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define COME_BACK_SECONDS 1

/* ---- beginning --------------------------------------------------------------------------------------------- */

/* Types and methods travel as bytes. A larger number must not become another one there. */
static gw_status byte_of(int number, const char *what, const char *key, uint8_t *byte)
{
    *byte = (uint8_t)number;
    return *byte == number ? GW_OK
                           : gw_fail(GW_ERR_ARGUMENT, "a call for the key \"%s\" has %s number %d; there is no such %s",
                                     key, what, number, what);
}

static gw_status prepare_init(const gw_ps_key_options *key, struct gw_ps_request *head, const void **body)
{
    if (!key)
        return gw_fail(GW_ERR_ARGUMENT, "the options of the key \"%s\" are NULL", head->key);
    gw_ps_key_options own;
    GW_TRY(GW_TAKE_OPTIONS(gw_ps_key_options, key, &own));
    key = &own;
    const char *optimizer = key->optimizer;
    if (optimizer && (!optimizer[0] || strlen(optimizer) > GW_PS_MOST_NAME))
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer of \"%s\" must be a specification of 1 to %d bytes", head->key,
                       GW_PS_MOST_NAME);
    if (key->values && !optimizer)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" has first parameters, and no optimizer that moves them", head->key);
    *body = key->values;
    GW_TRY(byte_of((int)key->type, "type", head->key, &head->type));
    head->shape = key->shape;
    snprintf(head->optimizer, sizeof head->optimizer, "%s", optimizer ? optimizer : "");
    return GW_OK;
}

/* Checks a call, and makes the request of it. *body: what it sends. */
static gw_status request_of(const gw_ps_call *call, struct gw_ps_request *head, const void **body)
{
    GW_TRY(gw_ps_check_name(call->key ? call->key : ""));
    *head = gw_ps_request_of(GW_PS_PULL, call->key);
    *body = call->bytes;
    switch (call->kind) {
    case GW_PS_CALL_INIT:
        head->operation = GW_PS_INIT;
        return prepare_init(call->options, head, body);
    case GW_PS_CALL_PUSH:
        head->operation = GW_PS_PUSH;
        head->rate = call->rate;
        if (!(call->rate >= 0 && call->rate <= (double)FLT_MAX))
            return gw_fail(GW_ERR_ARGUMENT,
                           "the learning rate of a push is to be %g; it must be a finite number from 0 up", call->rate);
        break;
    case GW_PS_CALL_PULL:
        if (call->scale_key)
            GW_TRY(gw_ps_check_name(call->scale_key));
        GW_TRY(byte_of((int)call->method, "method", head->key, &head->method));
        snprintf(head->scale_key, sizeof head->scale_key, "%s", call->scale_key ? call->scale_key : "");
        return GW_OK;
    case GW_PS_CALL_PUT:
        head->operation = GW_PS_PUT;
        head->put_kind = GW_PS_PUT_VERSION;
        head->version = call->version;
        break;
    case GW_PS_CALL_GET:
        head->operation = GW_PS_GET;
        head->version = call->version;
        return GW_OK;
    default:
        return gw_fail(GW_ERR_ARGUMENT, "a call of kind %d; there is no such kind", (int)call->kind);
    }
    return call->bytes || call->n_bytes == 0
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT, "%zu bytes for \"%s\", and bytes is NULL", call->n_bytes, call->key);
}

/* Begins to pull a scale key, if it lives on another server than the key. *request 0: one server has both, and that
 * server multiplies. If not, the head changes into one for what this client multiplies. */
static gw_status begin_scale(gw_ps_client *client, struct gw_ps_request *head, uint64_t *request)
{
    const struct place place = gw_ps_key_find(client, head->key), scale = gw_ps_key_find(client, head->scale_key);
    *request = 0;
    if (place.n_parts == 1 && scale.n_parts == 1 && place.first == scale.first)
        return GW_OK;
    if (!place.type || !scale.type)
        return gw_fail(
            GW_ERR_ORDER,
            "\"%s\" and its scale_key \"%s\" live on several servers; init_parameter of both must come before a pull",
            head->key, head->scale_key);
    GW_TRY(gw_ps_check_scale(head->key, place.type, (gw_ps_method)head->method, head->scale_key, scale.type,
                             &scale.shape));
    GW_TRY(gw_ps_begin(client,
                       &(gw_ps_call){.struct_bytes = sizeof(gw_ps_call),
                                     .kind = GW_PS_CALL_PULL,
                                     .key = head->scale_key,
                                     .method = GW_PS_MAX},
                       request));
    head->scale_key[0] = 0;
    return GW_OK;
}

gw_status gw_ps_begin(gw_ps_client *client, const gw_ps_call *call, uint64_t *out)
{
    struct gw_ps_request head;
    struct request *request;
    const void *body;
    uint64_t scale = 0;
    GW_TRY(gw_ps_client_check(client, "gw_ps_begin"));
    if (!call || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_begin: %s is NULL", call ? "request" : "call");
    gw_ps_call own;
    GW_TRY(GW_TAKE_OPTIONS(gw_ps_call, call, &own));
    call = &own;
    GW_TRY(request_of(call, &head, &body));
    if (head.scale_key[0])
        GW_TRY(begin_scale(client, &head, &scale));
    const bool averages = scale && head.method == GW_PS_DECODE_AVERAGE;
    if (averages) /* S * (s/N) needs S */
        head.method = GW_PS_DECODE_SUM;
    const gw_status status = gw_ps_request_begin(client, GW_PS_BY_KEY, &head, body, call->n_bytes, &request);
    if (status < 0) {
        gw_ps_client_drop(client, scale);
        return status;
    }
    request->second = scale;
    request->averages = averages;
    *out = request->id;
    return GW_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

/* Checks that all parts of the value are of the same round or version. Parts of parameters need not be. */
static gw_status check_numbers(const gw_ps_client *client, const struct request *request)
{
    const struct gw_ps_request *asked = request->asked;
    const bool of_a_round = asked->operation == GW_PS_PULL && client->servers[0].hello.mode == GW_PS_SYNC &&
                            asked->method != GW_PS_PARAMETERS;
    for (uint32_t p = 1; (of_a_round || asked->operation == GW_PS_GET) && p < request->place.n_parts; p++)
        if (request->parts[p].answer.round != request->parts[0].answer.round)
            return gw_fail(GW_ERR_ORDER,
                           "\"%s\" was replaced while it was read: its parts are of %" PRIu64 " and %" PRIu64
                           "; try again",
                           asked->key, request->parts[0].answer.round, request->parts[p].answer.round);
    return GW_OK;
}

/* The servers have made the key. Begins to put its first parameters, if there are any. */
static gw_status put_first(gw_ps_client *client, struct request *init)
{
    struct gw_ps_request put = gw_ps_request_of(GW_PS_PUT, init->asked->key);
    struct request *request;
    GW_TRY(gw_ps_key_made(client, init));
    if (!init->body)
        return GW_OK;
    put.put_kind = GW_PS_PUT_FIRST;
    GW_TRY(gw_ps_request_begin(client, GW_PS_BY_KEY, &put, init->body, (size_t)init->place.n_elems * sizeof(float),
                               &request));
    init->second = request->id;
    return GW_OK;
}

/* Makes the value of a request whose parts have all been answered. The request has it no longer. */
static void take_value(const struct gw_ps_client *client, struct request *request, gw_ps_value *out)
{
    const struct gw_ps_answer *answer = &request->parts[0].answer;
    *out = (gw_ps_value){.type = (gw_ps_type)answer->type,
                         .shape = answer->shape,
                         .round = answer->round,
                         .n_pushes = answer->n_pushes,
                         .bytes = request->value,
                         .n_bytes = request->n_bytes,
                         .hold = client->context};
    request->value = NULL;
    if (request->place.n_parts == 1)
        return;
    for (uint32_t p = 1; p < request->place.n_parts; p++)
        if (request->parts[p].answer.n_pushes < out->n_pushes)
            out->n_pushes = request->parts[p].answer.n_pushes;
    struct gw_ps_asked asked = gw_ps_asked_of(client, request, 0);
    asked.shape = request->place.shape;
    out->shape = gw_ps_answer_shape(&asked);
}

/* Multiplies a value by its scale, which came with the second request. The bits are the same as if one server had both
 * keys. Errors: GW_ERR_ORDER (the scale is of another round). */
static gw_status scale_value(const struct gw_ps_client *client, const struct request *request, const gw_ps_value *scale,
                             gw_ps_value *out)
{
    const float by = gw_get_float(scale->bytes);
    if (client->servers[0].hello.mode == GW_PS_SYNC && scale->round != out->round)
        return gw_fail(GW_ERR_ORDER,
                       "round %" PRIu64 " of \"%s\" is pulled, and of its scale_key it is round %" PRIu64
                       "; both take part in every round: push to both equally often (a reader: try again)",
                       out->round, request->asked->key, scale->round);
    const gw_float_env before = gw_float_enter();
    uint8_t *at = out->bytes;
    for (uint32_t p = 0; p < request->place.n_parts; p++) {
        const struct part *part = &request->parts[p];
        const float factor = request->averages ? by / (float)part->answer.n_pushes : by;
        uint64_t n_elems;
        gw_ps_shape_elems(&part->answer.shape, &n_elems); /* shape and length were checked before */
        for (; n_elems > 0; n_elems--, at += sizeof(float))
            gw_put_float(at, gw_get_float(at) * factor);
    }
    gw_float_leave(before);
    return GW_OK;
}

void gw_ps_value_free(gw_ps_value *value)
{
    if (!value)
        return;
    gw_free(value->hold, value->bytes);
    *value = (gw_ps_value){0};
}

/* Waits for a request and its second one, and takes their values. */
static gw_status end(gw_ps_client *client, struct request *request, double until, gw_ps_value *out)
{
    gw_status status = gw_ps_request_wait(client, request, until);
    if (status == GW_OK && request->asked->operation == GW_PS_INIT && !request->second)
        status = put_first(client, request);
    struct request *second = gw_ps_request_find(client, request->second);
    if (status == GW_OK && second)
        status = gw_ps_request_wait(client, second, until);
    if (status == GW_OK)
        status = check_numbers(client, request);
    if (status != GW_OK || !gw_ps_request_gives_value(request->asked))
        return status;
    take_value(client, request, out);
    if (second) {
        gw_ps_value scale;
        take_value(client, second, &scale);
        status = scale_value(client, request, &scale, out);
        gw_ps_value_free(&scale);
    }
    return status;
}

gw_status gw_ps_wait(gw_ps_client *client, uint64_t id, uint32_t ms, gw_ps_value *out)
{
    if (out)
        *out = (gw_ps_value){0};
    GW_TRY(gw_ps_client_check(client, "gw_ps_wait"));
    struct request *request = gw_ps_request_find(client, id);
    if (!request)
        return gw_fail(GW_ERR_ORDER, "there is no request %" PRIu64 ", or it has been waited for already", id);
    if (gw_ps_request_gives_value(request->asked) && !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: out is NULL for a pull");
    const gw_status status =
        end(client, request, ms == GW_PS_NO_LIMIT ? INFINITY : gw_clock_seconds() + ms / 1000.0, out);
    if (status == GW_NOT_YET)
        return status;
    if (status < 0 && out)
        gw_ps_value_free(out);
    gw_ps_request_free(client, request);
    return status;
}

/* When a connection ends, the server forgets its requests. Else the server would do this request later, and take it for
 * the next one. */
static void forget(gw_ps_client *client, const struct request *request)
{
    for (uint32_t p = 0; request && p < request->place.n_parts; p++)
        if (!request->parts[p].done)
            gw_ps_server_redial(&client->servers[request->place.first + p]);
}

void gw_ps_cancel(gw_ps_client *client, uint64_t id)
{
    const struct request *request = client && gw_process_is(client->made_in) ? gw_ps_request_find(client, id) : NULL;
    if (!request)
        return;
    forget(client, request);
    forget(client, gw_ps_request_find(client, request->second));
    gw_ps_client_drop(client, id);
    /* The next call may be long in coming, and a worker that is not connected until then is gone. */
    const double until = gw_clock_seconds() + COME_BACK_SECONDS;
    for (uint32_t s = 0; s < client->n_servers; s++)
        while (!client->servers[s].welcome && gw_clock_seconds() < until && gw_ps_client_pump(client, -1, until) >= 0)
            ;
}

/* ---- calls that wait --------------------------------------------------------------------------------------- */

static gw_status begin_and_wait(gw_ps_client *client, gw_ps_call call, gw_ps_value *out)
{
    uint64_t request;
    const bool gives = call.kind == GW_PS_CALL_PULL || call.kind == GW_PS_CALL_GET;
    if (gives && !out)
        return gw_fail(GW_ERR_ARGUMENT, "there is no place for the value: out is NULL");
    if (gives)
        *out = (gw_ps_value){0};
    call.struct_bytes = sizeof call;
    GW_TRY(gw_ps_begin(client, &call, &request));
    return gw_ps_wait(client, request, GW_PS_NO_LIMIT, out);
}

gw_status gw_ps_init(gw_ps_client *client, const char *key, const gw_ps_key_options *options)
{
    return begin_and_wait(client, (gw_ps_call){.kind = GW_PS_CALL_INIT, .key = key, .options = options}, NULL);
}

gw_status gw_ps_push(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes)
{
    return begin_and_wait(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = key, .bytes = bytes, .n_bytes = n_bytes},
                          NULL);
}

gw_status gw_ps_pull(gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key,
                     gw_ps_value *out)
{
    return begin_and_wait(client,
                          (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = key, .method = method, .scale_key = scale_key},
                          out);
}

gw_status gw_ps_put(gw_ps_client *client, const char *key, uint64_t version, const void *bytes, size_t n_bytes)
{
    return begin_and_wait(
        client,
        (gw_ps_call){.kind = GW_PS_CALL_PUT, .key = key, .version = version, .bytes = bytes, .n_bytes = n_bytes}, NULL);
}

gw_status gw_ps_get(gw_ps_client *client, const char *key, uint64_t least, gw_ps_value *out)
{
    return begin_and_wait(client, (gw_ps_call){.kind = GW_PS_CALL_GET, .key = key, .version = least}, out);
}

/* ---- for an exchange through servers ------------------------------------------------------------------------- */

gw_status gw_ps_client_begin(gw_ps_client *client, uint32_t server, const struct gw_ps_request *head, const void *body,
                             size_t n_bytes, void *tag, uint64_t *out)
{
    struct request *request;
    GW_TRY(gw_ps_request_begin(client, server, head, body, n_bytes, &request));
    request->tag = tag;
    *out = request->id;
    return GW_OK;
}

gw_status gw_ps_client_do(gw_ps_client *client, uint32_t server, const struct gw_ps_request *head, const void *body,
                          size_t n_bytes)
{
    uint64_t request;
    GW_TRY(gw_ps_client_begin(client, server, head, body, n_bytes, NULL, &request));
    return gw_ps_wait(client, request, GW_PS_NO_LIMIT, NULL);
}

uint64_t gw_ps_client_answered(const gw_ps_client *client, void **tag)
{
    const struct request *request = TAILQ_FIRST(&client->answered), *oldest = TAILQ_FIRST(&client->open);
    if (!request && oldest && gw_clock_seconds() >= gw_ps_request_end(client, oldest))
        request = oldest; /* gw_ps_wait says that no answer has come */
    *tag = request ? request->tag : NULL;
    return request ? request->id : 0;
}
