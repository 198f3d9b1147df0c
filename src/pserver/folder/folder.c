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
#include "pserver/store/parameters.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_SECONDS 1.0
#define PATIENCE_MS 100 /* for another program that writes to the database; all clients wait as long */

/* Places of the server, and of a key. */
enum { ABOUT = 1, STORE = 2, OWN = 3 };
enum { HEAD = 1, PUT = 2, VALUES = 3, MOMENTS = 4, PUSHES = 8 };

enum {
    N_ROUNDS = 3,
    HEAD_BYTES = 2048,    /* the most of a head, without its ranks */
    HEAD_RANK_BYTES = 128 /* the most of a rank: its counts, its rate, and a push in each round */
};

struct gw_ps_folder {
    struct gw_ps_store *store;
    struct gw_ps_folder_options options;
    struct gw_ps_rows *rows;
    uint8_t *head; /* room for the longest row that is no value */
    size_t most_head;
    uint64_t commit; /* the number of the next one */
    bool own_changed;
    double next_try; /* after a failed commit */
    struct gw_ps_folder_info info;
};

static uint64_t row_of(uint32_t key, uint32_t place)
{
    return (uint64_t)key << 32 | (uint64_t)place * GW_PS_ROW_STEP;
}

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
    snprintf(text, sizeof text, "%s of the key \"%.800s\"", what, key);
    return altered(folder, text);
}

/* ---- written and read: one list of what rows hold ------------------------------------------------------------- */

/* Writes a value, unless it is there. */
static gw_status put_value(struct gw_ps_folder *folder, uint64_t id, struct gw_ps_blob *blob)
{
    if (blob->committed_by && blob->committed_by != folder->commit) /* if they are equal, that commit has failed */
        return GW_OK;
    blob->sum = gw_hash_now()->whole(blob->bytes, blob->n_bytes, id);
    GW_TRY(gw_ps_rows_put(folder->rows, id, blob->bytes, blob->n_bytes));
    blob->committed_by = folder->commit;
    return GW_OK;
}

static gw_status get_value(struct gw_ps_folder *folder, const char *key, uint64_t id, struct gw_ps_blob *blob)
{
    const gw_status status = gw_ps_rows_get(folder->rows, id, blob->bytes, blob->n_bytes);
    if (status < 0)
        return gw_fail(status, "a value of the key \"%s\": %s", key, gw_last_error());
    return gw_hash_now()->whole(blob->bytes, blob->n_bytes, id) == blob->sum ? GW_OK
                                                                             : altered_key(folder, key, "a value");
}

/* A value of a key, of which the head tells. What is read must have n_bytes bytes, or any number (UINT64_MAX), and
 * takes the place of what is there. */
static gw_status value_fields(struct gw_ps_folder *folder, struct gw_ps_key *key, uint32_t place, uint64_t n_bytes,
                              struct gw_fields *f, struct gw_ps_blob **blob)
{
    const uint64_t id = row_of(key->row, place);
    uint64_t length = 0, sum = 0;
    if (f->writes) {
        GW_TRY(put_value(folder, id, *blob));
        length = (*blob)->n_bytes;
        sum = (*blob)->sum;
    }
    gw_field_u64(f, &length), gw_field_u64(f, &sum);
    if (f->writes)
        return GW_OK;
    if (!f->good || (n_bytes != UINT64_MAX && length != n_bytes) || length > SIZE_MAX / 2)
        return altered_key(folder, key->name, "the head");
    struct gw_ps_store *store = folder->store;
    gw_ps_value_drop(store, key, blob);
    *blob = gw_ps_blob_new(store->context, store->total, gw_alloc(store->context, (size_t)length, 1), (size_t)length);
    if (!*blob)
        return GW_ERR_MEMORY;
    gw_ps_key_count(store, key, length, 0);
    (*blob)->sum = sum;
    (*blob)->committed_by = folder->commit - 1;
    return get_value(folder, key->name, id, *blob);
}

static gw_status round_fields(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_ps_round *round,
                              struct gw_fields *f)
{
    const uint32_t n_workers = folder->store->options.n_workers;
    uint8_t place = (uint8_t)round->place;
    gw_field_u64(f, &round->number), gw_field_u8(f, &place), gw_field_u32(f, &round->n_in);
    round->place = place;
    if (!f->good || place >= N_ROUNDS || round->n_in > n_workers || (round->n_in && !round->pushes))
        return altered_key(folder, key->name, "the head");
    for (uint32_t n = 0, rank = 0; n < round->n_in; n++, rank++) {
        while (f->writes && !round->pushes[rank])
            rank++;
        gw_field_u32(f, &rank);
        if (!f->good || rank >= n_workers || (!f->writes && round->pushes[rank]))
            return altered_key(folder, key->name, "the head");
        uint64_t *refusal = &round->refusals[rank];
        gw_field_u64(f, refusal);
        const bool has_value = *refusal == GW_PS_NOT_REFUSED || *refusal == GW_PS_PENDING;
        if (*refusal == GW_PS_PENDING && (!key->parameters || round != &key->open))
            return altered_key(folder, key->name, "the head");
        GW_TRY(value_fields(folder, key, PUSHES + round->place * n_workers + rank, has_value ? UINT64_MAX : 0, f,
                            &round->pushes[rank]));
        if (!f->writes && has_value)
            GW_TRY(gw_ps_key_check_value(key, rank, round->pushes[rank]));
    }
    return GW_OK;
}

static gw_status parameters_fields(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_fields *f)
{
    struct gw_ps_parameters *p = key->parameters;
    const uint64_t n_bytes = key->n_elems * sizeof(float);
    if (!p)
        return GW_OK;
    gw_field_u64(f, &p->unusable);
    for (uint32_t r = 0; r < folder->store->options.n_workers; r++)
        gw_field_double(f, &p->rates[r]);
    bool has_values = p->values;
    gw_field_flag(f, &has_values);
    if (!has_values) /* then the moments are zeros */
        return GW_OK;
    GW_TRY(value_fields(folder, key, VALUES, n_bytes, f, &p->values));
    for (uint32_t m = 0; m < gw_optimizer_moments(&p->optimizer); m++)
        GW_TRY(value_fields(folder, key, MOMENTS + m, n_bytes, f, &p->moments[m]));
    return GW_OK;
}

/* The head of a key behind what gw_ps_store_init is told. */
static gw_status key_fields(struct gw_ps_folder *folder, struct gw_ps_key *key, struct gw_fields *f)
{
    const uint32_t n_workers = folder->store->options.n_workers;
    gw_field_u32(f, &key->latest), gw_field_u64(f, &key->foremost), gw_field_u64(f, &key->began_after);
    for (uint32_t r = 0; r < n_workers; r++)
        gw_field_u64(f, &key->pushed[r]), gw_field_u64(f, &key->taken[r]);
    if (!f->good || key->latest >= n_workers)
        return altered_key(folder, key->name, "the head");
    GW_TRY(round_fields(folder, key, &key->before, f));
    GW_TRY(round_fields(folder, key, &key->whole, f));
    GW_TRY(round_fields(folder, key, &key->open, f));
    bool has_put = key->put;
    gw_field_flag(f, &has_put);
    if (has_put) {
        gw_field_u64(f, &key->put_version);
        GW_TRY(value_fields(folder, key, PUT, key->n_elems * gw_ps_type_bytes(key->type), f, &key->put));
    }
    return parameters_fields(folder, key, f);
}

static void store_fields(struct gw_ps_folder *folder, struct gw_fields *f, uint64_t *n_keys)
{
    struct gw_ps_store *store = folder->store;
    gw_field_u64(f, &folder->commit), gw_field_u64(f, n_keys), gw_field_u32(f, &store->last_row);
    gw_field_u64(f, &store->info.rounds), gw_field_u64(f, &store->foremost), gw_field_flag(f, &store->info.has_begun);
    for (uint32_t r = 0; r < store->options.n_workers; r++) {
        gw_field_u64(f, &store->pushes[r]), gw_field_u64(f, &store->skipped[r]);
        gw_field_flag(f, &store->present[r]);
    }
}

/* ---- written --------------------------------------------------------------------------------------------------- */

/* Writes a row that is no value. */
static gw_status put_head(struct gw_ps_folder *folder, uint64_t id, struct gw_fields *f)
{
    uint64_t sum = gw_hash_now()->whole(folder->head, (size_t)(f->at - folder->head), id);
    gw_field_u64(f, &sum);
    return gw_ps_rows_put(folder->rows, id, folder->head, (size_t)(f->at - folder->head));
}

static gw_status put_key(struct gw_ps_folder *folder, struct gw_ps_key *key)
{
    struct gw_fields f = gw_fields_to(folder->head);
    const char *codec = key->codec ? gw_codec_traits_of(key->codec).canonical : "",
               *optimizer = key->parameters ? key->parameters->text : "";
    uint8_t type = (uint8_t)key->type;
    /* writing changes none of these */
    gw_field_name(&f, (char *)(uintptr_t)key->name), gw_field_u8(&f, &type), gw_field_shape(&f, &key->shape);
    gw_field_u32(&f, &key->n_parts);
    gw_field_name(&f, (char *)(uintptr_t)codec), gw_field_name(&f, (char *)(uintptr_t)optimizer);
    GW_TRY(key_fields(folder, key, &f));
    return put_head(folder, row_of(key->row, HEAD), &f);
}

/* Removes the rows of keys that were dropped: the numbers between those of keys that are there. */
static gw_status drop_gaps(struct gw_ps_folder *folder)
{
    const struct gw_ps_store *store = folder->store;
    uint64_t next = 1;
    for (uint64_t k = 0; k <= store->names.n; k++) {
        const uint64_t row = k < store->names.n ? gw_ps_store_key(store, k)->row : (uint64_t)store->last_row + 1;
        if (row > next)
            GW_TRY(gw_ps_rows_drop(folder->rows, next << 32, row << 32));
        next = row + 1;
    }
    return GW_OK;
}

static gw_status put_all(struct gw_ps_folder *folder, int patience_ms)
{
    struct gw_ps_store *store = folder->store;
    uint64_t n_keys = store->names.n;
    struct gw_fields f = gw_fields_to(folder->head);
    GW_TRY(gw_ps_rows_begin(folder->rows, patience_ms));
    store_fields(folder, &f, &n_keys);
    GW_TRY(put_head(folder, row_of(0, STORE), &f));
    if (folder->commit == 1) {
        f = gw_fields_to(folder->head);
        gw_field_bytes(&f, (char *)(uintptr_t)folder->options.about, strlen(folder->options.about));
        GW_TRY(put_head(folder, row_of(0, ABOUT), &f));
    }
    if (folder->own_changed) {
        f = gw_fields_to(folder->head);
        GW_TRY(folder->options.own(folder->options.user, &f));
        GW_TRY(put_head(folder, row_of(0, OWN), &f));
    }
    if (store->dropped)
        GW_TRY(drop_gaps(folder));
    for (struct gw_ps_key *key = LIST_FIRST(&store->changed_keys); key; key = LIST_NEXT(key, changed))
        GW_TRY(put_key(folder, key));
    return gw_ps_rows_end(folder->rows, folder->commit);
}

void gw_ps_folder_commit(struct gw_ps_folder *folder)
{
    char line[1024];
    if (!gw_ps_folder_is_due(folder))
        return;
    const bool was_durable = !folder->info.reason[0];
    if (!was_durable && gw_clock_seconds() < folder->next_try)
        return;
    gw_status status = put_all(folder, was_durable ? PATIENCE_MS : 0);
    for (int again = 0; status < 0 && again < 2; again++) {
        snprintf(folder->info.reason, sizeof folder->info.reason, "%s", gw_last_error());
        if (gw_ps_rows_undo(folder->rows) && again == 0)
            status = put_all(folder, 0);
    }
    if (status == GW_OK) {
        folder->commit++;
        folder->info.commits++;
        folder->info.reason[0] = 0;
        folder->own_changed = false;
        gw_ps_store_unchange(folder->store);
        if (!was_durable)
            folder->options.log(folder->options.user, "durable");
        return;
    }
    folder->info.failed++;
    folder->next_try = gw_clock_seconds() + RETRY_SECONDS;
    snprintf(line, sizeof line, "not-durable reason=\"%.900s\"", gw_quote(folder->info.reason).text);
    if (was_durable)
        folder->options.log(folder->options.user, line);
}

/* ---- read ------------------------------------------------------------------------------------------------------ */

/* Reads a row that is no value, and checks it. */
static gw_status get_head(struct gw_ps_folder *folder, uint64_t id, size_t n_bytes, struct gw_fields *f)
{
    char what[64];
    snprintf(what, sizeof what, "row %" PRIu64, id);
    if (n_bytes < 8 || n_bytes > folder->most_head)
        return altered(folder, what);
    GW_TRY(gw_ps_rows_get(folder->rows, id, folder->head, n_bytes));
    *f = gw_fields_from(folder->head, n_bytes - 8);
    return gw_hash_now()->whole(folder->head, n_bytes - 8, id) == gw_get64(f->end) ? GW_OK : altered(folder, what);
}

/* Finds a row of the server itself. */
static gw_status get_own(struct gw_ps_folder *folder, uint32_t place, struct gw_fields *f)
{
    uint64_t id = row_of(0, place);
    size_t n_bytes;
    const gw_status status = gw_ps_rows_find(folder->rows, &id, &n_bytes);
    GW_TRY(status);
    if (status == GW_NOT_YET || id != row_of(0, place))
        return altered(folder, "a row of the server is missing");
    return get_head(folder, id, n_bytes, f);
}

static gw_status get_key(struct gw_ps_folder *folder, uint32_t row, struct gw_fields *f)
{
    struct gw_ps_store *store = folder->store;
    char name[GW_PS_MOST_NAME + 1], codec[GW_PS_MOST_NAME + 1], optimizer[GW_PS_MOST_NAME + 1];
    uint8_t type = 0;
    gw_ps_shape shape = {0};
    uint32_t n_parts = 0;
    struct gw_ps_key *key;
    gw_field_name(f, name), gw_field_u8(f, &type), gw_field_shape(f, &shape), gw_field_u32(f, &n_parts);
    gw_field_name(f, codec), gw_field_name(f, optimizer);
    if (!f->good || gw_ps_names_find(&store->names, name))
        return altered_key(folder, name, "the head");
    GW_TRY(gw_ps_store_init(store, name, (gw_ps_type)type, &shape, n_parts, codec, optimizer));
    GW_TRY(gw_ps_store_find(store, name, &key));
    key->row = row;
    GW_TRY(key_fields(folder, key, f));
    return gw_fields_end(f) ? GW_OK : altered_key(folder, name, "the head");
}

/* Reads all keys. A head that is missing is noticed by their count. */
static gw_status get_keys(struct gw_ps_folder *folder, uint64_t n_keys)
{
    struct gw_ps_store *store = folder->store;
    struct gw_fields f;
    size_t n_bytes;
    gw_status status;
    for (uint64_t id = row_of(1, HEAD); (status = gw_ps_rows_find(folder->rows, &id, &n_bytes)) == GW_OK;) {
        const uint32_t row = (uint32_t)(id >> 32);
        if (id != row_of(row, HEAD))
            return altered(folder, "the head of a key is missing");
        GW_TRY(get_head(folder, id, n_bytes, &f));
        GW_TRY(get_key(folder, row, &f));
        id = row_of(row + 1, HEAD);
    }
    GW_TRY(status);
    return store->names.n == n_keys ? GW_OK : altered(folder, "the heads of keys are missing");
}

static gw_status get_store(struct gw_ps_folder *folder)
{
    struct gw_ps_store *store = folder->store;
    struct gw_fields f;
    uint64_t n_keys = 0;
    GW_TRY(get_own(folder, STORE, &f));
    store_fields(folder, &f, &n_keys);
    if (!gw_fields_end(&f))
        return altered(folder, "the row of the store");
    folder->commit++;
    const uint32_t last_row = store->last_row;
    GW_TRY(get_keys(folder, n_keys));
    store->last_row = last_row;
    store->info.n_present = 0;
    for (uint32_t rank = 0; rank < store->options.n_workers; rank++)
        store->info.n_present += store->present[rank];
    for (uint64_t k = 0; k < store->names.n; k++)
        gw_ps_key_count_due(store, gw_ps_store_key(store, k));
    return GW_OK;
}

static gw_status check_about(struct gw_ps_folder *folder)
{
    struct gw_fields f;
    GW_TRY(get_own(folder, ABOUT, &f));
    const size_t n = (size_t)(f.end - f.at);
    return n == strlen(folder->options.about) && memcmp(f.at, folder->options.about, n) == 0
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT,
                         "the folder of snapshots is of a server with %.*s, and this one has %s; it must be the same, "
                         "or another folder",
                         (int)n, (const char *)f.at, folder->options.about);
}

static gw_status get_all(struct gw_ps_folder *folder)
{
    struct gw_fields f;
    GW_TRY(check_about(folder));
    GW_TRY(get_store(folder));
    GW_TRY(gw_ps_rows_accept(folder->rows, folder->commit - 1));
    GW_TRY(get_own(folder, OWN, &f));
    return folder->options.own(folder->options.user, &f);
}

/* ---- beginning and end ----------------------------------------------------------------------------------------- */

/* Writes the first commit into a new folder. */
static gw_status begin_folder(struct gw_ps_folder *folder)
{
    GW_TRY(gw_ps_rows_accept(folder->rows, 0));
    folder->commit = 1;
    folder->own_changed = true;
    gw_ps_folder_commit(folder);
    return folder->info.reason[0] ? gw_fail(GW_ERR_SYSTEM, "%s", folder->info.reason) : GW_OK;
}

static gw_status open_rows(struct gw_ps_folder *folder)
{
    const double begin = gw_clock_seconds();
    char line[512];
    uint64_t id = 0;
    size_t n_bytes;
    GW_TRY(gw_ps_rows_open(folder->store->context, folder->options.folder, &folder->rows));
    gw_status status = gw_ps_rows_find(folder->rows, &id, &n_bytes);
    GW_TRY(status);
    folder->info.was_there = status == GW_OK;
    snprintf(line, sizeof line, "%s folder=\"%.300s\"", folder->info.was_there ? "restoring" : "keeping",
             gw_quote(folder->options.folder).text);
    folder->options.log(folder->options.user, line);
    if (!folder->info.was_there)
        return begin_folder(folder);
    const uint64_t max_bytes = folder->store->options.max_bytes;
    /* a value that was taken before is taken again, even if the limit is lower now */
    folder->store->options.max_bytes = UINT64_MAX;
    status = get_all(folder);
    folder->store->options.max_bytes = max_bytes;
    gw_ps_store_unchange(folder->store);
    GW_TRY(status);
    snprintf(line, sizeof line, "restored folder=\"%.300s\" keys=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f",
             gw_quote(folder->options.folder).text, folder->store->names.n, folder->store->info.bytes,
             gw_clock_seconds() - begin);
    folder->options.log(folder->options.user, line);
    return GW_OK;
}

gw_status gw_ps_folder_open(struct gw_ps_store *store, const struct gw_ps_folder_options *options,
                            struct gw_ps_folder **out)
{
    struct gw_ps_folder *folder = gw_calloc(store->context, 1, sizeof *folder);
    if (!folder)
        return GW_ERR_MEMORY;
    folder->store = store;
    folder->options = *options;
    folder->most_head = HEAD_BYTES + HEAD_RANK_BYTES * (size_t)store->options.n_workers + options->most_own;
    folder->head = gw_alloc(store->context, folder->most_head, 1);
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
    gw_free(folder->store->context, folder->head);
    gw_free(folder->store->context, folder);
}

void gw_ps_folder_note(struct gw_ps_folder *folder)
{
    if (folder)
        folder->own_changed = true;
}

void gw_ps_folder_look(struct gw_ps_folder *folder)
{
    if (folder && gw_ps_rows_look(folder->rows) < 0)
        folder->own_changed = true;
}

bool gw_ps_folder_is_due(const struct gw_ps_folder *folder)
{
    return folder && (folder->own_changed || folder->store->changed);
}

struct gw_ps_folder_info gw_ps_folder_info(const struct gw_ps_folder *folder)
{
    if (!folder)
        return (struct gw_ps_folder_info){.exists = false};
    struct gw_ps_folder_info info = folder->info;
    info.exists = true;
    info.durable = !info.reason[0];
    info.bytes = gw_ps_rows_bytes(folder->rows);
    return info;
}
