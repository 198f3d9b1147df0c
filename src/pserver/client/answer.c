/* Checks a server's answers against what the client asked: type, shape, counts, and the length of the value. */
#include "pserver/client/answer.h"
#include "base/error.h"
#include "pserver/protocol/methods.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const words[GW_PS_OPERATIONS] = {
    [GW_PS_HELLO] = "HELLO", [GW_PS_INIT] = "init",       [GW_PS_PUSH] = "push",       [GW_PS_PULL] = "pull",
    [GW_PS_BYE] = "BYE",     [GW_PS_WHO] = "WHO",         [GW_PS_AGREE] = "AGREE",     [GW_PS_PUT] = "put",
    [GW_PS_JOIN] = "JOIN",   [GW_PS_ADMIT] = "ADMIT",     [GW_PS_MEMBERS] = "MEMBERS", [GW_PS_ASK] = "ASK",
    [GW_PS_GET] = "get",     [GW_PS_VERDICT] = "VERDICT",
};

/* The type of the value in the answer. 0: it is not known, because the key is not known. */
static gw_ps_type type_for(const struct gw_ps_asked *asked)
{
    if (asked->type == 0 || asked->request->operation == GW_PS_GET)
        return asked->type;
    return asked->request->method == GW_PS_PARAMETERS
               ? GW_PS_FLOAT32
               : gw_ps_result_type((gw_ps_method)asked->request->method, asked->type);
}

/* Makes the error: no server answers so. */
__attribute__((format(printf, 2, 3))) static gw_status wrong(const struct gw_ps_asked *asked, const char *format, ...)
{
    char how[GW_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(how, sizeof how, format, args);
    va_end(args);
    return gw_fail(GW_ERR_PEER, "a %s of \"%s\" was answered %s", words[asked->request->operation], asked->request->key,
                   how);
}

static gw_status must_be(const struct gw_ps_asked *asked, const char *what, uint64_t has, uint64_t must)
{
    return wrong(asked, "with %s %" PRIu64 "; it must be %" PRIu64, what, has, must);
}

gw_status gw_ps_answer_missing(const struct gw_ps_request *request, const char *place)
{
    const char *about = request->key[0] ? request->key : NULL;
    return gw_fail(GW_ERR_TIMEOUT, "the server at %s does not answer: %s%s%s%s has waited %u ms", place,
                   words[request->operation], about ? " of \"" : "", about ? about : "", about ? "\"" : "",
                   request->timeout_ms);
}

gw_ps_shape gw_ps_answer_shape(const struct gw_ps_asked *asked)
{
    return asked->request->operation == GW_PS_PULL
               ? gw_ps_result_shape((gw_ps_method)asked->request->method, asked->type, &asked->shape)
               : asked->shape;
}

static gw_status check_value(const struct gw_ps_asked *asked, const struct gw_ps_answer *answer, uint64_t n_bytes)
{
    const struct gw_ps_request *request = asked->request;
    const gw_ps_type type = (gw_ps_type)answer->type;
    const size_t width = gw_ps_type_bytes(type);
    const bool parameters = request->operation == GW_PS_PULL && request->method == GW_PS_PARAMETERS;
    const gw_ps_shape shape = gw_ps_answer_shape(asked);
    uint64_t n_elems;
    if (!gw_ps_type_name(type))
        return wrong(asked, "with a value of type number %u; there is no such type", answer->type);
    if (asked->type && type != type_for(asked))
        return must_be(asked, "a value of type number", type, type_for(asked));
    if (!gw_ps_shape_elems(&answer->shape, &n_elems))
        return wrong(asked, "with the invalid shape %s", gw_ps_shape_text(&answer->shape).text);
    if (asked->type && !gw_ps_shapes_equal(&shape, &answer->shape))
        return wrong(asked, "with the shape %s; it must be %s", gw_ps_shape_text(&answer->shape).text,
                     gw_ps_shape_text(&shape).text);
    if (width && n_bytes != n_elems * width)
        return wrong(asked, "with %" PRIu64 " bytes as the value; %s of shape %s takes %" PRIu64, n_bytes,
                     gw_ps_type_name(type), gw_ps_shape_text(&answer->shape).text, n_elems * width);
    if ((!width || !asked->type) && n_bytes > asked->most)
        return wrong(asked, "with %" PRIu64 " bytes as the value; %" PRIu64 " are possible", n_bytes, asked->most);
    if (request->operation == GW_PS_GET && answer->version < request->version)
        return gw_fail(GW_ERR_PEER,
                       "a get of \"%s\" of version %" PRIu64 " or higher was answered with version %" PRIu64,
                       request->key, request->version, answer->version);
    if (request->operation == GW_PS_GET ? answer->n_pushes != 0
                                        : answer->n_pushes > asked->n_workers || (answer->n_pushes == 0 && !parameters))
        return wrong(asked, "with a value of %u pushes, of a server for %u workers", answer->n_pushes,
                     asked->n_workers);
    return GW_OK;
}

/* Rounds count from 1. */
static gw_status check_number(const struct gw_ps_asked *asked, uint64_t number)
{
    const enum gw_ps_operation operation = asked->request->operation;
    if (operation == GW_PS_PUSH || operation == GW_PS_ADMIT || operation == GW_PS_VERDICT)
        return number == asked->request->number ? GW_OK : must_be(asked, "the number", number, asked->request->number);
    if (number == 0 && (operation == GW_PS_JOIN || operation == GW_PS_MEMBERS))
        return must_be(asked, "the round", number, 1);
    return number <= GW_PS_MOST_ROUNDS || operation == GW_PS_GET
               ? GW_OK
               : wrong(asked, "with the number %" PRIu64 "; it is at most 2^62", number);
}

gw_status gw_ps_answer_check(const struct gw_ps_asked *asked, const struct gw_ps_answer *answer, uint64_t n_bytes)
{
    const struct gw_ps_request *request = asked->request;
    const bool has_body = n_bytes > 0;
    if (answer->operation != request->operation)
        return wrong(asked, "with a %s", words[answer->operation]);
    if (answer->status < 0)
        return has_body ? wrong(asked, "with an error and a value") : GW_OK;
    const bool wants_body = gw_ps_request_gives_value(request) || request->operation == GW_PS_MEMBERS;
    if (has_body != wants_body)
        return wrong(asked, "%s a value", has_body ? "with" : "without");
    GW_TRY(check_number(asked, answer->number));
    if (request->operation == GW_PS_MEMBERS && n_bytes != asked->n_workers)
        return gw_fail(GW_ERR_PEER, "the server told of %" PRIu64 " workers, and is for %u", n_bytes, asked->n_workers);
    return gw_ps_request_gives_value(request) ? check_value(asked, answer, n_bytes) : GW_OK;
}
