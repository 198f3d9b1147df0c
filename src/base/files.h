/* Opens files patiently: if descriptors are short at the moment, it tries again before it gives up. And gives files
 * that were written under another name their own, so that nothing partial ever stands there. */
#ifndef GW_BASE_FILES_H
#define GW_BASE_FILES_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* As openat(), fopen() and opendir(). Where these fail because the process or the system has no descriptor left
 * (EMFILE, ENFILE), these try again a few times, with pauses, for GW_FILES_PATIENCE_MS in all. Many connections may
 * hold the descriptors for a moment, and a checkpoint or a journal is worth that wait. Any other error is returned at
 * once. -1 or NULL: errno says why. Any thread. */
#define GW_FILES_PATIENCE_MS 630
int gw_openat(int folder, const char *path, int flags, mode_t mode);
FILE *gw_fopen(const char *path, const char *mode);
DIR *gw_opendir(const char *path);

/* Gives the file `partial`, which is written, on disk and closed, its name, and brings that to disk. Both are paths, as
 * renameat() takes them with `folder` (AT_FDCWD: as they stand). replace false: fails with EEXIST if the name is taken.
 * 0; or -1, and errno says why: `partial` is then removed, or it has its name and may lose it if the machine fails now.
 * Any thread. */
int gw_files_publish(int folder, const char *partial, const char *name, bool replace);

#endif
