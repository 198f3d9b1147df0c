/* Writes one chunk of a sparse frame and reads it back: strings of bits that say which elements are sent, then their
 * values (values.c). */
#include "codec/sparse/sparse.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "codec/kernels.h"
#include "codec/sparse/values.h"

/* The strings of a push: which elements are sent, which of these have values, which are negative; and 16 for
 * exponents. */
#define PUSH_STRINGS 19u
/* The strings of an average's chunk may have so many bits together, and there may be so many strings. If they need
 * more, floats are sent: docs/wire-format.md, section 6a, "Adding up", names both numbers. */
#define SUM_STRINGS_BITS (32ull * GW_SPARSE_CHUNK)
#define SUM_STRINGS (PUSH_STRINGS + 2 * GW_SPARSE_LEVELS_MAX_WORKERS)

/* A chunk whose positions were read. */
struct begun {
    struct gw_sparse_place place;
    struct gw_strings_reader reader;
    uint64_t head_bits; /* bits of the coder's states, which are read before any string */
    uint32_t n_kept;
    uint64_t kept[GW_SPARSE_WORDS];
};

struct gw_sparse_scratch {
    struct begun begun[GW_RANS_TOGETHER];
    uint64_t exact[GW_SPARSE_WORDS], negative[GW_SPARSE_WORDS], rest[GW_SPARSE_WORDS];
    uint64_t string[GW_SPARSE_WORDS + 1], signs[GW_SPARSE_WORDS + 1];
    float values[GW_SPARSE_CHUNK];
    uint64_t marks[2][GW_SPARSE_WORDS];
    uint8_t exponents[GW_SPARSE_CHUNK];
    uint64_t raw[GW_SPARSE_CHUNK / 2 + 2]; /* what is sent as it is: 32 bits an element, and room for what a writer
                                            * may touch beyond that */
    struct gw_sparse_levels *levels;
    struct gw_strings_writer writer;
    uint32_t n_values; /* how many values the chunk has that was written last */
};

/* With few workers the strings never reach the limit, so the writer gets less memory. */
static gw_status init_writer(gw_context *context, uint32_t workers, struct gw_strings_writer *writer)
{
    const uint32_t n_strings = PUSH_STRINGS + 2 * workers;
    const uint64_t n_bits = (uint64_t)n_strings * GW_SPARSE_CHUNK;
    if (n_bits <= SUM_STRINGS_BITS)
        return gw_strings_writer_init(context, n_bits, n_strings, 16, writer);
    return gw_strings_writer_init(context, SUM_STRINGS_BITS, SUM_STRINGS, 16, writer);
}

gw_status gw_sparse_scratch_create(gw_context *context, uint32_t workers, bool writes, struct gw_sparse_scratch **out)
{
    struct gw_sparse_scratch *scratch = gw_scratch_take(context, 1, sizeof *scratch);
    if (!scratch)
        return GW_ERR_MEMORY;
    scratch->levels = NULL;
    scratch->writer = (struct gw_strings_writer){0};
    gw_status status = workers ? gw_sparse_levels_create(context, workers, GW_SPARSE_WORDS, &scratch->levels) : GW_OK;
    if (status == GW_OK && writes)
        status = init_writer(context, workers, &scratch->writer);
    if (status < 0)
        gw_sparse_scratch_destroy(context, scratch);
    else
        *out = scratch;
    return status;
}

void gw_sparse_scratch_destroy(gw_context *context, struct gw_sparse_scratch *scratch)
{
    if (!scratch)
        return;
    gw_strings_writer_fini(context, &scratch->writer);
    gw_sparse_levels_destroy(context, scratch->levels);
    gw_scratch_give(context, scratch);
}

struct gw_sparse_levels *gw_sparse_levels_of(struct gw_sparse_scratch *scratch)
{
    return scratch->levels;
}

static struct gw_sparse_exponents exponents_of(struct gw_sparse_scratch *scratch)
{
    return (struct gw_sparse_exponents){scratch->string, {scratch->marks[0], scratch->marks[1]}, scratch->exponents};
}

/* The most bytes of a chunk of n elements that sends all values as they are, behind n_strings strings. A string takes
 * two bytes for each eight of its bits, and 40 in the head. 160 bytes are for lanes and fields. */
static size_t chunk_bound(uint64_t n, uint32_t n_strings)
{
    return 4 * (size_t)n + n_strings * (size_t)(gw_div_up(n, 8) * 2 + 40) + 160;
}

size_t gw_sparse_bound(uint8_t wire_id, uint64_t n)
{
    const uint32_t n_strings = wire_id == GW_WIRE_GSPAR ? 3 : 1;
    const uint64_t whole = n / GW_SPARSE_CHUNK, rest = n % GW_SPARSE_CHUNK;
    return 4 * gw_div_up(n, GW_SPARSE_CHUNK) + whole * chunk_bound(GW_SPARSE_CHUNK, n_strings) +
           (rest ? chunk_bound(rest, n_strings) : 0);
}

size_t gw_sparse_payload_bound(const gw_encoder *encoder, uint64_t n)
{
    return gw_sparse_bound(encoder->record->info.wire_id, n);
}

static uint32_t count_ones(const uint64_t *words, uint32_t n_words)
{
    return (uint32_t)gw_kernels_now()->count(words, n_words);
}

/* What is to be written of a chunk. */
struct saying {
    const struct gw_sparse_source *source;
    enum gw_value_type type;
    uint32_t n;
    bool parts, sums; /* parts: of gspar; sums: of an average of gspar */
};

/* Collects all strings. What is sent as it is goes to scratch->raw. Returns how many bits the latter has. */
static uint64_t say(const struct saying *saying, bool as_they_are, struct gw_sparse_scratch *scratch)
{
    const struct gw_sparse_source *source = saying->source;
    struct gw_strings_writer *writer = &scratch->writer;
    const uint32_t n = saying->n, n_words = (n + 63) / 64, n_kept = count_ones(source->kept, n_words);
    uint32_t n_raw_signs = 0, n_values = n_kept;
    gw_strings_begin(writer);
    gw_strings_put(writer, source->kept, n, n_kept);
    if (saying->parts) {
        n_values = count_ones(source->exact, n_words);
        gw_marked_put(writer, source->kept, n_kept, source->exact, n_words, n_values);
        for (uint32_t w = 0; w < n_words; w++) {
            scratch->rest[w] = source->kept[w] & ~source->exact[w];
            scratch->string[w] = scratch->rest[w] & source->negative[w];
        }
        const uint32_t n_rest = n_kept - n_values, n_negative = count_ones(scratch->string, n_words);
        if (saying->sums) {
            /* Each level has one question for each sign. So a reader must know the signs before the levels. */
            gw_marked_put(writer, scratch->rest, n_rest, source->negative, n_words, n_negative);
            gw_sparse_levels_put(writer, scratch->levels, scratch->rest, source->negative, n_words);
        } else {
            n_raw_signs = gw_signs_put(writer, gw_signs_choose(n_rest, n_negative, gw_strings_estimate(n, n_kept)),
                                       scratch->rest, n_rest, source->negative, n_words, scratch->signs);
        }
    }
    struct gw_sparse_exponents exponents = exponents_of(scratch);
    uint8_t *raw = (uint8_t *)scratch->raw;
    const uint64_t n_raw =
        gw_sparse_put_values(writer, saying->type, source->values, n_values, as_they_are, &exponents, raw);
    scratch->n_values = n_values;
    memcpy(raw + n_raw / 8, scratch->signs, gw_div_up(n_raw_signs, 8)); /* values of gspar are whole bytes */
    return n_raw + n_raw_signs;
}

/* Writes a chunk of at most `limit` bytes. Returns how many it has; SIZE_MAX: it does not fit, or there are too many
 * strings. */
static size_t write_chunk(const struct saying *saying, struct gw_sparse_scratch *scratch, uint8_t *dst, size_t limit)
{
    for (int try = 0; try < 2; try++) {
        /* At first the size of the strings is only an estimate. If a push then does not fit, its values are sent as
         * they are. */
        const bool as_they_are = saying->source->fast || try;
        const uint64_t n_raw = say(saying, as_they_are, scratch);
        const size_t size = gw_strings_finish(&scratch->writer, scratch->raw, n_raw, dst, limit);
        if (size <= limit)
            return size;
        if (as_they_are || saying->sums)
            break;
    }
    return SIZE_MAX;
}

size_t gw_sparse_write_chunk(const struct gw_sparse_source *source, const struct gw_frame *frame, uint32_t n,
                             struct gw_sparse_scratch *scratch, uint8_t *at)
{
    const bool parts = frame->codec == GW_WIRE_GSPAR;
    const struct saying saying = {.source = source, .type = gw_sparse_value_type(frame), .n = n, .parts = parts};
    return write_chunk(&saying, scratch, at, chunk_bound(n, parts ? 3 : 1));
}

void gw_sparse_write(const struct gw_sparse_source *source, struct gw_sparse_scratch *scratch, uint8_t *dst,
                     struct gw_frame *frame)
{
    uint64_t n_chunks = gw_sparse_n_chunks(frame);
    uint8_t *payload = dst + gw_frame_head_bytes(frame->n_scalers), *at = payload + gw_sparse_table_bytes(frame);
    struct gw_sparse_source part = *source;
    for (uint64_t c = 0; c < n_chunks; c++) {
        const size_t size = gw_sparse_write_chunk(&part, frame, gw_sparse_chunk_elems(frame, c), scratch, at);
        if (n_chunks > 1)
            gw_put32(payload + 4 * c, (uint32_t)size);
        at += size;
        part.kept += GW_SPARSE_WORDS;
        part.exact = part.exact ? part.exact + GW_SPARSE_WORDS : NULL;
        part.negative = part.negative ? part.negative + GW_SPARSE_WORDS : NULL;
        part.values += scratch->n_values;
    }
    frame->payload_bytes = (size_t)(at - payload);
}

bool gw_sparse_has_wire_choice(const void *options)
{
    (void)options;
    return true;
}

size_t gw_sparse_write_sums(const struct gw_sparse_source *source, uint32_t n, struct gw_sparse_scratch *scratch,
                            uint8_t *at)
{
    const struct saying saying = {.source = source, .type = GW_VALUE_F32, .n = n, .parts = true, .sums = true};
    return write_chunk(&saying, scratch, at, 4 * (size_t)n - 1);
}

size_t *gw_sparse_offsets(gw_context *context, const struct gw_frame *frame)
{
    const uint64_t n_chunks = gw_sparse_n_chunks(frame);
    size_t *offsets = gw_alloc(context, n_chunks + 1, sizeof *offsets);
    if (!offsets)
        return NULL;
    offsets[0] = gw_sparse_table_bytes(frame);
    for (uint64_t c = 0; c < n_chunks; c++)
        offsets[c + 1] = n_chunks > 1 ? offsets[c] + gw_get32(frame->payload + 4 * c) : frame->payload_bytes;
    return offsets;
}

gw_status gw_sparse_begin(const struct gw_sparse_place *places, uint32_t n, struct gw_sparse_scratch *scratch)
{
    struct gw_strings_reader readers[GW_RANS_TOGETHER];
    uint64_t *strings[GW_RANS_TOGETHER] = {NULL};
    uint32_t n_elems[GW_RANS_TOGETHER] = {0}, n_kept[GW_RANS_TOGETHER];
    for (uint32_t i = 0; i < n; i++) {
        const struct gw_sparse_place *at = &places[i];
        scratch->begun[i].place = *at;
        strings[i] = scratch->begun[i].kept;
        n_elems[i] = gw_sparse_chunk_elems(at->frame, at->c);
        gw_strings_open(&readers[i], at->frame->payload + at->begin, at->end - at->begin);
        scratch->begun[i].head_bits = gw_strings_used(&readers[i]);
    }
    GW_TRY(gw_strings_get_many(readers, n, n_elems, strings, n_kept));
    for (uint32_t i = 0; i < n; i++) {
        scratch->begun[i].reader = readers[i];
        scratch->begun[i].n_kept = n_kept[i];
    }
    return GW_OK;
}

gw_status gw_sparse_read(struct gw_sparse_scratch *scratch, uint32_t i, struct gw_sparse_chunk *chunk)
{
    struct begun *begun = &scratch->begun[i];
    const struct gw_frame *frame = begun->place.frame;
    struct gw_strings_reader *reader = &begun->reader;
    const uint32_t n = gw_sparse_chunk_elems(frame, begun->place.c), n_words = (n + 63) / 64;
    const uint64_t *kept = begun->kept, used = begun->head_bits;
    uint32_t n_raw_signs = 0, negatives;
    *chunk = (struct gw_sparse_chunk){
        .kept = kept, .n = n, .n_kept = begun->n_kept, .n_values = begun->n_kept, .values = scratch->values};
    chunk->position_bits = (uint32_t)(gw_strings_used(reader) - used);
    if (frame->codec == GW_WIRE_GSPAR) {
        GW_TRY(gw_marked_get(reader, kept, chunk->n_kept, n_words, scratch->string, scratch->exact, &chunk->n_values));
        chunk->position_bits = (uint32_t)(gw_strings_used(reader) - used);
        for (uint32_t w = 0; w < n_words; w++)
            scratch->rest[w] = kept[w] & ~scratch->exact[w];
        const uint32_t n_rest = chunk->n_kept - chunk->n_values;
        chunk->exact = scratch->exact;
        chunk->negative = scratch->negative;
        chunk->rest = scratch->rest;
        if (frame->flags & GW_FLAG_AVERAGE) {
            chunk->levels = scratch->levels;
            GW_TRY(
                gw_marked_get(reader, scratch->rest, n_rest, n_words, scratch->string, scratch->negative, &negatives));
            GW_TRY(gw_sparse_levels_get(reader, scratch->levels, scratch->rest, scratch->negative, n_words,
                                        scratch->string));
        } else {
            enum gw_signs how;
            GW_TRY(gw_signs_get(reader, n_rest, scratch->signs, &how, &n_raw_signs));
        }
        chunk->sign_bits = (uint32_t)(gw_strings_used(reader) - used) - chunk->position_bits + n_raw_signs;
    }
    struct gw_sparse_exponents exponents = exponents_of(scratch);
    struct gw_sparse_coming coming;
    uint64_t n_raw;
    GW_TRY(gw_sparse_get_exponents(reader, gw_sparse_value_type(frame), chunk->n_values, &exponents, &coming, &n_raw));
    GW_TRY(gw_strings_close(reader, n_raw + n_raw_signs, scratch->raw));
    /* The coder's states may hold raw signs. Then the chunk may take fewer bits than these counts say. The difference
     * is what the signs did not cost. */
    const uint64_t spent = (uint64_t)chunk->position_bits + chunk->sign_bits,
                   bits = 8 * (uint64_t)(begun->place.end - begun->place.begin);
    chunk->sign_bits -= spent > bits ? (uint32_t)(spent - bits) : 0;
    chunk->value_bits = spent > bits ? 0 : bits - spent;
    const uint8_t *raw = (const uint8_t *)scratch->raw;
    if (chunk->exact && !chunk->levels) {
        memcpy(scratch->signs, raw + n_raw / 8, gw_div_up(n_raw_signs, 8));
        gw_kernels_now()->scatter_signs(scratch->rest, n_words, (const uint8_t *)scratch->signs, sizeof scratch->signs,
                                        scratch->negative);
    }
    return gw_sparse_get_values(&coming, raw, n_raw, scratch->values);
}
