/* What the tool says on standard error while a test calls its functions. The test has a folder (own_folder.h). */
#ifndef GW_TESTS_SAID_H
#define GW_TESTS_SAID_H

#include "own_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* The true standard error, which said_end takes. */
static inline int said_begin(void)
{
    fflush(stderr);
    const int before = dup(STDERR_FILENO), to = open(in("said"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(before >= 0 && to >= 0 && dup2(to, STDERR_FILENO) >= 0);
    close(to);
    return before;
}

/* Puts it back. Returns what was said; it stays until the next call. */
static inline const char *said_end(int before)
{
    static char said[2000];
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    said[get("said", said, sizeof said - 1)] = 0;
    return said;
}

#endif
