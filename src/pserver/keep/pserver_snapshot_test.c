/* Tests the records of a snapshot one by one: each is taken as it was written, and none that is shorter, longer, of a
 * rank or a moment that there is not, or not in its place. */
#include "base/memory.h"
#include "checks.h"
#include "pserver/keep/journal.h"
#include "pserver/keep/snapshot.h"
#include "pserver/store/state.h"
#include "pserver/store/store.h"
#include "wire/bytes.h"

#include <string.h>

enum { WORKERS = 3, N = 4, MOST_RECORDS = 40, MOST_HEAD = 200, MOST_BODY = 64 };

struct record {
    uint8_t type;
    size_t n_head, n_body;
    uint8_t head[MOST_HEAD + 1], body[MOST_BODY];
};

struct world {
    struct gw_ps_store *store;
    atomic_uint_least64_t total;
    struct record records[MOST_RECORDS];
    int n;
};

static void on_woken(void *user, struct gw_ps_key *key)
{
    (void)user, (void)key;
}

/* A store with one key of float32, which has an optimizer with two moments. */
static struct gw_ps_key *begin(struct world *world)
{
    const struct gw_ps_store_options options = {.n_workers = WORKERS,
                                                .max_keys = 10,
                                                .max_key_bytes = 1 << 16,
                                                .max_bytes = 1 << 20,
                                                .total = &world->total,
                                                .woken = on_woken};
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    struct gw_ps_key *key;
    assert_int_equal(gw_ps_store_create(NULL, &options, &world->store), GW_OK);
    assert_int_equal(gw_ps_store_init(world->store, "w", GW_PS_FLOAT32, &shape, "", "adam:lr=0.1"), GW_OK);
    assert_int_equal(gw_ps_store_find(world->store, "w", &key), GW_OK);
    return key;
}

static struct gw_ps_blob *floats(struct world *world, float first)
{
    float *values = gw_alloc(NULL, N, sizeof *values);
    for (int i = 0; i < N; i++)
        values[i] = first + (float)i;
    struct gw_ps_blob *blob = gw_ps_blob_new(NULL, &world->total, values, N * sizeof *values);
    assert_non_null(blob);
    return blob;
}

static void push(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth)
{
    struct gw_ps_blob *blob = floats(world, (float)(rank + nth));
    assert_int_equal(gw_ps_store_admit(world->store, key, rank, nth, blob), GW_OK);
    assert_int_equal(gw_ps_store_push(world->store, key, rank, nth, blob, 1), GW_OK);
    gw_ps_blob_give(blob);
}

static void keep_record(void *user, uint8_t type, const void *head, size_t n_head, struct gw_ps_blob *blob)
{
    struct world *world = user;
    struct record *record = &world->records[world->n];
    if (type < GW_PS_SNAPSHOT_STORE) /* a change, which the journal reads */
        return;
    assert_true(world->n < MOST_RECORDS && n_head <= MOST_HEAD && (!blob || blob->n_bytes <= MOST_BODY));
    *record = (struct record){.type = type, .n_head = n_head, .n_body = blob ? blob->n_bytes : 0};
    memcpy(record->head, head, n_head);
    if (blob)
        memcpy(record->body, blob->bytes, blob->n_bytes);
    world->n++;
}

/* With parameters, moments, a whole round and an open one. */
static void fill(struct world *world)
{
    *world = (struct world){.n = 0};
    struct gw_ps_key *key = begin(world);
    struct gw_ps_blob *first = floats(world, 100);
    assert_int_equal(gw_ps_store_bring_first(world->store, key, first), GW_OK);
    gw_ps_blob_give(first);
    for (uint32_t r = 0; r < WORKERS; r++)
        push(world, key, r, 1);
    push(world, key, 1, 2);
    assert_int_equal(gw_ps_snapshot_write(world->store, keep_record, world), GW_OK);
    gw_ps_store_destroy(world->store);
    assert_int_equal(world->total, 0);
}

static gw_status apply(struct world *into, const struct record *record)
{
    const struct gw_ps_snapshot_reader reader = {into->store, &into->total};
    return gw_ps_snapshot_apply(&reader, record->type, record->head, record->n_head, record->body, record->n_body);
}

static void end(struct world *world)
{
    gw_ps_store_destroy(world->store);
    assert_int_equal(world->total, 0);
}

/* What was read is written again, byte by byte. */
static void what_is_read_is_written_again(void **state)
{
    (void)state;
    static struct world from, to;
    int n_of[64] = {0};
    fill(&from);
    to = (struct world){.n = 0};
    begin(&to);
    for (int i = 0; i < from.n; i++) {
        CHECK(apply(&to, &from.records[i]) == GW_OK, "record %d, type %u: %s", i, from.records[i].type,
              gw_last_error());
        n_of[from.records[i].type]++;
    }
    assert_int_equal(n_of[GW_PS_SNAPSHOT_STORE], 1);
    assert_int_equal(n_of[GW_PS_SNAPSHOT_WORKER], WORKERS);
    assert_int_equal(n_of[GW_PS_SNAPSHOT_KEY], 1);
    assert_int_equal(n_of[GW_PS_SNAPSHOT_KEY_RANKS], 1);
    assert_true(n_of[GW_PS_SNAPSHOT_PUSH] >= 1);
    assert_int_equal(n_of[GW_PS_SNAPSHOT_PARAMETERS], 1);
    assert_int_equal(n_of[GW_PS_SNAPSHOT_MOMENT], 2);
    assert_int_equal(gw_ps_store_n_present(to.store), WORKERS);
    assert_int_equal(gw_ps_snapshot_write(to.store, keep_record, &to), GW_OK);
    assert_int_equal(to.n, from.n);
    for (int i = 0; i < from.n; i++)
        CHECK(memcmp(&to.records[i], &from.records[i], sizeof from.records[i]) == 0, "record %d, type %u", i,
              from.records[i].type);
    end(&to);
}

/* Every record, with a byte more or less of its head or its body; each into a store of its own. */
static void lengths_must_fit(void **state)
{
    (void)state;
    static struct world from;
    fill(&from);
    for (int i = 0; i < from.n; i++)
        for (int what = 0; what < 4; what++) {
            static struct world to;
            struct record record = from.records[i];
            if (what == 3 && record.n_body == 0) /* only some have one; a body that nobody asked for is let be */
                continue;
            to = (struct world){.n = 0};
            begin(&to);
            record.n_head += what == 1 ? 1 : 0;
            record.n_head -= what == 2 ? 1 : 0;
            record.n_body -= what == 3 ? 1 : 0;
            const gw_status status = apply(&to, &record);
            CHECK(what == 0 ? status == GW_OK : status < 0, "record %d, type %u, way %d: %d", i, record.type, what,
                  status);
            end(&to);
        }
}

/* The first record of a type, altered, into a store that has read the others before it or not. */
static const struct record *first_of(const struct world *world, uint8_t type)
{
    for (int i = 0; i < world->n; i++)
        if (world->records[i].type == type)
            return &world->records[i];
    fail_msg("there is no record of type %u", type);
    return NULL;
}

static void numbers_must_be_there(void **state)
{
    (void)state;
    static struct world from;
    static const struct {
        uint8_t type;
        size_t at; /* of a number in the head */
        int n_bytes;
        uint32_t last; /* that is good; one more is not */
    } cases[] = {{GW_PS_SNAPSHOT_WORKER, 0, 4, WORKERS - 1},
                 {GW_PS_SNAPSHOT_KEY, 0, 4, WORKERS - 1}, /* whose push came last */
                 {GW_PS_SNAPSHOT_PUSH, 1, 4, WORKERS - 1},
                 {GW_PS_SNAPSHOT_MOMENT, 0, 1, 1}};
    fill(&from);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int more = 0; more < 2; more++) {
            static struct world to;
            struct record record = *first_of(&from, cases[i].type);
            to = (struct world){.n = 0};
            begin(&to);
            if (cases[i].n_bytes == 4)
                gw_put32(record.head + cases[i].at, cases[i].last + (uint32_t)more);
            else
                record.head[cases[i].at] = (uint8_t)(cases[i].last + (uint32_t)more);
            CHECK(apply(&to, &record) == (more ? GW_ERR_FRAME_FIELD : GW_OK), "type %u, %u and %d", cases[i].type,
                  cases[i].last, more);
            end(&to);
        }
}

static void records_out_of_place(void **state)
{
    (void)state;
    static struct world from, to;
    fill(&from);
    const struct record *one = first_of(&from, GW_PS_SNAPSHOT_PUSH);
    struct record record = *one;
    to = (struct world){.n = 0};
    begin(&to);
    assert_int_equal(apply(&to, one), GW_OK);
    assert_int_equal(apply(&to, one), GW_ERR_FRAME_FIELD); /* a rank pushes once to a round */
    assert_int_equal(apply(&to, first_of(&from, GW_PS_SNAPSHOT_PARAMETERS)), GW_OK);
    assert_int_equal(apply(&to, first_of(&from, GW_PS_SNAPSHOT_PARAMETERS)), GW_ERR_FRAME_FIELD);
    static const uint8_t types[] = {0, 31, 39, 255};
    for (size_t i = 0; i < sizeof types; i++) {
        record.type = types[i];
        assert_int_equal(apply(&to, &record), GW_ERR_FRAME_FIELD);
    }
    end(&to);
    /* A push waits for a verdict in the open round alone. */
    for (uint8_t round = 1; round <= 2; round++) {
        to = (struct world){.n = 0};
        begin(&to);
        record = *one;
        record.head[0] = round;
        gw_put64(record.head + 5, GW_PS_PENDING);
        assert_int_equal(apply(&to, &record), round == 2 ? GW_OK : GW_ERR_FRAME_FIELD);
        end(&to);
    }
    /* Before the first key, and of a key without an optimizer. */
    for (int keys = 0; keys < 2; keys++) {
        const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
        to = (struct world){.n = 0};
        begin(&to);
        if (keys)
            assert_int_equal(gw_ps_store_init(to.store, "plain", GW_PS_FLOAT32, &shape, "", ""), GW_OK);
        else
            assert_int_equal(gw_ps_store_drop(to.store, ""), GW_OK);
        for (int i = 0; i < from.n; i++) {
            const uint8_t type = from.records[i].type;
            const bool of_key = type != GW_PS_SNAPSHOT_STORE && type != GW_PS_SNAPSHOT_WORKER;
            const bool optimized = type == GW_PS_SNAPSHOT_PARAMETERS || type == GW_PS_SNAPSHOT_MOMENT;
            CHECK(apply(&to, &from.records[i]) == ((keys ? optimized : of_key) ? GW_ERR_FRAME_FIELD : GW_OK),
                  "type %u, %d keys", type, keys);
        }
        end(&to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_written_again),
        cmocka_unit_test(lengths_must_fit),
        cmocka_unit_test(numbers_must_be_there),
        cmocka_unit_test(records_out_of_place),
    };
    return cmocka_run_group_tests_name("pserver snapshot", tests, NULL, NULL);
}
