/* Takes the place of the C library's memory in a program (LD_PRELOAD): one allocation fails, that with the number
 * FAIL_AT. At the end the program's standard error says how many there were. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long n_calls, fail_at; /* fail_at 0: none */

static bool fails(void)
{
    if (++n_calls != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

#define NEXT(type, name) ((type)(uintptr_t)dlsym(RTLD_NEXT, #name))

__attribute__((visibility("default"))) void *malloc(size_t n_bytes)
{
    return fails() ? NULL : NEXT(void *(*)(size_t), malloc)(n_bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : NEXT(void *(*)(size_t, size_t), calloc)(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t n_bytes)
{
    return fails() ? NULL : NEXT(void *(*)(void *, size_t), realloc)(memory, n_bytes);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t n_bytes)
{
    return fails() ? NULL : NEXT(void *(*)(size_t, size_t), aligned_alloc)(alignment, n_bytes);
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("FAIL_AT");
    fail_at = number ? atol(number) : 0;
    n_calls = 0;
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "allocations: %ld\n", (long)n_calls);
}
