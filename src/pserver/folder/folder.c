/* Writes what has changed in a store as rows, and makes a store of the rows again.
 *
 * The number of a row is the key's number (0: the server itself), then a place, then 10 bits for the pieces of a long
 * value. Place 1 of a key is its head: all that is not a value, and for each value its length and its XXH3. A head ends
 * with its own XXH3. Both checksums have the row's number as their seed, and the head says which round a value is of.
 * So an altered value is noticed, and so is one of another key, rank or round. Each of a key's three rounds has places
 * of its own, so that no value is written again when a round becomes whole. What is in places that the head does not
 * name is left from earlier rounds. */
#include "pserver/folder/folder.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"
#include "pserver/folder/rows.h"
#include "pserver/protocol/fields.h"
#include "pserver/store/parameters.h"
#include "pserver/store/state.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_SECONDS 1.0

/* Places of the server, and of a key. */
enum { ABOUT = 1, STORE = 2, OWN = 3 };
enum { HEAD = 1, PUT = 2, VALUES = 3, MOMENTS = 4, PUSHES = 8 };

enum {
    N_ROUNDS = 3,
    HEAD_BYTES = 2048,    /* the most of a head, without its ranks */
    HEAD_RANK_BYTES = 128 /* the most of a rank: its counts, its rate, and a push in each round */
};

struct gw_ps_folder {
    gw_context *context;
    struct gw_ps_store *store;
    struct gw_ps_folder_options options;
    struct gw_ps_rows *rows;
    uint8_t *head; /* room for the longest row that is no value */
    size_t most_head;
    uint64_t commit; /* the number of the next one */
    bool was_there, own_changed;
    double next_try; /* after a failed commit */
    char reason[512];
    uint64_t n_commits, n_failed;
};

static uint64_t row_of(uint32_t key, uint32_t place)
{
    return (uint64_t)key << 32 | (uint64_t)place * GW_PS_ROW_STEP;
}

static struct gw_ps_round *round_of(struct gw_ps_key *key, uint32_t which)
{
    return which == 0 ? &key->before : which == 1 ? &key->whole : &key->open;
}

static uint64_t push_row(const struct gw_ps_store *store, const struct gw_ps_key *key, const struct gw_ps_round *round,
                         uint32_t rank)
{
    return row_of(key->row, PUSHES + round->place * store->options.n_workers + rank);
}

/* ---- written --------------------------------------------------------------------------------------------------- */

/* Writes a row that is no value. w: where it ends. */
static gw_status put_head(struct gw_ps_folder *folder, uint64_t id, struct gw_ps_writer *w)
{
    gw_ps_put64(w, gw_hash_now()->whole(folder->head, (size_t)(w->at - folder->head), id));
    return gw_ps_rows_put(folder->rows, id, folder->head, (size_t)(w->at - folder->head));
}

/* Writes a value, unless it is there, and tells the head of it. */
static gw_status put_value(struct gw_ps_folder *folder, uint64_t id, struct gw_ps_blob *blob, struct gw_ps_writer *w)
{
    if (blob->committed_by == 0 || blob->committed_by == folder->commit) { /* the latter: that commit has failed */
        blob->sum = gw_hash_now()->whole(blob->bytes, blob->n_bytes, id);
        GW_TRY(gw_ps_rows_put(folder->rows, id, blob->bytes, blob->n_bytes));
        blob->committed_by = folder->commit;
    }
    gw_ps_put64(w, blob->n_bytes);
    gw_ps_put64(w, blob->sum);
    return GW_OK;
}

static gw_status put_rounds(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_ps_writer *w)
{
    const struct gw_ps_store *store = folder->store;
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        const struct gw_ps_round *round = round_of(key, i);
        gw_ps_put64(w, round->number);
        gw_ps_put8(w, (uint8_t)round->place);
        gw_ps_put32(w, round->n_in);
        for (uint32_t r = 0; round->n_in && r < store->options.n_workers; r++) {
            if (!round->pushes[r])
                continue;
            gw_ps_put32(w, r);
            gw_ps_put64(w, round->refusals[r]);
            GW_TRY(put_value(folder, push_row(store, key, round, r), round->pushes[r], w));
        }
    }
    return GW_OK;
}

static gw_status put_parameters(struct gw_ps_folder *folder, const struct gw_ps_key *key, struct gw_ps_writer *w)
{
    const struct gw_ps_parameters *p = key->parameters;
    if (!p)
        return GW_OK;
    gw_ps_put64(w, p->unusable);
    for (uint32_t r = 0; r < folder->store->options.n_workers; r++)
        gw_ps_put_double(w, p->rates[r]);
    gw_ps_put8(w, p->values != NULL);
    if (!p->values) /* then the moments are zeros */
        return GW_OK;
    GW_TRY(put_value(folder, row_of(key->row, VALUES), p->values, w));
    for (uint32_t m = 0; m < gw_optimizer_moments(&p->optimizer); m++)
        GW_TRY(put_value(folder, row_of(key->row, MOMENTS + m), p->moments[m], w));
    return GW_OK;
}

static gw_status put_key(struct gw_ps_folder *folder, struct gw_ps_key *key)
{
    struct gw_ps_writer w = {folder->head};
    gw_ps_put_name(&w, key->name);
    gw_ps_put8(&w, (uint8_t)key->type);
    gw_ps_put_shape(&w, &key->shape);
    gw_ps_put32(&w, key->n_parts);
    gw_ps_put_name(&w, key->codec ? gw_codec_traits_of(key->codec).canonical : "");
    gw_ps_put_name(&w, key->parameters ? key->parameters->text : "");
    gw_ps_put32(&w, key->latest);
    gw_ps_put64(&w, key->foremost);
    for (uint32_t r = 0; r < folder->store->options.n_workers; r++) {
        gw_ps_put64(&w, key->pushed[r]);
        gw_ps_put64(&w, key->taken[r]);
    }
    GW_TRY(put_rounds(folder, key, &w));
    gw_ps_put8(&w, key->put.value != NULL);
    if (key->put.value) {
        gw_ps_put64(&w, key->put.version);
        GW_TRY(put_value(folder, row_of(key->row, PUT), key->put.value, &w));
    }
    GW_TRY(put_parameters(folder, key, &w));
    return put_head(folder, row_of(key->row, HEAD), &w);
}

/* Removes the rows of keys that were dropped: the numbers between those of keys that are there. */
static gw_status drop_gaps(struct gw_ps_folder *folder)
{
    const struct gw_ps_store *store = folder->store;
    uint64_t next = 1;
    for (uint64_t k = 0; k <= store->names.n; k++) {
        const uint64_t row = k < store->names.n ? store->keys[k]->row : (uint64_t)store->last_row + 1;
        if (row > next)
            GW_TRY(gw_ps_rows_drop(folder->rows, next << 32, row << 32));
        next = row + 1;
    }
    return GW_OK;
}

static gw_status put_store(struct gw_ps_folder *folder)
{
    const struct gw_ps_store *store = folder->store;
    struct gw_ps_writer w = {folder->head};
    gw_ps_put64(&w, folder->commit);
    gw_ps_put64(&w, store->names.n);
    gw_ps_put32(&w, store->last_row);
    gw_ps_put64(&w, store->rounds);
    gw_ps_put64(&w, store->foremost);
    gw_ps_put8(&w, store->begun);
    for (uint32_t r = 0; r < store->options.n_workers; r++) {
        gw_ps_put64(&w, store->pushes[r]);
        gw_ps_put64(&w, store->skipped[r]);
        gw_ps_put8(&w, store->present[r]);
    }
    return put_head(folder, row_of(0, STORE), &w);
}

static gw_status put_all(struct gw_ps_folder *folder)
{
    struct gw_ps_store *store = folder->store;
    const bool few = store->n_changes <= GW_PS_MOST_CHANGES;
    struct gw_ps_writer w = {folder->head};
    GW_TRY(gw_ps_rows_begin(folder->rows));
    GW_TRY(put_store(folder));
    if (folder->commit == 1) {
        memcpy(w.at, folder->options.about, strlen(folder->options.about));
        w.at += strlen(folder->options.about);
        GW_TRY(put_head(folder, row_of(0, ABOUT), &w));
        w.at = folder->head;
    }
    if (folder->own_changed) {
        w.at += folder->options.own_write(folder->options.user, folder->head);
        GW_TRY(put_head(folder, row_of(0, OWN), &w));
    }
    if (store->dropped)
        GW_TRY(drop_gaps(folder));
    for (uint64_t k = 0; k < (few ? store->n_changes : store->names.n); k++) {
        struct gw_ps_key *key = (few ? store->changes : store->keys)[k];
        if (key->changed)
            GW_TRY(put_key(folder, key));
    }
    return gw_ps_rows_end(folder->rows, folder->commit);
}

void gw_ps_folder_commit(struct gw_ps_folder *folder)
{
    char line[1024];
    const bool was_durable = !folder->reason[0];
    const double now = was_durable ? 0 : gw_clock_seconds();
    if (!gw_ps_folder_is_due(folder) || (!was_durable && now < folder->next_try))
        return;
    gw_status status = put_all(folder);
    for (int again = 0; status < 0 && again < 2; again++) {
        snprintf(folder->reason, sizeof folder->reason, "%s", gw_last_error());
        if (gw_ps_rows_undo(folder->rows) && again == 0)
            status = put_all(folder);
    }
    if (status == GW_OK) {
        folder->commit++;
        folder->n_commits++;
        folder->reason[0] = 0;
        folder->own_changed = false;
        gw_ps_store_unchange(folder->store);
        if (!was_durable)
            folder->options.log(folder->options.user, "durable");
        return;
    }
    folder->n_failed++;
    folder->next_try = gw_clock_seconds() + RETRY_SECONDS;
    snprintf(line, sizeof line, "not-durable reason=\"%.900s\"", gw_quote(folder->reason).text);
    if (was_durable)
        folder->options.log(folder->options.user, line);
}

/* ---- read ------------------------------------------------------------------------------------------------------ */

static gw_status altered(const struct gw_ps_folder *folder, const char *what)
{
    return gw_fail(GW_ERR_FRAME_CHECKSUM,
                   "what is kept in %s was altered: %s. Bring back a good copy of the folder, or start with another "
                   "one. Nothing was changed",
                   folder->options.folder, what);
}

static gw_status altered_key(const struct gw_ps_folder *folder, const char *key, const char *what)
{
    char text[4 * GW_PS_MOST_NAME];
    snprintf(text, sizeof text, "%s of the key \"%.800s\"", what, gw_quote(key).text);
    return altered(folder, text);
}

/* Reads a row that is no value, and checks it. */
static gw_status get_head(struct gw_ps_folder *folder, uint64_t id, size_t n_bytes, struct gw_ps_reader *r)
{
    char what[64];
    snprintf(what, sizeof what, "row %" PRIu64, id);
    if (n_bytes < 8 || n_bytes > folder->most_head)
        return altered(folder, what);
    GW_TRY(gw_ps_rows_get(folder->rows, id, folder->head, n_bytes));
    *r = (struct gw_ps_reader){folder->head, folder->head + n_bytes - 8, true};
    return gw_hash_now()->whole(folder->head, n_bytes - 8, id) == gw_get64(r->end) ? GW_OK : altered(folder, what);
}

/* Finds a row of the server itself. */
static gw_status get_own(struct gw_ps_folder *folder, uint32_t place, struct gw_ps_reader *r)
{
    uint64_t id = row_of(0, place);
    size_t n_bytes;
    gw_status status = gw_ps_rows_find(folder->rows, &id, &n_bytes);
    if (status < 0)
        return status;
    if (status == GW_NOT_YET || id != row_of(0, place))
        return altered(folder, "a row of the server is missing");
    return get_head(folder, id, n_bytes, r);
}

/* Reads the value that the head tells of. */
static gw_status get_value(struct gw_ps_folder *folder, const char *key, uint64_t id, uint64_t n_bytes,
                           struct gw_ps_reader *r, struct gw_ps_blob **out)
{
    const uint64_t length = gw_ps_get64(r), sum = gw_ps_get64(r);
    if (!r->good || (n_bytes != UINT64_MAX && length != n_bytes) || length > SIZE_MAX / 2)
        return altered_key(folder, key, "the head");
    void *bytes = length ? gw_alloc(folder->context, (size_t)length, 1) : NULL;
    struct gw_ps_blob *blob =
        bytes || !length ? gw_ps_blob_new(folder->context, folder->store->options.total, bytes, (size_t)length) : NULL;
    if (!blob)
        return GW_ERR_MEMORY;
    gw_status status = gw_ps_rows_get(folder->rows, id, bytes, (size_t)length);
    if (status == GW_OK && gw_hash_now()->whole(bytes, (size_t)length, id) != sum)
        status = altered_key(folder, key, "a value");
    else if (status < 0)
        status = gw_fail(status, "a value of the key \"%s\": %s", gw_quote(key).text, gw_last_error());
    if (status < 0) {
        gw_ps_blob_give(blob);
        return status;
    }
    blob->sum = sum;
    blob->committed_by = folder->commit - 1;
    *out = blob;
    return GW_OK;
}

static gw_status get_push(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_ps_round *round,
                          struct gw_ps_reader *r)
{
    const uint32_t rank = gw_ps_get32(r);
    const uint64_t refusal = gw_ps_get64(r);
    const bool has_value = refusal == GW_PS_NOT_REFUSED || refusal == GW_PS_PENDING;
    if (!r->good || rank >= folder->store->options.n_workers || !round->pushes || round->pushes[rank] ||
        (refusal == GW_PS_PENDING && (!key->parameters || round != &key->open)))
        return altered_key(folder, key->name, "the head");
    GW_TRY(get_value(folder, key->name, push_row(folder->store, key, round, rank), has_value ? UINT64_MAX : 0, r,
                     &round->pushes[rank]));
    round->refusals[rank] = refusal;
    round->n_in++;
    gw_ps_key_count(folder->store, key, round->pushes[rank]->n_bytes, 0);
    return has_value ? gw_ps_key_check_value(key, rank, round->pushes[rank]) : GW_OK;
}

static gw_status get_rounds(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_ps_reader *r)
{
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        struct gw_ps_round *round = round_of(key, i);
        round->number = gw_ps_get64(r);
        round->place = gw_ps_get8(r);
        const uint32_t n = gw_ps_get32(r);
        if (!r->good || round->place >= N_ROUNDS || n > folder->store->options.n_workers)
            return altered_key(folder, key->name, "the head");
        while (round->n_in < n)
            GW_TRY(get_push(folder, key, round, r));
    }
    return GW_OK;
}

static gw_status get_parameters(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_ps_reader *r)
{
    struct gw_ps_parameters *p = key->parameters;
    const uint64_t n_bytes = key->n_elems * sizeof(float);
    if (!p)
        return GW_OK;
    p->unusable = gw_ps_get64(r);
    for (uint32_t rank = 0; rank < folder->store->options.n_workers; rank++)
        p->rates[rank] = gw_ps_get_double(r);
    if (!gw_ps_get8(r))
        return GW_OK;
    GW_TRY(get_value(folder, key->name, row_of(key->row, VALUES), n_bytes, r, &p->values));
    gw_ps_key_count(folder->store, key, n_bytes, 0);
    for (uint32_t m = 0; m < gw_optimizer_moments(&p->optimizer); m++) {
        gw_ps_blob_give(p->moments[m]);
        p->moments[m] = NULL;
        GW_TRY(get_value(folder, key->name, row_of(key->row, MOMENTS + m), n_bytes, r, &p->moments[m]));
    }
    return GW_OK;
}

static gw_status get_key(struct gw_ps_folder *folder, uint32_t row, struct gw_ps_reader *r)
{
    struct gw_ps_store *store = folder->store;
    char name[GW_PS_MOST_NAME + 1], codec[GW_PS_MOST_NAME + 1], optimizer[GW_PS_MOST_NAME + 1];
    gw_ps_shape shape;
    struct gw_ps_key *key;
    gw_ps_get_name(r, name);
    const gw_ps_type type = (gw_ps_type)gw_ps_get8(r);
    gw_ps_get_shape(r, &shape);
    const uint32_t n_parts = gw_ps_get32(r);
    gw_ps_get_name(r, codec);
    gw_ps_get_name(r, optimizer);
    if (!r->good || gw_ps_names_find(&store->names, name) != GW_PS_NO_NAME)
        return altered_key(folder, name, "the head");
    GW_TRY(gw_ps_store_init(store, name, type, &shape, n_parts, codec, optimizer));
    GW_TRY(gw_ps_store_find(store, name, &key));
    key->row = row;
    key->latest = gw_ps_get32(r);
    key->foremost = gw_ps_get64(r);
    for (uint32_t rank = 0; rank < store->options.n_workers; rank++) {
        key->pushed[rank] = gw_ps_get64(r);
        key->taken[rank] = gw_ps_get64(r);
    }
    if (!r->good || key->latest >= store->options.n_workers)
        return altered_key(folder, name, "the head");
    GW_TRY(get_rounds(folder, key, r));
    if (gw_ps_get8(r)) {
        key->put.version = gw_ps_get64(r);
        GW_TRY(get_value(folder, name, row_of(row, PUT), key->n_elems * gw_ps_type_bytes(type), r, &key->put.value));
        gw_ps_key_count(store, key, key->put.value->n_bytes, 0);
    }
    GW_TRY(get_parameters(folder, key, r));
    return r->good && r->at == r->end ? GW_OK : altered_key(folder, name, "the head");
}

/* Reads all keys. A head that is missing is noticed by their count. */
static gw_status get_keys(struct gw_ps_folder *folder, uint64_t n_keys)
{
    struct gw_ps_store *store = folder->store;
    struct gw_ps_reader r;
    size_t n_bytes;
    gw_status status;
    for (uint64_t id = row_of(1, HEAD); (status = gw_ps_rows_find(folder->rows, &id, &n_bytes)) == GW_OK;) {
        const uint32_t row = (uint32_t)(id >> 32);
        if (id != row_of(row, HEAD))
            return altered(folder, "the head of a key is missing");
        GW_TRY(get_head(folder, id, n_bytes, &r));
        GW_TRY(get_key(folder, row, &r));
        id = row_of(row + 1, HEAD);
    }
    if (status < 0)
        return status;
    return store->names.n == n_keys ? GW_OK : altered(folder, "the heads of keys are missing");
}

static gw_status get_store(struct gw_ps_folder *folder)
{
    struct gw_ps_store *store = folder->store;
    struct gw_ps_reader r;
    GW_TRY(get_own(folder, STORE, &r));
    folder->commit = gw_ps_get64(&r) + 1;
    const uint64_t n_keys = gw_ps_get64(&r);
    const uint32_t last_row = gw_ps_get32(&r);
    const uint64_t rounds = gw_ps_get64(&r), foremost = gw_ps_get64(&r);
    const bool begun = gw_ps_get8(&r);
    for (uint32_t rank = 0; rank < store->options.n_workers; rank++) {
        store->pushes[rank] = gw_ps_get64(&r);
        store->skipped[rank] = gw_ps_get64(&r);
        store->n_present -= store->present[rank];
        store->present[rank] = gw_ps_get8(&r);
        store->n_present += store->present[rank];
    }
    if (!r.good || r.at != r.end)
        return altered(folder, "the row of the store");
    GW_TRY(get_keys(folder, n_keys));
    store->last_row = last_row;
    store->rounds = rounds;
    store->foremost = foremost;
    store->begun = begun;
    for (uint64_t k = 0; k < store->names.n; k++)
        gw_ps_key_count_due(store, store->keys[k]);
    return GW_OK;
}

static gw_status check_about(struct gw_ps_folder *folder)
{
    struct gw_ps_reader r;
    GW_TRY(get_own(folder, ABOUT, &r));
    const size_t n = (size_t)(r.end - r.at);
    return n == strlen(folder->options.about) && memcmp(r.at, folder->options.about, n) == 0
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT,
                         "the folder of snapshots is of a server with %.*s, and this one has %s; it must be the same, "
                         "or another folder",
                         (int)n, (const char *)r.at, folder->options.about);
}

static gw_status get_all(struct gw_ps_folder *folder)
{
    struct gw_ps_reader r;
    GW_TRY(check_about(folder));
    GW_TRY(get_store(folder));
    GW_TRY(gw_ps_rows_accept(folder->rows, folder->commit - 1));
    GW_TRY(get_own(folder, OWN, &r));
    return folder->options.own_read(folder->options.user, r.at, (size_t)(r.end - r.at));
}

/* ---- beginning and end ----------------------------------------------------------------------------------------- */

/* Writes the first commit into a new folder. */
static gw_status begin_folder(struct gw_ps_folder *folder)
{
    GW_TRY(gw_ps_rows_accept(folder->rows, 0));
    folder->commit = 1;
    folder->own_changed = true;
    gw_ps_folder_commit(folder);
    return folder->reason[0] ? gw_fail(GW_ERR_SYSTEM, "%s", folder->reason) : GW_OK;
}

static gw_status open_rows(struct gw_ps_folder *folder)
{
    const double begin = gw_clock_seconds();
    char line[512];
    uint64_t id = 0;
    size_t n_bytes;
    GW_TRY(gw_ps_rows_open(folder->context, folder->options.folder, &folder->rows));
    gw_status status = gw_ps_rows_find(folder->rows, &id, &n_bytes);
    if (status < 0)
        return status;
    folder->was_there = status == GW_OK;
    snprintf(line, sizeof line, "%s folder=\"%.300s\"", folder->was_there ? "restoring" : "keeping",
             gw_quote(folder->options.folder).text);
    folder->options.log(folder->options.user, line);
    if (!folder->was_there)
        return begin_folder(folder);
    const uint64_t max_bytes = folder->store->options.max_bytes;
    /* a value that was taken before is taken again, even if the limit is lower now */
    folder->store->options.max_bytes = UINT64_MAX;
    status = get_all(folder);
    folder->store->options.max_bytes = max_bytes;
    gw_ps_store_unchange(folder->store);
    GW_TRY(status);
    snprintf(line, sizeof line, "restored folder=\"%.300s\" keys=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f",
             gw_quote(folder->options.folder).text, folder->store->names.n, folder->store->bytes,
             gw_clock_seconds() - begin);
    folder->options.log(folder->options.user, line);
    return GW_OK;
}

gw_status gw_ps_folder_open(gw_context *context, struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out)
{
    struct gw_ps_folder *folder = gw_calloc(context, 1, sizeof *folder);
    if (!folder)
        return GW_ERR_MEMORY;
    folder->context = context;
    folder->store = store;
    folder->options = *options;
    folder->most_head = HEAD_BYTES + HEAD_RANK_BYTES * (size_t)store->options.n_workers + options->most_own;
    folder->head = gw_alloc(context, folder->most_head, 1);
    gw_status status = folder->head ? open_rows(folder) : GW_ERR_MEMORY;
    if (status < 0)
        gw_ps_folder_close(folder);
    else
        *out = folder;
    return status;
}

void gw_ps_folder_close(struct gw_ps_folder *folder)
{
    if (!folder)
        return;
    gw_ps_rows_close(folder->rows);
    gw_free(folder->context, folder->head);
    gw_free(folder->context, folder);
}

bool gw_ps_folder_was_there(const struct gw_ps_folder *folder)
{
    return folder && folder->was_there;
}

void gw_ps_folder_note(struct gw_ps_folder *folder)
{
    if (folder)
        folder->own_changed = true;
}

bool gw_ps_folder_is_due(const struct gw_ps_folder *folder)
{
    return folder && (folder->own_changed || gw_ps_store_has_changed(folder->store));
}

struct gw_ps_folder_info gw_ps_folder_info(const struct gw_ps_folder *folder)
{
    return (struct gw_ps_folder_info){.durable = !folder->reason[0],
                                      .reason = folder->reason,
                                      .commits = folder->n_commits,
                                      .failed = folder->n_failed,
                                      .bytes = gw_ps_rows_bytes(folder->rows)};
}
