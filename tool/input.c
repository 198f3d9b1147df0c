/* Reads files: whole ones, and tensors. */
#include "base/files.h"
#include "npy.h"
#include "tool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the tool reads and writes little-endian files as they lie in memory"
#endif

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
        if (got <= 0) {
            tool_fail("cannot read %s: %s", path, got < 0 ? strerror(errno) : "it became shorter while it was read");
            return -1;
        }
        to += got;
        n_bytes -= (uint64_t)got;
    }
    return 0;
}

void *tool_read_file(const char *path, size_t *bytes)
{
    uint64_t length;
    int fd = tool_open_file(path, &length);
    if (fd < 0)
        return NULL;
    void *memory = tool_alloc(length, 1);
    if (memory && tool_read_exact(fd, path, memory, length) != 0) {
        free(memory);
        memory = NULL;
    }
    close(fd);
    *bytes = length;
    return memory;
}

/* How many elements a raw file has, and where they begin. */
static int raw_header(const char *path, uint64_t file_bytes, uint64_t *n_elems, uint64_t *offset)
{
    if (file_bytes % sizeof(float) != 0) {
        tool_fail("%s has %llu bytes, which is no whole number of float32 values (4 bytes each)", path,
                  (unsigned long long)file_bytes);
        return -1;
    }
    *n_elems = file_bytes / sizeof(float);
    *offset = 0;
    return 0;
}

int tool_read_tensor(const char *path, tool_tensor *out)
{
    *out = (tool_tensor){0};
    bool npy = tool_has_suffix(path, ".npy");
    if (!npy && !tool_has_suffix(path, ".f32")) {
        tool_fail("%s: a tensor's name must end in .f32 (raw little-endian float32) or .npy", path);
        return -1;
    }
    uint64_t file_bytes, offset;
    int fd = tool_open_file(path, &file_bytes);
    if (fd < 0)
        return -1;
    int failed = npy ? tool_npy_read_header(fd, path, file_bytes, &out->n_elems, &offset)
                     : raw_header(path, file_bytes, &out->n_elems, &offset);
    if (!failed && out->n_elems > GW_MAX_ELEMENTS) {
        failed = tool_fail("%s has %llu elements; a tensor has at most %llu", path, (unsigned long long)out->n_elems,
                           (unsigned long long)GW_MAX_ELEMENTS);
    }
    if (!failed)
        failed = (out->values = tool_alloc(out->n_elems, sizeof(float))) == NULL;
    if (!failed && lseek(fd, (off_t)offset, SEEK_SET) < 0)
        failed = tool_fail("cannot read %s: %s", path, strerror(errno));
    if (!failed)
        failed = tool_read_exact(fd, path, out->values, out->n_elems * sizeof(float));
    close(fd);
    if (failed) {
        free(out->values);
        *out = (tool_tensor){0};
        return -1;
    }
    return 0;
}
