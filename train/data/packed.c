/* Reads a whole data file into memory: plain, gzip, xz or bzip2. Its first bytes say which: people rename files. */
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/data.h"

#include <bzlib.h>
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

static gw_status too_large(const struct growing *g)
{
    return gw_fail(GW_ERR_SYSTEM, "%s holds more than %zu bytes; that is the most that is read", g->path, g->max);
}

static gw_status add(struct growing *g, size_t n)
{
    g->n += n;
    return g->n > g->max ? too_large(g) : GW_OK;
}

/* What was read of the file, and is not unpacked yet. */
struct input {
    FILE *file;
    const char *path;
    uint8_t bytes[65536];
    size_t n; /* 0 after refill: the file has ended */
};

static gw_status refill(struct input *in)
{
    GW_TRY(gw_data_go_on());
    in->n = fread(in->bytes, 1, sizeof in->bytes, in->file);
    return ferror(in->file) ? gw_fail(GW_ERR_SYSTEM, "%s cannot be read: %s", in->path, strerror(errno)) : GW_OK;
}

static gw_status read_plain(struct input *in, struct growing *g)
{
    struct stat about;
    if (fstat(fileno(in->file), &about) == 0 && (uint64_t)about.st_size > g->max)
        return too_large(g); /* before it is read */
    while (in->n > 0) {
        GW_TRY(grow(g));
        memcpy(g->bytes + g->n, in->bytes, in->n);
        GW_TRY(add(g, in->n));
        GW_TRY(refill(in));
    }
    return grow(g);
}

union decoder {
    z_stream gzip;
    lzma_stream xz;
    bz_stream bzip2;
};

/* What a decoder may read, and where it may write. A step moves both on. */
struct span {
    uint8_t *from;
    size_t n_from;
    uint8_t *to;
    size_t room;
};

/* What a decoder says after it was called. */
enum outcome { MORE, ENDED, FAILED };

static enum outcome gzip_step(union decoder *d, struct span *s, int *why)
{
    z_stream *z = &d->gzip;
    z->next_in = s->from, z->avail_in = (uInt)s->n_from;
    z->next_out = s->to, z->avail_out = (uInt)s->room;
    *why = inflate(z, Z_NO_FLUSH);
    *s = (struct span){z->next_in, z->avail_in, z->next_out, z->avail_out};
    return *why == Z_STREAM_END ? ENDED : *why == Z_OK || *why == Z_BUF_ERROR ? MORE : FAILED;
}

static bool gzip_begin(union decoder *d)
{
    d->gzip = (z_stream){0};
    return inflateInit2(&d->gzip, 16 + MAX_WBITS) == Z_OK; /* 16: gzip's header */
}

static void gzip_end(union decoder *d)
{
    inflateEnd(&d->gzip);
}

static enum outcome xz_step(union decoder *d, struct span *s, int *why)
{
    lzma_stream *xz = &d->xz;
    xz->next_in = s->from, xz->avail_in = s->n_from;
    xz->next_out = s->to, xz->avail_out = s->room;
    *why = (int)lzma_code(xz, LZMA_RUN);
    *s = (struct span){s->from + (s->n_from - xz->avail_in), xz->avail_in, xz->next_out, xz->avail_out};
    return *why == LZMA_STREAM_END ? ENDED : *why == LZMA_OK || *why == LZMA_BUF_ERROR ? MORE : FAILED;
}

static bool xz_begin(union decoder *d)
{
    d->xz = (lzma_stream)LZMA_STREAM_INIT;
    return lzma_stream_decoder(&d->xz, UINT64_MAX, 0) == LZMA_OK;
}

static void xz_end(union decoder *d)
{
    lzma_end(&d->xz);
}

static enum outcome bzip2_step(union decoder *d, struct span *s, int *why)
{
    bz_stream *bz = &d->bzip2;
    bz->next_in = (char *)s->from, bz->avail_in = (unsigned)s->n_from;
    bz->next_out = (char *)s->to, bz->avail_out = (unsigned)s->room;
    *why = BZ2_bzDecompress(bz);
    *s = (struct span){(uint8_t *)bz->next_in, bz->avail_in, (uint8_t *)bz->next_out, bz->avail_out};
    return *why == BZ_STREAM_END ? ENDED : *why == BZ_OK ? MORE : FAILED;
}

static bool bzip2_begin(union decoder *d)
{
    d->bzip2 = (bz_stream){0};
    return BZ2_bzDecompressInit(&d->bzip2, 0, 0) == BZ_OK;
}

static void bzip2_end(union decoder *d)
{
    BZ2_bzDecompressEnd(&d->bzip2);
}

static const struct packing {
    const char *name, *ending, *magic;
    bool (*begin)(union decoder *);
    enum outcome (*step)(union decoder *, struct span *, int *why);
    void (*end)(union decoder *);
} packings[] = {
    {"gzip", ".gz", "\x1f\x8b", gzip_begin, gzip_step, gzip_end},
    {"xz", ".xz", "\3757zXZ", xz_begin, xz_step, xz_end},
    {"bzip2", ".bz2", "BZh", bzip2_begin, bzip2_step, bzip2_end},
};
enum { N_PACKINGS = sizeof packings / sizeof *packings };

static bool begins_with(const struct input *in, const char *magic)
{
    return in->n >= strlen(magic) && memcmp(in->bytes, magic, strlen(magic)) == 0;
}

/* Unpacks one stream. s->from and n_from are what it leaves of the input. */
static gw_status read_stream(const struct packing *p, union decoder *d, struct input *in, struct span *s,
                             struct growing *g)
{
    for (;;) {
        if (s->n_from == 0) {
            GW_TRY(refill(in));
            s->from = in->bytes, s->n_from = in->n;
        }
        GW_TRY(gw_data_go_on()); /* a few bytes may unpack to gigabytes */
        GW_TRY(grow(g));
        const bool was_last = s->n_from == 0;
        int why;
        s->to = g->bytes + g->n, s->room = CHUNK;
        const enum outcome outcome = p->step(d, s, &why);
        GW_TRY(add(g, CHUNK - s->room));
        if (outcome == FAILED)
            return gw_fail(GW_ERR_SYSTEM, "%s is damaged (%s error %d); fetch the file again", in->path, p->name, why);
        if (outcome == ENDED)
            return GW_OK;
        if (was_last && s->room == CHUNK) /* neither came anything in, nor out */
            return gw_fail(GW_ERR_SYSTEM, "%s is cut short: the compressed data end too early; fetch the file again",
                           in->path);
    }
}

/* Unpacks all streams of the file: some programs write several, one behind the other. */
static gw_status read_packed(const struct packing *p, struct input *in, struct growing *g)
{
    struct span s = {.from = in->bytes, .n_from = in->n};
    gw_status status = GW_OK;
    do {
        union decoder decoder;
        if (!p->begin(&decoder))
            return gw_fail(GW_ERR_MEMORY, "%s: the %s decoder got no memory", in->path, p->name);
        status = read_stream(p, &decoder, in, &s, g);
        p->end(&decoder);
        while (status == GW_OK && s.n_from > 0 && *s.from == 0) /* zeros may fill up the file */
            s.from++, s.n_from--;
        if (status == GW_OK && s.n_from == 0) {
            status = refill(in);
            s.from = in->bytes, s.n_from = in->n;
        }
    } while (status == GW_OK && s.n_from > 0);
    return status;
}

/* Refuses files that hold the data in a form that is not read. */
static gw_status check_form(const struct input *in)
{
    static const struct {
        const char *magic, *what;
    } forms[] = {
        {"PK\x03\x04", "a zip archive; unpack it (unzip)"},
        {"\x28\xb5\x2f\xfd", "packed by zstd; unpack it (unzstd)"},
        {"\x1f\x9d", "packed by compress; unpack it (uncompress)"},
        {"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it (7z x)"},
        {"\x93NUMPY", "a NumPy array, and those are no data sets; give the files of MNIST or CIFAR-10, or LIBSVM text"},
        {"\x89HDF", "an HDF5 file; give the files of MNIST or CIFAR-10, or LIBSVM text"},
        {"\xff\xfe", "UTF-16 text; save it as UTF-8"},
        {"\xfe\xff", "UTF-16 text; save it as UTF-8"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (begins_with(in, forms[i].magic))
            return gw_fail(GW_ERR_SYSTEM, "%s is %s", in->path, forms[i].what);
    return GW_OK;
}

static gw_status read_all(struct input *in, struct growing *g)
{
    enum { TAR_MAGIC = 257 };
    const struct packing *packing = NULL;
    GW_TRY(refill(in));
    GW_TRY(check_form(in));
    for (size_t i = 0; i < N_PACKINGS && !packing; i++)
        packing = begins_with(in, packings[i].magic) ? &packings[i] : NULL;
    GW_TRY(packing ? read_packed(packing, in, g) : read_plain(in, g));
    if (g->n > TAR_MAGIC + 5 && memcmp(g->bytes + TAR_MAGIC, "ustar", 5) == 0)
        return gw_fail(GW_ERR_SYSTEM, "%s is a tar archive; unpack it (tar xf), and give the folder", g->path);
    return GW_OK;
}

/* Writes the n-th name under which a file may be found: NAME, NAME.gz and so on; then, of MNIST's files, the same with
 * a point, as tools unpack them: train-images.idx3-ubyte. False: there is no such name. *fits false: it is too long. */
static bool spell(const char *name, int n, char *path, size_t capacity, bool *fits)
{
    const char *dash = strstr(name, "-idx");
    for (const char *next = dash; next; next = strstr(next + 1, "-idx")) /* the last one: folders have names, too */
        dash = next;
    const bool dotted = n > N_PACKINGS;
    const char *ending = n % (N_PACKINGS + 1) ? packings[n % (N_PACKINGS + 1) - 1].ending : "";
    if (n >= 2 * (N_PACKINGS + 1) || (dotted && (!dash || strchr(dash, '/'))))
        return false;
    const int length = snprintf(path, capacity, "%s%s", name, ending);
    *fits = length >= 0 && (size_t)length < capacity;
    if (*fits && dotted)
        path[dash - name] = '.';
    return true;
}

bool gw_data_is_there(const char *name)
{
    char path[4096];
    bool fits;
    for (int n = 0; spell(name, n, path, sizeof path, &fits); n++)
        if (fits && access(path, F_OK) == 0)
            return true;
    return false;
}

gw_status gw_data_file(const char *folder, const char *file, size_t max_bytes, const char *hint, char *path,
                       size_t path_capacity, uint8_t **bytes, size_t *n_bytes)
{
    bool fits, is_folder = false;
    char name[4096];
    if (snprintf(name, sizeof name, "%s%s%s", folder ? folder : "", folder ? "/" : "", file) >= (int)sizeof name)
        return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is longer than %zu bytes", folder ? folder : file,
                       sizeof name - 1);
    for (int n = 0; spell(name, n, path, path_capacity, &fits); n++) {
        struct stat st;
        if (!fits)
            return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is longer than %zu bytes", name, path_capacity - 1);
        if (stat(path, &st) != 0)
            continue;
        is_folder |= S_ISDIR(st.st_mode);
        if (S_ISDIR(st.st_mode)) /* some archives unpack each file into a folder of its name */
            continue;
        if (!S_ISREG(st.st_mode)) /* a pipe may wait for its writer without end */
            return gw_fail(GW_ERR_SYSTEM, "%s is %s, and must be a file", path,
                           S_ISFIFO(st.st_mode) ? "a pipe" : "no regular file");
        struct growing g = {.max = max_bytes, .path = path};
        struct input *in = gw_calloc(NULL, 1, sizeof *in);
        gw_status status = in ? GW_OK : GW_ERR_MEMORY;
        if (in && !(in->file = gw_fopen(in->path = path, "rb")))
            status = gw_fail(GW_ERR_SYSTEM, "%s cannot be opened: %s", path, strerror(errno));
        if (status == GW_OK)
            status = read_all(in, &g);
        if (in && in->file)
            fclose(in->file);
        gw_free(NULL, in);
        if (status != GW_OK) {
            gw_free(NULL, g.bytes);
            return status;
        }
        g.bytes[g.n] = 0;
        *bytes = g.bytes, *n_bytes = g.n;
        return GW_OK;
    }
    if (is_folder)
        return gw_fail(GW_ERR_SYSTEM, "%s is a folder, and must be a file", name);
    return gw_fail(GW_ERR_SYSTEM, "there is no file %s (nor %s.gz, .xz, .bz2); %s", name, name, hint);
}
