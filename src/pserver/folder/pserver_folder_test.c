/* Tests the folder of a server: flipped bits, cut files, lost files, a power cut at every commit, and folders that are
 * none of its own. A server either has all that was committed again, or it refuses to start and says why. */
#define _GNU_SOURCE /* nftw */
#include "pserver/folder/rows.h"
#include "pserver/folder/test_folder.h"
#include "wire/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { N_WORKERS = 2, N = 5000, N_KEYS = 3, N_FLIPS = 500, N_CUTS = 200 }; /* a value is longer than a page */

static struct {
    gw_context *context;
    char path[64], copy[64], synced[64];
    struct kept kept;
} world;

/* ---- a disk that loses what was not synced --------------------------------------------------------------------- */

static const char *synced_to; /* NULL: nobody wants to know */
static void (*on_synced)(void);

static void copy_fd(int fd, const char *path)
{
    char bytes[1 << 16];
    const int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(to >= 0);
    for (off_t at = 0, n; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n)
        assert_int_equal(write(to, bytes, (size_t)n), n);
    close(to);
}

/* Takes the place of the C library's: what a file holds now is what it holds after the power cut. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    char name[64], path[256] = "", to[512];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (!synced_to || readlink(name, path, sizeof path - 1) < 0)
        return 0;
    snprintf(to, sizeof to, "%s/%s", synced_to, strrchr(path, '/') + 1);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        copy_fd(fd, to);
    on_synced();
    return 0;
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return fdatasync(fd);
}

/* Takes the place of the C library's. */
static bool has_no_locks;

__attribute__((visibility("default"))) int flock(int fd, int how)
{
    errno = ENOLCK;
    return has_no_locks ? -1 : (int)syscall(SYS_flock, fd, how);
}

/* ---- a store with known values --------------------------------------------------------------------------------- */

static gw_status try_open(struct kept *kept, const char *folder)
{
    return open_kept(kept, world.context, (gw_ps_server_options){.n_workers = N_WORKERS}, folder, "workers=2");
}

/* Key 0 has parameters, key 1 a value that was put. */
static struct gw_ps_key *key_of(const struct kept *kept, uint32_t k)
{
    char name[32];
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    struct gw_ps_key *key;
    snprintf(name, sizeof name, "key %u", k);
    ok(gw_ps_store_init(kept->store, name, GW_PS_FLOAT32, &shape, 1, "", k ? "" : "adam:lr=0.5"));
    ok(gw_ps_store_find(kept->store, name, &key));
    return key;
}

static struct gw_ps_blob *value_of(struct kept *kept, uint64_t number)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = (float)number + (float)(i % 100) / 128;
    struct gw_ps_blob *value = gw_ps_blob_copy(world.context, &kept->total, values, sizeof values);
    assert_non_null(value);
    return value;
}

/* Both workers push to all keys: round `number` becomes whole, and is committed. */
static void a_round(struct kept *kept, uint64_t number)
{
    struct gw_ps_blob *value = value_of(kept, number);
    for (uint32_t k = 0; k < N_KEYS; k++) {
        struct gw_ps_key *key = key_of(kept, k);
        if (k == 0)
            ok(gw_ps_store_put_first(kept->store, key, value));
        if (k == 1)
            ok(gw_ps_store_put(kept->store, key, number, value));
        for (uint32_t r = 0; r < N_WORKERS; r++)
            ok(gw_ps_store_push(kept->store, key, r, number, value, 0, GW_PS_NOT_REFUSED));
    }
    gw_ps_blob_give(value);
    gw_ps_folder_commit(kept->folder);
}

static void check_value(const struct gw_ps_pulled *pulled, const struct gw_ps_blob *value, uint32_t k)
{
    CHECK(memcmp(pulled->value->bytes, value->bytes, value->n_bytes) == 0, "key %u: another value", k);
    gw_ps_blob_give(pulled->value);
}

/* All is as a_round has left it. */
static void check_round(struct kept *kept, uint64_t number)
{
    struct gw_ps_blob *value = value_of(kept, number);
    struct gw_ps_pulled pulled;
    struct gw_ps_key *waits_for;
    CHECK(kept->own == 7, "%" PRIu64 " of the owner", kept->own);
    CHECK(kept->store->names.n == N_KEYS, "round %" PRIu64 ": keys", number);
    for (uint32_t k = 0; k < N_KEYS; k++) {
        struct gw_ps_key *key = key_of(kept, k);
        const uint64_t rounds = key->whole.number;
        CHECK(gw_ps_store_pushed(kept->store, key, 0) == number && rounds == number,
              "key %u: round %" PRIu64 ", not %" PRIu64, k, rounds, number);
        ok(gw_ps_store_pull(kept->store, key, 0, GW_PS_MIN, NULL, &pulled, &waits_for)), check_value(&pulled, value, k);
        if (k == 1)
            ok(gw_ps_store_get(key, number, &pulled)), check_value(&pulled, value, k);
    }
    gw_ps_blob_give(value);
}

/* ---- folders --------------------------------------------------------------------------------------------------- */

static const char *const files[] = {"state.db", "state.db-wal", "lock"};

static const char *in(const char *folder, const char *name)
{
    static char paths[2][160];
    static int next;
    next = !next;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static void copy_file(const char *from, const char *to)
{
    const int fd = open(from, O_RDONLY);
    if (fd >= 0)
        copy_fd(fd, to);
    else
        unlink(to);
    close(fd);
}

static void write_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void copy_folder(const char *from, const char *to)
{
    unlink(in(to, "state.db-shm"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        copy_file(in(from, files[i]), in(to, files[i]));
}

/* Makes a folder with some rounds, where a killed server has left half a database. killed: the server did not end in
 * order, so the newest commits are in its log. */
static void begin(uint64_t n_rounds, bool killed)
{
    memset(&world, 0, sizeof world);
    ok(gw_context_create(NULL, &world.context));
    make_folder(world.path);
    make_folder(world.copy);
    make_folder(world.synced);
    write_text(in(world.path, "state.partial"), "half a database is there, under this name");
    ok(try_open(&world.kept, world.path));
    world.kept.own = 7;
    gw_ps_folder_note(world.kept.folder);
    for (uint64_t number = 1; number <= n_rounds; number++)
        a_round(&world.kept, number);
    copy_folder(world.path, world.copy);
    close_kept(&world.kept);
    if (killed)
        copy_folder(world.copy, world.path);
}

static void end(void)
{
    remove_folder(world.path);
    remove_folder(world.copy);
    remove_folder(world.synced);
    gw_context_destroy(world.context);
}

/* The copy has all of round `number`, or the server refuses. Returns whether it refuses. */
static bool refused_or_whole(uint64_t number, const char *what)
{
    const gw_status status = try_open(&world.kept, world.copy);
    if (status == GW_OK)
        check_round(&world.kept, number);
    else
        CHECK(gw_last_error()[0], "%s: no sentence", what);
    close_kept(&world.kept);
    return status < 0;
}

static void flip_bits(bool killed, const char *name)
{
    struct numbers random = numbers_from(5);
    int n_refused = 0, n_named = 0;
    begin(2, killed);
    for (int i = 0; i < N_FLIPS; i++) {
        struct stat st;
        uint8_t byte;
        char what[64];
        copy_folder(world.path, world.copy);
        const int fd = open(in(world.copy, name), O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        const off_t at = (off_t)(numbers_word(&random) % (uint64_t)st.st_size);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        snprintf(what, sizeof what, "%s, byte %lld", name, (long long)at);
        if (refused_or_whole(2, what)) {
            n_refused++;
            n_named += strstr(gw_last_error(), "key \"key ") != NULL;
        }
    }
    printf("%d of %d flipped bits in %s are refused, %d of them with the key; the others are in no data\n", n_refused,
           N_FLIPS, name, n_named);
    assert_true(n_refused > N_FLIPS / 10 && (killed || n_named > N_FLIPS / 10));
    end();
}

TEST(flipped_bits)
{
    flip_bits(false, "state.db");
    flip_bits(true, "state.db-wal");
}

static void cut_file(bool killed, const char *name)
{
    enum { STEP = 4096, PAGE = 65536 };
    struct stat st;
    int n = 0, n_refused = 0;
    begin(2, killed);
    assert_int_equal(stat(in(world.path, name), &st), 0);
    for (off_t at = 0; at < st.st_size; at += STEP, n++) {
        copy_folder(world.path, world.copy);
        assert_int_equal(truncate(in(world.copy, name), at), 0);
        const bool refused = refused_or_whole(2, name);
        n_refused += refused;
        /* SQLite reads zeros for what the last page lacks, and its end may be in no row */
        CHECK(refused || (!killed && at > st.st_size - PAGE), "%s: a cut at %lld is not noticed", name, (long long)at);
    }
    printf("%s: %d of %d cuts are refused\n", name, n_refused, n);
    end();
}

TEST(cut_files)
{
    cut_file(false, "state.db");
    cut_file(true, "state.db-wal");
}

/* Whoever removes the newest files is told, and no acknowledged push is gone without a word. */
TEST(lost_files)
{
    begin(2, true);
    for (size_t i = 0; i < 2; i++) {
        copy_folder(world.path, world.copy);
        assert_int_equal(unlink(in(world.copy, files[i])), 0);
        assert_true(refused_or_whole(2, files[i]));
        CHECK(strstr(gw_last_error(), "missing"), "%s", gw_last_error());
        copy_file(in(world.path, files[i]), in(world.copy, files[i])); /* nothing was changed */
        assert_false(refused_or_whole(2, files[i]));
    }
    end();
}

static struct {
    uint64_t committed;
    int n;
} power;

/* The machine loses its power: of every file stays what was brought to disk. Only the lock's number is not brought to
 * disk, and stays as it is. */
static void cut_power(void)
{
    struct kept after = {.store = NULL};
    const char *to = synced_to;
    synced_to = NULL;
    copy_folder(to, world.copy);
    copy_file(in(world.path, "lock"), in(world.copy, "lock"));
    ok(try_open(&after, world.copy));
    const uint64_t number = gw_ps_store_pushed(after.store, key_of(&after, 0), 0);
    CHECK(number == power.committed || number == power.committed + 1, "cut %d: round %" PRIu64 " of %" PRIu64, power.n,
          number, power.committed);
    check_round(&after, number);
    close_kept(&after);
    power.n++;
    synced_to = to;
}

/* Power is cut at each sync (of commits, and when the log is brought into the database), and after each commit. */
TEST(power_cut)
{
    sqlite3 *other;
    begin(1, true);
    copy_folder(world.path, world.synced);
    power.committed = 1;
    on_synced = cut_power;
    ok(try_open(&world.kept, world.path));
    assert_int_equal(sqlite3_open(in(world.path, "state.db"), &other), SQLITE_OK);
    for (synced_to = world.synced; power.n < N_CUTS; cut_power()) {
        a_round(&world.kept, power.committed + 1);
        assert_true(gw_ps_folder_info(world.kept.folder).durable);
        power.committed++;
        if (power.committed % 4 == 0)
            assert_int_equal(sqlite3_exec(other, "PRAGMA wal_checkpoint", NULL, NULL, NULL), SQLITE_OK);
    }
    printf("power was cut %d times in %d rounds\n", power.n, (int)power.committed);
    synced_to = NULL;
    sqlite3_close(other);
    close_kept(&world.kept);
    end();
}

/* ---- folders that cannot be used ------------------------------------------------------------------------------- */

static void change_database(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

TEST(wrong_folders)
{
    enum how { SQL, TEXT, FIFO, LINK };
    static const struct {
        const char *words; /* of the refusal */
        enum how how;      /* the file was made */
        const char *file, *text;
    } cases[] = {
        {"bring back a good copy", TEXT, "state.db", "this is no database, but text that somebody has put here"},
        {"is not a database of", TEXT, "state.db", ""},
        {"is of version 9", SQL, "state.db", "PRAGMA user_version=9"},
        {"is not a database of a parameter server", SQL, "state.db", "PRAGMA application_id=3"},
        {"heads of keys are missing", SQL, "state.db", "DELETE FROM row WHERE id >= 4294967296"},
        {"no file", FIFO, "state.db", ""},
        {"no file", LINK, "state.db", "/nowhere/at/all"},
        {"no file", FIFO, "lock", ""},
        {"no file", LINK, "lock", "/dev/zero"},
    };
    begin(2, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_folder(world.path, world.copy);
        const char *path = in(world.copy, cases[i].file);
        if (cases[i].how == SQL)
            change_database(path, cases[i].text);
        else
            unlink(path);
        if (cases[i].how == FIFO)
            assert_int_equal(mkfifo(path, 0600), 0);
        if (cases[i].how == LINK)
            assert_int_equal(symlink(cases[i].text, path), 0);
        if (cases[i].how == TEXT)
            write_text(path, cases[i].text);
        CHECK(refused_or_whole(2, cases[i].words), "case %zu is taken", i);
        CHECK(strstr(gw_last_error(), cases[i].words), "case %zu: %s", i, gw_last_error());
        remove_folder(world.copy);
        assert_int_equal(mkdir(world.copy, 0700), 0);
    }
    has_no_locks = true;
    refused(try_open(&world.kept, world.path), GW_ERR_SYSTEM, "/lock cannot be locked: ");
    has_no_locks = false;
    close_kept(&world.kept);
    /* in use */
    struct kept other = {.store = NULL};
    ok(try_open(&world.kept, world.path));
    for (int lock_is_there = 1; lock_is_there >= 0; lock_is_there--) {
        refused(try_open(&other, world.path), GW_ERR_SYSTEM, "another server");
        close_kept(&other);
        assert_int_equal(unlink(in(world.path, "lock")), 0);
    }
    close_kept(&world.kept);
    end();
}

/* Heads that no server writes are refused, though their checksums are right: a push of a rank that is none; and one
 * that waits for its verdict, of a key without parameters. */
TEST(wrong_heads)
{
    static const struct {
        int at; /* from the place where the last push says that it was not refused */
        uint8_t byte;
        gw_status status;
    } cases[] = {{-1, 0x80, GW_ERR_FRAME_CHECKSUM},
                 {0, (uint8_t)GW_PS_PENDING, GW_ERR_FRAME_CHECKSUM},
                 {0, (uint8_t)GW_PS_NOT_REFUSED, GW_OK}};
    static const uint64_t not_refused = GW_PS_NOT_REFUSED;
    uint64_t id = (uint64_t)N_KEYS << 32 | GW_PS_ROW_STEP; /* of the last key's head */
    uint8_t head[1000];
    size_t n, at;
    begin(2, false);
    ok(try_open(&world.kept, world.path));
    struct gw_ps_blob *value = value_of(&world.kept, 3);
    ok(gw_ps_store_push(world.kept.store, key_of(&world.kept, N_KEYS - 1), 0, 3, value, 0, GW_PS_NOT_REFUSED));
    gw_ps_blob_give(value);
    gw_ps_folder_commit(world.kept.folder);
    close_kept(&world.kept);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_ps_rows *rows;
        ok(gw_ps_rows_open(world.context, world.path, &rows));
        if (i == 0)
            ok(gw_ps_rows_find(rows, &id, &n)), ok(gw_ps_rows_get(rows, id, head, n));
        for (at = n - 8; memcmp(head + at, &not_refused, 8) != 0; at--)
            assert_true(at > 4);
        const uint8_t good = head[at + cases[i].at];
        head[at + cases[i].at] = cases[i].byte;
        gw_put64(head + n - 8, gw_hash_now()->whole(head, n - 8, id));
        ok(gw_ps_rows_accept(rows, UINT64_MAX)), ok(gw_ps_rows_begin(rows, 0));
        ok(gw_ps_rows_put(rows, id, head, n)), ok(gw_ps_rows_end(rows, 0));
        gw_ps_rows_close(rows);
        head[at + cases[i].at] = good;
        refused(try_open(&world.kept, world.path), cases[i].status, "the head of the key \"key 2\"");
        close_kept(&world.kept);
    }
    end();
}

/* A process that has the folder was killed. The next may have it, although a child that the first had forked lives on.
 */
TEST(killed_beside_its_child)
{
    int child_lives[2], is_open[2], status;
    char byte;
    begin(1, false);
    assert_true(pipe(child_lives) == 0 && pipe(is_open) == 0);
    const pid_t server = fork();
    if (server == 0) {
        struct kept kept = {.store = NULL};
        close(child_lives[1]);
        close(is_open[0]);
        if (try_open(&kept, world.path) < 0)
            _exit(1);
        if (fork() == 0) /* it has closed its copies now */
            _exit(write(is_open[1], "", 1) != 1 || read(child_lives[0], &byte, 1) != 0);
        raise(SIGKILL);
    }
    close(is_open[1]);
    assert_int_equal(read(is_open[0], &byte, 1), 1);
    assert_true(server > 0 && waitpid(server, &status, 0) == server && WIFSIGNALED(status));
    ok(try_open(&world.kept, world.path));
    close_kept(&world.kept);
    close(is_open[0]);
    close(child_lives[0]);
    close(child_lives[1]);
    end();
}

RUN_TESTS("pserver_folder", NULL, NULL)
