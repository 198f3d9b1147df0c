/* Writes a whole store as the records of a snapshot, and builds a store from such records. */
#include "pserver/keep/snapshot.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/keep/journal.h"
#include "pserver/protocol/fields.h"
#include "pserver/store/parameters.h"
#include "pserver/store/state.h"

/* ---- written ------------------------------------------------------------------------------------------------- */

struct snapshot_writer {
    struct gw_ps_store *store;
    void (*add)(void *user, uint8_t type, const void *head, size_t n_head, struct gw_ps_blob *blob);
    void *user;
    uint8_t *head; /* room for the longest head */
};

static void add(const struct snapshot_writer *to, uint8_t type, const struct gw_ps_writer *w, struct gw_ps_blob *blob)
{
    to->add(to->user, type, to->head, (size_t)(w->at - to->head), blob);
}

/* The rounds of a key, oldest first. */
enum { N_ROUNDS = 3 };

static struct gw_ps_round *round_of(struct gw_ps_key *key, uint32_t which)
{
    return which == 0 ? &key->before : which == 1 ? &key->whole : &key->open;
}

static void write_store(const struct snapshot_writer *to)
{
    const struct gw_ps_store *store = to->store;
    struct gw_ps_writer w = {to->head};
    gw_ps_put64(&w, store->rounds);
    gw_ps_put64(&w, store->foremost);
    gw_ps_put8(&w, store->begun);
    add(to, GW_PS_SNAPSHOT_STORE, &w, NULL);
    for (uint32_t r = 0; r < store->options.n_workers; r++) {
        w.at = to->head;
        gw_ps_put32(&w, r);
        gw_ps_put64(&w, store->pushes[r]);
        gw_ps_put64(&w, store->skipped[r]);
        gw_ps_put8(&w, store->present[r]);
        add(to, GW_PS_SNAPSHOT_WORKER, &w, NULL);
    }
}

static void write_round(const struct snapshot_writer *to, const struct gw_ps_round *round, uint8_t which)
{
    for (uint32_t r = 0; round->pushes && r < to->store->options.n_workers; r++) {
        if (!round->pushes[r])
            continue;
        struct gw_ps_writer w = {to->head};
        gw_ps_put8(&w, which);
        gw_ps_put32(&w, r);
        gw_ps_put64(&w, round->refusals[r]);
        add(to, GW_PS_SNAPSHOT_PUSH, &w, round->pushes[r]);
    }
}

static void write_parameters(const struct snapshot_writer *to, const struct gw_ps_key *key)
{
    const struct gw_ps_parameters *p = key->parameters;
    if (!p)
        return;
    struct gw_ps_writer w = {to->head};
    gw_ps_put8(&w, p->values != NULL);
    gw_ps_put64(&w, p->unusable);
    for (uint32_t r = 0; r < to->store->options.n_workers; r++)
        gw_ps_put_double(&w, p->rates[r]);
    add(to, GW_PS_SNAPSHOT_PARAMETERS, &w, p->values);
    for (uint8_t m = 0; m < gw_optimizer_moments(&p->optimizer); m++) {
        w.at = to->head;
        gw_ps_put8(&w, m);
        add(to, GW_PS_SNAPSHOT_MOMENT, &w, p->moments[m]);
    }
}

/* Writes the deposited value, as the change that deposited it. */
static void write_deposit(const struct snapshot_writer *to, const struct gw_ps_key *key)
{
    const struct gw_ps_change deposit = {.kind = GW_PS_CHANGE_DEPOSIT,
                                         .name = key->name,
                                         .number = key->deposit.version};
    struct gw_ps_writer w = {to->head};
    if (!key->deposit.value)
        return;
    w.at += gw_ps_journal_write(to->head, &deposit);
    add(to, GW_PS_CHANGE_DEPOSIT, &w, key->deposit.value);
}

static void write_key(const struct snapshot_writer *to, struct gw_ps_key *key)
{
    const struct gw_ps_change init = {.kind = GW_PS_CHANGE_INIT,
                                      .name = key->name,
                                      .type = key->type,
                                      .shape = &key->shape,
                                      .n_parts = key->n_parts,
                                      .codec = key->codec ? gw_codec_canonical(key->codec) : "",
                                      .optimizer = key->parameters ? key->parameters->text : ""};
    struct gw_ps_writer w = {to->head};
    w.at += gw_ps_journal_write(to->head, &init);
    add(to, GW_PS_CHANGE_INIT, &w, NULL);
    w.at = to->head;
    gw_ps_put32(&w, key->latest);
    gw_ps_put32(&w, key->n_due);
    gw_ps_put64(&w, key->foremost);
    for (uint32_t i = 0; i < N_ROUNDS; i++)
        gw_ps_put64(&w, round_of(key, i)->number);
    add(to, GW_PS_SNAPSHOT_KEY, &w, NULL);
    w.at = to->head;
    for (uint32_t r = 0; r < to->store->options.n_workers; r++) {
        gw_ps_put64(&w, key->pushed[r]);
        gw_ps_put64(&w, key->taken[r]);
    }
    add(to, GW_PS_SNAPSHOT_KEY_RANKS, &w, NULL);
    for (uint32_t i = 0; i < N_ROUNDS; i++)
        write_round(to, round_of(key, i), (uint8_t)i);
    write_deposit(to, key);
    write_parameters(to, key);
}

gw_status gw_ps_snapshot_write(struct gw_ps_store *store,
                               void (*add_record)(void *user, uint8_t type, const void *head, size_t n_head,
                                                  struct gw_ps_blob *blob),
                               void *user)
{
    struct snapshot_writer to = {.store = store, .add = add_record, .user = user};
    to.head = gw_alloc(store->context, GW_PS_CHANGE_BYTES + 2 * sizeof(uint64_t) * store->options.n_workers, 1);
    if (!to.head)
        return GW_ERR_MEMORY;
    write_store(&to);
    for (uint64_t k = 0; k < store->names.n; k++)
        write_key(&to, store->keys[k]);
    gw_free(store->context, to.head);
    return GW_OK;
}

/* ---- read ---------------------------------------------------------------------------------------------------- */

static void read_store(struct gw_ps_store *store, struct gw_ps_reader *r)
{
    store->rounds = gw_ps_get64(r);
    store->foremost = gw_ps_get64(r);
    store->begun = gw_ps_get8(r);
}

static void read_worker(struct gw_ps_store *store, struct gw_ps_reader *r)
{
    const uint32_t rank = gw_ps_get32(r);
    r->good = r->good && rank < store->options.n_workers;
    if (!r->good)
        return;
    store->pushes[rank] = gw_ps_get64(r);
    store->skipped[rank] = gw_ps_get64(r);
    store->n_present -= store->present[rank];
    store->present[rank] = gw_ps_get8(r);
    store->n_present += store->present[rank];
}

static void read_key(struct gw_ps_key *key, struct gw_ps_reader *r)
{
    key->latest = gw_ps_get32(r);
    key->n_due = gw_ps_get32(r);
    key->foremost = gw_ps_get64(r);
    for (uint32_t i = 0; i < N_ROUNDS; i++)
        round_of(key, i)->number = gw_ps_get64(r);
}

static void read_key_ranks(const struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_reader *r)
{
    for (uint32_t rank = 0; rank < store->options.n_workers; rank++) {
        key->pushed[rank] = gw_ps_get64(r);
        key->taken[rank] = gw_ps_get64(r);
    }
}

static gw_status read_push(const struct gw_ps_snapshot_reader *into, struct gw_ps_key *key, struct gw_ps_reader *r,
                           const void *body, size_t n_body)
{
    const uint8_t which = gw_ps_get8(r);
    const uint32_t rank = gw_ps_get32(r);
    const uint64_t refusal = gw_ps_get64(r);
    struct gw_ps_round *round = round_of(key, which < N_ROUNDS ? which : 0);
    r->good =
        r->good && which < N_ROUNDS && round->pushes && rank < into->store->options.n_workers && !round->pushes[rank];
    if (!r->good)
        return GW_OK;
    struct gw_ps_blob *value = gw_ps_blob_copy(into->store->context, into->total, body, n_body);
    if (!value)
        return GW_ERR_MEMORY;
    const bool has_value = refusal == GW_PS_NOT_REFUSED || refusal == GW_PS_PENDING;
    r->good = refusal != GW_PS_PENDING || (key->parameters && round == &key->open);
    gw_status status = has_value     ? gw_ps_key_check_value(key, rank, value)
                       : n_body == 0 ? GW_OK
                                     : gw_fail(GW_ERR_FRAME_FIELD, "a refusal has a value of %zu bytes", n_body);
    if (status < 0) {
        gw_ps_blob_give(value);
        return status;
    }
    round->pushes[rank] = value;
    round->n_in++;
    round->refusals[rank] = refusal;
    key->bytes += n_body;
    into->store->bytes += n_body;
    return GW_OK;
}

static gw_status read_parameters(const struct gw_ps_snapshot_reader *into, struct gw_ps_key *key,
                                 struct gw_ps_reader *r, const void *body, size_t n_body)
{
    struct gw_ps_parameters *p = key->parameters;
    const bool set = gw_ps_get8(r);
    r->good = r->good && p && !p->values && n_body == (set ? key->n_elems * sizeof(float) : 0);
    if (!r->good)
        return GW_OK;
    p->unusable = gw_ps_get64(r);
    for (uint32_t rank = 0; rank < into->store->options.n_workers; rank++)
        p->rates[rank] = gw_ps_get_double(r);
    if (!set)
        return GW_OK;
    p->values = gw_ps_blob_copy(into->store->context, into->total, body, n_body);
    if (!p->values)
        return GW_ERR_MEMORY;
    key->bytes += n_body;
    into->store->bytes += n_body;
    return GW_OK;
}

static void read_moment(struct gw_ps_key *key, struct gw_ps_reader *r, const void *body, size_t n_body)
{
    const uint8_t m = gw_ps_get8(r);
    struct gw_ps_parameters *p = key->parameters;
    r->good = r->good && p && m < gw_optimizer_moments(&p->optimizer) && n_body == key->n_elems * sizeof(float);
    if (r->good)
        memcpy(p->moments[m]->bytes, body, n_body);
}

gw_status gw_ps_snapshot_apply(const struct gw_ps_snapshot_reader *into, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body)
{
    struct gw_ps_store *store = into->store;
    struct gw_ps_reader r = {head, (const uint8_t *)head + n_head, true};
    struct gw_ps_key *key = store->names.n ? store->keys[store->names.n - 1] : NULL;
    r.good = key || type == GW_PS_SNAPSHOT_STORE || type == GW_PS_SNAPSHOT_WORKER;
    switch (r.good ? type : 0) {
    case GW_PS_SNAPSHOT_STORE:
        read_store(store, &r);
        break;
    case GW_PS_SNAPSHOT_WORKER:
        read_worker(store, &r);
        break;
    case GW_PS_SNAPSHOT_KEY:
        read_key(key, &r);
        r.good = r.good && key->latest < store->options.n_workers;
        break;
    case GW_PS_SNAPSHOT_KEY_RANKS:
        read_key_ranks(store, key, &r);
        break;
    case GW_PS_SNAPSHOT_PUSH:
        GW_TRY(read_push(into, key, &r, body, n_body));
        break;
    case GW_PS_SNAPSHOT_PARAMETERS:
        GW_TRY(read_parameters(into, key, &r, body, n_body));
        break;
    case GW_PS_SNAPSHOT_MOMENT:
        read_moment(key, &r, body, n_body);
        break;
    default:
        r.good = false;
    }
    return r.good && r.at == r.end ? GW_OK
                                   : gw_fail(GW_ERR_FRAME_FIELD, "a record of type %u cannot be, or not there", type);
}
