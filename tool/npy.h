/* NumPy's .npy files: float32 tensors, format versions 1 to 3. */
#ifndef GRADWIRE_TOOL_NPY_H
#define GRADWIRE_TOOL_NPY_H

#include "tool.h"

#define TOOL_NPY_MAX_RANK 32

/* Writes float32 values of the given shape, of rank 0 (one number) to TOOL_NPY_MAX_RANK, in C order. The file is whole
 * then, and tool_output_commit gives it its name. After an error nothing is left of it. */
int tool_npy_write(tool_output *output, const char *path, const float *data, const uint64_t *shape, int rank);

/* What the header of a file says. */
typedef struct tool_npy {
    char descr[16];     /* the type of its values; "[...]": records */
    bool swapped;       /* the values are big-endian */
    bool fortran_order; /* the first index runs fastest */
    int rank;
    uint64_t shape[TOOL_NPY_MAX_RANK];
    uint64_t n_elems, data_offset;
} tool_npy;

/* Reads the header of a file. It refuses values that are not float32, and headers that contradict the file's length. */
int tool_npy_read_header(int fd, const char *path, uint64_t file_bytes, tool_npy *out);

/* Puts values as they lie in the file into this machine's byte order and C's order of indices. *values, which the
 * caller frees, may become other memory. */
int tool_npy_arrange(const tool_npy *npy, float **values);

#endif
