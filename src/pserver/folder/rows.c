/* Opens, locks and checks the folder, and reads and writes rows with SQLite. */
#include "pserver/folder/rows.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/memory.h"
#include "wire/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STATE "state.db"
#define LOG STATE "-wal"
#define PARTIAL "state.partial"
#define PIECE (64u << 20) /* SQLite copies a row, so long values go there in pieces */
#define KIND 0x47575053   /* "GWPS" */
#define VERSION 2

enum statement { PUT, DROP, FIND, N_STATEMENTS };

static const char *const texts[N_STATEMENTS] = {
    [PUT] = "INSERT OR REPLACE INTO row VALUES(?1, ?2)",
    [DROP] = "DELETE FROM row WHERE id >= ?1 AND id < ?2",
    [FIND] = "SELECT id, length(body) FROM row WHERE id >= ?1 ORDER BY id LIMIT 1",
};

struct gw_ps_rows {
    gw_context *context;
    int fd, lock;
    int failed;   /* SQLite's last error; 0: there was none since the last undo */
    bool had_log; /* when the last transaction began */
    ino_t log;    /* the file that SQLite writes the log to; 0: not known yet */
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
    char folder[PATH_MAX];
    char path[PATH_MAX + 32]; /* of the database */
};

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static gw_status fail(struct gw_ps_rows *rows, int result)
{
    const char *help = "";
    rows->failed = result;
    switch (result & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        help = ". It is damaged, or no database: bring back a good copy of the folder, or start with another folder";
        break;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        help = "; let the server's user read and write it, and the folder";
        break;
    case SQLITE_BUSY:
        help = "; another program writes there, and must end";
        break;
    }
    return gw_fail(GW_ERR_SYSTEM, "%s: %s%s", rows->path, sqlite3_errstr(result), help);
}

static gw_status fail_folder(const struct gw_ps_rows *rows, const char *what)
{
    return gw_fail(GW_ERR_SYSTEM, "the folder %s for snapshots cannot be %s: %s", rows->folder, what, strerror(errno));
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* A file that is not there has the size and the number 0. */
static struct stat stat_of(const struct gw_ps_rows *rows, const char *name)
{
    struct stat st;
    return fstatat(rows->fd, name, &st, 0) == 0 ? st : (struct stat){.st_size = 0};
}

/* True if it was emptied into the database. That may need as much room as the log takes. */
static bool empty_log(struct gw_ps_rows *rows)
{
    return sqlite3_wal_checkpoint_v2(rows->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) == SQLITE_OK;
}

static bool fills_the_disk(const struct gw_ps_rows *rows)
{
    struct statvfs disk;
    if (fstatvfs(rows->fd, &disk) != 0 || disk.f_blocks == 0)
        return false;
    const uint64_t blocks = geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
    return blocks * disk.f_frsize < (uint64_t)stat_of(rows, LOG).st_size;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Runs a statement that gives no rows, and whose values are bound. */
static gw_status run(struct gw_ps_rows *rows, sqlite3_stmt *statement)
{
    const int result = sqlite3_step(statement);
    sqlite3_reset(statement);
    return result == SQLITE_DONE ? GW_OK : fail(rows, result);
}

static gw_status execute(struct gw_ps_rows *rows, const char *text)
{
    const int result = sqlite3_exec(rows->db, text, NULL, NULL, NULL);
    return result == SQLITE_OK ? GW_OK : fail(rows, result);
}

gw_status gw_ps_rows_look(struct gw_ps_rows *rows)
{
    int is_away = 0; /* SQLite says this of the database, but not of its log */
    if (sqlite3_file_control(rows->db, NULL, SQLITE_FCNTL_HAS_MOVED, &is_away) == SQLITE_OK && is_away)
        return gw_fail(GW_ERR_SYSTEM, "%s was removed or renamed; bring it back", rows->path);
    if (rows->log && stat_of(rows, LOG).st_ino != rows->log)
        return gw_fail(GW_ERR_SYSTEM, "%s-wal was removed or renamed; bring it back", rows->path);
    return GW_OK;
}

gw_status gw_ps_rows_begin(struct gw_ps_rows *rows, int patience_ms)
{
    rows->had_log = stat_of(rows, LOG).st_size > 0;
    GW_TRY(gw_ps_rows_look(rows)); /* what is written to files that nobody finds again is not kept */
    sqlite3_busy_timeout(rows->db, patience_ms);
    const gw_status status = execute(rows, "BEGIN IMMEDIATE");
    sqlite3_busy_timeout(rows->db, 0); /* emptying the log does not wait for those who read it */
    return status;
}

gw_status gw_ps_rows_drop(struct gw_ps_rows *rows, uint64_t from, uint64_t to)
{
    sqlite3_stmt *drop = rows->statements[DROP];
    sqlite3_bind_int64(drop, 1, (sqlite3_int64)from);
    sqlite3_bind_int64(drop, 2, (sqlite3_int64)to);
    return run(rows, drop);
}

gw_status gw_ps_rows_end(struct gw_ps_rows *rows, uint64_t number)
{
    uint8_t bytes[8];
    GW_TRY(execute(rows, "COMMIT"));
    gw_put64(bytes, number);
    /* It is not brought to disk. After a power cut it may be an earlier number, and then it says less. */
    const ssize_t n = pwrite(rows->lock, bytes, sizeof bytes, 0);
    (void)n;
    if (fills_the_disk(rows))
        (void)empty_log(rows); /* if that fails, all is in the log still */
    return GW_OK;
}

bool gw_ps_rows_undo(struct gw_ps_rows *rows)
{
    if (!sqlite3_get_autocommit(rows->db))
        gw_ignore(execute(rows, "ROLLBACK"));
    const bool no_room = (rows->failed & 0xFF) == SQLITE_FULL || rows->failed == SQLITE_IOERR_WRITE;
    rows->failed = SQLITE_OK;
    return no_room && rows->had_log && empty_log(rows);
}

gw_status gw_ps_rows_put(struct gw_ps_rows *rows, uint64_t id, const void *bytes, size_t n_bytes)
{
    sqlite3_stmt *put = rows->statements[PUT];
    for (size_t at = 0, n; at < n_bytes; at += n, id++) {
        n = n_bytes - at < PIECE ? n_bytes - at : PIECE;
        sqlite3_bind_int64(put, 1, (sqlite3_int64)id);
        sqlite3_bind_blob64(put, 2, (const char *)bytes + at, n, SQLITE_STATIC);
        GW_TRY(run(rows, put));
    }
    return GW_OK;
}

gw_status gw_ps_rows_find(struct gw_ps_rows *rows, uint64_t *id, size_t *n_bytes)
{
    sqlite3_stmt *find = rows->statements[FIND];
    sqlite3_bind_int64(find, 1, (sqlite3_int64)*id);
    const int result = sqlite3_step(find);
    if (result == SQLITE_ROW) {
        *id = (uint64_t)sqlite3_column_int64(find, 0);
        *n_bytes = (size_t)sqlite3_column_int64(find, 1);
    }
    sqlite3_reset(find);
    return result == SQLITE_ROW ? GW_OK : result == SQLITE_DONE ? GW_NOT_YET : fail(rows, result);
}

gw_status gw_ps_rows_get(struct gw_ps_rows *rows, uint64_t id, void *bytes, size_t n_bytes)
{
    for (size_t at = 0, n; at < n_bytes; at += n, id++) {
        sqlite3_blob *blob = NULL;
        n = n_bytes - at < PIECE ? n_bytes - at : PIECE;
        int result = sqlite3_blob_open(rows->db, "main", "row", "body", (sqlite3_int64)id, 0, &blob);
        if (result == SQLITE_ERROR || (result == SQLITE_OK && (size_t)sqlite3_blob_bytes(blob) != n))
            result = SQLITE_CORRUPT; /* there is no such row, or it is another one */
        if (result == SQLITE_OK)
            result = sqlite3_blob_read(blob, (char *)bytes + at, (int)n, 0);
        sqlite3_blob_close(blob);
        if (result != SQLITE_OK)
            return fail(rows, result);
    }
    return GW_OK;
}

uint64_t gw_ps_rows_bytes(const struct gw_ps_rows *rows)
{
    return (uint64_t)stat_of(rows, STATE).st_size + (uint64_t)stat_of(rows, LOG).st_size;
}

/* ---- the folder ------------------------------------------------------------------------------------------------ */

/* Opens what stays open. The lock may not be one of the descriptors 0 to 2, where the program's text goes. */
static int open_own(int folder, const char *path, int flags)
{
    int fd = gw_openat(folder, path, flags | O_CLOEXEC, 0600);
    if (fd >= 0 && fd <= 2) {
        const int low = fd;
        fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
        close(low);
    }
    if (fd >= 0)
        gw_fd_own(fd);
    return fd;
}

/* Makes the folder if it is missing, and brings its name to disk. If the folder above may not be read, that is left to
 * the system. */
static gw_status open_folder(struct gw_ps_rows *rows)
{
    const bool is_new = mkdir(rows->folder, 0700) == 0;
    if (!is_new && errno != EEXIST)
        return fail_folder(rows, "made");
    rows->fd = open_own(AT_FDCWD, rows->folder, O_RDONLY | O_DIRECTORY);
    if (rows->fd < 0)
        return fail_folder(rows, "opened");
    const int up = is_new ? gw_openat(rows->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
    const bool synced = up < 0 || fsync(up) == 0;
    if (up >= 0)
        close(up);
    return synced ? GW_OK : fail_folder(rows, "brought to disk");
}

/* Locks the file and the folder itself: somebody may remove the file while a server runs. Some file systems lock no
 * folders. */
static gw_status lock_folder(struct gw_ps_rows *rows)
{
    rows->lock = open_own(rows->fd, "lock", O_RDWR | O_CREAT | O_NONBLOCK);
    if (rows->lock >= 0 && flock(rows->lock, LOCK_EX | LOCK_NB) == 0 &&
        (flock(rows->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK))
        return GW_OK;
    return rows->lock >= 0 && errno == EWOULDBLOCK
               ? gw_fail(GW_ERR_SYSTEM, "another server keeps its snapshots in %s; each must have a folder of its own",
                         rows->folder)
               : gw_fail(GW_ERR_SYSTEM, "%s/lock cannot be %s: %s", rows->folder, rows->lock < 0 ? "written" : "locked",
                         strerror(errno));
}

/* Refuses what is no file. */
static gw_status check_names(const struct gw_ps_rows *rows)
{
    static const char *const names[] = {STATE, LOG, STATE "-shm", "lock"};
    struct stat st;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool there = fstatat(rows->fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && (fstatat(rows->fd, names[i], &st, 0) != 0 || !S_ISREG(st.st_mode)))
            return gw_fail(GW_ERR_SYSTEM,
                           "%s/%s is no file, or a link to nothing; remove it, or bring the file back where it leads",
                           rows->folder, names[i]);
    }
    return GW_OK;
}

/* ---- the database ---------------------------------------------------------------------------------------------- */

static gw_status open_database(struct gw_ps_rows *rows, const char *name, int flags)
{
    snprintf(rows->path, sizeof rows->path, "%s/%s", rows->folder, name);
    const int result = sqlite3_open_v2(rows->path, &rows->db, SQLITE_OPEN_READWRITE | flags, NULL);
    if (result != SQLITE_OK)
        return fail(rows, result);
    sqlite3_extended_result_codes(rows->db, 1);
    /* if the folder turns out to be no good, nothing in it is changed */
    sqlite3_db_config(rows->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return sqlite3_db_readonly(rows->db, "main") == 1 ? fail(rows, SQLITE_READONLY) : GW_OK;
}

static void close_database(struct gw_ps_rows *rows)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(rows->statements[i]);
    sqlite3_close(rows->db);
    rows->db = NULL;
}

/* Makes the database under another name first. So one that has its name is never empty, except by damage. With the
 * largest pages there are, SQLite does least for each byte of a large value. */
static gw_status make_database(struct gw_ps_rows *rows)
{
    char text[256];
    unlinkat(rows->fd, PARTIAL, 0);
    gw_status status = open_database(rows, PARTIAL, SQLITE_OPEN_CREATE);
    snprintf(text, sizeof text,
             "PRAGMA page_size=65536; PRAGMA synchronous=FULL; PRAGMA application_id=%d; PRAGMA user_version=%d;"
             "CREATE TABLE row(id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
             KIND, VERSION);
    if (status == GW_OK)
        status = execute(rows, text);
    close_database(rows);
    GW_TRY(status);
    return gw_files_publish(rows->fd, PARTIAL, STATE, false) == 0 ? GW_OK : fail_folder(rows, "written");
}

static gw_status check_version(struct gw_ps_rows *rows)
{
    static const char text[] = "SELECT * FROM pragma_application_id, pragma_user_version";
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(rows->db, text, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    const int kind = result == SQLITE_ROW ? sqlite3_column_int(statement, 0) : 0,
              version = result == SQLITE_ROW ? sqlite3_column_int(statement, 1) : 0;
    sqlite3_finalize(statement);
    if (result != SQLITE_ROW)
        return fail(rows, result);
    if (kind != KIND)
        return gw_fail(GW_ERR_SYSTEM, "%s is not a database of a parameter server; start with another folder",
                       rows->path);
    return version == VERSION ? GW_OK
                              : gw_fail(GW_ERR_SYSTEM,
                                        "%s is of version %d, and this program reads version %d; start the program "
                                        "that wrote it, or start with another folder",
                                        rows->path, version, VERSION);
}

/* The number that the lock has; 0: there was no commit. */
static uint64_t last_commit(const struct gw_ps_rows *rows)
{
    uint8_t bytes[8];
    return pread(rows->lock, bytes, sizeof bytes, 0) == sizeof bytes ? gw_get64(bytes) : 0;
}

static gw_status open_all(struct gw_ps_rows *rows)
{
    struct stat st;
    GW_TRY(open_folder(rows));
    GW_TRY(lock_folder(rows));
    GW_TRY(check_names(rows));
    if (fstatat(rows->fd, STATE, &st, 0) != 0) {
        if (last_commit(rows))
            return gw_fail(GW_ERR_SYSTEM,
                           "%s/" STATE " is missing. Bring it back; or start with another folder, and all is lost",
                           rows->folder);
        GW_TRY(make_database(rows));
    }
    GW_TRY(open_database(rows, STATE, 0));
    GW_TRY(check_version(rows));
    /* A checkpoint copies the log into the database when the log has 64 MiB. secure_delete would overwrite what is
     * deleted. */
    GW_TRY(execute(rows, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1024;"
                         "PRAGMA journal_size_limit=67108864; PRAGMA secure_delete=OFF; PRAGMA cache_size=-65536;"
                         "PRAGMA busy_timeout=1000"));
    for (int i = 0; i < N_STATEMENTS; i++) {
        const int result =
            sqlite3_prepare_v3(rows->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &rows->statements[i], NULL);
        if (result != SQLITE_OK)
            return fail(rows, result == SQLITE_ERROR ? SQLITE_CORRUPT : result); /* the table is not there */
    }
    return GW_OK;
}

gw_status gw_ps_rows_open(gw_context *context, const char *folder, struct gw_ps_rows **out)
{
    if (!folder[0] || strlen(folder) >= PATH_MAX)
        return gw_fail(GW_ERR_ARGUMENT, "the path of the folder for snapshots has %zu bytes; 1 to %d are possible",
                       strlen(folder), PATH_MAX - 1);
    struct gw_ps_rows *rows = gw_calloc(context, 1, sizeof *rows);
    if (!rows)
        return GW_ERR_MEMORY;
    rows->context = context;
    rows->fd = rows->lock = -1;
    snprintf(rows->folder, sizeof rows->folder, "%s", folder);
    gw_status status = open_all(rows);
    if (status < 0)
        gw_ps_rows_close(rows);
    else
        *out = rows;
    return status;
}

gw_status gw_ps_rows_accept(struct gw_ps_rows *rows, uint64_t newest)
{
    const uint64_t number = last_commit(rows);
    if (number > newest)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s ends with commit %" PRIu64 ", and there were %" PRIu64 ": %s-wal is missing or damaged, or "
                       "older files were put there. Bring back the newest files; or remove %s/lock, and what came "
                       "later is lost",
                       rows->path, newest, number, rows->path, rows->folder);
    sqlite3_db_config(rows->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    rows->log = stat_of(rows, LOG).st_ino; /* SQLite opened it to read the rows, and keeps it open */
    return GW_OK;
}

void gw_ps_rows_close(struct gw_ps_rows *rows)
{
    if (!rows)
        return;
    close_database(rows);
    if (rows->lock >= 0)
        gw_fd_drop(rows->lock);
    if (rows->fd >= 0)
        gw_fd_drop(rows->fd);
    gw_free(rows->context, rows);
}
