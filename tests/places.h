/* Buffers for tests of kernels that end or begin at a page that must not be touched. */
#ifndef GW_TESTS_PLACES_H
#define GW_TESTS_PLACES_H

#include "checks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory between two pages that cannot be touched. */
#define PLACE_BYTES ((size_t)1 << 20)
#define N_PLACES 6
static char *places[N_PLACES];

static inline void make_places(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < N_PLACES; i++) {
        char *low = mmap(NULL, PLACE_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (low == MAP_FAILED || mprotect(low + page, PLACE_BYTES, PROT_READ | PROT_WRITE) != 0) {
            perror("guard pages");
            exit(1);
        }
        places[i] = low + page;
    }
}

/* Where a buffer stands in its place: at the lower guard, at the upper one, or somewhere without alignment. */
enum side { AT_BEGIN, AT_END, SKEWED, N_SIDES };

/* A buffer of n items in place i. 0xEE fills the bytes around it. */
static inline void *buffer(int i, enum side side, size_t n, size_t item_bytes)
{
    size_t bytes = n * item_bytes;
    assert_true(bytes + 256 <= PLACE_BYTES);
    char *at = side == AT_BEGIN ? places[i]
               : side == AT_END ? places[i] + PLACE_BYTES - bytes
                                : places[i] + 64 + item_bytes;
    if (side != AT_BEGIN)
        memset(at - 64, 0xEE, 64);
    if (side != AT_END)
        memset(at + bytes, 0xEE, 64);
    return at;
}

/* True if nothing was written around the buffer. */
static inline bool is_clean_around(const void *at, enum side side, size_t n, size_t item_bytes)
{
    const unsigned char *low = at, *high = low + n * item_bytes;
    for (int k = 1; k <= 64; k++)
        if ((side != AT_BEGIN && low[-k] != 0xEE) || (side != AT_END && high[k - 1] != 0xEE))
            return false;
    return true;
}

#endif
