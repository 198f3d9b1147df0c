/* Tests tensors in files: .npy as all NumPys wrote it, what is written, and what is refused with which words. */
#define _GNU_SOURCE /* nftw */
#include "npy.h"
#include "checks.h"
#include "said.h"

#include <stdio.h>
#include <string.h>

/* Writes an .npy file: the text of its header, padded, and these values. */
static void put_npy(int version, const char *text, size_t align, const float *values, size_t n)
{
    char bytes[1024] = "\x93NUMPY";
    const size_t lead = version == 1 ? 10 : 12;
    size_t length = strlen(text) + 1;
    while ((lead + length) % align)
        length++;
    bytes[6] = (char)version;
    bytes[8] = (char)length; /* all are shorter than 256 */
    snprintf(bytes + lead, sizeof bytes - lead, "%-*s\n", (int)length - 1, text);
    memcpy(bytes + lead + length, values, n * sizeof *values);
    put("a.npy", bytes, lead + length + n * sizeof *values);
}

static void check_read(const float *values, size_t n, const char *which)
{
    tool_tensor tensor;
    CHECK(tool_read_tensor(in("a.npy"), &tensor) == TOOL_DONE && tensor.n_elems == n, "%s", which);
    CHECK(memcmp(tensor.values, values, n * sizeof *values) == 0, "%s", which);
    free(tensor.values);
}

static void swap_bytes(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bits = __builtin_bswap32(bits);
        memcpy(values + i, &bits, sizeof bits);
    }
}

#define HEAD(type, order, shape) "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }"

TEST_BETWEEN(as_all_numpys_wrote_it, make_folder, clean_up)
{
    static const struct {
        int version;
        const char *text;
        size_t align, n;
    } cases[] = {{1, HEAD("<f4", "False", "(24,)"), 64, 24},
                 {2, HEAD("<f4", "False", "(4, 6)"), 64, 24},
                 {3, HEAD("<f4", "False", "(2, 3, 4)"), 64, 24},
                 {1, HEAD("<f4", "False", "()"), 64, 1},
                 {1, HEAD("<f4", "False", "(3, 0, 2)"), 64, 0},
                 {1, HEAD("<f4", "True", "(3, 0, 2)"), 64, 0},
                 {1, HEAD("<f4", "True", "(24,)"), 64, 24},
                 {1, HEAD("<f4", "False", "(24L,)"), 1, 24},                              /* Python 2 */
                 {1, "{'shape': (24,), 'fortran_order': False, 'descr': '=f4'}", 16, 24}, /* before NumPy 1.14 */
                 {1, "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(24,)}", 16, 24},
                 {1, "{'descr': '<f4',\r\n 'fortran_order': False,\n\t'shape': ( 4 , 6 ) , }", 64, 24}};
    float values[24], turned[24];
    tool_output output;
    for (int i = 0; i < 24; i++)
        values[i] = (float)(i - 12);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_npy(cases[i].version, cases[i].text, cases[i].align, values, cases[i].n);
        check_read(values, cases[i].n, cases[i].text);
    }
    /* In Fortran's order the first index runs fastest. */
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                turned[i + 2 * (j + 3 * k)] = values[4 * (3 * i + j) + k];
    put_npy(1, HEAD("<f4", "True", "(2, 3, 4)"), 64, turned, 24);
    check_read(values, 24, "Fortran's order");
    swap_bytes(turned, 24);
    put_npy(1, HEAD(">f4", "True", "(2, 3, 4)"), 64, turned, 24);
    check_read(values, 24, "Fortran's order, big-endian");
    /* What is written is as NumPy itself writes it. */
    char bytes[300], expected[300];
    put_npy(1, HEAD("<f4", "False", "(2, 3, 4)"), 64, values, 24);
    const size_t n = get("a.npy", expected, sizeof expected);
    assert_int_equal(tool_npy_write(&output, in("a.npy"), values, (const uint64_t[]){2, 3, 4}, 3), TOOL_DONE);
    assert_int_equal(tool_output_commit(&output), TOOL_DONE);
    assert_int_equal(get("a.npy", bytes, sizeof bytes), n);
    assert_memory_equal(bytes, expected, n);
}

static void refused(const char *name, const char *says)
{
    tool_tensor tensor;
    const int before = said_begin(), status = tool_read_tensor(in(name), &tensor);
    const char *said = said_end(before);
    CHECK(status == TOOL_FAILED && !tensor.values, "%s", says);
    CHECK(strstr(said, says) && strstr(said, name), "\"%s\" does not say \"%s\"", said, says);
}

TEST_BETWEEN(what_is_no_float32_is_refused, make_folder, clean_up)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{HEAD("<f8", "False", "(2,)"), "'<f8'"},
                 {HEAD("|O", "False", "(2,)"), "'|O'"},
                 {"{'descr': [('a', '<f4'), ('b', '<f4', (2,))], 'fortran_order': False, 'shape': (1,)}", "'[...]'"},
                 {HEAD("<f4", "False", "(3,)"), "3 float32 elements, but 8 bytes"},
                 {HEAD("<f4", "False", "(4611686018427387904,)"), "elements, but 8 bytes"},
                 {HEAD("<f4", "False", "(99999999999, 99999999999,)"), "not one that NumPy writes"},
                 {"{'descr': '<f4', 'shape': (2,)}", "not one that NumPy writes"},
                 {"{''''''''''''''''''''''''''''''''''''''''", "not one that NumPy writes"}};
    static const float values[2] = {1, 2};
    char bytes[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_npy(1, cases[i].text, 64, values, 2);
        refused("a.npy", cases[i].says);
    }
    put_npy(1, HEAD("<f4", "False", "(2,)"), 64, values, 2);
    const size_t n = get("a.npy", bytes, sizeof bytes);
    put("a.npy", bytes, 8);
    refused("a.npy", "cut short");
    put("a.npy", bytes, 20);
    refused("a.npy", "header claims");
    bytes[6] = 4;
    put("a.npy", bytes, n);
    refused("a.npy", "version 4");
    put("a.npy", "NUMPY and some more", 19);
    refused("a.npy", "magic");
    put("a.npy", "PK\003\004 and some more", 18);
    refused("a.npy", "npz archive, and numpy.save writes .npy");
    put("odd.f32", "12345", 5);
    refused("odd.f32", "5 bytes, which is no whole number of float32 values (4 bytes each)");
    put("a.txt", "1234", 4);
    refused("a.txt", ".f32");
}

RUN_TESTS("npy", NULL, NULL)
