/* Writes and reads parameter files (.gwp), checkpoints among them. A file that is cut, altered or of another network
 * is refused. */
#include "disk/checkpoint.h"
#include "base/error.h"
#include "base/memory.h"
#include "disk/file.h"
#include "disk/folder.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char magic[8] = {'G', 'W', 'P', 'A', 'R', 'A', 'M', '1'};
const char *const gw_array_prefixes[GW_ARRAYS] = {
    [GW_PARAMS] = "", [GW_MOMENTUM] = "momentum.", [GW_EMA] = "ema.", [GW_VARIANCE] = "variance."};

uint32_t gw_array_tensors(const struct gw_network *net, enum gw_array array)
{
    return net->n_tensors + (array == GW_PARAMS || array == GW_EMA ? net->n_statistics : 0);
}

const struct gw_param *gw_array_tensor(const struct gw_network *net, uint32_t i)
{
    return i < net->n_tensors ? &net->tensors[i] : &net->statistics[i - net->n_tensors];
}

/* ---- writing -------------------------------------------------------------------------------- */

struct writer {
    FILE *stream;
    XXH3_state_t *hash;
};

static void put(struct writer *w, const void *bytes, size_t n_bytes)
{
    fwrite(bytes, 1, n_bytes, w->stream);
    XXH3_64bits_update(w->hash, bytes, n_bytes);
}

static void put_number(struct writer *w, uint64_t value, size_t n_bytes)
{
    uint8_t bytes[8];
    gw_put64(bytes, value);
    put(w, bytes, n_bytes);
}

static void put_text(struct writer *w, const char *a, const char *b)
{
    put_number(w, strlen(a) + strlen(b), 4);
    put(w, a, strlen(a));
    put(w, b, strlen(b));
}

gw_status gw_checkpoint_begin(const char *folder, const char *name, const struct gw_checkpoint *c, struct gw_file *file)
{
    const struct gw_network *net = &c->network;
    float *const *arrays = c->arrays;
    GW_TRY(gw_file_open(folder, name, false, file));
    struct writer w = {file->stream, XXH3_createState()};
    if (!w.hash) {
        gw_file_discard(file, false);
        return gw_fail(GW_ERR_MEMORY, "out of memory while writing %s", file->path);
    }
    XXH3_64bits_reset(w.hash);
    uint32_t n_tensors = 0;
    for (int k = 0; k < GW_ARRAYS; k++)
        n_tensors += arrays[k] ? gw_array_tensors(net, k) : 0;
    put(&w, magic, sizeof magic);
    put_number(&w, c->step, 8);
    put_number(&w, n_tensors, 4);
    put_text(&w, net->name, "");
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; arrays[k] && t < gw_array_tensors(net, k); t++) {
            const struct gw_param *p = gw_array_tensor(net, t);
            put_text(&w, gw_array_prefixes[k], p->name);
            put_number(&w, (uint64_t)p->rank, 4);
            for (int i = 0; i < p->rank; i++)
                put_number(&w, p->dims[i], 8);
        }
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; arrays[k] && t < gw_array_tensors(net, k); t++)
            put(&w, arrays[k] + gw_array_tensor(net, t)->offset, gw_array_tensor(net, t)->n_elems * sizeof(float));
    if (*c->options) {
        put_text(&w, c->options, "");
        put_number(&w, c->steps, 8);
        put_number(&w, c->workers, 4);
        put_number(&w, c->n_state_files, 4);
        put_number(&w, c->threads, 4);
    }
    put_number(&w, XXH3_64bits_digest(w.hash), 8);
    XXH3_freeState(w.hash);
    return GW_OK;
}

gw_status gw_checkpoint_write(const char *folder, const char *name, const struct gw_checkpoint *c)
{
    struct gw_file file;
    GW_TRY(gw_checkpoint_begin(folder, name, c, &file));
    return gw_file_commit(&file);
}

uint64_t gw_checkpoint_identity(const struct gw_checkpoint *c)
{
    uint8_t numbers[12];
    gw_put64(numbers, c->step);
    gw_put32(numbers + 8, c->workers);
    uint64_t hash = XXH3_64bits(numbers, sizeof numbers);
    hash = XXH3_64bits_withSeed(c->options, strlen(c->options), hash);
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; k != GW_EMA && c->arrays[k] && t < gw_array_tensors(&c->network, k); t++) {
            const struct gw_param *p = gw_array_tensor(&c->network, t);
            hash = XXH3_64bits_withSeed(c->arrays[k] + p->offset, p->n_elems * sizeof(float), hash);
        }
    return hash;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    const char *path;
    const uint8_t *at, *end;
};

enum { HEAD_MOST = 1 << 20 }; /* more bytes than any file has before its elements */

static gw_status cut(const struct reader *r)
{
    return gw_fail(GW_ERR_SYSTEM, "%s is cut short", r->path);
}

static gw_status get_number(struct reader *r, size_t n_bytes, uint64_t *value)
{
    if ((size_t)(r->end - r->at) < n_bytes)
        return cut(r);
    *value = 0;
    for (size_t i = 0; i < n_bytes; i++)
        *value |= (uint64_t)*r->at++ << 8 * i;
    return GW_OK;
}

static gw_status get_text(struct reader *r, char *text, size_t capacity)
{
    uint64_t n = 0;
    GW_TRY(get_number(r, 4, &n));
    if ((uint64_t)(r->end - r->at) < n)
        return cut(r);
    if (n >= capacity || memchr(r->at, 0, n))
        return gw_fail(GW_ERR_SYSTEM, "%s holds an invalid name", r->path);
    memcpy(text, r->at, n);
    text[n] = 0;
    r->at += n;
    return GW_OK;
}

static gw_status does_not_fit(const struct reader *r)
{
    return gw_fail(GW_ERR_SYSTEM, "%s: its length does not fit its tensors", r->path);
}

/* Checks that the list of tensors is the network's list, once for each kind. Finds out which kinds there are. */
static gw_status read_list(struct reader *r, const struct gw_network *net, bool present[GW_ARRAYS])
{
    for (int k = 0; k < GW_ARRAYS; k++) {
        const char *prefix = gw_array_prefixes[k];
        struct reader here = *r;
        char name[64];
        if (k > 0 && (get_text(&here, name, sizeof name) != GW_OK || strncmp(name, prefix, strlen(prefix)) != 0))
            continue;
        present[k] = true;
        for (uint32_t t = 0; t < gw_array_tensors(net, k); t++) {
            const struct gw_param *p = gw_array_tensor(net, t);
            uint64_t rank = 0, dim = 0;
            GW_TRY(get_text(r, name, sizeof name));
            GW_TRY(get_number(r, 4, &rank));
            bool same = strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name + strlen(prefix), p->name) == 0 &&
                        rank == (uint64_t)p->rank;
            for (int i = 0; same && i < p->rank; i++) {
                GW_TRY(get_number(r, 8, &dim));
                same = dim == p->dims[i];
            }
            if (!same)
                return gw_fail(GW_ERR_SYSTEM, "%s: its tensor %s is not that of %s (%s%s)", r->path, name, net->name,
                               prefix, p->name);
        }
    }
    return GW_OK;
}

static gw_status read_run(struct reader *r, struct gw_checkpoint *c)
{
    uint64_t workers = 0, n_state_files = 0, threads = 0;
    GW_TRY(get_text(r, c->options, sizeof c->options));
    GW_TRY(get_number(r, 8, &c->steps));
    GW_TRY(get_number(r, 4, &workers));
    GW_TRY(get_number(r, 4, &n_state_files));
    GW_TRY(get_number(r, 4, &threads));
    c->workers = (uint32_t)workers, c->n_state_files = (uint32_t)n_state_files, c->threads = (uint32_t)threads;
    if (r->at != r->end || c->steps < c->step || c->steps > GW_MAX_STEPS || workers == 0 || workers > GW_MAX_WORKERS ||
        threads == 0 || threads > GW_MAX_TRAIN_THREADS || (n_state_files != 0 && n_state_files != workers))
        return gw_fail(GW_ERR_SYSTEM, "%s: what it says of its run is invalid", r->path);
    return GW_OK;
}

static gw_status read_magic(struct reader *r)
{
    if ((size_t)(r->end - r->at) < sizeof magic + 8 || memcmp(r->at, magic, sizeof magic) != 0)
        return gw_fail(GW_ERR_SYSTEM, "%s is no parameter file of Gradwire (it must start with %.8s)", r->path, magic);
    r->at += sizeof magic;
    return GW_OK;
}

/* Reads all that comes before the elements. *n_floats: how many elements follow. */
static gw_status read_head(struct reader *r, struct gw_checkpoint *c, bool present[GW_ARRAYS], uint64_t *n_floats)
{
    uint64_t n_tensors = 0, expected = 0;
    char net[64];
    *n_floats = 0;
    GW_TRY(get_number(r, 8, &c->step));
    if (c->step > GW_MAX_STEPS)
        return gw_fail(GW_ERR_SYSTEM, "%s says that it was written after %llu steps; a run has at most %u", r->path,
                       (unsigned long long)c->step, GW_MAX_STEPS);
    GW_TRY(get_number(r, 4, &n_tensors));
    GW_TRY(get_text(r, net, sizeof net));
    if (gw_network_create(net, &c->network) != GW_OK)
        return gw_fail(GW_ERR_SYSTEM, "%s holds parameters of \"%s\", a network that this version does not know",
                       r->path, net);
    GW_TRY(read_list(r, &c->network, present));
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; present[k] && t < gw_array_tensors(&c->network, k); t++, expected++)
            *n_floats += gw_array_tensor(&c->network, t)->n_elems;
    return n_tensors == expected ? GW_OK : does_not_fit(r);
}

static gw_status parse(struct reader *r, struct gw_checkpoint *c)
{
    const uint8_t *const begin = r->at;
    const size_t n_bytes = (size_t)(r->end - r->at);
    GW_TRY(read_magic(r));
    struct reader tail = {r->path, r->end - 8, r->end};
    uint64_t checksum = 0;
    GW_TRY(get_number(&tail, 8, &checksum));
    if (checksum != XXH3_64bits(begin, n_bytes - 8))
        return gw_fail(GW_ERR_SYSTEM, "%s is damaged or cut short: its checksum does not match its bytes", r->path);
    r->end -= 8;
    bool present[GW_ARRAYS] = {false};
    uint64_t n_floats;
    GW_TRY(read_head(r, c, present, &n_floats));
    if ((uint64_t)(r->end - r->at) < n_floats * sizeof(float))
        return does_not_fit(r);
    for (int k = 0; k < GW_ARRAYS; k++) {
        if (!present[k])
            continue;
        float *to = c->arrays[k] = gw_calloc(NULL, c->network.n_storage, sizeof(float));
        if (!to)
            return GW_ERR_MEMORY;
        for (uint32_t t = 0; t < gw_array_tensors(&c->network, k); t++) {
            const struct gw_param *p = gw_array_tensor(&c->network, t);
            memcpy(to + p->offset, r->at, p->n_elems * sizeof(float));
            r->at += p->n_elems * sizeof(float);
        }
    }
    return r->at == r->end ? GW_OK : read_run(r, c);
}

/* Refuses a long file that does not have the length that its head tells, before memory is taken for it. */
static gw_status check_length(struct reader *r, struct gw_checkpoint *c, uint64_t file_bytes)
{
    const uint8_t *const begin = r->at;
    bool present[GW_ARRAYS] = {false};
    uint64_t n_floats;
    GW_TRY(read_magic(r));
    gw_status status = read_head(r, c, present, &n_floats);
    const uint64_t least = (uint64_t)(r->at - begin) + n_floats * sizeof(float) + 8;
    if (status == GW_OK && (file_bytes < least || file_bytes > least + sizeof c->options + 24))
        status = does_not_fit(r);
    gw_checkpoint_free(c);
    return status;
}

gw_status gw_checkpoint_read(const char *from, struct gw_checkpoint *c)
{
    char path[4096];
    struct stat st;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    uint64_t file_bytes;
    *c = (struct gw_checkpoint){0};
    bool folder = stat(from, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s%s", from, folder ? "/" GW_PARAMETER_FILE : "");
    if (folder && stat(path, &st) != 0)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s holds no %s; a finished run made with --out has one, and a checkpoint can be named instead",
                       from, GW_PARAMETER_FILE);
    GW_TRY(gw_file_read(path, HEAD_MOST, &bytes, &n_bytes, &file_bytes));
    struct reader r = {path, bytes, bytes + n_bytes};
    gw_status status = GW_OK;
    if (file_bytes > n_bytes) {
        status = check_length(&r, c, file_bytes);
        gw_free(NULL, bytes);
        GW_TRY(status);
        GW_TRY(gw_file_read(path, SIZE_MAX, &bytes, &n_bytes, &file_bytes));
        r = (struct reader){path, bytes, bytes + n_bytes};
    }
    status = parse(&r, c);
    gw_free(NULL, bytes);
    if (status != GW_OK)
        gw_checkpoint_free(c);
    return status;
}

void gw_checkpoint_free(struct gw_checkpoint *c)
{
    for (int k = 0; k < GW_ARRAYS; k++) {
        gw_free(NULL, c->arrays[k]);
        c->arrays[k] = NULL;
    }
    gw_network_free(&c->network);
}
