/* Opens files patiently: if descriptors are short at the moment, it tries again before it gives up. Also gives a file
 * that was written under another name its own name, so that nobody ever sees a partial file there. */
#ifndef GW_BASE_FILES_H
#define GW_BASE_FILES_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* As openat(), fopen() and opendir(). If the process or the system has no descriptor left (EMFILE, ENFILE), they try
 * again a few times, with pauses, for GW_FILES_PATIENCE_MS in all. Many connections may hold the descriptors for a
 * moment, and a checkpoint is worth that wait. Any other error is returned at once. -1 or NULL: errno says
 * why. Any thread. */
#define GW_FILES_PATIENCE_MS 630
int gw_openat(int folder, const char *path, int flags, mode_t mode);
FILE *gw_fopen(const char *path, const char *mode);
DIR *gw_opendir(const char *path);

/* Gives the file `partial`, which is written, on disk and closed, its name, and brings that to disk. Both are paths, as
 * renameat() takes them with `folder` (AT_FDCWD: as they stand). replace false: fails with EEXIST if the name is taken.
 * Returns 0; or -1, and errno says why. After -1 `partial` is removed. If only the name did not come to disk: with
 * `replace` false the file is removed, too; with `replace` true it has its name, but may lose it if the machine fails
 * now. Any thread may call it. */
int gw_files_publish(int folder, const char *partial, const char *name, bool replace);

/* Brings the names in the folder of a path to disk. -1: errno says why. */
int gw_files_sync_folder(int folder, const char *name);

#endif
