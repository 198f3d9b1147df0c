/* Writes and reads the heads of requests and answers. A head with an impossible field is refused here. */
#include "pserver/protocol/message.h"
#include "base/error.h"
#include "pserver/protocol/fields.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define MAGIC_REQUEST 0x51505747u /* "GWPQ" */
#define MAGIC_REPLY 0x41505747u   /* "GWPA" */
#define REQUEST_FIXED 28
#define REPLY_FIXED 28

/* Reads a learning rate: a number from 0 on that is a finite float32 after rounding. */
static double get_rate(struct gw_ps_reader *r)
{
    const double x = gw_ps_get_double(r);
    r->good = r->good && !signbit(x) && x <= (double)FLT_MAX;
    return r->good ? x : 0;
}

static void put_start(struct gw_ps_writer *w, uint32_t magic, enum gw_ps_operation operation, uint8_t code,
                      uint8_t flags, uint64_t id, uint64_t number)
{
    gw_ps_put32(w, magic);
    gw_ps_put8(w, GW_PS_VERSION);
    gw_ps_put8(w, (uint8_t)operation);
    gw_ps_put8(w, code);
    gw_ps_put8(w, flags);
    gw_ps_put64(w, id);
    gw_ps_put64(w, number);
}

size_t gw_ps_request_write(uint8_t *at, const struct gw_ps_request *request)
{
    struct gw_ps_writer w = {at};
    put_start(&w, MAGIC_REQUEST, request->operation, request->code, 0, request->id, request->number);
    gw_ps_put32(&w, request->timeout_ms);
    switch (request->operation) {
    case GW_PS_HELLO:
        gw_ps_put64(&w, request->incarnation);
        gw_ps_put32(&w, request->place);
        gw_ps_put32(&w, request->n_servers);
        break;
    case GW_PS_INIT:
        gw_ps_put_name(&w, request->key);
        gw_ps_put_shape(&w, &request->shape);
        gw_ps_put_name(&w, request->codec);
        gw_ps_put_name(&w, request->optimizer);
        gw_ps_put32(&w, request->n_parts);
        break;
    case GW_PS_PULL:
        gw_ps_put_name(&w, request->key);
        gw_ps_put_name(&w, request->scale_key);
        gw_ps_put32(&w, request->n_parts);
        break;
    case GW_PS_PUT:
        gw_ps_put_name(&w, request->key);
        break;
    case GW_PS_GET:
        gw_ps_put_name(&w, request->key);
        gw_ps_put32(&w, request->n_parts);
        break;
    case GW_PS_PUSH:
        gw_ps_put_name(&w, request->key);
        gw_ps_put_double(&w, request->rate);
        if (request->push_kind == GW_PS_PUSH_REFUSED)
            gw_ps_put64(&w, request->refusal);
        break;
    case GW_PS_VERDICT:
        gw_ps_put64(&w, request->refusal);
        break;
    case GW_PS_ADMIT:
        gw_ps_put32(&w, request->rank);
        break;
    default:
        break;
    }
    return (size_t)(w.at - at);
}

size_t gw_ps_answer_write(uint8_t *at, const struct gw_ps_answer *answer)
{
    struct gw_ps_writer w = {at};
    put_start(&w, MAGIC_REPLY, answer->operation, answer->code, answer->flags, answer->id, answer->number);
    gw_ps_put32(&w, (uint32_t)(int32_t)answer->status);
    if (answer->status < 0) {
        size_t length = strnlen(answer->sentence, GW_PS_SENTENCE - 1);
        memcpy(w.at, answer->sentence, length);
        w.at += length;
    } else if (answer->operation == GW_PS_PULL || answer->operation == GW_PS_GET) {
        gw_ps_put_shape(&w, &answer->shape);
        gw_ps_put32(&w, answer->n_pushes);
    } else if (answer->operation == GW_PS_HELLO) {
        gw_ps_put32(&w, answer->n_workers);
        gw_ps_put64(&w, answer->max_key_bytes);
        gw_ps_put8(&w, answer->mode);
        gw_ps_put32(&w, answer->staleness);
        gw_ps_put32(&w, answer->backup);
        gw_ps_put32(&w, answer->timeout_ms);
    }
    return (size_t)(w.at - at);
}

/* Reads the start of a head, which requests and answers have in common. */
static gw_status get_start(struct gw_ps_reader *r, uint32_t magic, size_t fixed, uint8_t *operation, uint8_t *code,
                           uint8_t *flags, uint64_t *id, uint64_t *number)
{
    size_t n_bytes = (size_t)(r->end - r->at);
    *id = 0;
    if (n_bytes >= 4 && gw_get32(r->at) != magic)
        return gw_fail(GW_ERR_FRAME_MAGIC, "these bytes are no message of the parameter server");
    if (n_bytes < fixed)
        return gw_fail(GW_ERR_FRAME_CUT, "a message of the parameter server has %zu bytes; its head takes %zu at least",
                       n_bytes, fixed);
    gw_ps_get32(r);
    uint8_t version = gw_ps_get8(r);
    *operation = gw_ps_get8(r);
    *code = gw_ps_get8(r);
    *flags = gw_ps_get8(r);
    *id = gw_ps_get64(r);
    *number = gw_ps_get64(r);
    if (version != GW_PS_VERSION)
        return gw_fail(GW_ERR_FRAME_VERSION,
                       "a message of version %u of the parameter server's protocol; this is version %d", version,
                       GW_PS_VERSION);
    return GW_OK;
}

static gw_status get_end(const struct gw_ps_reader *r, unsigned operation)
{
    return r->good && r->at == r->end ? GW_OK
                                      : gw_fail(GW_ERR_FRAME_FIELD,
                                                "a message of operation %u of the parameter server has another length "
                                                "than its fields, or one is invalid",
                                                operation);
}

gw_status gw_ps_request_read(const void *bytes, size_t n_bytes, struct gw_ps_request *request)
{
    struct gw_ps_reader r = {bytes, (const uint8_t *)bytes + n_bytes, true};
    uint8_t operation = 0, zero = 0;
    *request = (struct gw_ps_request){.operation = GW_PS_WHO};
    GW_TRY(
        get_start(&r, MAGIC_REQUEST, REQUEST_FIXED, &operation, &request->code, &zero, &request->id, &request->number));
    if (zero)
        return gw_fail(GW_ERR_FRAME_FIELD, "a request of the parameter server has %u where 0 must be", zero);
    request->timeout_ms = gw_ps_get32(&r);
    switch (operation) {
    case GW_PS_HELLO:
        request->incarnation = gw_ps_get64(&r);
        request->place = gw_ps_get32(&r);
        request->n_servers = gw_ps_get32(&r);
        r.good = r.good && request->hello_flags <= (GW_PS_HELLO_JOINS | GW_PS_HELLO_AGAIN);
        break;
    case GW_PS_INIT:
        gw_ps_get_name(&r, request->key);
        gw_ps_get_shape(&r, &request->shape);
        gw_ps_get_name(&r, request->codec);
        gw_ps_get_name(&r, request->optimizer);
        request->n_parts = gw_ps_get32(&r);
        break;
    case GW_PS_PULL:
        gw_ps_get_name(&r, request->key);
        gw_ps_get_name(&r, request->scale_key);
        request->n_parts = gw_ps_get32(&r);
        break;
    case GW_PS_PUT:
    case GW_PS_GET:
        gw_ps_get_name(&r, request->key);
        if (operation == GW_PS_GET)
            request->n_parts = gw_ps_get32(&r);
        r.good = r.good && request->code <= 1;
        break;
    case GW_PS_PUSH:
        gw_ps_get_name(&r, request->key);
        request->rate = get_rate(&r);
        r.good = r.good && request->push_kind <= GW_PS_PUSH_PENDING;
        if (request->push_kind == GW_PS_PUSH_REFUSED)
            request->refusal = gw_ps_get64(&r);
        break;
    case GW_PS_VERDICT:
        request->refusal = gw_ps_get64(&r);
        r.good = r.good && request->code == 0;
        break;
    case GW_PS_ADMIT:
        request->rank = gw_ps_get32(&r);
        break;
    case GW_PS_JOIN:
        r.good = r.good && request->code <= 1;
        break;
    case GW_PS_AGREE:
    case GW_PS_BYE:
    case GW_PS_MEMBERS:
        break;
    default:
        return gw_fail(GW_ERR_FRAME_FIELD, "a request of the parameter server has the unknown operation %u", operation);
    }
    request->operation = (enum gw_ps_operation)operation;
    return get_end(&r, operation);
}

gw_status gw_ps_answer_read(const void *bytes, size_t n_bytes, struct gw_ps_answer *answer)
{
    struct gw_ps_reader r = {bytes, (const uint8_t *)bytes + n_bytes, true};
    uint8_t operation = 0;
    *answer = (struct gw_ps_answer){.operation = GW_PS_WHO};
    GW_TRY(get_start(&r, MAGIC_REPLY, REPLY_FIXED, &operation, &answer->code, &answer->flags, &answer->id,
                     &answer->number));
    if (operation < GW_PS_HELLO || operation >= GW_PS_OPERATIONS)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has the unknown operation %u", operation);
    answer->operation = (enum gw_ps_operation)operation;
    const int32_t answered = (int32_t)gw_ps_get32(&r);
    if (answered > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has the unknown status %d", answered);
    /* a status that this version does not know becomes GW_ERR_PEER */
    answer->status = strcmp(gw_status_text((gw_status)answered), gw_status_text((gw_status)INT32_MIN)) == 0
                         ? GW_ERR_PEER
                         : (gw_status)answered;
    if (answer->status < 0) {
        size_t length = (size_t)(r.end - r.at);
        if (length >= GW_PS_SENTENCE)
            return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has a sentence of %zu bytes", length);
        for (size_t i = 0; i < length; i++)
            answer->sentence[i] = r.at[i] >= ' ' && r.at[i] != 0x7F ? (char)r.at[i] : '?';
        return GW_OK;
    }
    if (operation == GW_PS_PULL || operation == GW_PS_GET) {
        gw_ps_get_shape(&r, &answer->shape);
        answer->n_pushes = gw_ps_get32(&r);
    } else if (operation == GW_PS_HELLO) {
        answer->n_workers = gw_ps_get32(&r);
        answer->max_key_bytes = gw_ps_get64(&r);
        answer->mode = gw_ps_get8(&r);
        answer->staleness = gw_ps_get32(&r);
        answer->backup = gw_ps_get32(&r);
        answer->timeout_ms = gw_ps_get32(&r);
        r.good = r.good && answer->mode <= GW_PS_ASYNC;
    }
    return get_end(&r, operation);
}

const char *gw_ps_mode_word(gw_ps_mode mode)
{
    static const char *const words[] = {[GW_PS_SYNC] = "sync", [GW_PS_STALE] = "stale", [GW_PS_ASYNC] = "async"};
    return words[mode];
}
