/* Reads and writes NumPy's .npy files, after numpy.lib.format: magic, version, header length, and a Python dict in
 * text:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * The reader accepts what NumPy writes and refuses every other key, type and order with a sentence. */
#include "npy.h"
#include "base/append.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char magic[6] = "\x93NUMPY";

/* How far the text of the header was read. */
typedef struct cursor {
    const char *at;
} cursor;

static void skip_spaces(cursor *c)
{
    while (*c->at == ' ' || *c->at == '\t' || *c->at == '\n')
        c->at++;
}

static bool accept(cursor *c, const char *word)
{
    skip_spaces(c);
    size_t n = strlen(word);
    if (strncmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Reads a quoted string that has no escapes and is shorter than `capacity`. */
static bool accept_string(cursor *c, char *out, size_t capacity)
{
    skip_spaces(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(c->at + 1, quote);
    if (!end || (size_t)(end - c->at) > capacity)
        return false;
    size_t n = (size_t)(end - c->at - 1);
    memcpy(out, c->at + 1, n);
    out[n] = 0;
    c->at = end + 1;
    return true;
}

static bool accept_number(cursor *c, uint64_t *out)
{
    skip_spaces(c);
    if (*c->at < '0' || *c->at > '9')
        return false;
    for (*out = 0; *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, (uint64_t)(*c->at - '0'), out))
            return false;
    return true;
}

/* Reads a tuple of dimensions. *n_elems becomes their product. */
static bool accept_shape(cursor *c, uint64_t *n_elems, int *rank)
{
    *n_elems = 1;
    *rank = 0;
    if (!accept(c, "("))
        return false;
    while (!accept(c, ")")) {
        uint64_t dimension;
        if (++*rank > TOOL_NPY_MAX_RANK || !accept_number(c, &dimension) ||
            __builtin_mul_overflow(*n_elems, dimension, n_elems))
            return false;
        if (!accept(c, ",")) {
            if (!accept(c, ")"))
                return false;
            break;
        }
    }
    return true;
}

typedef struct header {
    char descr[16];
    bool fortran_order;
    uint64_t n_elems;
    int rank;
} header;

static bool parse_header(const char *text, header *out)
{
    cursor c = {text};
    bool have_descr = false, have_order = false, have_shape = false;
    if (!accept(&c, "{"))
        return false;
    while (!accept(&c, "}")) {
        char key[16];
        if (!accept_string(&c, key, sizeof key) || !accept(&c, ":"))
            return false;
        if (strcmp(key, "descr") == 0 && !have_descr) {
            have_descr = accept_string(&c, out->descr, sizeof out->descr);
            if (!have_descr)
                return false;
        } else if (strcmp(key, "fortran_order") == 0 && !have_order) {
            have_order = true;
            out->fortran_order = accept(&c, "True");
            if (!out->fortran_order && !accept(&c, "False"))
                return false;
        } else if (strcmp(key, "shape") == 0 && !have_shape) {
            have_shape = accept_shape(&c, &out->n_elems, &out->rank);
            if (!have_shape)
                return false;
        } else {
            return false;
        }
        if (!accept(&c, ",")) {
            if (!accept(&c, "}"))
                return false;
            break;
        }
    }
    skip_spaces(&c);
    return have_descr && have_order && have_shape && *c.at == 0;
}

int tool_npy_read_header(int fd, const char *path, uint64_t file_bytes, uint64_t *n_elems, uint64_t *data_offset)
{
    unsigned char start[12] = {0};
    if (file_bytes < 10) {
        tool_fail("%s is cut short: it has %llu bytes, fewer than an .npy header", path,
                  (unsigned long long)file_bytes);
        return -1;
    }
    if (tool_read_exact(fd, path, start, 10) != 0)
        return -1;
    if (memcmp(start, magic, sizeof magic) != 0) {
        tool_fail("%s is no .npy file: it does not begin with NumPy's magic bytes", path);
        return -1;
    }
    uint64_t begin = 10, length = start[8] | (uint64_t)start[9] << 8;
    if (start[6] == 2 || start[6] == 3) {
        begin = 12;
        if (file_bytes < begin) {
            tool_fail("%s is cut short within its .npy header", path);
            return -1;
        }
        if (tool_read_exact(fd, path, start + 10, 2) != 0)
            return -1;
        length |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
    } else if (start[6] != 1) {
        tool_fail("%s is .npy version %d; versions 1 to 3 are understood", path, start[6]);
        return -1;
    }
    char text[4096];
    if (length >= sizeof text || length > file_bytes - begin) {
        tool_fail("%s: its .npy header claims %llu bytes; there are %llu, and at most %zu make sense", path,
                  (unsigned long long)length, (unsigned long long)(file_bytes - begin), sizeof text - 1);
        return -1;
    }
    if (tool_read_exact(fd, path, text, length) != 0)
        return -1;
    text[length] = 0;
    header h = {0};
    if (strlen(text) != length || !parse_header(text, &h)) {
        tool_fail("%s: its .npy header is not one that NumPy writes", path);
        return -1;
    }
    if (strcmp(h.descr, "<f4") != 0) {
        tool_fail("%s holds values of type '%s', and must hold '<f4' (little-endian float32): in NumPy, "
                  "array.astype('<f4')",
                  path, h.descr);
        return -1;
    }
    if (h.fortran_order && h.rank > 1) {
        tool_fail("%s is in Fortran order, and must be in C order: in NumPy, numpy.ascontiguousarray(array)", path);
        return -1;
    }
    uint64_t data_bytes;
    if (__builtin_mul_overflow(h.n_elems, sizeof(float), &data_bytes) || data_bytes != file_bytes - begin - length) {
        tool_fail("%s: its shape has %llu float32 elements, but %llu bytes follow the header", path,
                  (unsigned long long)h.n_elems, (unsigned long long)(file_bytes - begin - length));
        return -1;
    }
    *n_elems = h.n_elems;
    *data_offset = begin + length;
    return 0;
}

int tool_npy_write_header(tool_output *output, const uint64_t *shape, int rank)
{
    char dict[TOOL_NPY_MAX_RANK * 22 + 80];
    snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < rank && i < TOOL_NPY_MAX_RANK; i++)
        gw_append(dict, sizeof dict, "%s%llu%s", i ? ", " : "", (unsigned long long)shape[i], rank == 1 ? "," : "");
    gw_append(dict, sizeof dict, "), }");
    const size_t n = strlen(dict);
    /* Version 1 has 10 bytes, the dict, and then spaces and a line end up to a multiple of 64. */
    size_t total = ((size_t)n + 11 + 63) / 64 * 64;
    unsigned char block[1024];
    memset(block, ' ', sizeof block);
    memcpy(block, magic, sizeof magic);
    block[6] = 1;
    block[7] = 0;
    block[8] = (unsigned char)((total - 10) & 255);
    block[9] = (unsigned char)((total - 10) >> 8);
    memcpy(block + 10, dict, (size_t)n);
    block[total - 1] = '\n';
    return tool_output_write(output, block, total);
}

int gw_npy_write(const char *path, const float *data, const uint64_t *shape, int rank)
{
    if (rank < 0 || rank > TOOL_NPY_MAX_RANK) {
        tool_fail("cannot write %s: a tensor of rank %d; .npy files go up to %d", path, rank, TOOL_NPY_MAX_RANK);
        return -1;
    }
    uint64_t n_elems = 1;
    for (int i = 0; i < rank; i++)
        n_elems *= shape[i];
    tool_output output;
    if (tool_output_open(&output, path) != 0 || tool_npy_write_header(&output, shape, rank) != 0 ||
        tool_output_write(&output, data, n_elems * sizeof(float)) != 0)
        return -1;
    return tool_output_commit(&output);
}
