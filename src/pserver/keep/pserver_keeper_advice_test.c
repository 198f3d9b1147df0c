/* Tests the advice of an opening that fails, and that an opening notices if the newest files were removed together. */
#define _GNU_SOURCE /* nftw */
#include "pserver/keep/test_keeper.h"

/* ---- the newest files, removed together --------------------------------------------------------------------- */

static void test_newest_pair_is_missing(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 9);
    for (int i = 0; i < 2; i++) {
        append_many(&world, 4);
        snapshot_now(&world);
    }
    append_many(&world, 4);
    close_it(&world);
    remove_file(&world, "snapshot-00000002.gws");
    CHECK(try_open(&world) == GW_OK && world.count == 12, "the older one and the journals: %s", gw_last_error());
    close_it(&world);
    remove_file(&world, "journal-00000002.gwj");
    check_newest_missing(&world, "journal-00000002.gwj");
    remove_file(&world, "newest");
    CHECK(try_open(&world) == GW_OK && world.count == 8, "what the sentence says: %s", gw_last_error());
    close_it(&world);
    remove_file(&world, "snapshot-00000001.gws");
    remove_file(&world, "journal-00000001.gwj");
    check_newest_missing(&world, "journal-00000001.gwj");
    remove_file(&world, "journal-00000000.gwj");
    check_newest_missing(&world, "journal-00000001.gwj");
    end(&world);

    begin(&world, 1); /* the only one */
    append_many(&world, 4);
    close_it(&world);
    remove_file(&world, "journal-00000000.gwj");
    check_newest_missing(&world, "journal-00000000.gwj");
    end(&world);
}

/* Without a server's end: the thread that brings the journal to disk tells which is the newest, too. */
static void test_newest_is_told_meanwhile(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    append_many(&world, 4);
    snapshot_now(&world);
    for (int i = 0; i < 600; i++) { /* a second or so; a minute is the deadline */
        struct file file = {NULL, 0};
        if (is_there(&world, "newest"))
            file = read_file(&world, "newest");
        const bool is_told = file.n == GW_PS_RECORDS_HEADER && gw_get64(file.bytes + 16) == 1;
        free(file.bytes);
        if (is_told) {
            end(&world);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    fail_msg("nobody tells that generation 1 is the newest");
}

static void test_newest_is_altered(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    append_many(&world, 4);
    close_it(&world);
    struct file file = read_file(&world, "newest");
    for (size_t bit = 0; bit < 8 * file.n; bit++) {
        file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file(&world, "newest", file.bytes, bit % 3 ? file.n : bit / 8);
        CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "newest") &&
                  strstr(gw_last_error(), "remove it"),
              "bit %zu: %s", bit, gw_last_error());
        file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    remove_file(&world, "newest"); /* a folder of an older program has none */
    CHECK(try_open(&world) == GW_OK && world.count == 4, "%s", gw_last_error());
    close_it(&world);
    CHECK(is_there(&world, "newest"), "it is made");
    free(file.bytes);
    end(&world);
}

/* ---- what the sentence advises ------------------------------------------------------------------------------ */

/* A journal that may be good must not be cut. */
static void check_advice(struct world *world, const char *advice)
{
    CHECK(try_open(world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "journal-00000001.gwj"), "%s", gw_last_error());
    CHECK(strstr(gw_last_error(), advice) && !strstr(gw_last_error(), "truncate"), "not %s: %s", advice,
          gw_last_error());
}

static void rename_file(const struct world *world, const char *from, const char *to)
{
    char old[256];
    snprintf(old, sizeof old, "%s", path_of(world, from));
    CHECK(rename(old, path_of(world, to)) == 0, "%s: %s", from, strerror(errno));
}

static void test_advice_fits_the_cause(void **state)
{
    const char *const name = "journal-00000001.gwj", *const aside = "aside";
    struct world world;
    (void)state;
    begin(&world, 9);
    append_many(&world, 4);
    snapshot_now(&world);
    append_many(&world, 4);
    close_it(&world);
    struct file first = read_file(&world, "journal-00000000.gwj"), file = read_file(&world, name),
                snapshot_1 = read_file(&world, "snapshot-00000001.gws");

    rename_file(&world, name, aside); /* things that are no file, and links that lead to none */
    assert_int_equal(mkdir(path_of(&world, name), 0700), 0);
    check_advice(&world, "is no file but a directory");
    assert_int_equal(rmdir(path_of(&world, name)), 0);
    assert_int_equal(mkfifo(path_of(&world, name), 0600), 0);
    check_advice(&world, "what has its name is no file");
    remove_file(&world, name);
    assert_int_equal(symlink("nowhere", path_of(&world, name)), 0);
    check_advice(&world, "it is a link");
    remove_file(&world, name);
    assert_int_equal(symlink(name, path_of(&world, name)), 0);
    check_advice(&world, "it is a link");
    remove_file(&world, name);

    write_file(&world, name, first.bytes, first.n); /* other files under its name */
    check_advice(&world, "a journal of generation 0; give it its own name back");
    write_file(&world, name, snapshot_1.bytes, snapshot_1.n);
    check_advice(&world, "a snapshot of generation 1; give it its own name back");
    uint8_t later[GW_PS_RECORDS_HEADER];
    memcpy(later, file.bytes, sizeof later);
    gw_put32(later + 8, 9);
    gw_put64(later + 24, gw_hash_now()->whole(later, 24, 0));
    write_file(&world, name, later, sizeof later);
    check_advice(&world, "version 9");
    remove_file(&world, name);

    rename_file(&world, aside, name); /* a file that the server may not read */
    const bool is_root = geteuid() == 0;
    assert_int_equal(chmod(path_of(&world, name), 0), 0);
    if (is_root)
        assert_true(chown(world.folder, 65534, 65534) == 0 && chown(path_of(&world, "lock"), 65534, 65534) == 0 &&
                    chmod(path_of(&world, "newest"), 0644) == 0 &&
                    chmod(path_of(&world, "snapshot-00000001.gws"), 0644) == 0 && seteuid(65534) == 0);
    check_advice(&world, "let the server's user read");
    assert_true(!is_root || seteuid(0) == 0);
    assert_int_equal(chmod(path_of(&world, name), 0600), 0);

    write_file(&world, name, "hello, this is no journal", 25); /* and its own bytes */
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "altered"), "%s", gw_last_error());
    check_loss(0, 0, 25, 0);
    write_file(&world, name, file.bytes, file.n);
    CHECK(try_open(&world) == GW_OK && world.count == 8, "%s", gw_last_error());
    free(snapshot_1.bytes);
    free(first.bytes);
    free(file.bytes);
    end(&world);
}

/* A snapshot that cannot be opened is passed over, and may be good: it is not called damaged. */
static void test_unreadable_snapshot_stays(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 9);
    append_many(&world, 4);
    snapshot_now(&world);
    append_many(&world, 4);
    close_it(&world);
    rename_file(&world, "snapshot-00000001.gws", "aside");
    assert_int_equal(symlink("nowhere", path_of(&world, "snapshot-00000001.gws")), 0);
    CHECK(try_open(&world) == GW_OK && world.count == 8 && told(&world, "not-whole snapshot=1"), "%s", gw_last_error());
    CHECK(!is_there(&world, "snapshot-00000001.gws.damaged"), "%s", world.log);
    close_it(&world);
    rename_file(&world, "aside", "snapshot-00000001.gws");
    CHECK(try_open(&world) == GW_OK && world.count == 8 && told(&world, " snapshot=1 "), "%s", world.log);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_pair_is_missing),    cmocka_unit_test(test_newest_is_told_meanwhile),
        cmocka_unit_test(test_newest_is_altered),         cmocka_unit_test(test_advice_fits_the_cause),
        cmocka_unit_test(test_unreadable_snapshot_stays),
    };
    return cmocka_run_group_tests_name("pserver_keeper_advice", tests, NULL, NULL);
}
