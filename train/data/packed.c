/* Reads a whole data file into memory: plain, gzip or xz. */
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/data.h"

#include <errno.h>
#include <lzma.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 20 };

struct growing {
    uint8_t *bytes;
    size_t n, capacity, max;
    const char *path;
};

/* Makes room for at least one more chunk and a zero behind it. */
static gw_status grow(struct growing *g)
{
    if (g->capacity - g->n > CHUNK)
        return GW_OK;
    if (g->n > g->max)
        return gw_fail(GW_ERR_SYSTEM, "%s holds more than %zu bytes; that is the most that is read", g->path, g->max);
    size_t capacity = g->capacity * 2 + CHUNK + 1;
    uint8_t *bytes = gw_alloc(NULL, capacity, 1);
    if (!bytes)
        return GW_ERR_MEMORY;
    if (g->n)
        memcpy(bytes, g->bytes, g->n);
    gw_free(NULL, g->bytes);
    g->bytes = bytes, g->capacity = capacity;
    return GW_OK;
}

/* This serves plain files, too: zlib reads a file that is not compressed as it is. */
static gw_status read_gzip(struct growing *g)
{
    gzFile file = gzopen(g->path, "rb");
    if (!file)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be opened: %s", g->path, strerror(errno));
    gw_status status = GW_OK;
    int got = 1;
    while (got > 0 && (status = grow(g)) == GW_OK) {
        got = gzread(file, g->bytes + g->n, CHUNK);
        if (got > 0)
            g->n += (size_t)got;
    }
    if (status == GW_OK) {
        int number;
        const char *why = gzerror(file, &number);
        if (number == Z_ERRNO)
            status = gw_fail(GW_ERR_SYSTEM, "%s cannot be read: %s", g->path, strerror(errno));
        else if (number == Z_BUF_ERROR)
            status = gw_fail(GW_ERR_SYSTEM, "%s is cut short: the compressed data end too early; fetch the file again",
                             g->path);
        else if (got < 0)
            status = gw_fail(GW_ERR_SYSTEM, "%s is damaged (%s); fetch the file again", g->path, why);
    }
    gzclose(file);
    return status;
}

static gw_status read_xz_stream(struct growing *g, FILE *file, lzma_stream *xz)
{
    uint8_t in[65536];
    lzma_action action = LZMA_RUN;
    for (;;) {
        if (xz->avail_in == 0 && action == LZMA_RUN) {
            xz->next_in = in;
            xz->avail_in = fread(in, 1, sizeof in, file);
            if (ferror(file))
                return gw_fail(GW_ERR_SYSTEM, "%s cannot be read: %s", g->path, strerror(errno));
            if (xz->avail_in == 0)
                action = LZMA_FINISH;
        }
        GW_TRY(grow(g));
        xz->next_out = g->bytes + g->n;
        xz->avail_out = CHUNK;
        lzma_ret ret = lzma_code(xz, action);
        g->n += CHUNK - xz->avail_out;
        if (ret == LZMA_STREAM_END)
            return GW_OK;
        if (ret == LZMA_BUF_ERROR)
            return gw_fail(GW_ERR_SYSTEM, "%s is cut short: the compressed data end too early; fetch the file again",
                           g->path);
        if (ret != LZMA_OK)
            return gw_fail(GW_ERR_SYSTEM, "%s is damaged (xz error %d); fetch the file again", g->path, (int)ret);
    }
}

static gw_status read_xz(struct growing *g)
{
    FILE *file = gw_fopen(g->path, "rb");
    if (!file)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be opened: %s", g->path, strerror(errno));
    lzma_stream xz = LZMA_STREAM_INIT;
    gw_status status;
    if (lzma_stream_decoder(&xz, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK)
        status = gw_fail(GW_ERR_MEMORY, "%s: the xz decoder got no memory", g->path);
    else
        status = read_xz_stream(g, file, &xz);
    lzma_end(&xz);
    fclose(file);
    return status;
}

/* The endings that the name of a data file may have. */
static const char *const endings[] = {"", ".gz", ".xz"};
enum { N_ENDINGS = sizeof endings / sizeof *endings };

bool gw_data_is_there(const char *name)
{
    char path[4096];
    for (int i = 0; i < N_ENDINGS; i++)
        if (snprintf(path, sizeof path, "%s%s", name, endings[i]) < (int)sizeof path && access(path, F_OK) == 0)
            return true;
    return false;
}

gw_status gw_data_file(const char *name, bool may_be_pipe, size_t max_bytes, const char *hint, char *path,
                       size_t path_capacity, uint8_t **bytes, size_t *n_bytes)
{
    for (int i = 0; i < N_ENDINGS; i++) {
        size_t length = (size_t)snprintf(path, path_capacity, "%s%s", name, endings[i]);
        if (length >= path_capacity)
            return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is longer than %zu bytes", name, path_capacity - 1);
        struct stat st;
        if (stat(path, &st) != 0)
            continue;
        if (S_ISFIFO(st.st_mode) && !may_be_pipe)
            return gw_fail(GW_ERR_SYSTEM, "%s is a pipe, and must be a file", path);
        struct growing g = {.max = max_bytes, .path = path};
        bool xz = length >= 3 && strcmp(path + length - 3, ".xz") == 0;
        gw_status status = xz ? read_xz(&g) : read_gzip(&g);
        if (status != GW_OK) {
            gw_free(NULL, g.bytes);
            return status;
        }
        g.bytes[g.n] = 0;
        *bytes = g.bytes, *n_bytes = g.n;
        return GW_OK;
    }
    return gw_fail(GW_ERR_SYSTEM, "there is no file %s (nor %s.gz, %s.xz); %s", name, name, name, hint);
}
