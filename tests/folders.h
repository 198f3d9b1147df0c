/* Removes the folders that tests make, and limits the files in them. A file that includes this defines _GNU_SOURCE
 * first, for nftw. */
#ifndef GW_TESTS_FOLDERS_H
#define GW_TESTS_FOLDERS_H

#include "checks.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

static inline int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

/* The folder with all that is in it. */
static inline void remove_folder(const char *path)
{
    CHECK(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, "%s cannot be removed", path);
}

/* From now on no file grows beyond this. RLIM_INFINITY: all may. */
static inline void most_file_bytes(rlim_t n)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#endif
