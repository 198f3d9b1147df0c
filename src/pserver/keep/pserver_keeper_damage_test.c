/* Tests what is kept if files are cut, altered or missing: either all is still there, or opening says why not. */
#define _GNU_SOURCE /* nftw */
#include "pserver/keep/test_keeper.h"

/* The journal as it is with only its first bytes, and as many zeros behind them; then more is appended. */
static void open_cut(struct world *world, const struct file *file, size_t cut, size_t n_zeros, uint64_t whole,
                     bool torn)
{
    uint8_t *bytes = calloc(1, cut + n_zeros + 1);
    memcpy(bytes, file->bytes, cut);
    write_file(world, "journal-00000000.gwj", bytes, cut + n_zeros);
    free(bytes);
    CHECK(try_open(world) == GW_OK && world->count == whole, "cut at %zu: %llu, %s", cut,
          (unsigned long long)world->count, gw_last_error());
    CHECK(told(world, "cut file") == torn, "cut at %zu: %s", cut, world->log);
    append_many(world, 2);
    reopen(world);
    CHECK(world->count == whole + 2 && !told(world, "cut file"), "again after a cut at %zu: %s", cut, world->log);
    close_it(world);
}

static void test_torn_at_every_byte(void **state)
{
    enum { N = 6 };
    struct world world;
    size_t ends[N + 1] = {GW_PS_RECORDS_HEADER};
    uint8_t body[MOST_BODY];
    (void)state;
    begin(&world, 1);
    append_many(&world, N);
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    for (uint64_t i = 0; i < N; i++)
        ends[i + 1] = ends[i] + GW_PS_RECORD_AROUND + 8 + body_of(i, body);
    assert_int_equal(ends[N], file.n);
    unsigned whole = 0;
    for (size_t cut = 0; cut <= file.n; cut++) {
        while (whole < N && ends[whole + 1] <= cut)
            whole++;
        open_cut(&world, &file, cut, 0, whole, cut != ends[whole]);
    }
    for (unsigned n = 0; n <= N; n++) /* the file had its length before its bytes */
        for (size_t n_zeros = 1; n_zeros < 10000; n_zeros += 777)
            open_cut(&world, &file, ends[n], n_zeros, n, true);
    open_cut(&world, &file, 0, 100, 0, true);
    for (size_t cut = GW_PS_RECORDS_HEADER, n = 0; cut < file.n;
         cut++) { /* and some of a record's bytes, with others behind it still to come */
        n += n < N && ends[n + 1] <= cut;
        open_cut(&world, &file, cut, file.n - cut + 100, n, true);
    }
    free(file.bytes);
    end(&world);
}

/* Nothing is taken that is not as it was, and nothing is left out that nobody hears of: not in the last record either,
 * whole as it is within the file. */
static void test_altered_journal(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 1);
    append_many(&world, 5);
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    for (size_t at = 0; at < file.n; at++) {
        file.bytes[at] ^= 0x10;
        write_file(&world, "journal-00000000.gwj", file.bytes, file.n);
        CHECK(try_open(&world) == GW_ERR_SYSTEM && world.count == 0, "byte %zu: %s", at, world.log);
        CHECK(strstr(gw_last_error(), "journal-00000000.gwj") && strstr(gw_last_error(), "truncate -s"), "byte %zu: %s",
              at, gw_last_error());
        file.bytes[at] ^= 0x10;
    }
    free(file.bytes);
    end(&world);
}

/* Each bit of the last record by itself, its lengths and checksums too. */
static void test_flipped_last_record(void **state)
{
    const uint8_t head[3] = {7, 0, 255}, body[21] = {1, 2, 3};
    struct world world;
    (void)state;
    begin(&world, 1);
    append_many(&world, 2);
    CHECK(gw_ps_keeper_append(world.keeper, FILLING, head, sizeof head, body, sizeof body) == GW_OK, "append");
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    const size_t last = file.n - GW_PS_RECORD_AROUND - sizeof head - sizeof body;
    for (size_t bit = 8 * last; bit < 8 * file.n; bit++) {
        file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file(&world, "journal-00000000.gwj", file.bytes, file.n);
        CHECK(try_open(&world) == GW_ERR_SYSTEM && world.count == 0 && !told(&world, "cut file"), "bit %zu: %s", bit,
              world.log);
        check_loss(bit, last, file.n, 2);
        file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    write_file(&world, "journal-00000000.gwj", file.bytes, file.n);
    CHECK(try_open(&world) == GW_OK && world.count == 2, "%s", gw_last_error());
    free(file.bytes);
    end(&world);
}

/* Power may end between two sectors, and the second one holds the end of the last record's checksum only. */
static void test_sector_within_a_checksum(void **state)
{
    uint8_t body[1024];
    struct world world;
    (void)state;
    memset(body, 0xa5, sizeof body);
    for (size_t behind = 1; behind < 8; behind++) { /* bytes of the checksum in the second sector */
        begin(&world, 1);
        append_many(&world, 1);
        const size_t before = (size_t)gw_ps_keeper_info(world.keeper).journal_bytes + GW_PS_RECORD_AROUND;
        const size_t sector = (before + 511) / 512 * 512, n = sector + behind - before;
        CHECK(gw_ps_keeper_append(world.keeper, FILLING, NULL, 0, body, n) == GW_OK, "append");
        close_it(&world);
        struct file file = read_file(&world, "journal-00000000.gwj");
        CHECK(file.n == sector + behind, "%zu", file.n);
        memset(file.bytes + sector, 0, behind);
        write_file(&world, "journal-00000000.gwj", file.bytes, file.n);
        CHECK(try_open(&world) == GW_OK && world.count == 1 && told(&world, "cut file"), "%zu: %s", behind,
              gw_last_error());
        close_it(&world);
        file.bytes[sector - 100] ^= 1; /* what came before does not fit the rest */
        write_file(&world, "journal-00000000.gwj", file.bytes, file.n);
        CHECK(try_open(&world) == GW_ERR_SYSTEM, "%zu: %s", behind, world.log);
        free(file.bytes);
        end(&world);
    }
}

static void test_altered_snapshot(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    for (int i = 0; i < 3; i++) {
        append_many(&world, 4);
        snapshot_now(&world);
    }
    append_many(&world, 4);
    close_it(&world);
    struct file file = read_file(&world, "snapshot-00000003.gws");
    for (size_t at = 0; at < file.n; at++) {
        file.bytes[at] ^= 1;
        write_file(&world, "snapshot-00000003.gws", file.bytes, at % 2 ? file.n : at); /* altered, or cut */
        CHECK(try_open(&world) == GW_OK && world.count == 16 && told(&world, "not-whole snapshot=3"), "byte %zu: %s",
              at, gw_last_error());
        CHECK(told(&world, "restored") && told(&world, "snapshot=2") &&
                  is_there(&world, "snapshot-00000003.gws.damaged"),
              "byte %zu: %s", at, world.log);
        close_it(&world);
        file.bytes[at] ^= 1;
    }
    assert_int_equal(remove(path_of(&world, "snapshot-00000002.gws")), 0);
    assert_int_equal(remove(path_of(&world, "snapshot-00000001.gws")), 0);
    assert_int_equal(try_open(&world), GW_ERR_SYSTEM); /* the beginning was given up for the three */
    CHECK(strstr(gw_last_error(), "is missing") && strstr(gw_last_error(), "another folder"), "%s", gw_last_error());
    free(file.bytes);
    end(&world);
}

static void test_missing(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 9);
    for (int i = 0; i < 3; i++) {
        append_many(&world, 4);
        snapshot_now(&world);
    }
    append_many(&world, 4);
    close_it(&world);
    struct file last = read_file(&world, "journal-00000003.gwj"), middle = read_file(&world, "journal-00000002.gwj");
    remove(path_of(&world, "journal-00000003.gwj"));
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "touch"), "%s", gw_last_error());
    write_file(&world, "journal-00000003.gwj", middle.bytes, middle.n);
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "generation 2"), "%s", gw_last_error());
    write_file(&world, "journal-00000003.gwj", "", 0);
    CHECK(try_open(&world) == GW_OK && world.count == 12, "what the sentence says: %s", gw_last_error());
    close_it(&world);
    write_file(&world, "journal-00000003.gwj", last.bytes, last.n);
    remove(path_of(&world, "journal-00000002.gwj"));
    CHECK(try_open(&world) == GW_OK && world.count == 16, "not needed: %s", gw_last_error());
    close_it(&world);
    remove(path_of(&world, "snapshot-00000003.gws"));
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "journal-00000002.gwj is missing"), "%s",
          gw_last_error());
    write_file(&world, "journal-00000002.gwj", middle.bytes, middle.n - 1);
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "journal-00000002.gwj: it ends within"), "%s",
          gw_last_error());
    write_file(&world, "journal-00000002.gwj", middle.bytes, middle.n);
    CHECK(try_open(&world) == GW_OK && world.count == 16 && !is_there(&world, "journal-00000004.gwj"), "%s",
          gw_last_error());
    free(last.bytes);
    free(middle.bytes);
    end(&world);
}

/* A record of another place, another file of the same kind, is none here. */
static void test_old_bytes(void **state)
{
    struct world world;
    uint8_t body[MOST_BODY];
    (void)state;
    begin(&world, 9);
    append_many(&world, 4);
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    const size_t first = GW_PS_RECORDS_HEADER, second = first + GW_PS_RECORD_AROUND + 8 + body_of(0, body);
    uint8_t *twice = malloc(file.n + second);
    memcpy(twice, file.bytes, second);
    memcpy(twice + second, file.bytes + first, file.n - first);
    write_file(&world, "journal-00000000.gwj", twice, file.n + second - first);
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "damaged"), "%s", gw_last_error());
    free(twice);
    free(file.bytes);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn_at_every_byte),  cmocka_unit_test(test_altered_journal),
        cmocka_unit_test(test_flipped_last_record), cmocka_unit_test(test_sector_within_a_checksum),
        cmocka_unit_test(test_altered_snapshot),    cmocka_unit_test(test_missing),
        cmocka_unit_test(test_old_bytes),
    };
    return cmocka_run_group_tests_name("pserver_keeper_damage", tests, NULL, NULL);
}
