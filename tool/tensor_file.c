/* Reads one tensor from a file: raw float32, or .npy. */
#include "npy.h"
#include "tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the tool reads and writes little-endian files as they lie in memory"
#endif

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
