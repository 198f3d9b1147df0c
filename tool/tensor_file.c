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

/* How many elements a raw file has. */
static int raw_header(const char *path, uint64_t file_bytes, uint64_t *n_elems)
{
    *n_elems = file_bytes / sizeof(float);
    return file_bytes % sizeof(float) == 0
               ? TOOL_DONE
               : tool_fail("%s has %llu bytes, which is no whole number of float32 values (4 bytes each)", path,
                           (unsigned long long)file_bytes);
}

int tool_read_tensor(const char *path, tool_tensor *out)
{
    *out = (tool_tensor){0};
    bool npy = tool_has_suffix(path, ".npy");
    if (!npy && !tool_has_suffix(path, ".f32"))
        return tool_fail("%s: a tensor's name must end in .f32 (raw little-endian float32) or .npy", path);
    uint64_t file_bytes;
    tool_npy header = {0};
    int fd = tool_open_file(path, &file_bytes);
    if (fd < 0)
        return TOOL_FAILED;
    int failed =
        npy ? tool_npy_read_header(fd, path, file_bytes, &header) : raw_header(path, file_bytes, &header.n_elems);
    out->n_elems = header.n_elems;
    if (!failed && out->n_elems > GW_MAX_ELEMENTS)
        failed = tool_fail("%s has %llu elements; a tensor has at most %llu", path, (unsigned long long)out->n_elems,
                           (unsigned long long)GW_MAX_ELEMENTS);
    if (!failed && !(out->values = tool_alloc(out->n_elems, sizeof(float))))
        failed = TOOL_FAILED;
    if (!failed && lseek(fd, (off_t)header.data_offset, SEEK_SET) < 0)
        failed = tool_fail("cannot read %s: %s", path, strerror(errno));
    if (!failed)
        failed = tool_read_exact(fd, path, out->values, out->n_elems * sizeof(float));
    if (!failed)
        failed = tool_npy_arrange(&header, &out->values);
    close(fd);
    if (failed) {
        free(out->values);
        *out = (tool_tensor){0};
    }
    return failed;
}
