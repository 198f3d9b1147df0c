/* Opens and reads files, and takes memory for them. */
#include "base/files.h"
#include "tool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *tool_alloc(uint64_t count, size_t size)
{
    uint64_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes <= SIZE_MAX - 64)
        memory = aligned_alloc(64, (bytes + 64) & ~(uint64_t)63);
    if (!memory)
        tool_fail("out of memory: %llu numbers of %zu bytes are needed", (unsigned long long)count, size);
    return memory;
}

bool tool_has_suffix(const char *path, const char *suffix)
{
    size_t lp = strlen(path), ls = strlen(suffix);
    return lp >= ls && strcmp(path + lp - ls, suffix) == 0;
}

int tool_open_file(const char *path, uint64_t *bytes)
{
    int fd = gw_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        tool_fail("cannot read %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (!S_ISREG(about.st_mode)) {
        tool_fail("cannot read %s: it is %s, and must be a file", path,
                  S_ISDIR(about.st_mode) ? "a folder" : "no regular file");
        close(fd);
        return -1;
    }
    *bytes = (uint64_t)about.st_size;
    return fd;
}

int tool_read_exact(int fd, const char *path, void *dst, uint64_t n_bytes)
{
    char *to = dst;
    while (n_bytes > 0) {
        ssize_t got = read(fd, to, n_bytes < (1u << 30) ? n_bytes : (1u << 30));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tool_fail("cannot read %s: %s", path,
                             got < 0 ? strerror(errno) : "it became shorter while it was read");
        to += got;
        n_bytes -= (uint64_t)got;
    }
    return 0;
}

void *tool_read_file(const char *path, const char *what, size_t most, size_t *bytes)
{
    uint64_t length;
    void *memory = NULL;
    int fd = tool_open_file(path, &length);
    if (fd < 0)
        return NULL;
    if (length > most)
        tool_fail("%s has %llu bytes; a %s has %zu at most", path, (unsigned long long)length, what, most);
    else
        memory = tool_alloc(length, 1);
    if (memory && tool_read_exact(fd, path, memory, length) != 0) {
        free(memory);
        memory = NULL;
    }
    close(fd);
    *bytes = length;
    return memory;
}
