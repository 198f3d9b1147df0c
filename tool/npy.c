/* Reads and writes NumPy's .npy files, after numpy.lib.format: magic, version, header length, and a Python dict in
 * text:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * The reader accepts what all NumPys wrote, and refuses every other key and type with a sentence. */
#include "npy.h"
#include "base/append.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

enum { MOST_TEXT = 4096 }; /* of a header, with a 0 behind it */

/* Makes JSON of a dict in Python's text: other quotes and brackets, no comma behind the last entry, and no L behind
 * numbers, which Python 2 wrote. `json` has as much room as the dict. What is no such dict becomes no JSON. */
static void make_json(const char *dict, char *json)
{
    char quote = 0; /* within a text: what ends it */
    for (const char *at = dict; *at; at++) {
        const char next = at[1 + strspn(at + 1, " \t\r\n")];
        if (quote ? *at == quote : *at == '\'' || *at == '"') {
            quote = quote ? 0 : *at;
            *json++ = '"';
        } else if (quote) {
            *json++ = *at == '\\' || *at == '"' ? '\n' : *at; /* JSON has no line end in a text */
        } else if (*at == '(' || *at == ')') {
            *json++ = *at == '(' ? '[' : ']';
        } else if (*at == 'T' || *at == 'F') {
            *json++ = (char)tolower(*at);
        } else if (at == dict || !(*at == ',' ? next && strchr(")]}", next) && !strchr("([{", at[-1])
                                              : *at == 'L' && isdigit((unsigned char)at[-1]) && strchr(",)", next))) {
            *json++ = *at;
        }
    }
    *json = 0;
}

/* A list in brackets is the type of records, and nothing else in such a dict. */
static bool parse_header(const char *text, tool_npy *out)
{
    char json[MOST_TEXT];
    size_t i;
    make_json(text, json);
    json_t *dict = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    const json_t *descr = json_object_get(dict, "descr"), *order = json_object_get(dict, "fortran_order"),
                 *shape = json_object_get(dict, "shape"), *dimension;
    const char *type = json_is_array(descr) ? "[...]" : json_string_value(descr);
    bool good = json_object_size(dict) == 3 && type && strlen(type) < sizeof out->descr && json_is_boolean(order) &&
                json_is_array(shape) && json_array_size(shape) <= TOOL_NPY_MAX_RANK &&
                json_is_array(descr) == (strchr(text, '[') != NULL);
    out->fortran_order = json_is_true(order);
    out->n_elems = 1;
    if (good)
        strcpy(out->descr, type);
    json_array_foreach ((json_t *)shape, i, dimension) {
        const json_int_t n = json_integer_value(dimension);
        good = good && json_is_integer(dimension) && n >= 0 &&
               !__builtin_mul_overflow(out->n_elems, (uint64_t)n, &out->n_elems);
        if (good)
            out->shape[out->rank++] = (uint64_t)n;
    }
    json_decref(dict);
    return good;
}

/* Reads the text of the header. *data_offset: where the values begin. */
static int read_text(int fd, const char *path, uint64_t file_bytes, char *text, size_t capacity, uint64_t *data_offset)
{
    unsigned char start[12] = {0};
    if (file_bytes < 10)
        return tool_fail("%s is cut short: it has %llu bytes, fewer than an .npy header", path,
                         (unsigned long long)file_bytes);
    TOOL_TRY(tool_read_exact(fd, path, start, 10));
    if (memcmp(start, magic, sizeof magic) != 0)
        return tool_fail("%s is no .npy file: it does not begin with NumPy's magic bytes%s", path,
                         memcmp(start, "PK", 2) == 0 ? "; it is an .npz archive, and numpy.save writes .npy" : "");
    uint64_t begin = 10, length = start[8] | (uint64_t)start[9] << 8;
    if (start[6] == 2 || start[6] == 3) {
        begin = 12;
        if (file_bytes < begin)
            return tool_fail("%s is cut short within its .npy header", path);
        TOOL_TRY(tool_read_exact(fd, path, start + 10, 2));
        length |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
    } else if (start[6] != 1) {
        return tool_fail("%s is .npy version %d; versions 1 to 3 are understood", path, start[6]);
    }
    if (length >= capacity || length > file_bytes - begin)
        return tool_fail("%s: its .npy header claims %llu bytes; there are %llu, and at most %zu make sense", path,
                         (unsigned long long)length, (unsigned long long)(file_bytes - begin), capacity - 1);
    TOOL_TRY(tool_read_exact(fd, path, text, length));
    text[length] = 0;
    *data_offset = begin + length;
    return strlen(text) == length ? 0 : tool_fail("%s: its .npy header is not one that NumPy writes", path);
}

int tool_npy_read_header(int fd, const char *path, uint64_t file_bytes, tool_npy *out)
{
    char text[MOST_TEXT];
    *out = (tool_npy){0};
    TOOL_TRY(read_text(fd, path, file_bytes, text, sizeof text, &out->data_offset));
    if (!parse_header(text, out))
        return tool_fail("%s: its .npy header is not one that NumPy writes", path);
    out->swapped = strcmp(out->descr, ">f4") == 0;
    /* Others, such as float64, would lose something, and that is the user's to decide. */
    if (!out->swapped && strcmp(out->descr, "<f4") != 0 && strcmp(out->descr, "=f4") != 0)
        return tool_fail("%s holds values of type '%s', and must hold float32 ('<f4' or '>f4'): in NumPy, "
                         "array.astype('<f4')",
                         path, out->descr);
    uint64_t data_bytes;
    if (__builtin_mul_overflow(out->n_elems, sizeof(float), &data_bytes) || data_bytes != file_bytes - out->data_offset)
        return tool_fail("%s: its shape has %llu float32 elements, but %llu bytes follow the header", path,
                         (unsigned long long)out->n_elems, (unsigned long long)(file_bytes - out->data_offset));
    return 0;
}

/* Puts values from Fortran's order, in which the first index runs fastest, into C's, in which the last one does. */
static void put_in_c_order(const tool_npy *npy, const float *from, float *to)
{
    uint64_t strides[TOOL_NPY_MAX_RANK], index[TOOL_NPY_MAX_RANK] = {0}, at = 0;
    for (int d = 0; d < npy->rank; d++)
        strides[d] = d == 0 ? 1 : strides[d - 1] * npy->shape[d - 1];
    for (uint64_t i = 0; i < npy->n_elems; i++) {
        to[i] = from[at];
        for (int d = npy->rank - 1; d >= 0; d--) {
            at += strides[d];
            if (++index[d] < npy->shape[d])
                break;
            at -= index[d] * strides[d];
            index[d] = 0;
        }
    }
}

int tool_npy_arrange(const tool_npy *npy, float **values)
{
    for (uint64_t i = 0; npy->swapped && i < npy->n_elems; i++) {
        uint32_t bits;
        memcpy(&bits, *values + i, sizeof bits);
        bits = __builtin_bswap32(bits);
        memcpy(*values + i, &bits, sizeof bits);
    }
    if (!npy->fortran_order || npy->rank < 2)
        return 0;
    float *ordered = tool_alloc(npy->n_elems, sizeof *ordered);
    if (!ordered)
        return TOOL_FAILED;
    put_in_c_order(npy, *values, ordered);
    free(*values);
    *values = ordered;
    return 0;
}

static int write_header(tool_output *output, const uint64_t *shape, int rank)
{
    char dict[TOOL_NPY_MAX_RANK * 22 + 80];
    snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < rank; i++)
        gw_append(dict, sizeof dict, "%s%llu%s", i ? ", " : "", (unsigned long long)shape[i], rank == 1 ? "," : "");
    gw_append(dict, sizeof dict, "), }");
    /* Version 1 has 10 bytes, the dict, and then spaces and a line end up to a multiple of 64. */
    size_t total = (strlen(dict) + 11 + 63) / 64 * 64;
    unsigned char block[1024];
    memcpy(block, magic, sizeof magic);
    block[6] = 1;
    block[7] = 0;
    block[8] = (unsigned char)((total - 10) & 255);
    block[9] = (unsigned char)((total - 10) >> 8);
    snprintf((char *)block + 10, sizeof block - 10, "%-*s\n", (int)total - 11, dict);
    return tool_output_write(output, block, total);
}

int tool_npy_write(tool_output *output, const char *path, const float *data, const uint64_t *shape, int rank)
{
    *output = TOOL_OUTPUT_CLOSED;
    uint64_t n_elems = 1;
    for (int i = 0; i < rank; i++)
        n_elems *= shape[i];
    TOOL_TRY(tool_output_open(output, path));
    TOOL_TRY(write_header(output, shape, rank));
    TOOL_TRY(tool_output_write(output, data, n_elems * sizeof(float)));
    return tool_output_finish(output);
}
