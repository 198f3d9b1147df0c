/* Opens files, and tries again where descriptors are short at the moment. */
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <time.h>

#define FIRST_PAUSE_MS 10u
#define MOST_PAUSES 6u /* each twice as long as the one before: GW_FILES_PATIENCE_MS together */

_Static_assert(FIRST_PAUSE_MS *((1u << MOST_PAUSES) - 1) == GW_FILES_PATIENCE_MS, "the pauses as the header says");

/* Whether to try again, after the pause that it makes; `pauses` counts them. Leaves errno as it is if not. */
static bool pause_for_others(unsigned *pauses)
{
    if ((errno != EMFILE && errno != ENFILE) || *pauses == MOST_PAUSES)
        return false;
    struct timespec left = {.tv_nsec = (long)(FIRST_PAUSE_MS << (*pauses)++) * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
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
