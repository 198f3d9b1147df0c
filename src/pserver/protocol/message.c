/* Writes and reads the heads of requests and answers. A head with an impossible field is refused here. */
#include "pserver/protocol/message.h"
#include "base/error.h"
#include "pserver/protocol/fields.h"

#include <float.h>
#include <math.h>

#define MAGIC_REQUEST 0x51505747u /* "GWPQ" */
#define MAGIC_ANSWER 0x41505747u  /* "GWPA" */
#define FIXED 28                  /* bytes that every head has */

/* ---- fields: one list of them for writing and for reading ------------------------------------------------- */

/* What is read must hold this. */
static void must(struct gw_fields *f, bool holds)
{
    f->good = f->good && holds;
}

/* What requests and answers begin with. */
struct start {
    uint32_t magic;
    uint8_t version, operation, code, flags; /* flags: 0 in requests */
    uint64_t id, number;
    uint32_t last; /* a request's timeout_ms, an answer's status */
};

static void start_fields(struct gw_fields *f, struct start *s)
{
    gw_field_u32(f, &s->magic), gw_field_u8(f, &s->version), gw_field_u8(f, &s->operation), gw_field_u8(f, &s->code);
    gw_field_u8(f, &s->flags), gw_field_u64(f, &s->id), gw_field_u64(f, &s->number), gw_field_u32(f, &s->last);
}

/* What an operation's request has behind the fixed fields. */
static void request_fields(struct gw_fields *f, unsigned operation, struct gw_ps_request *r)
{
    switch (operation) {
    case GW_PS_HELLO:
        gw_field_u64(f, &r->incarnation), gw_field_u32(f, &r->place), gw_field_u32(f, &r->n_servers);
        must(f, r->hello_flags <= (GW_PS_HELLO_JOINS | GW_PS_HELLO_AGAIN));
        break;
    case GW_PS_INIT:
        gw_field_name(f, r->key), gw_field_shape(f, &r->shape);
        gw_field_name(f, r->codec), gw_field_name(f, r->optimizer), gw_field_u32(f, &r->n_parts);
        must(f, r->skipped <= GW_PS_MOST_ROUNDS);
        break;
    case GW_PS_PULL:
        gw_field_name(f, r->key), gw_field_name(f, r->scale_key), gw_field_u32(f, &r->n_parts);
        break;
    case GW_PS_PUT:
        gw_field_name(f, r->key);
        must(f, r->put_kind <= GW_PS_PUT_VERSION);
        break;
    case GW_PS_GET:
        gw_field_name(f, r->key), gw_field_u32(f, &r->n_parts);
        must(f, r->code == 0);
        break;
    case GW_PS_PUSH:
        gw_field_name(f, r->key), gw_field_double(f, &r->rate);
        if (r->push_kind == GW_PS_PUSH_REFUSED)
            gw_field_u64(f, &r->refusal);
        /* the rate is a number from 0 on that is a finite float32 after rounding */
        must(f, r->push_kind <= GW_PS_PUSH_PENDING && !signbit(r->rate) && r->rate <= (double)FLT_MAX);
        break;
    case GW_PS_VERDICT:
        gw_field_u64(f, &r->refusal);
        must(f, r->code == 0);
        break;
    case GW_PS_ADMIT:
        gw_field_u32(f, &r->rank);
        must(f, r->code == 0);
        break;
    case GW_PS_JOIN:
        must(f, r->others_have_begun <= 1);
        break;
    default:
        must(f, (operation == GW_PS_AGREE || operation == GW_PS_BYE || operation == GW_PS_MEMBERS) && r->code == 0);
    }
}

static void answer_fields(struct gw_fields *f, unsigned operation, struct gw_ps_answer *a)
{
    if (operation == GW_PS_PULL || operation == GW_PS_GET) {
        gw_field_shape(f, &a->shape), gw_field_u32(f, &a->n_pushes);
    } else if (operation == GW_PS_HELLO) {
        gw_field_u32(f, &a->n_workers), gw_field_u64(f, &a->max_key_bytes), gw_field_u8(f, &a->mode);
        gw_field_u32(f, &a->staleness), gw_field_u32(f, &a->backup), gw_field_u32(f, &a->timeout_ms);
        must(f, a->mode <= GW_PS_ASYNC);
    }
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

size_t gw_ps_request_write(uint8_t *at, const struct gw_ps_request *request)
{
    struct gw_fields f = gw_fields_to(at);
    start_fields(&f, &(struct start){MAGIC_REQUEST, GW_PS_VERSION, (uint8_t)request->operation, request->code, 0,
                                     request->id, request->number, request->timeout_ms});
    request_fields(&f, request->operation, (struct gw_ps_request *)(uintptr_t)request); /* writing changes nothing */
    return (size_t)(f.at - at);
}

size_t gw_ps_answer_write(uint8_t *at, const struct gw_ps_answer *answer)
{
    struct gw_fields f = gw_fields_to(at);
    struct gw_ps_answer *a = (struct gw_ps_answer *)(uintptr_t)answer; /* writing changes nothing */
    start_fields(&f, &(struct start){MAGIC_ANSWER, GW_PS_VERSION, (uint8_t)a->operation, a->code, a->flags, a->id,
                                     a->number, (uint32_t)(int32_t)a->status});
    if (a->status < 0)
        gw_field_bytes(&f, a->sentence, strnlen(a->sentence, GW_PS_SENTENCE - 1));
    else
        answer_fields(&f, a->operation, a);
    return (size_t)(f.at - at);
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

static gw_status read_start(struct gw_fields *f, uint32_t magic, struct start *s)
{
    const size_t n_bytes = (size_t)(f->end - f->at);
    *s = (struct start){0};
    if (n_bytes >= 4 && gw_get32(f->at) != magic)
        return gw_fail(GW_ERR_FRAME_MAGIC, "these bytes are no message of the parameter server");
    if (n_bytes < FIXED)
        return gw_fail(GW_ERR_FRAME_CUT, "a message of the parameter server has %zu bytes; its head takes %d at least",
                       n_bytes, FIXED);
    start_fields(f, s);
    if (s->version != GW_PS_VERSION)
        return gw_fail(GW_ERR_FRAME_VERSION,
                       "a message of version %u of the parameter server's protocol; this is version %d", s->version,
                       GW_PS_VERSION);
    if (s->operation < GW_PS_HELLO || s->operation >= GW_PS_OPERATIONS)
        return gw_fail(GW_ERR_FRAME_FIELD, "a message of the parameter server has the unknown operation %u",
                       s->operation);
    return GW_OK;
}

static gw_status get_end(const struct gw_fields *f, unsigned operation)
{
    return gw_fields_end(f) ? GW_OK
                            : gw_fail(GW_ERR_FRAME_FIELD,
                                      "a message of operation %u of the parameter server has another length "
                                      "than its fields, or one is invalid",
                                      operation);
}

gw_status gw_ps_request_read(const void *bytes, size_t n_bytes, struct gw_ps_request *request)
{
    struct gw_fields f = gw_fields_from(bytes, n_bytes);
    struct start s;
    gw_status status = read_start(&f, MAGIC_REQUEST, &s);
    *request = (struct gw_ps_request){
        .operation = GW_PS_WHO, .code = s.code, .id = s.id, .number = s.number, .timeout_ms = s.last};
    GW_TRY(status);
    if (s.flags)
        return gw_fail(GW_ERR_FRAME_FIELD, "a request of the parameter server has %u where 0 must be", s.flags);
    request->operation = s.operation == GW_PS_ASK ? GW_PS_WHO : (enum gw_ps_operation)s.operation; /* no client asks */
    request_fields(&f, s.operation, request);
    return get_end(&f, s.operation);
}

gw_status gw_ps_answer_read(const void *bytes, size_t n_bytes, struct gw_ps_answer *answer)
{
    struct gw_fields f = gw_fields_from(bytes, n_bytes);
    struct start s;
    gw_status status = read_start(&f, MAGIC_ANSWER, &s);
    *answer =
        (struct gw_ps_answer){.operation = GW_PS_WHO, .code = s.code, .flags = s.flags, .id = s.id, .number = s.number};
    GW_TRY(status);
    answer->operation = (enum gw_ps_operation)s.operation;
    const int32_t answered = (int32_t)s.last;
    if (answered > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has the unknown status %d", answered);
    /* a status that this version does not know becomes GW_ERR_PEER */
    answer->status = strcmp(gw_status_text((gw_status)answered), gw_status_text((gw_status)INT32_MIN)) == 0
                         ? GW_ERR_PEER
                         : (gw_status)answered;
    if (answer->status == GW_OK) {
        answer_fields(&f, s.operation, answer);
        return get_end(&f, s.operation);
    }
    const size_t length = (size_t)(f.end - f.at);
    if (length >= GW_PS_SENTENCE)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has a sentence of %zu bytes", length);
    for (size_t i = 0; i < length; i++)
        answer->sentence[i] = f.at[i] >= ' ' && f.at[i] != 0x7F ? (char)f.at[i] : '?';
    return GW_OK;
}

const char *gw_ps_mode_word(gw_ps_mode mode)
{
    static const char *const words[] = {[GW_PS_SYNC] = "sync", [GW_PS_STALE] = "stale", [GW_PS_ASYNC] = "async"};
    return words[mode];
}
