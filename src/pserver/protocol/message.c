/* Writes and reads the heads of requests and answers. A head with an impossible field is refused here. */
#include "pserver/protocol/message.h"
#include "base/error.h"
#include "pserver/protocol/fields.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define MAGIC_REQUEST 0x51505747u /* "GWPQ" */
#define MAGIC_ANSWER 0x41505747u  /* "GWPA" */
#define FIXED 28                  /* bytes that every head has */

/* ---- fields: one list of them for writing and for reading ------------------------------------------------- */

struct fields {
    struct gw_ps_writer to;
    struct gw_ps_reader from;
    bool writes;
};

#define FIELD(function, type, put, get)                                                                                \
    static void function(struct fields *f, type *x)                                                                    \
    {                                                                                                                  \
        if (f->writes)                                                                                                 \
            put(&f->to, *x);                                                                                           \
        else                                                                                                           \
            *x = get(&f->from);                                                                                        \
    }
FIELD(u8, uint8_t, gw_ps_put8, gw_ps_get8)
FIELD(u32, uint32_t, gw_ps_put32, gw_ps_get32)
FIELD(u64, uint64_t, gw_ps_put64, gw_ps_get64)
FIELD(real, double, gw_ps_put_double, gw_ps_get_double)

static void name(struct fields *f, char x[GW_PS_MOST_NAME + 1])
{
    if (f->writes)
        gw_ps_put_name(&f->to, x);
    else
        gw_ps_get_name(&f->from, x);
}

static void shape(struct fields *f, gw_ps_shape *x)
{
    if (f->writes)
        gw_ps_put_shape(&f->to, x);
    else
        gw_ps_get_shape(&f->from, x);
}

/* What is read must hold this. */
static void must(struct fields *f, bool holds)
{
    f->from.good = f->from.good && holds;
}

/* What an operation's request has behind the fixed fields. false: there is no such request. */
static bool request_fields(struct fields *f, unsigned operation, struct gw_ps_request *r)
{
    switch (operation) {
    case GW_PS_HELLO:
        u64(f, &r->incarnation), u32(f, &r->place), u32(f, &r->n_servers);
        must(f, r->hello_flags <= (GW_PS_HELLO_JOINS | GW_PS_HELLO_AGAIN));
        return true;
    case GW_PS_INIT:
        name(f, r->key), shape(f, &r->shape), name(f, r->codec), name(f, r->optimizer), u32(f, &r->n_parts);
        return true;
    case GW_PS_PULL:
        name(f, r->key), name(f, r->scale_key), u32(f, &r->n_parts);
        return true;
    case GW_PS_PUT:
        name(f, r->key);
        must(f, r->put_kind <= GW_PS_PUT_VERSION);
        return true;
    case GW_PS_GET:
        name(f, r->key), u32(f, &r->n_parts);
        must(f, r->code <= 1);
        return true;
    case GW_PS_PUSH:
        name(f, r->key), real(f, &r->rate);
        if (r->push_kind == GW_PS_PUSH_REFUSED)
            u64(f, &r->refusal);
        /* the rate is a number from 0 on that is a finite float32 after rounding */
        must(f, r->push_kind <= GW_PS_PUSH_PENDING && !signbit(r->rate) && r->rate <= (double)FLT_MAX);
        return true;
    case GW_PS_VERDICT:
        u64(f, &r->refusal);
        must(f, r->code == 0);
        return true;
    case GW_PS_ADMIT:
        u32(f, &r->rank);
        return true;
    case GW_PS_JOIN:
        must(f, r->others_have_begun <= 1);
        return true;
    case GW_PS_AGREE:
    case GW_PS_BYE:
    case GW_PS_MEMBERS:
        return true;
    default:
        return false;
    }
}

static void answer_fields(struct fields *f, unsigned operation, struct gw_ps_answer *a)
{
    if (operation == GW_PS_PULL || operation == GW_PS_GET) {
        shape(f, &a->shape), u32(f, &a->n_pushes);
    } else if (operation == GW_PS_HELLO) {
        u32(f, &a->n_workers), u64(f, &a->max_key_bytes), u8(f, &a->mode), u32(f, &a->staleness), u32(f, &a->backup);
        u32(f, &a->timeout_ms);
        must(f, a->mode <= GW_PS_ASYNC);
    }
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

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
    struct fields f = {.to = {at}, .writes = true};
    put_start(&f.to, MAGIC_REQUEST, request->operation, request->code, 0, request->id, request->number);
    gw_ps_put32(&f.to, request->timeout_ms);
    request_fields(&f, request->operation, (struct gw_ps_request *)(uintptr_t)request); /* writing changes nothing */
    return (size_t)(f.to.at - at);
}

size_t gw_ps_answer_write(uint8_t *at, const struct gw_ps_answer *answer)
{
    struct fields f = {.to = {at}, .writes = true};
    put_start(&f.to, MAGIC_ANSWER, answer->operation, answer->code, answer->flags, answer->id, answer->number);
    gw_ps_put32(&f.to, (uint32_t)(int32_t)answer->status);
    if (answer->status < 0) {
        const size_t length = strnlen(answer->sentence, GW_PS_SENTENCE - 1);
        memcpy(f.to.at, answer->sentence, length);
        f.to.at += length;
    } else {
        answer_fields(&f, answer->operation, (struct gw_ps_answer *)(uintptr_t)answer);
    }
    return (size_t)(f.to.at - at);
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

/* Reads the start of a head, which requests and answers have in common. */
static gw_status get_start(struct gw_ps_reader *r, uint32_t magic, uint8_t *operation, uint8_t *code, uint8_t *flags,
                           uint64_t *id, uint64_t *number)
{
    const size_t n_bytes = (size_t)(r->end - r->at);
    *id = 0;
    if (n_bytes >= 4 && gw_get32(r->at) != magic)
        return gw_fail(GW_ERR_FRAME_MAGIC, "these bytes are no message of the parameter server");
    if (n_bytes < FIXED)
        return gw_fail(GW_ERR_FRAME_CUT, "a message of the parameter server has %zu bytes; its head takes %d at least",
                       n_bytes, FIXED);
    gw_ps_get32(r);
    const uint8_t version = gw_ps_get8(r);
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
    struct fields f = {.from = {bytes, (const uint8_t *)bytes + n_bytes, true}};
    uint8_t operation = 0, zero = 0;
    *request = (struct gw_ps_request){.operation = GW_PS_WHO};
    GW_TRY(get_start(&f.from, MAGIC_REQUEST, &operation, &request->code, &zero, &request->id, &request->number));
    if (zero)
        return gw_fail(GW_ERR_FRAME_FIELD, "a request of the parameter server has %u where 0 must be", zero);
    request->timeout_ms = gw_ps_get32(&f.from);
    if (!request_fields(&f, operation, request))
        return gw_fail(GW_ERR_FRAME_FIELD, "a request of the parameter server has the unknown operation %u", operation);
    request->operation = (enum gw_ps_operation)operation;
    return get_end(&f.from, operation);
}

gw_status gw_ps_answer_read(const void *bytes, size_t n_bytes, struct gw_ps_answer *answer)
{
    struct fields f = {.from = {bytes, (const uint8_t *)bytes + n_bytes, true}};
    uint8_t operation = 0;
    *answer = (struct gw_ps_answer){.operation = GW_PS_WHO};
    GW_TRY(get_start(&f.from, MAGIC_ANSWER, &operation, &answer->code, &answer->flags, &answer->id, &answer->number));
    if (operation < GW_PS_HELLO || operation >= GW_PS_OPERATIONS)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has the unknown operation %u", operation);
    answer->operation = (enum gw_ps_operation)operation;
    const int32_t answered = (int32_t)gw_ps_get32(&f.from);
    if (answered > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has the unknown status %d", answered);
    /* a status that this version does not know becomes GW_ERR_PEER */
    answer->status = strcmp(gw_status_text((gw_status)answered), gw_status_text((gw_status)INT32_MIN)) == 0
                         ? GW_ERR_PEER
                         : (gw_status)answered;
    if (answer->status == GW_OK) {
        answer_fields(&f, operation, answer);
        return get_end(&f.from, operation);
    }
    const size_t length = (size_t)(f.from.end - f.from.at);
    if (length >= GW_PS_SENTENCE)
        return gw_fail(GW_ERR_FRAME_FIELD, "an answer of the parameter server has a sentence of %zu bytes", length);
    for (size_t i = 0; i < length; i++)
        answer->sentence[i] = f.from.at[i] >= ' ' && f.from.at[i] != 0x7F ? (char)f.from.at[i] : '?';
    return GW_OK;
}

const char *gw_ps_mode_word(gw_ps_mode mode)
{
    static const char *const words[] = {[GW_PS_SYNC] = "sync", [GW_PS_STALE] = "stale", [GW_PS_ASYNC] = "async"};
    return words[mode];
}
