/* Opens files patiently: if descriptors are short at the moment, it tries again before it gives up. */
#ifndef GW_BASE_FILES_H
#define GW_BASE_FILES_H

#include <dirent.h>
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

#endif
