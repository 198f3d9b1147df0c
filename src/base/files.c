/* Opens files, and tries again if descriptors are short at the moment. Gives written files their names. */
#define _GNU_SOURCE /* renameat2 */
#include "base/files.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PAUSE_MS 10u
#define MOST_PAUSES 6u /* each is twice as long as the one before; together they take GW_FILES_PATIENCE_MS */

_Static_assert(FIRST_PAUSE_MS *((1u << MOST_PAUSES) - 1) == GW_FILES_PATIENCE_MS, "the pauses as the header says");

/* Makes a pause and returns true, if it makes sense to try again. `pauses` counts the pauses. false: do not try again;
 * errno is as it was. */
static bool pause_for_others(unsigned *pauses)
{
    if ((errno != EMFILE && errno != ENFILE) || *pauses == MOST_PAUSES)
        return false;
    gw_clock_sleep_until(gw_clock_seconds() + 1e-3 * (FIRST_PAUSE_MS << (*pauses)++));
    return true;
}

int gw_openat(int folder, const char *path, int flags, mode_t mode)
{
    unsigned pauses = 0;
    int fd;
    do
        fd = openat(folder, path, flags, mode);
    while (fd < 0 && pause_for_others(&pauses));
    return fd;
}

FILE *gw_fopen(const char *path, const char *mode)
{
    unsigned pauses = 0;
    FILE *file;
    do
        file = fopen(path, mode);
    while (!file && pause_for_others(&pauses));
    return file;
}

DIR *gw_opendir(const char *path)
{
    unsigned pauses = 0;
    DIR *folder;
    do
        folder = opendir(path);
    while (!folder && pause_for_others(&pauses));
    return folder;
}

/* Some file systems cannot sync folders (EINVAL). Some folders may be written but not read (EACCES). Neither is an
 * error. */
int gw_files_sync_folder(int folder, const char *name)
{
    char path[PATH_MAX];
    const char *slash = strrchr(name, '/');
    const size_t n = slash ? (size_t)(slash - name) : 0;
    if (n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path, name, n);
    path[n] = 0;
    const int fd = gw_openat(folder, n ? path : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return errno == EACCES ? 0 : -1;
    const bool failed = fsync(fd) != 0 && errno != EINVAL;
    const int error = errno;
    close(fd);
    errno = error;
    return failed ? -1 : 0;
}

int gw_files_publish(int folder, const char *partial, const char *name, bool replace)
{
    int failed =
        replace ? renameat(folder, partial, folder, name) : renameat2(folder, partial, folder, name, RENAME_NOREPLACE);
    if (failed && !replace && errno == EINVAL) { /* the file system knows only rename */
        failed = faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        errno = EEXIST;
        failed = failed || renameat(folder, partial, folder, name) != 0;
    }
    if (!failed && gw_files_sync_folder(folder, name) == 0)
        return 0;
    const int error = errno;
    if (failed)
        unlinkat(folder, partial, 0);
    else if (!replace)
        unlinkat(folder, name, 0);
    errno = error;
    return -1;
}
