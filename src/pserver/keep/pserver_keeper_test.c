/* Tests the folder of snapshots and journals: what was appended is there again, whole and in order, however the
 * process ended. */
#define _GNU_SOURCE /* nftw */
#include "descriptors.h"
#include "shortage.h"
#include "pserver/keep/test_keeper.h"

/* ---- what was appended is there --------------------------------------------------------------------------------- */

static void test_again(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    CHECK(told(&world, "keeping"), "%s", world.log);
    for (int i = 1; i <= 6; i++) {
        append_many(&world, 50);
        reopen(&world);
        CHECK(world.count == 50u * (unsigned)i && told(&world, "restored") && !told(&world, "cut"), "%llu: %s",
              (unsigned long long)world.count, world.log);
        if (i % 2 == 0)
            snapshot_now(&world);
    }
    CHECK(gw_ps_keeper_info(world.keeper).generation == 3 && gw_ps_keeper_info(world.keeper).durable, "generation");
    end(&world);
}

static void test_only_so_many_stay(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2);
    for (int i = 0; i < 5; i++) {
        append_many(&world, 3);
        snapshot_now(&world);
        CHECK(i > 0 || is_there(&world, "journal-00000000.gwj"), "the beginning is a second point to restore from");
    }
    CHECK(is_there(&world, "snapshot-00000005.gws") && is_there(&world, "snapshot-00000004.gws") &&
              is_there(&world, "journal-00000004.gwj"),
          "the last two");
    CHECK(!is_there(&world, "snapshot-00000003.gws") && !is_there(&world, "journal-00000003.gwj"), "older ones");
    write_file(&world, "snapshot-00000009.gws.partial", "x", 1);
    reopen(&world);
    CHECK(world.count == 15 && !is_there(&world, "snapshot-00000009.gws.partial"), "%llu",
          (unsigned long long)world.count);
    end(&world);
}

struct long_body {
    const uint8_t *bytes;
    size_t n_bytes;
    uint32_t n_times;
};

static gw_status on_long_body(void *user, uint8_t type, const void *head, size_t n_head, const void *body,
                              size_t n_body)
{
    struct long_body *expected = user;
    CHECK(type == FILLING && n_head == 2 && memcmp(head, "ab", 2) == 0 && n_body == expected->n_bytes &&
              memcmp(body, expected->bytes, n_body) == 0,
          "type %u, a head of %zu bytes, a body of %zu", type, n_head, n_body);
    expected->n_times++;
    return GW_OK;
}

/* A body that is only checked is read in pieces over each other. One that is replayed is whole. */
static void test_long_bodies(void **state)
{
    enum { N = (1 << 20) + 5 };
    struct world world;
    (void)state;
    uint8_t *bytes = malloc(N);
    assert_non_null(bytes);
    struct numbers random = numbers_from(1);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (uint8_t)numbers_word(&random);
    begin(&world, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gw_ps_keeper_append(world.keeper, FILLING, "ab", 2, bytes, N), GW_OK);
    close_it(&world);
    const struct gw_ps_keeper_options options = {.folder = world.folder, .keep = 1, .every_s = 1e9};
    struct long_body expected = {bytes, N, 0};
    assert_int_equal(gw_ps_keeper_open(world.context, &options, on_long_body, &expected, &world.keeper), GW_OK);
    assert_int_equal(expected.n_times, 2);
    free(bytes);
    end(&world);
}

static void test_two_servers(void **state)
{
    struct world world, other;
    (void)state;
    begin(&world, 1);
    other = world;
    CHECK(try_open(&other) == GW_ERR_SYSTEM && strstr(gw_last_error(), "another server"), "%s", gw_last_error());
    snprintf(other.folder, sizeof other.folder, "/tmp/no-such-folder/none");
    CHECK(try_open(&other) == GW_ERR_SYSTEM && strstr(gw_last_error(), "cannot be made"), "%s", gw_last_error());
    end(&world);
}

static void test_due(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1);
    close_it(&world);
    const struct gw_ps_keeper_options options = {.folder = world.folder, .keep = 1, .every_s = 0};
    assert_int_equal(gw_ps_keeper_open(world.context, &options, on_record, &world, &world.keeper), GW_OK);
    CHECK(!gw_ps_keeper_due(world.keeper), "nothing is new");
    append_many(&world, 1);
    CHECK(gw_ps_keeper_due(world.keeper), "something is, and it is time");
    assert_int_equal(snapshot(&world), GW_OK);
    CHECK(!gw_ps_keeper_due(world.keeper) && gw_ps_keeper_begin(world.keeper) == GW_ERR_ORDER, "one is under way");
    assert_int_equal(gw_ps_keeper_finish(world.keeper), GW_OK);
    CHECK(!gw_ps_keeper_due(world.keeper), "nothing is new again");
    reopen(&world); /* every_s is far */
    append_many(&world, 10);
    CHECK(!gw_ps_keeper_due(world.keeper), "not yet");
    uint8_t *large = calloc(1, 65u << 20);
    assert_int_equal(gw_ps_keeper_append(world.keeper, FILLING, NULL, 0, large, 65u << 20), GW_OK);
    free(large);
    CHECK(gw_ps_keeper_due(world.keeper), "the journal is large");
    reopen(&world);
    CHECK(world.count == 11 && gw_ps_keeper_due(world.keeper), "still");
    end(&world);
}

/* While snapshots are written, appending goes on. */
static void test_beside_snapshots(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(snapshot(&world), GW_OK);
        append_many(&world, 20);
        while (gw_ps_keeper_info(world.keeper).writing) {
            append_many(&world, 1);
            gw_ps_keeper_look(world.keeper);
        }
    }
    const uint64_t count = world.count;
    reopen(&world);
    CHECK(world.count == count && gw_ps_keeper_info(world.keeper).generation == 10, "%llu",
          (unsigned long long)world.count);
    end(&world);
}

/* ---- kill -9 --------------------------------------------------------------------------------------------------------
 */

/* Appends, snapshots now and then, and tells each number it may be asked for. */
static void count_on(struct world *world, int to)
{
    for (;;) {
        const uint64_t number = world->count;
        if (append(world) != GW_OK || write(to, &number, sizeof number) != sizeof number)
            _exit(1);
        if (number % 7 == 0 && !gw_ps_keeper_info(world->keeper).writing && snapshot(world) < 0)
            _exit(1);
        gw_ps_keeper_look(world->keeper);
    }
}

static void test_waits_for_a_descriptor(void **state)
{
    (void)state;
    struct world world;
    struct descriptors all;
    begin(&world, 2);
    append_many(&world, 10);
    descriptors_take(&all); /* the next journal */
    descriptors_give_soon(&all);
    const gw_status journal = snapshot(&world);
    descriptors_end(&all);
    CHECK(journal == GW_OK && gw_ps_keeper_finish(world.keeper) == GW_OK, "a journal: %s", gw_last_error());
    append_many(&world, 10);

    assert_int_equal(gw_ps_keeper_begin(world.keeper), GW_OK); /* the snapshot, which a thread writes */
    uint8_t head[8];
    gw_put64(head, world.count);
    gw_ps_keeper_add(world.keeper, A_COUNT, head, sizeof head, NULL);
    descriptors_take(&all);
    gw_status status = gw_ps_keeper_end(world.keeper, GW_OK);
    descriptors_give_soon(&all);
    if (status == GW_OK)
        status = gw_ps_keeper_finish(world.keeper);
    descriptors_end(&all);
    CHECK(status == GW_OK && !told(&world, "snapshot-failed"), "a snapshot: %s\n%s", gw_last_error(), world.log);

    const uint64_t count = world.count;
    close_it(&world);
    descriptors_take(&all); /* the folder, and all in it */
    descriptors_give_soon(&all);
    status = try_open(&world);
    descriptors_end(&all);
    CHECK(status == GW_OK && world.count == count, "%s; %llu of %llu", gw_last_error(), (unsigned long long)world.count,
          (unsigned long long)count);
    end(&world);
}

static void test_killed(void **state)
{
    struct world world;
    struct numbers random = numbers_from(9);
    (void)state;
    begin(&world, 2);
    close_it(&world);
    for (int i = 0; i < 20; i++) {
        int pipes[2];
        const uint32_t until = numbers_below(&random, 200);
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            if (try_open(&world) < 0)
                _exit(1);
            count_on(&world, pipes[1]);
        }
        close(pipes[1]);
        uint64_t number, last = 0, n = 0;
        while (n <= until && read(pipes[0], &number, sizeof number) == sizeof number) {
            last = number + 1;
            n++;
        }
        CHECK(n > until, "the child ended by itself");
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(pipes[0], &number, sizeof number) == sizeof number)
            last = number + 1;
        close(pipes[0]);
        CHECK(try_open(&world) == GW_OK && world.count >= last && world.count <= last + 1, "time %d: %llu of %llu, %s",
              i, (unsigned long long)world.count, (unsigned long long)last, world.log);
        close_it(&world);
    }
    end(&world);
}

/* ---- no memory ------------------------------------------------------------------------------------------------------
 */

static void test_no_memory(void **state)
{
    struct world world;
    struct shortage shortage = {.fail_at = 0};
    const gw_allocator allocator = {short_alloc, short_free, &shortage};
    (void)state;
    begin(&world, 2);
    append_many(&world, 20);
    snapshot_now(&world);
    append_many(&world, 20);
    close_it(&world);
    gw_context *usual = world.context;
    gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    assert_int_equal(gw_context_create(&options, &world.context), GW_OK);
    const int before = atomic_load(&shortage.live);
    int failed = 0;
    for (int n = 1; !failed || shortage.fail_at <= atomic_load(&shortage.calls); n++) {
        atomic_store(&shortage.calls, 0);
        shortage.fail_at = n;
        gw_status status = try_open(&world);
        CHECK(status == GW_OK || status == GW_ERR_MEMORY, "allocation %d: %s", n, gw_last_error());
        failed += status < 0;
        if (status == GW_OK) {
            CHECK(world.count == 40, "allocation %d: %llu", n, (unsigned long long)world.count);
            shortage.fail_at = 0;
        }
        close_it(&world);
        CHECK(atomic_load(&shortage.live) == before, "allocation %d: %d blocks stay", n,
              atomic_load(&shortage.live) - before);
        if (status == GW_OK)
            break;
    }
    CHECK(failed > 5, "%d", failed);
    assert_int_equal(try_open(&world), GW_OK);
    for (int n = 1; n < 4; n++) { /* a snapshot there is no memory for changes nothing */
        uint8_t head[8] = {40};
        atomic_store(&shortage.calls, 0);
        shortage.fail_at = n;
        gw_status status = gw_ps_keeper_begin(world.keeper);
        if (status == GW_OK) {
            gw_ps_keeper_add(world.keeper, A_COUNT, head, sizeof head, NULL);
            gw_ps_keeper_add(world.keeper, FILLING, NULL, 0, NULL);
            status = gw_ps_keeper_end(world.keeper, GW_OK);
        }
        CHECK(status == GW_ERR_MEMORY, "allocation %d of a snapshot: %d", n, status);
    }
    shortage.fail_at = 0;
    append_many(&world, 1);
    reopen(&world);
    CHECK(world.count == 41, "%llu", (unsigned long long)world.count);
    close_it(&world);
    gw_context_destroy(world.context);
    world.context = usual;
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_only_so_many_stay),
        cmocka_unit_test(test_long_bodies),
        cmocka_unit_test(test_two_servers),
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_beside_snapshots),
        cmocka_unit_test(test_waits_for_a_descriptor),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("pserver_keeper", tests, NULL, NULL);
}
