/* Reads LIBSVM text strictly: whatever is not a label and pairs of ascending index and finite value is refused with
 * file and line. The file's own length bounds the memory: a pair takes three bytes of text or more, a sample one. */
#include "base/error.h"
#include "base/lines.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "data/data.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)4 << 30)
#define MAX_FEATURES (1u << 26) /* a weight vector of 256 MiB */

struct reader {
    const char *path;
    uint64_t line;
    const char *at, *end; /* *end is 0 */
    struct gw_label_values *labels;
    struct gw_samples *samples;
    uint64_t n_values;
    uint32_t n_features;
};

/* The word at `at`, for an error message. */
struct word {
    char text[33];
};

static struct word word_at(const struct reader *r, const char *at)
{
    struct word w = {""};
    for (size_t n = 0; n < sizeof w.text - 1 && at < r->end && !isspace((unsigned char)*at); at++)
        w.text[n++] = isprint((unsigned char)*at) ? *at : '?';
    return w;
}

static void skip_blanks(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

static bool at_line_end(const struct reader *r)
{
    return r->at == r->end || *r->at == '\n' || *r->at == '#';
}

/* Reads a finite number. A blank or the end of the line must follow it. */
static bool read_number(struct reader *r, double *value)
{
    return gw_read_decimal(&r->at, value) && (at_line_end(r) || strchr(" \t\r", *r->at));
}

static gw_status read_label(struct reader *r)
{
    const char *begin = r->at;
    struct gw_label_values *l = r->labels;
    double value;
    if (!read_number(r, &value))
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: \"%s\" is no label; a line is LABEL INDEX:VALUE INDEX:VALUE ...",
                       r->path, (unsigned long long)r->line, word_at(r, begin).text);
    uint32_t k = 0;
    while (k < l->n && l->values[k] != value)
        k++;
    if (k == 2)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s, line %llu: the label %g is a third one, beside %g and %g; two classes are told "
                       "apart here",
                       r->path, (unsigned long long)r->line, value, l->values[0], l->values[1]);
    if (k == l->n)
        l->values[l->n++] = value;
    r->samples->labels[r->samples->n] = (uint8_t)k;
    return GW_OK;
}

/* *previous: the index before this one in the line. It is 0 if there is none. */
static gw_status read_pair(struct reader *r, uint32_t *previous)
{
    const char *begin = r->at;
    unsigned long long line = r->line;
    uint64_t index = 0;
    if (!gw_read_whole(&r->at, MAX_FEATURES, &index) && isdigit((unsigned char)*begin))
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: the index in \"%s\" is above %u, the largest that is read",
                       r->path, line, word_at(r, begin).text, MAX_FEATURES);
    if (r->at == begin || *r->at != ':')
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: \"%s\" is no INDEX:VALUE", r->path, line, word_at(r, begin).text);
    if (index == 0)
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: the index in \"%s\" is 0; indices count from 1", r->path, line,
                       word_at(r, begin).text);
    if (index <= *previous)
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: index %llu follows index %u; indices of a line must ascend",
                       r->path, line, (unsigned long long)index, *previous);
    double value;
    r->at++;
    if (!read_number(r, &value) || !isfinite((float)value))
        return gw_fail(GW_ERR_SYSTEM, "%s, line %llu: the value in \"%s\" is no finite number", r->path, line,
                       word_at(r, begin).text);
    r->samples->rows.index[r->n_values] = (uint32_t)index - 1;
    r->samples->rows.value[r->n_values++] = (float)value;
    *previous = (uint32_t)index;
    return GW_OK;
}

/* Reads one line, up to its end. Blank lines and comments are no samples. A label alone is a sample. */
static gw_status read_line(struct reader *r)
{
    uint32_t index = 0;
    skip_blanks(r);
    if (at_line_end(r))
        return GW_OK;
    GW_TRY(read_label(r));
    for (skip_blanks(r); !at_line_end(r); skip_blanks(r))
        GW_TRY(read_pair(r, &index));
    if (index > r->n_features)
        r->n_features = index;
    r->samples->rows.begin[++r->samples->n] = r->n_values;
    return GW_OK;
}

static gw_status read_lines(struct reader *r)
{
    for (r->line = 1; r->at < r->end; r->line++) {
        GW_TRY(gw_data_go_on());
        GW_TRY(read_line(r));
        const char *line_end = memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->at = line_end ? line_end + 1 : r->end;
    }
    if (r->samples->n == 0)
        return gw_fail(GW_ERR_SYSTEM, "%s holds no samples", r->path);
    if (r->labels->n < 2)
        return gw_fail(GW_ERR_SYSTEM, "%s: every sample has the label %g; there must be two labels", r->path,
                       r->labels->values[0]);
    return GW_OK;
}

static void put_labels_in_order(struct gw_label_values *labels, struct gw_samples *samples)
{
    double first = labels->values[0];
    if (first < labels->values[1])
        return;
    labels->values[0] = labels->values[1], labels->values[1] = first;
    for (uint32_t i = 0; i < samples->n; i++)
        samples->labels[i] ^= 1;
}

static gw_status parse(const char *path, const char *text, size_t n_bytes, struct gw_label_values *labels,
                       struct gw_samples *samples, uint32_t *n_features)
{
    uint64_t n_lines = 1, n_colons = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n_lines += text[i] == '\n', n_colons += text[i] == ':';
    if (n_lines > UINT32_MAX)
        return gw_fail(GW_ERR_SYSTEM, "%s has more than %u lines", path, UINT32_MAX);
    GW_TRY(gw_samples_alloc_rows((uint32_t)n_lines, n_colons, samples));
    samples->n = 0;
    struct reader r = {.path = path, .at = text, .end = text + n_bytes, .labels = labels, .samples = samples};
    gw_status status = read_lines(&r);
    if (status == GW_OK)
        put_labels_in_order(labels, samples);
    else
        gw_samples_free(samples);
    *n_features = r.n_features;
    return status;
}

gw_status gw_data_libsvm(const char *name, struct gw_label_values *labels, struct gw_samples *samples,
                         uint32_t *n_features)
{
    char path[4096];
    uint8_t *bytes;
    size_t n_bytes;
    *samples = (struct gw_samples){0};
    GW_TRY(gw_data_file(NULL, name, MAX_FILE_BYTES,
                        "give a file of LIBSVM text, a folder with MNIST's or CIFAR-10's files, or the words digits or "
                        "uneven, which need no files",
                        path, sizeof path, &bytes, &n_bytes));
    if (n_bytes >= 3 && memcmp(bytes, "\0\0\x08", 3) == 0) {
        gw_free(NULL, bytes);
        return gw_fail(GW_ERR_SYSTEM, "%s is one of MNIST's files; give the folder that holds all four", path);
    }
    const size_t mark = gw_lines_mark((const char *)bytes, n_bytes);
    gw_status status = parse(path, (const char *)bytes + mark, n_bytes - mark, labels, samples, n_features);
    gw_free(NULL, bytes);
    return status;
}
