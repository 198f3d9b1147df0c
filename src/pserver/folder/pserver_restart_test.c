/* Tests a store that is restarted from its folder, beside one that does the same and is never restarted. After every
 * restart both give the same answers, to the bit, in every mode. */
#define _GNU_SOURCE /* nftw */
#include "base/clock.h"
#include "base/memory.h"
#include "pserver/folder/test_folder.h"

#include <gradwire/codec.h>

#include <sqlite3.h>

enum { N_WORKERS = 4, N = 8, N_KEYS = 7, RESTARTED = 0, OTHER = 1 };

static struct {
    gw_context *context;
    gw_ps_server_options options;
    char folder[64];
    const char *about;
    struct kept sides[2];
    struct numbers random;
} world;

#define SIDES(side) for (struct kept *side = world.sides; side < world.sides + 2; side++)

/* ---- beginning and end -------------------------------------------------------------------------------------- */

static gw_status try_open(void)
{
    return open_kept(&world.sides[RESTARTED], world.context, world.options, world.folder, world.about);
}

static void restart(void)
{
    struct kept *kept = &world.sides[RESTARTED];
    const uint64_t own = kept->own;
    gw_ps_folder_commit(kept->folder);
    close_kept(kept);
    ok(try_open());
    CHECK(kept->own == own && gw_ps_folder_info(kept->folder).was_there, "%" PRIu64 ", and was %" PRIu64, kept->own,
          own);
}

static void begin(gw_ps_mode mode, uint32_t min_workers, uint32_t backup, uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.random = numbers_from(seed);
    world.options = (gw_ps_server_options){
        .n_workers = N_WORKERS, .mode = mode, .staleness = 2, .min_workers = min_workers, .backup = backup};
    world.about = "mode=one";
    make_folder(world.folder);
    ok(gw_context_create(NULL, &world.context));
    make_store(&world.sides[OTHER], world.context, world.options);
    ok(try_open());
    assert_false(gw_ps_folder_info(world.sides[RESTARTED].folder).was_there);
}

static void end(void)
{
    SIDES(side)
    if (side->store)
        close_kept(side);
    gw_context_destroy(world.context);
    remove_folder(world.folder);
}

/* ---- the same is asked of both ------------------------------------------------------------------------------ */

/* Keys 0 and 3 have parameters. Key 4 is one float32: a scale key. Those of odd numbers are an exchange's. */
static const struct {
    const char *name;
    gw_ps_type type;
    gw_ps_shape shape;
    const char *codec, *optimizer;
} keys[N_KEYS] = {
    {"key 0", GW_PS_FLOAT32, {2, {2, N / 2}}, "", "adam"},
    {"exchange/key 1", GW_PS_UINT8, {2, {2, N / 2}}, "", ""},
    {"key 2", GW_PS_INT32, {2, {2, N / 2}}, "", ""},
    {"exchange/key 3", GW_PS_FLOAT16, {2, {2, N / 2}}, "", "momentum:lr=0.1"},
    {"key 4", GW_PS_FLOAT32, {0, {0}}, "", ""},
    {"exchange/key 5", GW_PS_FRAME, {2, {2, N / 2}}, "ternary:clip=2.5", ""},
    {"key 6", GW_PS_INT64, {2, {2, N / 2}}, "", ""},
};
enum { PENDED = 3, SCALE = 4 };

static gw_status do_init(struct kept *side, uint32_t k)
{
    return gw_ps_store_init(side->store, keys[k].name, keys[k].type, &keys[k].shape, 1, keys[k].codec,
                            keys[k].optimizer);
}

/* NULL: nobody has initialised it, or it was dropped. */
static struct gw_ps_key *find(const struct kept *side, uint32_t k)
{
    struct gw_ps_key *key;
    return gw_ps_store_find(side->store, keys[k].name, &key) < 0 ? NULL : key;
}

/* What a worker pushes as its nth push, or what is put as version nth: always the same. */
static struct gw_ps_blob *value_of(struct kept *side, uint32_t k, uint32_t rank, uint64_t nth)
{
    struct numbers random = numbers_from(k * 1000003u + rank * 1009u + nth);
    uint8_t bytes[N * 8];
    const size_t n = (k == SCALE ? 1 : N) * gw_ps_type_bytes(keys[k].type);
    for (size_t i = 0; i < n; i++)
        bytes[i] =
            keys[k].type == GW_PS_UINT8 ? (uint8_t)(0x55 & numbers_word(&random)) : (uint8_t)numbers_below(&random, 60);
    struct gw_ps_blob *value = gw_ps_blob_copy(world.context, &side->total, bytes, n);
    assert_non_null(value);
    return value;
}

static gw_status do_push(struct kept *side, uint32_t k, uint32_t rank, uint64_t nth, bool pending)
{
    struct gw_ps_blob *value = value_of(side, k, rank, nth);
    const gw_status status =
        gw_ps_store_push(side->store, find(side, k), rank, nth, value, nth % 3 ? 0.001 * (double)nth : 0,
                         pending ? GW_PS_PENDING : GW_PS_NOT_REFUSED);
    gw_ps_blob_give(value);
    return status;
}

static gw_status do_put_first(struct kept *side, uint32_t k)
{
    const float values[N] = {1, 2, -3, 0.25f, 5, 6, 7, (float)k};
    struct gw_ps_blob *value = gw_ps_blob_copy(world.context, &side->total, values, sizeof values);
    const gw_status status = gw_ps_store_put_first(side->store, find(side, k), value);
    gw_ps_blob_give(value);
    return status;
}

static gw_status do_put(struct kept *side, uint32_t k, uint64_t version)
{
    struct gw_ps_blob *value = value_of(side, k, N_WORKERS, version);
    const gw_status status = gw_ps_store_put(side->store, find(side, k), version, value);
    gw_ps_blob_give(value);
    return status;
}

/* The verdicts of all workers from `rank` on; some are bad. */
static gw_status do_verdict(struct kept *side, uint32_t rank)
{
    struct gw_ps_key *key = find(side, PENDED);
    gw_status status = GW_OK;
    for (; rank < N_WORKERS; rank++) {
        const uint64_t nth = gw_ps_store_pushed(side->store, key, rank);
        status = gw_ps_store_take_verdict(side->store, rank, nth, nth % 4 == 3 ? 900 + nth : UINT64_MAX);
    }
    return status;
}

static void one_change(void)
{
    enum { INIT = 100, REFUSE = 120, PUSH = 850, ENTER_EXCHANGE = 870, ENTER = 900, LEAVE = 910 };
    enum { SKIP = 912, DROP = 914, PUT_FIRST = 920, PUT = 930, NOTHING = 961, JUDGE = 1000 };
    const uint32_t what = numbers_below(&world.random, JUDGE), k = numbers_below(&world.random, N_KEYS),
                   rank = numbers_below(&world.random, N_WORKERS), late = numbers_below(&world.random, 8) / 7,
                   with_parameters = k % 2 ? 0 : PENDED;
    const struct kept *other = &world.sides[OTHER];
    const uint64_t next = find(other, k) ? gw_ps_store_pushed(other->store, find(other, k), rank) + 1 : 1,
                   round = gw_ps_store_next_round(other->store, true);
    gw_status statuses[2];
    SIDES(side)
    {
        gw_status status = GW_OK;
        if (what < INIT)
            status = do_init(side, k);
        else if (what < REFUSE && find(side, k) && keys[k].type != GW_PS_FRAME)
            status = gw_ps_store_push(side->store, find(side, k), rank, next - late, NULL, 0, 100 + next - late);
        else if (what >= 600 && what < PUSH && k == PENDED && find(side, k))
            status = do_push(side, k, rank, next, true);
        else if (what < PUSH && find(side, k) && keys[k].type != GW_PS_FRAME)
            status = do_push(side, k, rank, next - late, false);
        else if (what >= PUSH && what < ENTER)
            status = gw_ps_store_enter(side->store, rank, what < ENTER_EXCHANGE ? round : 0);
        else if (what >= ENTER && what < LEAVE)
            gw_ps_store_leave(side->store, rank);
        else if (what >= LEAVE && what < SKIP)
            gw_ps_store_skip_to(side->store, round + 2);
        else if (what >= SKIP && what < DROP)
            gw_ps_store_drop(side->store);
        else if (what >= DROP && what < PUT_FIRST && find(side, with_parameters))
            status = do_put_first(side, with_parameters);
        else if (what >= PUT_FIRST && what < PUT && find(side, k) && keys[k].type != GW_PS_FRAME)
            status = do_put(side, k, round + what);
        else if (what >= NOTHING && find(side, PENDED))
            status = do_verdict(side, rank);
        statuses[side - world.sides] = status;
    }
    CHECK(statuses[0] == statuses[1], "change %u: %d and %d", what, statuses[0], statuses[1]);
    if (what < PUT || what >= NOTHING)
        return;
    world.sides[RESTARTED].own++;
    gw_ps_folder_note(world.sides[RESTARTED].folder);
    gw_ps_folder_commit(world.sides[RESTARTED].folder);
}

/* ---- and both answer alike ---------------------------------------------------------------------------------- */

static const gw_ps_method GET = (gw_ps_method)0; /* in place of a method: the value that was put */

static void compare_answers(uint32_t k, uint32_t rank, gw_ps_method method, bool scaled)
{
    struct gw_ps_pulled pulled[2] = {{.round = 0}, {.round = 0}};
    gw_status status[2];
    char sentences[2][256] = {"", ""};
    for (int i = 0; i < 2; i++) {
        const struct kept *side = &world.sides[i];
        struct gw_ps_key *key = find(side, k), *scale = scaled ? find(side, SCALE) : NULL, *waits_for;
        status[i] = !key || (scaled && !scale) ? GW_ERR_ARGUMENT
                    : method == GET            ? gw_ps_store_get(key, 0, &pulled[i])
                                    : gw_ps_store_pull(side->store, key, rank, method, scale, &pulled[i], &waits_for);
        if (status[i] < 0)
            snprintf(sentences[i], sizeof sentences[i], "%s", gw_last_error());
    }
    CHECK(status[0] == status[1] && strcmp(sentences[0], sentences[1]) == 0,
          "key %u, rank %u, method %d: %d %s, and %d %s", k, rank, method, status[0], sentences[0], status[1],
          sentences[1]);
    if (status[0] < 0)
        return;
    CHECK(pulled[0].round == pulled[1].round, "rounds %" PRIu64 " and %" PRIu64, pulled[0].round, pulled[1].round);
    if (status[0] != GW_OK)
        return;
    CHECK(pulled[0].n_pushes == pulled[1].n_pushes && pulled[0].value->n_bytes == pulled[1].value->n_bytes &&
              memcmp(pulled[0].value->bytes, pulled[1].value->bytes, pulled[0].value->n_bytes) == 0,
          "key %u, rank %u, method %d: other bits", k, rank, method);
    for (int i = 0; i < 2; i++)
        gw_ps_blob_give(pulled[i].value);
}

static void compare(void)
{
    const struct gw_ps_store *a = world.sides[0].store, *b = world.sides[1].store;
    const struct gw_ps_store_info of_a = a->info, of_b = b->info;
    CHECK(a->names.n == b->names.n && of_a.rounds == of_b.rounds && of_a.n_present == of_b.n_present &&
              of_a.has_begun == of_b.has_begun,
          "%" PRIu64 " and %" PRIu64 " keys", a->names.n, b->names.n);
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        CHECK(a->pushes[r] == b->pushes[r] && gw_ps_store_behind(a, r) == gw_ps_store_behind(b, r) &&
                  a->present[r] == b->present[r],
              "rank %u", r);
    }
    for (uint64_t k = 0; k < a->names.n; k++) {
        const struct gw_ps_key *key_a = gw_ps_store_key(a, k), *key_b = gw_ps_store_key(b, k);
        CHECK(strcmp(key_a->name, key_b->name) == 0 && key_a->whole.number == key_b->whole.number &&
                  key_a->began_after == key_b->began_after && gw_ps_n_missing(a, key_a) == gw_ps_n_missing(b, key_b),
              "key %s", key_a->name);
    }
    for (uint32_t k = 0; k < N_KEYS; k++) {
        for (uint32_t r = 0; r <= N_WORKERS; r++)
            for (gw_ps_method m = GW_PS_MAX; m <= GW_PS_PARAMETERS; m++) {
                compare_answers(k, r < N_WORKERS ? r : GW_PS_READER, m, false);
                if (keys[k].type == GW_PS_UINT8)
                    compare_answers(k, r, m, true);
            }
        compare_answers(k, 0, GET, false);
    }
}

TEST(restarts_change_nothing)
{
    static const struct {
        gw_ps_mode mode;
        uint32_t min_workers, backup;
        uint64_t first_seed, n_seeds;
    } runs[] = {{GW_PS_SYNC, 0, 0, 1, 3},   {GW_PS_SYNC, 2, 0, 11, 3},  {GW_PS_SYNC, 2, 1, 21, 3},
                {GW_PS_STALE, 2, 0, 31, 2}, {GW_PS_STALE, 0, 0, 33, 1}, {GW_PS_ASYNC, 2, 0, 41, 2},
                {GW_PS_ASYNC, 0, 0, 43, 1}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (uint64_t s = 0; s < runs[i].n_seeds; s++) {
            begin(runs[i].mode, runs[i].min_workers, runs[i].backup, runs[i].first_seed + s);
            for (uint32_t r = 0; r < N_WORKERS && runs[i].min_workers; r++)
                SIDES(side) ok(gw_ps_store_enter(side->store, r, 0));
            for (int again = 0; again < 40; again++) {
                for (uint32_t n = numbers_below(&world.random, 300); n > 0; n--)
                    one_change();
                for (struct kept *side = world.sides; again % 8 == 7 && side < world.sides + 2; side++)
                    gw_ps_store_begin_anew(side->store); /* another run */
                restart();
                compare();
            }
            const uint64_t rounds = world.sides[OTHER].store->info.rounds;
            CHECK(rounds > 20 || runs[i].mode != GW_PS_SYNC, "%" PRIu64 " rounds", rounds);
            end();
        }
}

/* ---- what does not fit ---------------------------------------------------------------------------------------- */

TEST(another_server)
{
    begin(GW_PS_SYNC, 0, 0, 1);
    close_kept(&world.sides[RESTARTED]);
    world.about = "mode=two";
    refused(try_open(), GW_ERR_ARGUMENT, "mode=two");
    end();
}

TEST(a_lower_limit)
{
    struct kept *kept = &world.sides[RESTARTED];
    begin(GW_PS_SYNC, 0, 0, 1);
    ok(do_init(kept, 0)), ok(do_init(kept, 1));
    gw_ps_folder_commit(kept->folder);
    close_kept(kept);
    world.options.max_bytes = 10;
    ok(try_open()); /* bytes that were taken are taken again */
    refused(do_init(kept, 2), GW_ERR_CAPACITY, "");
    close_kept(kept);
    world.options.max_keys = 1;
    refused(try_open(), GW_ERR_CAPACITY, "--max-keys");
    end();
}

static void commit_until_durable(void)
{
    const struct kept *kept = &world.sides[RESTARTED];
    for (int i = 0; i < 100 && !gw_ps_folder_info(kept->folder).durable; i++) {
        usleep(100000);
        gw_ps_folder_commit(kept->folder);
    }
    CHECK(gw_ps_folder_info(kept->folder).durable, "%s", kept->log);
}

/* The log is emptied before it fills a small disk. If nothing can be written, changes go on in memory; and are kept
 * again once there is room. */
TEST(a_full_disk)
{
    struct kept *kept = &world.sides[RESTARTED];
    begin(GW_PS_ASYNC, 0, 0, 1);
    SIDES(side) ok(do_init(side, SCALE));
    for (uint64_t nth = 1; nth < 200; nth++) {
        most_file_bytes(nth < 100 ? 400000 : 40000);
        SIDES(side) ok(do_push(side, SCALE, 0, nth, false));
        gw_ps_folder_commit(kept->folder);
        CHECK(nth >= 100 || gw_ps_folder_info(kept->folder).durable, "change %" PRIu64 ": %s", nth, kept->log);
    }
    CHECK(!gw_ps_folder_info(kept->folder).durable && strstr(kept->log, "not-durable"), "it fits: %s", kept->log);
    compare();
    most_file_bytes(RLIM_INFINITY);
    commit_until_durable();
    restart();
    compare();
    end();
}

/* Files that are away are noticed by the next change; without one, if somebody looks. What is pushed meanwhile is not
 * called durable, and is kept once they are back. */
TEST(files_that_are_renamed)
{
    static const char *const files[] = {"", "/state.db", "/state.db-wal"}; /* "": the folder itself */
    struct kept *kept = &world.sides[RESTARTED];
    for (size_t i = 0; i < 2 * sizeof files / sizeof *files; i++) {
        char here[80], away[80];
        begin(GW_PS_ASYNC, 0, 0, 1);
        snprintf(here, sizeof here, "%s%s", world.folder, files[i / 2]);
        snprintf(away, sizeof away, "%s.away", world.folder);
        SIDES(side) ok(do_init(side, SCALE));
        gw_ps_folder_commit(kept->folder);
        assert_true(gw_ps_folder_info(kept->folder).durable && rename(here, away) == 0);
        for (struct kept *side = world.sides; i % 2 == 0 && side < world.sides + 2; side++)
            ok(do_push(side, SCALE, 0, 1, false));
        if (i % 2)
            gw_ps_folder_look(kept->folder);
        gw_ps_folder_commit(kept->folder);
        CHECK(!gw_ps_folder_info(kept->folder).durable && strstr(kept->log, "removed or renamed") &&
                  gw_ps_folder_is_due(kept->folder),
              "case %zu: %s", i, kept->log);
        assert_int_equal(rename(away, here), 0);
        commit_until_durable();
        restart();
        compare();
        end();
    }
}

/* Another program writes to the database. The server goes on in memory, and tries again. */
TEST(a_locked_database)
{
    struct kept *kept = &world.sides[RESTARTED];
    char path[80];
    sqlite3 *other;
    begin(GW_PS_ASYNC, 0, 0, 1);
    SIDES(side) ok(do_init(side, SCALE));
    gw_ps_folder_commit(kept->folder);
    snprintf(path, sizeof path, "%s/state.db", world.folder);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    const double end_of_lock = gw_clock_seconds() + 2.5; /* it tries every second */
    for (uint64_t nth = 1; nth < 3 || gw_clock_seconds() < end_of_lock; nth++) {
        SIDES(side) ok(do_push(side, SCALE, 0, nth, false));
        gw_ps_folder_commit(kept->folder);
        usleep(10000);
    }
    CHECK(!gw_ps_folder_info(kept->folder).durable && strstr(kept->log, "another program writes there"), "%s",
          kept->log);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    commit_until_durable();
    restart();
    compare();
    end();
}

RUN_TESTS("pserver_restart", NULL, NULL)
