/* Tests the folder of snapshots and journals: what was appended is there again, whole and in order, however the
 * process ended. If files are cut, altered or missing, either all is still there, or opening says why not. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "checks.h"
#include "descriptors.h"
#include "pserver/keeper.h"
#include "shortage.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is kept is how many numbers were counted: each record is the next number, and a snapshot says how many there
 * were. */
enum { A_NUMBER = 1, A_COUNT = 2, FILLING = 3, MOST_BODY = 4000 };

struct world {
    char folder[64];
    gw_context *context;
    struct gw_ps_keeper *keeper;
    uint64_t count;
    uint32_t keep;
    char log[8192]; /* all lines */
    atomic_uint_least64_t held;
};

/* ---- records and their body ---------------------------------------------------------------------------------- */

static size_t body_of(uint64_t number, uint8_t *bytes)
{
    struct numbers random = numbers_from(number);
    const size_t n = numbers_below(&random, 4) ? numbers_below(&random, 60) : numbers_below(&random, MOST_BODY);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)numbers_word(&random);
    return n;
}

static gw_status on_record(void *user, uint8_t type, const void *head, size_t n_head, const void *body, size_t n_body)
{
    struct world *world = user;
    uint8_t expected[MOST_BODY];
    if (type == FILLING)
        return GW_OK;
    CHECK(n_head == 8, "a head of %zu bytes", n_head);
    const uint64_t number = gw_get64(head);
    CHECK((uintptr_t)body % 64 == 0, "a body at %p", body);
    if (type == A_COUNT) {
        CHECK(world->count == 0 && n_body == 0, "a snapshot after %llu records", (unsigned long long)world->count);
        world->count = number;
        return GW_OK;
    }
    CHECK(number == world->count, "number %llu came as the %lluth", (unsigned long long)number,
          (unsigned long long)world->count);
    CHECK(n_body == body_of(number, expected) && memcmp(body, expected, n_body) == 0, "another body of number %llu",
          (unsigned long long)number);
    world->count++;
    return GW_OK;
}

static void on_line(const char *line, void *user)
{
    struct world *world = user;
    size_t used = strlen(world->log);
    snprintf(world->log + used, sizeof world->log - used, "%s\n", line);
}

static bool told(const struct world *world, const char *word)
{
    return strstr(world->log, word) != NULL;
}

static gw_status append(struct world *world)
{
    uint8_t head[8], body[MOST_BODY];
    gw_put64(head, world->count);
    const size_t n = body_of(world->count, body);
    world->count++;
    return gw_ps_keeper_append(world->keeper, A_NUMBER, head, sizeof head, body, n);
}

static void append_many(struct world *world, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(append(world) == GW_OK, "%s", gw_last_error());
}

static gw_status snapshot(struct world *world)
{
    uint8_t head[8];
    gw_put64(head, world->count);
    gw_status status = gw_ps_keeper_begin(world->keeper);
    if (status < 0)
        return status;
    gw_ps_keeper_add(world->keeper, A_COUNT, head, sizeof head, NULL);
    struct gw_ps_blob *blob = gw_ps_blob_new(world->context, &world->held, gw_calloc(world->context, 100, 1), 100);
    gw_ps_keeper_add(world->keeper, FILLING, NULL, 0, blob);
    gw_ps_blob_give(blob);
    return gw_ps_keeper_end(world->keeper, GW_OK);
}

static void snapshot_now(struct world *world)
{
    CHECK(snapshot(world) == GW_OK && gw_ps_keeper_finish(world->keeper) == GW_OK, "%s", gw_last_error());
}

/* ---- folders -------------------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static gw_status try_open(struct world *world)
{
    const struct gw_ps_keeper_options options = {
        .folder = world->folder, .keep = world->keep, .every_s = 1e9, .log = on_line, .log_user = world};
    world->count = 0;
    world->log[0] = 0;
    world->keeper = NULL;
    return gw_ps_keeper_open(world->context, &options, on_record, world, &world->keeper);
}

static void reopen(struct world *world)
{
    gw_ps_keeper_close(world->keeper);
    CHECK(try_open(world) == GW_OK, "%s", gw_last_error());
}

static void close_it(struct world *world)
{
    gw_ps_keeper_close(world->keeper);
    world->keeper = NULL;
}

static void begin(struct world *world, uint32_t keep)
{
    *world = (struct world){.keep = keep};
    snprintf(world->folder, sizeof world->folder, "/tmp/gradwire-keeper-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    assert_int_equal(gw_context_create(NULL, &world->context), GW_OK);
    CHECK(try_open(world) == GW_OK, "%s", gw_last_error());
}

static void end(struct world *world)
{
    close_it(world);
    assert_int_equal(atomic_load(&world->held), 0);
    gw_context_destroy(world->context);
    remove_folder(world->folder);
}

static const char *path_of(const struct world *world, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", world->folder, name);
    return path;
}

struct file {
    uint8_t *bytes;
    size_t n;
};

static struct file read_file(const struct world *world, const char *name)
{
    struct stat st;
    struct file file;
    FILE *stream = fopen(path_of(world, name), "rb");
    assert_non_null(stream);
    assert_int_equal(fstat(fileno(stream), &st), 0);
    file.n = (size_t)st.st_size;
    file.bytes = malloc(file.n + 1);
    assert_int_equal(fread(file.bytes, 1, file.n, stream), file.n);
    fclose(stream);
    return file;
}

static void write_file(const struct world *world, const char *name, const void *bytes, size_t n)
{
    FILE *stream = fopen(path_of(world, name), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    fclose(stream);
}

static bool is_there(const struct world *world, const char *name)
{
    return access(path_of(world, name), F_OK) == 0;
}

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

/* ---- files that were cut, altered, or are missing -----------------------------------------------------------------
 */

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

/* What the sentence about damage at `last` must say. */
static void check_loss(size_t at, size_t last, size_t n, unsigned records)
{
    char advice[128];
    snprintf(advice, sizeof advice, "`truncate -s %zu` keeps %u records of it and loses its last %zu bytes", last,
             records, n - last);
    CHECK(strstr(gw_last_error(), advice), "bit %zu, not %s: %s", at, advice, gw_last_error());
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

/* ---- the newest files, removed together --------------------------------------------------------------------- */

static void remove_file(const struct world *world, const char *name)
{
    CHECK(remove(path_of(world, name)) == 0, "%s: %s", name, strerror(errno));
}

static void check_newest_missing(struct world *world, const char *journal)
{
    CHECK(try_open(world) == GW_ERR_SYSTEM && world->count == 0, "%s is not missed: %s", journal, world->log);
    CHECK(strstr(gw_last_error(), journal) && strstr(gw_last_error(), "`newest`") &&
              !strstr(gw_last_error(), "truncate"),
          "%s", gw_last_error());
}

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

/* ---- what comes to disk first -------------------------------------------------------------------------------------
 */

/* A disk that takes its time with one file: until another has come, or some seconds have passed. */
static struct slow_disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ino_t slow; /* 0: none */
    bool slow_came, other_was_first;
} disk = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false, false};

int fdatasync(int fd) /* in place of the system's */
{
    struct stat st;
    struct timespec deadline;
    pthread_mutex_lock(&disk.lock);
    if (disk.slow && !disk.slow_came && fstat(fd, &st) == 0) {
        if (st.st_ino == disk.slow) {
            clock_gettime(CLOCK_REALTIME, &deadline);
            deadline.tv_sec += 3;
            while (!disk.other_was_first && pthread_cond_timedwait(&disk.changed, &disk.lock, &deadline) == 0)
                ;
            disk.slow_came = true;
        } else {
            disk.other_was_first = true;
            pthread_cond_broadcast(&disk.changed);
        }
    }
    pthread_mutex_unlock(&disk.lock);
    return (int)syscall(SYS_fdatasync, fd);
}

static ino_t watched;             /* guarded by the lock */
static bool watched_came = false; /* likewise */

int fsync(int fd) /* in place of the system's */
{
    struct stat st;
    pthread_mutex_lock(&disk.lock);
    if (fstat(fd, &st) == 0 && st.st_ino == watched)
        watched_came = true;
    pthread_mutex_unlock(&disk.lock);
    return (int)syscall(SYS_fsync, fd);
}

static void slow_down(ino_t file)
{
    pthread_mutex_lock(&disk.lock);
    disk.slow = file;
    pthread_mutex_unlock(&disk.lock);
}

/* What is in a new folder is lost with its name. */
static void test_a_new_folder_comes_to_disk(void **state)
{
    struct world world;
    struct stat st;
    char above[64];
    (void)state;
    begin(&world, 3);
    close_it(&world);
    snprintf(above, sizeof above, "%s", world.folder);
    snprintf(world.folder + strlen(above), sizeof world.folder - strlen(above), "/new");
    assert_int_equal(stat(above, &st), 0);
    pthread_mutex_lock(&disk.lock);
    watched = st.st_ino;
    pthread_mutex_unlock(&disk.lock);
    CHECK(try_open(&world) == GW_OK, "%s", gw_last_error());
    pthread_mutex_lock(&disk.lock);
    CHECK(watched_came, "the folder that the new one is in");
    watched = 0;
    pthread_mutex_unlock(&disk.lock);
    world.folder[strlen(above)] = 0;
    end(&world);
}

/* A machine that loses its power must not have the next journal, and not the end of the one before. */
static void test_journals_come_to_disk_in_order(void **state)
{
    struct world world;
    struct stat st;
    (void)state;
    begin(&world, 3);
    append_many(&world, 5);
    assert_int_equal(stat(path_of(&world, "journal-00000000.gwj"), &st), 0);
    slow_down(st.st_ino);
    assert_int_equal(snapshot(&world), GW_OK);
    append_many(&world, 5);
    assert_int_equal(gw_ps_keeper_finish(world.keeper), GW_OK);
    slow_down(0);
    CHECK(disk.slow_came && !disk.other_was_first,
          "the journal of the snapshot came to disk before the one that it follows");
    end(&world);
}

/* The next one may be there all the same, as a name with nothing behind it. */
static void test_torn_before_an_empty_one(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3);
    append_many(&world, 5);
    close_it(&world);
    struct file file = read_file(&world, "journal-00000000.gwj");
    write_file(&world, "journal-00000000.gwj", file.bytes, file.n - 1);
    write_file(&world, "journal-00000001.gwj", "", 0);
    CHECK(try_open(&world) == GW_OK && world.count == 4 && told(&world, "cut file=journal-00000000.gwj"), "%s",
          gw_last_error());
    CHECK(!is_there(&world, "journal-00000001.gwj"), "nothing follows");
    append_many(&world, 3);
    snapshot_now(&world);
    append_many(&world, 1);
    reopen(&world);
    CHECK(world.count == 8, "%llu", (unsigned long long)world.count);
    free(file.bytes);
    end(&world);
}

/* ---- a full disk --------------------------------------------------------------------------------------------------
 */

static void most_file_bytes(rlim_t n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Until one is refused; how many were not. */
static uint64_t append_until_full(struct world *world)
{
    while (append(world) == GW_OK)
        ;
    CHECK(!gw_ps_keeper_info(world->keeper).durable && gw_ps_keeper_info(world->keeper).reason[0], "durable");
    return world->count - 1;
}

/* Files cannot become longer than so many bytes, which looks like a disk that is full to who writes. */
static void test_full(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (int snapshots = 0; snapshots < 3; snapshots++) {
        begin(&world, 3);
        append_many(&world, 3);
        if (snapshots)
            snapshot_now(&world);
        most_file_bytes(20000);
        const uint64_t kept = append_until_full(&world);
        CHECK(kept > 3 && append(&world) == GW_ERR_SYSTEM && gw_ps_keeper_due(world.keeper), "%s", gw_last_error());
        for (int i = 0; i < 2 && snapshots == 2; i++) { /* not even the snapshot fits */
            most_file_bytes(i ? 10 : 100);
            CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
            CHECK(append(&world) == GW_ERR_SYSTEM && !gw_ps_keeper_due(world.keeper) && told(&world, "snapshot-failed"),
                  "a pause");
        }
        most_file_bytes(RLIM_INFINITY);
        CHECK(append(&world) == GW_ERR_SYSTEM, "room is not enough: records are missing");
        reopen(&world);
        CHECK(world.count == kept && gw_ps_keeper_info(world.keeper).durable, "%llu of %llu: %s",
              (unsigned long long)world.count, (unsigned long long)kept, world.log);
        end(&world);
    }
}

/* Once there is room, a snapshot mends it, and all is there from then on. */
static void test_room_again(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    for (int i = 0; i < 3; i++) {
        most_file_bytes(20000);
        append_until_full(&world);
        most_file_bytes(100);
        CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
        most_file_bytes(RLIM_INFINITY);
        CHECK(snapshot(&world) == GW_OK, "%s", gw_last_error());
        append(&world); /* may or may not be kept yet */
        CHECK(gw_ps_keeper_finish(world.keeper) == GW_OK && gw_ps_keeper_info(world.keeper).durable &&
                  told(&world, "\ndurable"),
              "%s", world.log);
        append_many(&world, 5);
        const uint64_t count = world.count;
        reopen(&world);
        CHECK(world.count == count, "%llu of %llu: %s", (unsigned long long)world.count, (unsigned long long)count,
              world.log);
    }
    end(&world);
}

/* The newest snapshot mended a gap, and is damaged: the older one does not pass for it. */
static void test_gap_is_not_skipped(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    most_file_bytes(20000);
    append_until_full(&world);
    most_file_bytes(RLIM_INFINITY);
    snapshot_now(&world);
    append_many(&world, 2);
    close_it(&world);
    write_file(&world, "snapshot-00000001.gws", "nothing", 7);
    CHECK(try_open(&world) == GW_ERR_SYSTEM && told(&world, "follows a gap"), "%s", world.log);
    end(&world);
}

/* It mended a gap, and is gone: what it held, and the journal after it, are not left out without a word. */
static void test_snapshot_after_a_gap_is_missing(void **state)
{
    struct world world;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    begin(&world, 3);
    most_file_bytes(20000);
    append_until_full(&world);
    most_file_bytes(RLIM_INFINITY);
    snapshot_now(&world);
    append_many(&world, 2);
    close_it(&world);
    remove_file(&world, "snapshot-00000001.gws");
    CHECK(try_open(&world) == GW_ERR_SYSTEM && strstr(gw_last_error(), "needs snapshot-00000001.gws"), "%s", world.log);
    remove_file(&world, "journal-00000001.gwj");
    check_newest_missing(&world, "journal-00000001.gwj");
    end(&world);
}

static void test_full_tmpfs(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 2);
    close_it(&world);
    if (mount("tmpfs", world.folder, "tmpfs", 0, "size=256k") != 0) {
        print_message("skipped: a small tmpfs cannot be mounted: %s\n", strerror(errno));
        end(&world);
        skip();
    }
    assert_int_equal(try_open(&world), GW_OK);
    const uint64_t kept = append_until_full(&world);
    CHECK(strstr(gw_ps_keeper_info(world.keeper).reason, strerror(ENOSPC)), "%s",
          gw_ps_keeper_info(world.keeper).reason);
    CHECK(snapshot(&world) < 0 || gw_ps_keeper_finish(world.keeper) == GW_ERR_SYSTEM, "of a full disk");
    CHECK(!is_there(&world, "snapshot-00000001.gws.partial") && !is_there(&world, "snapshot-00000001.gws"),
          "half a snapshot");
    close_it(&world);
    CHECK(try_open(&world) == GW_OK && world.count == kept, "%s", gw_last_error());
    append_until_full(&world);
    assert_int_equal(mount("tmpfs", world.folder, "tmpfs", MS_REMOUNT, "size=2m"), 0);
    snapshot_now(&world);
    append_many(&world, 10);
    const uint64_t count = world.count;
    reopen(&world);
    CHECK(world.count == count, "%s", world.log);
    close_it(&world);
    assert_int_equal(umount(world.folder), 0);
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
        cmocka_unit_test(test_two_servers),
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_beside_snapshots),
        cmocka_unit_test(test_torn_at_every_byte),
        cmocka_unit_test(test_altered_journal),
        cmocka_unit_test(test_flipped_last_record),
        cmocka_unit_test(test_sector_within_a_checksum),
        cmocka_unit_test(test_altered_snapshot),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_newest_pair_is_missing),
        cmocka_unit_test(test_newest_is_told_meanwhile),
        cmocka_unit_test(test_newest_is_altered),
        cmocka_unit_test(test_advice_fits_the_cause),
        cmocka_unit_test(test_unreadable_snapshot_stays),
        cmocka_unit_test(test_old_bytes),
        cmocka_unit_test(test_a_new_folder_comes_to_disk),
        cmocka_unit_test(test_journals_come_to_disk_in_order),
        cmocka_unit_test(test_torn_before_an_empty_one),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_room_again),
        cmocka_unit_test(test_gap_is_not_skipped),
        cmocka_unit_test(test_snapshot_after_a_gap_is_missing),
        cmocka_unit_test(test_full_tmpfs),
        cmocka_unit_test(test_waits_for_a_descriptor),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("pserver_keeper", tests, NULL, NULL);
}
