/* Takes and returns all memory of the library, through the caller's allocator if the context has one. Memory begins at
 * a multiple of 64 bytes, and a size that overflows is refused. */
#include "base/memory.h"
#include "base/context.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory begins at a multiple of 64 (a cache line, a 512-bit register). The allocator promises only ordinary alignment.
 * So the word before the memory holds the address that the allocator gave. */
#define ALIGN 64

/* Each page of fresh memory costs a fault when it is first touched. In a virtual machine that takes longer than to copy
 * what goes there. So long values get pages of 2 MiB, if the system has them. */
#define LONG_BYTES ((size_t)8 << 20)

static void *plain_alloc(size_t bytes, void *user)
{
    (void)user;
    void *memory = malloc(bytes);
    if (memory && bytes >= LONG_BYTES) {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        const uintptr_t from = ((uintptr_t)memory + page - 1) / page * page, to = (uintptr_t)memory + bytes;
        (void)madvise((void *)from, (to - from) / page * page, MADV_HUGEPAGE); /* if it fails, pages stay small */
    }
    return memory;
}

static void plain_free(void *memory, void *user)
{
    (void)user;
    free(memory);
}

static gw_allocator allocator_of(const gw_context *context)
{
    if (context && context->allocator.alloc)
        return context->allocator;
    return (gw_allocator){plain_alloc, plain_free, NULL};
}

void *gw_alloc(gw_context *context, size_t count, size_t size)
{
    gw_allocator a = allocator_of(context);
    size_t bytes, total;
    void *base = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && !__builtin_add_overflow(bytes, ALIGN + sizeof(void *), &total))
        base = a.alloc(total, a.user);
    if (!base) {
        gw_fail(GW_ERR_MEMORY, "no memory for %zu items of %zu bytes", count, size);
        return NULL;
    }
    uintptr_t at = ((uintptr_t)base + sizeof(void *) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    memcpy((void *)(at - sizeof(void *)), &base, sizeof base);
    return (void *)at;
}

void *gw_calloc(gw_context *context, size_t count, size_t size)
{
    void *memory = gw_alloc(context, count, size);
    if (memory)
        memset(memory, 0, count * size);
    return memory;
}

void gw_free(gw_context *context, void *memory)
{
    if (!memory)
        return;
    gw_allocator a = allocator_of(context);
    void *base;
    memcpy(&base, (char *)memory - sizeof(void *), sizeof base);
    a.free(base, a.user);
}

char *gw_strdup(gw_context *context, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gw_alloc(context, bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

uint64_t gw_machine_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 1ull << 32;
}
