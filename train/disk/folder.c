/* Creates and locks the folder of a run, finds what an earlier run left in it, and clears it. */
#include "disk/folder.h"
#include "base/error.h"
#include "base/files.h"
#include "disk/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

gw_status gw_folder_create(const char *folder)
{
    struct stat st;
    if (mkdir(folder, 0777) == 0)
        return GW_OK;
    if (errno == EEXIST && stat(folder, &st) == 0 && S_ISDIR(st.st_mode))
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be made: %s", folder,
                   strerror(errno == EEXIST ? ENOTDIR : errno));
}

gw_status gw_folder_lock(const char *folder, DIR **lock)
{
    DIR *dir = gw_opendir(folder);
    if (!dir)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be opened: %s", folder, strerror(errno));
    if (flock(dirfd(dir), LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        closedir(dir);
        if (error == EWOULDBLOCK)
            return gw_fail(GW_ERR_SYSTEM, "another run is writing to %s; give each run a folder of its own", folder);
        return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be locked: %s", folder, strerror(error));
    }
    *lock = dir;
    return GW_OK;
}

/* ---- an earlier run ------------------------------------------------------------------------- */

enum numbered { NOT_NUMBERED, CHECKPOINT, STATE };

/* Tells whether the first n characters of `name` are GW_CHECKPOINT_FILE or GW_STATE_FILE with some numbers. */
static enum numbered numbered_file(const char *name, size_t n, uint64_t *steps_done)
{
    char same[96] = "";
    unsigned long long step = 0;
    unsigned rank, workers;
    const int found = sscanf(name, "checkpoint-%20llu.rank-%9u-of-%9u", &step, &rank, &workers);
    *steps_done = step;
    if (found == 3)
        snprintf(same, sizeof same, GW_STATE_FILE, step, rank, workers);
    else if (found > 0)
        snprintf(same, sizeof same, GW_CHECKPOINT_FILE, step);
    /* any other spelling of the numbers differs */
    return found <= 0 || n != strlen(same) || strncmp(name, same, n) != 0 ? NOT_NUMBERED
           : found == 3                                                   ? STATE
                                                                          : CHECKPOINT;
}

/* True if a run writes a file of this name. *partial: the file is not whole yet. */
static bool is_of_a_run(const char *name, bool *partial)
{
    static const char *const names[] = {GW_RUN_FILE,       GW_METRICS_FILE,    GW_EVENTS_FILE, GW_SUMMARY_FILE,
                                        GW_PARAMETER_FILE, GW_HISTOGRAMS_FILE, GW_REPORT_FILE};
    size_t n = strlen(name), ending = sizeof GW_PARTIAL - 1;
    *partial = n > ending && strcmp(name + n - ending, GW_PARTIAL) == 0;
    if (*partial)
        n -= ending;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && strncmp(name, names[i], n) == 0)
            return true;
    uint64_t steps_done;
    return numbered_file(name, n, &steps_done) != NOT_NUMBERED;
}

/* True if the file of this name says how the run ended. */
static bool is_of_the_end(const char *name)
{
    return strcmp(name, GW_PARAMETER_FILE) == 0 || strcmp(name, GW_REPORT_FILE) == 0;
}

bool gw_folder_newest_checkpoint(DIR *folder, uint64_t below, uint64_t *steps_done)
{
    bool found = false;
    uint64_t step;
    rewinddir(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (numbered_file(entry->d_name, strlen(entry->d_name), &step) == CHECKPOINT && step < below &&
            (!found || step > *steps_done)) {
            found = true;
            *steps_done = step;
        }
    return found;
}

bool gw_folder_is_complete(DIR *folder)
{
    return faccessat(dirfd(folder), GW_SUMMARY_FILE, F_OK, 0) == 0;
}

bool gw_folder_is(DIR *folder, const char *path)
{
    struct stat a, b;
    return fstat(dirfd(folder), &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool gw_folder_owns(const char *folder, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool partial;
    if (!is_of_a_run(name, &partial) || (strcmp(name, GW_REPORT_FILE) == 0 && !partial))
        return false;
    snprintf(parent, sizeof parent, "%.*s", slash == path ? 1 : slash ? (int)(slash - path) : 1, slash ? path : ".");
    DIR *run = gw_opendir(folder);
    const bool owns = run && gw_folder_is(run, parent);
    if (run)
        closedir(run);
    return owns;
}

gw_status gw_folder_check(const char *folder, DIR *lock)
{
    char first[256] = "", others[48] = "";
    unsigned n = 0;
    bool partial;
    rewinddir(lock);
    for (const struct dirent *entry; (entry = readdir(lock));) {
        if (!is_of_a_run(entry->d_name, &partial))
            continue;
        if (n++ == 0 || strcmp(entry->d_name, first) < 0) /* so the folder's order does not matter */
            snprintf(first, sizeof first, "%s", entry->d_name);
    }
    if (n == 0)
        return GW_OK;
    if (n > 1)
        snprintf(others, sizeof others, " and %u other file%s", n - 1, n == 2 ? "" : "s");
    return gw_fail(GW_ERR_SYSTEM,
                   "%s holds an earlier run (%s%s); name another folder, or add --overwrite, which replaces it; "
                   "--resume %s goes on with it if it has checkpoints",
                   folder, first, others, folder);
}

static gw_status remove_file(const char *folder, DIR *lock, const char *name, bool *removed)
{
    bool done = unlinkat(dirfd(lock), name, 0) == 0;
    *removed |= done;
    if (done || errno == ENOENT)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "%s/%s, of an earlier run, cannot be removed: %s", folder, name, strerror(errno));
}

/* True for the partial files of a run that can go on. */
static bool grows(const char *name)
{
    return strcmp(name, GW_METRICS_FILE GW_PARTIAL) == 0 || strcmp(name, GW_HISTOGRAMS_FILE GW_PARTIAL) == 0 ||
           strcmp(name, GW_EVENTS_FILE GW_PARTIAL) == 0;
}

gw_status gw_folder_clear(const char *folder, DIR *lock, bool keep_whole)
{
    /* The summary goes first, so that a folder that is half cleared does not look complete. */
    bool removed = false, partial;
    GW_TRY(remove_file(folder, lock, GW_SUMMARY_FILE, &removed));
    do { /* until nothing more is found: some file systems skip names while others are removed */
        removed = false;
        rewinddir(lock);
        for (const struct dirent *entry; (entry = readdir(lock));) {
            const char *name = entry->d_name;
            if (!is_of_a_run(name, &partial) || (keep_whole && (partial ? grows(name) : !is_of_the_end(name))))
                continue;
            GW_TRY(remove_file(folder, lock, name, &removed));
        }
    } while (removed);
    return GW_OK;
}
