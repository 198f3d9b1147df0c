/* Writes a change of the store as a journal record, and applies such a record to a store. */
#include "pserver/keep/journal.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/protocol/fields.h"
#include "pserver/store/state.h"

size_t gw_ps_journal_write(uint8_t *at, const struct gw_ps_change *change)
{
    struct gw_ps_writer w = {at};
    gw_ps_put_name(&w, change->name);
    if (change->kind == GW_PS_CHANGE_INIT) {
        gw_ps_put8(&w, (uint8_t)change->type);
        gw_ps_put_shape(&w, change->shape);
        gw_ps_put_name(&w, change->codec);
        gw_ps_put_name(&w, change->optimizer);
        if (change->n_parts > 1)
            gw_ps_put32(&w, change->n_parts);
    } else {
        gw_ps_put32(&w, change->rank);
        gw_ps_put64(&w, change->number);
        gw_ps_put64(&w, change->refusal);
        gw_ps_put_double(&w, change->rate);
    }
    return (size_t)(w.at - at);
}

/* Checks that the head was read to its end, and that its fields were good. */
static gw_status check(const struct gw_ps_reader *r, uint8_t type)
{
    return r->good && r->at == r->end
               ? GW_OK
               : gw_fail(GW_ERR_FRAME_FIELD, "a record of type %u has a head that cannot be", type);
}

static gw_status apply_init(struct gw_ps_store *store, struct gw_ps_reader *r, const char *name)
{
    gw_ps_shape shape;
    char codec[GW_PS_MOST_NAME + 1], optimizer[GW_PS_MOST_NAME + 1];
    const gw_ps_type type = (gw_ps_type)gw_ps_get8(r);
    gw_ps_get_shape(r, &shape);
    gw_ps_get_name(r, codec);
    gw_ps_get_name(r, optimizer);
    const uint32_t n_parts = r->at < r->end ? gw_ps_get32(r) : 1;
    GW_TRY(check(r, GW_PS_CHANGE_INIT));
    return gw_ps_store_init_part(store, name, type, &shape, n_parts, codec, optimizer);
}

static gw_status apply_to_key(struct gw_ps_store *store, atomic_uint_least64_t *total,
                              const struct gw_ps_change *change, const void *body, size_t n_body)
{
    struct gw_ps_key *key;
    GW_TRY(gw_ps_store_find(store, change->name, &key));
    if (change->kind == GW_PS_CHANGE_REFUSE)
        return gw_ps_store_refuse(store, key, change->rank, change->number, change->refusal);
    if (change->kind == GW_PS_CHANGE_VERDICT)
        return gw_ps_store_judge(store, key, change->rank, change->number, change->refusal);
    struct gw_ps_blob *value = gw_ps_blob_copy(store->context, total, body, n_body);
    if (!value)
        return GW_ERR_MEMORY;
    gw_status status = change->kind == GW_PS_CHANGE_PUT ? gw_ps_store_bring_first(store, key, value)
                       : change->kind == GW_PS_CHANGE_DEPOSIT
                           ? gw_ps_store_deposit(store, key, change->number, value)
                           : gw_ps_store_admit(store, key, change->rank, change->number, value);
    if (status == GW_OK && change->kind == GW_PS_CHANGE_PUSH)
        status = change->refusal == GW_PS_PENDING
                     ? gw_ps_store_push_pending(store, key, change->rank, change->number, value, change->rate)
                     : gw_ps_store_push(store, key, change->rank, change->number, value, change->rate);
    gw_ps_blob_give(value);
    return status;
}

static gw_status apply_presence(struct gw_ps_store *store, const struct gw_ps_change *change)
{
    if (change->kind == GW_PS_CHANGE_ENTER)
        return gw_ps_store_enter(store, change->rank, change->name, change->number);
    if (change->kind == GW_PS_CHANGE_DROP)
        return gw_ps_store_drop(store, change->name);
    if (change->kind == GW_PS_CHANGE_ANEW)
        gw_ps_store_begin_anew(store, change->name);
    else if (change->kind == GW_PS_CHANGE_LEAVE)
        gw_ps_store_leave(store, change->rank);
    else
        gw_ps_store_skip_to(store, change->name, change->number);
    return GW_OK;
}

static gw_status apply(struct gw_ps_store *store, atomic_uint_least64_t *total, enum gw_ps_change_kind kind,
                       struct gw_ps_reader *r, const char *name, const void *body, size_t n_body)
{
    if (kind == GW_PS_CHANGE_INIT)
        return apply_init(store, r, name);
    struct gw_ps_change change = {.kind = kind, .name = name};
    change.rank = gw_ps_get32(r);
    change.number = gw_ps_get64(r);
    change.refusal = gw_ps_get64(r);
    change.rate = gw_ps_get_double(r);
    GW_TRY(check(r, (uint8_t)kind));
    switch (kind) {
    case GW_PS_CHANGE_PUSH:
    case GW_PS_CHANGE_REFUSE:
    case GW_PS_CHANGE_VERDICT:
    case GW_PS_CHANGE_PUT:
    case GW_PS_CHANGE_DEPOSIT:
        return apply_to_key(store, total, &change, body, n_body);
    case GW_PS_CHANGE_ENTER:
    case GW_PS_CHANGE_LEAVE:
    case GW_PS_CHANGE_SKIP:
    case GW_PS_CHANGE_DROP:
    case GW_PS_CHANGE_ANEW:
        return apply_presence(store, &change);
    default:
        return gw_fail(GW_ERR_FRAME_FIELD, "this program knows no such record");
    }
}

gw_status gw_ps_journal_apply(struct gw_ps_store *store, atomic_uint_least64_t *total, uint8_t type, const void *head,
                              size_t n_head, const void *body, size_t n_body)
{
    struct gw_ps_reader r = {head, (const uint8_t *)head + n_head, true};
    char name[GW_PS_MOST_NAME + 1];
    gw_ps_get_name(&r, name);
    gw_status status = apply(store, total, (enum gw_ps_change_kind)type, &r, name, body, n_body);
    if (status == GW_OK || status == GW_ERR_MEMORY || status == GW_ERR_CAPACITY)
        return status;
    return gw_fail(GW_ERR_FRAME_MISMATCH, "a record of type %u of \"%s\" cannot be done again: %s", type, name,
                   status == GW_PS_WAIT ? "it would have to wait" : gw_last_error());
}
