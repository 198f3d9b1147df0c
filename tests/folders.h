/* Removes the folders that tests make. A file that includes this defines _GNU_SOURCE first, for nftw. */
#ifndef GW_TESTS_FOLDERS_H
#define GW_TESTS_FOLDERS_H

#include "checks.h"

#include <ftw.h>
#include <stdio.h>

static inline int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

/* The folder with all that is in it. */
static inline void remove_folder(const char *path)
{
    CHECK(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, "%s cannot be removed", path);
}

#endif
