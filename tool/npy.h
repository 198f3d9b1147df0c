/* NumPy's .npy files: float32 tensors, format versions 1 to 3. */
#ifndef GRADWIRE_TOOL_NPY_H
#define GRADWIRE_TOOL_NPY_H

#include "tool.h"

#define TOOL_NPY_MAX_RANK 32

/* Writes float32 values of the given shape in C order, whole or not at all. Rank 0 is one number.
 * Returns 0, or -1 with the message already printed. */
int gw_npy_write(const char *path, const float *data, const uint64_t *shape, int rank);

/* Reads the header of a file: how many elements there are, and where they begin. It refuses files that are not
 * little-endian float32 in C order, and headers that contradict the file's length. Returns 0, or -1 with the message
 * already printed. */
int tool_npy_read_header(int fd, const char *path, uint64_t file_bytes, uint64_t *n_elems, uint64_t *data_offset);

/* Writes the header for a shape to an open output. Returns 0, or -1 with the message already printed. */
int tool_npy_write_header(tool_output *output, const uint64_t *shape, int rank);

#endif
