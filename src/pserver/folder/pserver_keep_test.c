/* Tests a store whose changes are kept, beside one that does the same and is never restarted. After every restart both
 * give the same answers, to the bit, in every mode. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "folders.h"
#include "pserver/folder/folder.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_WORKERS = 4, N = 8, N_KEYS = 7 };

struct side {
    struct gw_ps_store *store;
    struct gw_ps_folder *folder; /* NULL: the one that is never restarted */
    atomic_uint_least64_t total;
};

struct world {
    gw_context *context;
    struct gw_ps_store_options options;
    char folder[64], about[64], log[4096];
    struct side kept, other;
    uint64_t own; /* what the owner keeps */
    struct numbers random;
};

static void on_woken(void *user, struct gw_ps_key *key)
{
    (void)user, (void)key;
}

/* ---- what its owner keeps ----------------------------------------------------------------------------------- */

static gw_status own_read(void *user, const uint8_t *bytes, size_t n_bytes)
{
    struct world *world = user;
    assert_int_equal(n_bytes, 8);
    world->own = gw_get64(bytes);
    return GW_OK;
}

static size_t own_write(void *user, uint8_t *bytes)
{
    const struct world *world = user;
    gw_put64(bytes, world->own);
    return 8;
}

static void on_line(void *user, const char *line)
{
    struct world *world = user;
    size_t used = strlen(world->log);
    snprintf(world->log + used, sizeof world->log - used, "%s\n", line);
}

/* ---- beginning and end -------------------------------------------------------------------------------------- */

static gw_status try_open(struct world *world)
{
    struct side *side = &world->kept;
    const struct gw_ps_folder_options options = {.folder = world->folder,
                                                 .about = world->about,
                                                 .most_own = 8,
                                                 .own_write = own_write,
                                                 .own_read = own_read,
                                                 .log = on_line,
                                                 .user = world};
    struct gw_ps_store_options own = world->options;
    own.total = &side->total;
    world->log[0] = 0;
    side->folder = NULL;
    assert_int_equal(gw_ps_store_create(world->context, &own, &side->store), GW_OK);
    return gw_ps_folder_open(world->context, side->store, &options, &side->folder);
}

static void close_kept(struct world *world)
{
    gw_ps_folder_close(world->kept.folder);
    gw_ps_store_destroy(world->kept.store);
    world->kept.store = NULL;
    world->kept.folder = NULL;
    assert_int_equal(atomic_load(&world->kept.total), 0);
}

static void restart(struct world *world)
{
    const uint64_t own = world->own;
    gw_ps_folder_commit(world->kept.folder);
    close_kept(world);
    world->own = 0;
    CHECK(try_open(world) == GW_OK, "%s", gw_last_error());
    CHECK(world->own == own && gw_ps_folder_was_there(world->kept.folder), "%" PRIu64 ", and was %" PRIu64, world->own,
          own);
}

static void begin(struct world *world, gw_ps_mode mode, uint32_t min_workers, uint32_t backup, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->random = numbers_from(seed);
    world->options = (struct gw_ps_store_options){.n_workers = N_WORKERS,
                                                  .mode = mode,
                                                  .staleness = 2,
                                                  .min_workers = min_workers,
                                                  .backup = backup,
                                                  .max_keys = 100,
                                                  .max_key_bytes = 1 << 20,
                                                  .max_bytes = 1 << 28,
                                                  .woken = on_woken};
    snprintf(world->about, sizeof world->about, "mode=%d", mode);
    snprintf(world->folder, sizeof world->folder, "/tmp/gradwire-keep-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    assert_int_equal(gw_context_create(NULL, &world->context), GW_OK);
    struct gw_ps_store_options own = world->options;
    own.total = &world->other.total;
    assert_int_equal(gw_ps_store_create(world->context, &own, &world->other.store), GW_OK);
    CHECK(try_open(world) == GW_OK && !gw_ps_folder_was_there(world->kept.folder), "%s", gw_last_error());
}

static void end(struct world *world)
{
    if (world->kept.store)
        close_kept(world);
    gw_ps_store_destroy(world->other.store);
    gw_context_destroy(world->context);
    remove_folder(world->folder);
}

/* ---- the same is asked of both ------------------------------------------------------------------------------ */

static const char *key_name(uint32_t k, char text[32])
{
    snprintf(text, 32, "%skey %u", k % 2 ? "exchange/" : "", k);
    return text;
}

static gw_ps_type key_type(uint32_t k)
{
    static const gw_ps_type types[N_KEYS] = {GW_PS_FLOAT32, GW_PS_UINT8, GW_PS_INT32, GW_PS_FLOAT16,
                                             GW_PS_FLOAT32, GW_PS_FRAME, GW_PS_INT64};
    return types[k];
}

/* Keys 0 and 3 have parameters. */
static const char *key_optimizer(uint32_t k)
{
    return k == 0 ? "adam" : k == 3 ? "momentum:lr=0.1" : "";
}

/* Key 4 is one float32: a scale key. */
static gw_ps_shape key_shape(uint32_t k)
{
    return k == 4 ? (gw_ps_shape){.n_dims = 0} : (gw_ps_shape){.n_dims = 2, .dims = {2, N / 2}};
}

static gw_status do_init(struct world *world, struct side *side, uint32_t k)
{
    char name[32];
    gw_codec *codec = NULL;
    const gw_ps_shape shape = key_shape(k);
    if (k == 5)
        assert_int_equal(gw_codec_parse(world->context, "ternary:clip=2.5", &codec), GW_OK);
    gw_status status = gw_ps_store_init(side->store, key_name(k, name), key_type(k), &shape,
                                        codec ? gw_codec_traits_of(codec).canonical : "", key_optimizer(k));
    gw_codec_destroy(codec);
    return status;
}

/* What a worker pushes as its nth push: always the same. */
static struct gw_ps_blob *value_of(struct world *world, struct side *side, uint32_t k, uint32_t rank, uint64_t nth)
{
    struct numbers random = numbers_from(k * 1000003u + rank * 1009u + nth);
    uint8_t bytes[N * 8];
    size_t n = (k == 4 ? 1 : N) * gw_ps_type_bytes(key_type(k));
    for (size_t i = 0; i < n; i++)
        bytes[i] =
            key_type(k) == GW_PS_UINT8 ? (uint8_t)(0x55 & numbers_word(&random)) : (uint8_t)numbers_below(&random, 60);
    struct gw_ps_blob *value = gw_ps_blob_copy(world->context, &side->total, bytes, n);
    assert_non_null(value);
    return value;
}

static gw_status do_push(struct world *world, struct side *side, uint32_t k, uint32_t rank, uint64_t nth, bool refused)
{
    char name[32];
    struct gw_ps_key *key;
    if (gw_ps_store_find(side->store, key_name(k, name), &key) < 0)
        return GW_ERR_ARGUMENT;
    if (refused)
        return gw_ps_store_refuse(side->store, key, rank, nth, 100 + nth);
    struct gw_ps_blob *value = value_of(world, side, k, rank, nth);
    gw_status status = gw_ps_store_push(side->store, key, rank, nth, value, nth % 3 ? 0.001 * (double)nth : 0, false);
    gw_ps_blob_give(value);
    return status;
}

/* Key 3 is an exchange's, and has an optimizer. */
static gw_status do_push_pending(struct world *world, struct side *side, uint32_t rank)
{
    char name[32];
    struct gw_ps_key *key;
    if (gw_ps_store_find(side->store, key_name(3, name), &key) < 0)
        return GW_ERR_ARGUMENT;
    const uint64_t nth = gw_ps_store_pushed(side->store, key, rank) + 1;
    struct gw_ps_blob *value = value_of(world, side, 3, rank, nth);
    gw_status status = gw_ps_store_push(side->store, key, rank, nth, value, 0.25, true);
    gw_ps_blob_give(value);
    return status;
}

/* The verdicts of all workers from `rank` on; some are bad. */
static gw_status do_judge(struct side *side, uint32_t rank)
{
    char name[32];
    struct gw_ps_key *key;
    gw_status status = GW_OK;
    if (gw_ps_store_find(side->store, key_name(3, name), &key) < 0)
        return GW_ERR_ARGUMENT;
    for (; rank < N_WORKERS; rank++) {
        const uint64_t nth = gw_ps_store_pushed(side->store, key, rank);
        status = gw_ps_store_judge(side->store, key, rank, nth, nth % 4 == 3 ? 900 + nth : UINT64_MAX);
    }
    return status;
}

static gw_status do_put(struct world *world, struct side *side, uint32_t k)
{
    char name[32];
    struct gw_ps_key *key;
    const float values[N] = {1, 2, -3, 0.25f, 5, 6, 7, (float)k};
    if (gw_ps_store_find(side->store, key_name(k, name), &key) < 0)
        return GW_ERR_ARGUMENT;
    struct gw_ps_blob *value = gw_ps_blob_copy(world->context, &side->total, values, sizeof values);
    gw_status status = gw_ps_store_put_first(side->store, key, value);
    gw_ps_blob_give(value);
    return status;
}

static gw_status do_put_value(struct world *world, struct side *side, uint32_t k, uint64_t version)
{
    char name[32];
    struct gw_ps_key *key;
    if (gw_ps_store_find(side->store, key_name(k, name), &key) < 0)
        return GW_ERR_ARGUMENT;
    uint8_t bytes[N * sizeof(int64_t)];
    memset(bytes, (int)version, sizeof bytes);
    struct gw_ps_blob *value =
        gw_ps_blob_copy(world->context, &side->total, bytes, (k == 4 ? 1 : N) * gw_ps_type_bytes(key_type(k)));
    gw_status status = gw_ps_store_put(side->store, key, version, value);
    gw_ps_blob_give(value);
    return status;
}

static uint64_t next_push(const struct world *world, uint32_t k, uint32_t rank)
{
    char name[32];
    struct gw_ps_key *key;
    return gw_ps_store_find(world->other.store, key_name(k, name), &key) < 0
               ? 1
               : gw_ps_store_pushed(world->other.store, key, rank) + 1;
}

static void one_change(struct world *world)
{
    const uint32_t what = numbers_below(&world->random, 1000), k = numbers_below(&world->random, N_KEYS),
                   rank = numbers_below(&world->random, N_WORKERS);
    const uint64_t nth = next_push(world, k, rank) - numbers_below(&world->random, 8) / 7,
                   round = gw_ps_store_next_round(world->other.store, "exchange/");
    gw_status status[2];
    for (int i = 0; i < 2; i++) {
        struct side *side = i ? &world->other : &world->kept;
        status[i] = GW_OK;
        if (what < 100)
            status[i] = do_init(world, side, k);
        else if (what >= 600 && what < 850 && k == 3)
            status[i] = do_push_pending(world, side, rank);
        else if (what > 960)
            status[i] = do_judge(side, rank);
        else if (what < 850 && key_type(k) != GW_PS_FRAME)
            status[i] = do_push(world, side, k, rank, nth, what < 120);
        else if (what < 900)
            status[i] = gw_ps_store_enter(side->store, rank, what < 870 ? "exchange/" : "", what < 870 ? round : 0);
        else if (what < 910)
            gw_ps_store_leave(side->store, rank);
        else if (what < 912)
            gw_ps_store_skip_to(side->store, "exchange/", round + 2);
        else if (what < 914)
            status[i] = gw_ps_store_drop(side->store, "exchange/");
        else if (what < 920)
            status[i] = do_put(world, side, k % 2 ? 0 : 3);
        else if (what < 930)
            status[i] = do_put_value(world, side, k, round + what);
    }
    CHECK(status[0] == status[1], "change %u: %d and %d", what, status[0], status[1]);
    if (what < 930 || what > 960)
        return;
    world->own++;
    gw_ps_folder_note(world->kept.folder);
    gw_ps_folder_commit(world->kept.folder);
}

/* ---- and both answer alike ---------------------------------------------------------------------------------- */

static void compare_pull(struct world *world, uint32_t k, uint32_t rank, gw_ps_method method, bool scaled)
{
    struct gw_ps_pulled pulled[2] = {{.round = 0}, {.round = 0}};
    gw_status status[2];
    char sentences[2][256] = {"", ""}, name[32], scale_name[32];
    for (int i = 0; i < 2; i++) {
        struct side *side = i ? &world->other : &world->kept;
        struct gw_ps_key *key = NULL, *scale = NULL, *waits_for;
        status[i] = gw_ps_store_find(side->store, key_name(k, name), &key);
        if (status[i] == GW_OK && scaled)
            status[i] = gw_ps_store_find(side->store, key_name(4, scale_name), &scale);
        if (status[i] == GW_OK)
            status[i] = gw_ps_store_pull(side->store, key, rank, method, scale, &pulled[i], &waits_for);
        if (status[i] < 0)
            snprintf(sentences[i], sizeof sentences[i], "%s", gw_last_error());
    }
    CHECK(status[0] == status[1] && strcmp(sentences[0], sentences[1]) == 0,
          "pull of key %u, rank %u, method %d: %d %s, and %d %s", k, rank, method, status[0], sentences[0], status[1],
          sentences[1]);
    CHECK(status[0] < 0 || pulled[0].round == pulled[1].round, "rounds %" PRIu64 " and %" PRIu64, pulled[0].round,
          pulled[1].round);
    if (status[0] != GW_OK)
        return;
    CHECK(pulled[0].n_pushes == pulled[1].n_pushes && pulled[0].value->n_bytes == pulled[1].value->n_bytes &&
              memcmp(pulled[0].value->bytes, pulled[1].value->bytes, pulled[0].value->n_bytes) == 0,
          "pull of key %u, rank %u, method %d: other bits", k, rank, method);
    for (int i = 0; i < 2; i++)
        gw_ps_blob_give(pulled[i].value);
}

static void compare_puts(struct world *world, uint32_t k)
{
    struct gw_ps_pulled pulled[2];
    gw_status status[2];
    char name[32];
    for (int i = 0; i < 2; i++) {
        struct gw_ps_key *key = NULL;
        status[i] = gw_ps_store_find((i ? &world->other : &world->kept)->store, key_name(k, name), &key);
        if (status[i] == GW_OK)
            status[i] = gw_ps_store_get(key, 0, &pulled[i]);
    }
    CHECK(status[0] == status[1], "key %u: %d and %d", k, status[0], status[1]);
    if (status[0] != GW_OK)
        return;
    CHECK(pulled[0].round == pulled[1].round && pulled[0].value->n_bytes == pulled[1].value->n_bytes &&
              memcmp(pulled[0].value->bytes, pulled[1].value->bytes, pulled[0].value->n_bytes) == 0,
          "key %u: other bits", k);
    for (int i = 0; i < 2; i++)
        gw_ps_blob_give(pulled[i].value);
}

static void compare(struct world *world)
{
    const struct gw_ps_store *a = world->kept.store, *b = world->other.store;
    struct gw_ps_store_info of_a = gw_ps_store_info(a), of_b = gw_ps_store_info(b);
    CHECK(of_a.n_keys == of_b.n_keys && of_a.rounds == of_b.rounds, "%" PRIu64 " and %" PRIu64 " keys", of_a.n_keys,
          of_b.n_keys);
    CHECK(gw_ps_store_info(a).n_present == gw_ps_store_info(b).n_present &&
              gw_ps_store_info(a).has_begun == gw_ps_store_info(b).has_begun,
          "who is present");
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        uint64_t behind_a, behind_b;
        CHECK(gw_ps_store_pushes(a, r, &behind_a) == gw_ps_store_pushes(b, r, &behind_b) && behind_a == behind_b,
              "rank %u", r);
        CHECK(gw_ps_store_is_present(a, r) == gw_ps_store_is_present(b, r), "rank %u", r);
    }
    for (uint64_t k = 0; k < of_a.n_keys; k++) {
        struct gw_ps_key_info key_a = gw_ps_key_info(a, gw_ps_store_key(a, k)),
                              key_b = gw_ps_key_info(b, gw_ps_store_key(b, k));
        CHECK(strcmp(key_a.name, key_b.name) == 0 && key_a.rounds == key_b.rounds && key_a.n_missing == key_b.n_missing,
              "key %s", key_a.name);
    }
    for (uint32_t k = 0; k < N_KEYS; k++)
        for (uint32_t r = 0; r <= N_WORKERS; r++)
            for (gw_ps_method m = GW_PS_MAX; m <= GW_PS_PARAMETERS; m++) {
                compare_pull(world, k, r < N_WORKERS ? r : GW_PS_READER, m, false);
                if (key_type(k) == GW_PS_UINT8)
                    compare_pull(world, k, r, m, true);
            }
    for (uint32_t k = 0; k < N_KEYS; k++)
        compare_puts(world, k);
}

static void run(gw_ps_mode mode, uint32_t min_workers, uint32_t backup, uint64_t seed)
{
    struct world world;
    begin(&world, mode, min_workers, backup, seed);
    for (uint32_t r = 0; r < N_WORKERS && min_workers; r++) {
        assert_int_equal(gw_ps_store_enter(world.kept.store, r, "", 0), GW_OK);
        assert_int_equal(gw_ps_store_enter(world.other.store, r, "", 0), GW_OK);
    }
    for (int i = 0; i < 40; i++) {
        const uint32_t n = numbers_below(&world.random, 300);
        for (uint32_t j = 0; j < n; j++)
            one_change(&world);
        restart(&world);
        compare(&world);
    }
    CHECK(gw_ps_store_info(world.other.store).rounds > 20 || mode != GW_PS_SYNC, "%" PRIu64 " rounds",
          gw_ps_store_info(world.other.store).rounds);
    end(&world);
}

static void test_sync(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++)
        run(GW_PS_SYNC, 0, 0, seed);
}

static void test_members(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed < 14; seed++)
        run(GW_PS_SYNC, 2, 0, seed);
}

static void test_backup(void **state)
{
    (void)state;
    for (uint64_t seed = 21; seed < 24; seed++)
        run(GW_PS_SYNC, 2, 1, seed);
}

static void test_stale(void **state)
{
    (void)state;
    for (uint64_t seed = 31; seed < 34; seed++)
        run(GW_PS_STALE, seed % 2 ? 2 : 0, 0, seed);
}

static void test_async(void **state)
{
    (void)state;
    for (uint64_t seed = 41; seed < 44; seed++)
        run(GW_PS_ASYNC, seed % 2 ? 2 : 0, 0, seed);
}

/* ---- what does not fit ---------------------------------------------------------------------------------------- */

static void test_another_server(void **state)
{
    struct world world;
    (void)state;
    begin(&world, GW_PS_SYNC, 0, 0, 1);
    close_kept(&world);
    snprintf(world.about, sizeof world.about, "mode=other");
    CHECK(try_open(&world) == GW_ERR_ARGUMENT && strstr(gw_last_error(), "mode=other"), "%s", gw_last_error());
    end(&world);
}

static void test_lower_limit(void **state)
{
    struct world world;
    (void)state;
    begin(&world, GW_PS_SYNC, 0, 0, 1);
    assert_int_equal(do_init(&world, &world.kept, 0), GW_OK);
    assert_int_equal(do_init(&world, &world.kept, 1), GW_OK);
    gw_ps_folder_commit(world.kept.folder);
    close_kept(&world);
    world.options.max_bytes = 10;
    CHECK(try_open(&world) == GW_OK, "bytes that were taken are taken again: %s", gw_last_error());
    assert_int_equal(do_init(&world, &world.kept, 2), GW_ERR_CAPACITY);
    close_kept(&world);
    world.options.max_keys = 1;
    CHECK(try_open(&world) == GW_ERR_CAPACITY && strstr(gw_last_error(), "--max-keys"), "%s", gw_last_error());
    end(&world);
}

/* If nothing can be written, changes go on in memory; and are kept again once there is room. */
static void test_full(void **state)
{
    struct world world;
    struct rlimit limit;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, GW_PS_ASYNC, 0, 0, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(do_init(&world, i ? &world.other : &world.kept, 4), GW_OK);
    for (uint64_t nth = 1; nth < 100; nth++) {
        for (int i = 0; i < 2; i++)
            assert_int_equal(do_push(&world, i ? &world.other : &world.kept, 4, 0, nth, false), GW_OK);
        gw_ps_folder_commit(world.kept.folder);
    }
    CHECK(!gw_ps_folder_info(world.kept.folder).durable && strstr(world.log, "not-durable"), "it fits: %s", world.log);
    compare(&world);
    limit.rlim_cur = RLIM_INFINITY;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 100 && !gw_ps_folder_info(world.kept.folder).durable; i++) {
        usleep(100000);
        gw_ps_folder_commit(world.kept.folder);
    }
    CHECK(gw_ps_folder_info(world.kept.folder).durable, "%s", world.log);
    restart(&world);
    compare(&world);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync),        cmocka_unit_test(test_members), cmocka_unit_test(test_backup),
        cmocka_unit_test(test_stale),       cmocka_unit_test(test_async),   cmocka_unit_test(test_another_server),
        cmocka_unit_test(test_lower_limit), cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests_name("pserver_keep", tests, NULL, NULL);
}
