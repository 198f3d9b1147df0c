/* Opens and locks the folder of snapshots and journals, lists the files of each kind in it, and opens them. */
#include "pserver/keep/folder.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "lock"
#define NEWEST "newest"
#define FIRST 16

struct gw_ps_file_name gw_ps_file_name(enum gw_ps_records_kind kind, uint64_t generation)
{
    struct gw_ps_file_name name = {NEWEST};
    if (kind != GW_PS_NEWEST)
        snprintf(name.text, sizeof name.text,
                 kind == GW_PS_SNAPSHOT ? "snapshot-%08" PRIu64 ".gws" : "journal-%08" PRIu64 ".gwj", generation);
    return name;
}

/* ---- open ------------------------------------------------------------------------------------------------- */

/* Brings the name of a new folder to disk before anything in it. If the folder above may not be read, this is left to
 * the system. */
static gw_status sync_name(const struct gw_ps_folder *folder)
{
    const int above = gw_openat(folder->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    const int error = above >= 0 && fsync(above) != 0 ? errno : 0;
    if (above >= 0)
        close(above);
    return error ? gw_fail(GW_ERR_SYSTEM, "the folder %s for snapshots cannot be brought to disk: %s", folder->path,
                           strerror(error))
                 : GW_OK;
}

static gw_status open_and_lock(struct gw_ps_folder *folder)
{
    const bool is_new = mkdir(folder->path, 0700) == 0;
    if (!is_new && errno != EEXIST)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s for snapshots cannot be made: %s", folder->path, strerror(errno));
    folder->fd = gw_openat(AT_FDCWD, folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder->fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s for snapshots cannot be opened: %s", folder->path,
                       strerror(errno));
    if (is_new)
        GW_TRY(sync_name(folder));
    folder->lock = gw_openat(folder->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (folder->lock < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s/" LOCK " cannot be written: %s", folder->path, strerror(errno));
    if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? gw_fail(GW_ERR_SYSTEM,
                             "another server keeps its snapshots in %s; each must have a folder of its own",
                             folder->path)
                   : gw_fail(GW_ERR_SYSTEM, "%s/" LOCK " cannot be locked: %s", folder->path, strerror(errno));
    return GW_OK;
}

gw_status gw_ps_folder_open(struct gw_ps_folder *folder, const char *path)
{
    *folder = (struct gw_ps_folder){.fd = -1, .lock = -1};
    if (!path[0] || strlen(path) >= sizeof folder->path - GW_PS_FILE_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "the path of the folder for snapshots has %zu bytes; 1 to %zu are possible",
                       strlen(path), sizeof folder->path - GW_PS_FILE_NAME - 1);
    memcpy(folder->path, path, strlen(path) + 1);
    gw_status status = open_and_lock(folder);
    if (status < 0)
        gw_ps_folder_close(folder);
    return status;
}

void gw_ps_folder_close(struct gw_ps_folder *folder)
{
    if (folder->lock >= 0)
        close(folder->lock);
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = folder->lock = -1;
}

/* ---- what is there ---------------------------------------------------------------------------------------- */

/* True if it is exactly a name that gw_ps_file_name makes, with `ending` behind it. */
static bool is_name(const char *name, enum gw_ps_records_kind kind, const char *ending, uint64_t *generation)
{
    const char *digits = strchr(name, '-');
    if (!digits)
        return false;
    errno = 0;
    *generation = strtoull(digits + 1, NULL, 10);
    char full[GW_PS_FILE_NAME + 16];
    snprintf(full, sizeof full, "%s%s", gw_ps_file_name(kind, *generation).text, ending);
    return errno == 0 && *generation < UINT64_MAX && strcmp(name, full) == 0;
}

static gw_status add(gw_context *context, struct gw_ps_generations *to, uint64_t generation)
{
    /* The array is full at FIRST times a power of two. Then it gets twice the room. */
    if (to->n == 0 || (to->n >= FIRST && (to->n & (to->n - 1)) == 0)) {
        uint64_t *more = gw_alloc(context, to->n ? 2 * to->n : FIRST, sizeof *more);
        if (!more)
            return GW_ERR_MEMORY;
        if (to->n)
            memcpy(more, to->at, to->n * sizeof *more);
        gw_free(context, to->at);
        to->at = more;
    }
    to->at[to->n++] = generation;
    return GW_OK;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static gw_status read_names(gw_context *context, const struct gw_ps_folder *folder, DIR *names,
                            struct gw_ps_generations *snapshots, struct gw_ps_generations *journals)
{
    uint64_t generation;
    for (struct dirent *entry; (errno = 0, entry = readdir(names));)
        if (is_name(entry->d_name, GW_PS_SNAPSHOT, "", &generation))
            GW_TRY(add(context, snapshots, generation));
        else if (is_name(entry->d_name, GW_PS_JOURNAL, "", &generation))
            GW_TRY(add(context, journals, generation));
        else if (is_name(entry->d_name, GW_PS_SNAPSHOT, ".partial", &generation))
            unlinkat(folder->fd, entry->d_name, 0);
    return errno ? gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be read: %s", folder->path, strerror(errno)) : GW_OK;
}

gw_status gw_ps_folder_list(gw_context *context, const struct gw_ps_folder *folder, struct gw_ps_generations *snapshots,
                            struct gw_ps_generations *journals)
{
    *snapshots = *journals = (struct gw_ps_generations){NULL, 0};
    int fd = gw_openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (!names) {
        gw_status status = gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be read: %s", folder->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    gw_status status = read_names(context, folder, names, snapshots, journals);
    closedir(names);
    if (status < 0) {
        gw_free(context, snapshots->at);
        gw_free(context, journals->at);
        *snapshots = *journals = (struct gw_ps_generations){NULL, 0};
        return status;
    }
    if (snapshots->n)
        qsort(snapshots->at, snapshots->n, sizeof *snapshots->at, ascending);
    if (journals->n)
        qsort(journals->at, journals->n, sizeof *journals->at, ascending);
    return GW_OK;
}

bool gw_ps_generations_have(const struct gw_ps_generations *generations, uint64_t generation)
{
    return generations->n && bsearch(&generation, generations->at, generations->n, sizeof generation, ascending);
}

/* ---- one file ----------------------------------------------------------------------------------------------- */

/* Says what helps if a file cannot be opened: its bytes may be good. */
static void cannot_open(struct gw_ps_records_found *found, int error)
{
    *found = (struct gw_ps_records_found){.state = GW_PS_RECORDS_NOT_READ};
    snprintf(found->why, sizeof found->why, "it cannot be opened: %s%s", strerror(error),
             error == EACCES || error == EPERM    ? "; let the server's user read and write it"
             : error == ENOENT || error == ELOOP  ? "; it is a link, so bring back what it leads to"
             : error == EMFILE || error == ENFILE ? "; raise the limit of open files"
                                                  : "");
}

gw_status gw_ps_folder_read(gw_context *context, const struct gw_ps_folder *folder, enum gw_ps_records_kind kind,
                            uint64_t generation, gw_ps_replay *replay, void *user, struct gw_ps_records_found *found)
{
    struct stat st;
    const int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC; /* without O_NONBLOCK a FIFO would wait for ever */
    const int fd = gw_openat(folder->fd, gw_ps_file_name(kind, generation).text, flags, 0);
    FILE *file = NULL;
    if (fd < 0 || fstat(fd, &st) != 0) {
        cannot_open(found, errno);
    } else if (!S_ISREG(st.st_mode)) {
        *found = (struct gw_ps_records_found){.state = GW_PS_RECORDS_NOT_READ};
        snprintf(found->why, sizeof found->why, "what has its name is no file%s; remove that, and bring the file back",
                 S_ISDIR(st.st_mode) ? " but a directory" : "");
    } else if (!(file = fdopen(fd, "rb"))) {
        cannot_open(found, errno);
    }
    if (!file) {
        if (fd >= 0)
            close(fd);
        return GW_OK;
    }
    gw_status status = gw_ps_records_read(context, file, (uint64_t)st.st_size, kind, generation, replay, user, found);
    fclose(file);
    return status;
}

gw_status gw_ps_folder_read_newest(gw_context *context, const struct gw_ps_folder *folder, bool *there,
                                   uint64_t *generation)
{
    struct stat st;
    struct gw_ps_records_found found;
    *there = fstatat(folder->fd, NEWEST, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
    if (!*there)
        return GW_OK;
    GW_TRY(gw_ps_folder_read(context, folder, GW_PS_NEWEST, 0, NULL, NULL, &found));
    *generation = found.generation;
    if (found.state == GW_PS_RECORDS_WHOLE && found.length == GW_PS_RECORDS_HEADER)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM,
                   "%s/" NEWEST ", which tells the newest generation of the files there, cannot be used: %s. See that "
                   "no snapshot and no journal is missing, and remove it",
                   folder->path, found.why[0] ? found.why : "it is too long");
}

gw_status gw_ps_folder_write_newest(const struct gw_ps_folder *folder, uint64_t generation)
{
    static const char partial[] = NEWEST ".partial";
    const int fd = gw_openat(folder->fd, partial, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return gw_fail(GW_ERR_SYSTEM, "%s/%s cannot be written: %s", folder->path, partial, strerror(errno));
    struct gw_ps_records records;
    gw_status status = gw_ps_records_begin(&records, fd, GW_PS_NEWEST, generation, 0);
    if (status < 0) {
        close(fd);
        unlinkat(folder->fd, partial, 0);
    } else if (gw_files_commit(fd, folder->fd, partial, NEWEST, true) != 0)
        status = gw_fail(GW_ERR_SYSTEM, "it cannot be brought to disk: %s", strerror(errno));
    return status < 0 ? gw_fail(status, "%s/" NEWEST ": %s", folder->path, gw_last_error()) : GW_OK;
}
