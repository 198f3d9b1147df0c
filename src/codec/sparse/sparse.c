/* Writes one chunk of a sparse frame and reads it back: strings of bits that say which elements are sent, then their
 * values (values.c). */
#include "codec/sparse/sparse.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "codec/kernels.h"
#include "codec/sparse/values.h"
#include "codec/strings.h"

struct gw_sparse_scratch {
    uint64_t kept[GW_SPARSE_WORDS], exact[GW_SPARSE_WORDS], negative[GW_SPARSE_WORDS], rest[GW_SPARSE_WORDS];
    uint64_t string[GW_SPARSE_WORDS + 1];
    float values[GW_SPARSE_CHUNK];
    uint64_t marks[2][GW_SPARSE_WORDS];
    uint8_t exponents[GW_SPARSE_CHUNK];
    struct gw_sparse_levels *levels;
};

gw_status gw_sparse_scratch_create(gw_context *context, uint32_t workers, struct gw_sparse_scratch **out)
{
    struct gw_sparse_scratch *scratch = gw_scratch_take(context, 1, sizeof *scratch);
    if (!scratch)
        return GW_ERR_MEMORY;
    scratch->levels = NULL;
    gw_status status = workers ? gw_sparse_levels_create(context, workers, GW_SPARSE_WORDS, &scratch->levels) : GW_OK;
    if (status < 0)
        gw_scratch_give(context, scratch);
    else
        *out = scratch;
    return status;
}

void gw_sparse_scratch_destroy(gw_context *context, struct gw_sparse_scratch *scratch)
{
    if (scratch)
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

static uint32_t chunk_elems(const struct gw_frame *frame, uint64_t c)
{
    uint64_t left = frame->count - c * GW_SPARSE_CHUNK;
    return (uint32_t)(left < GW_SPARSE_CHUNK ? left : GW_SPARSE_CHUNK);
}

uint64_t gw_sparse_n_chunks(const struct gw_frame *frame)
{
    return gw_div_up(frame->count, GW_SPARSE_CHUNK);
}

/* A table of sizes stands before the chunks where there are several. */
static size_t table_bytes(const struct gw_frame *frame)
{
    uint64_t n_chunks = gw_sparse_n_chunks(frame);
    return n_chunks > 1 ? 4 * n_chunks : 0;
}

size_t gw_sparse_bound(uint8_t wire_id, uint64_t n)
{
    /* A string of m bits takes at most m + 2. gspar has three: of all elements, of the kept, of those without a value.
     * Values take at most a bit more than they have. */
    uint64_t n_chunks = gw_div_up(n, GW_SPARSE_CHUNK), strings = wire_id == GW_WIRE_GSPAR ? 3 : 1;
    return 4 * n_chunks + (size_t)((strings * (n + 2 * n_chunks) + n_chunks + 7) / 8 + n_chunks) + 4 * (size_t)n;
}

static uint32_t count_ones(const uint64_t *words, uint32_t n_words)
{
    return (uint32_t)gw_kernels_now()->count(words, n_words);
}

/* Which of the kept elements have a value of their own, and which of the others (scratch->rest, from now on) are
 * negative. Returns how many bits that takes. */
static uint64_t put_parts(struct gw_bit_writer *writer, const uint64_t *kept, uint32_t n_kept, const uint64_t *exact,
                          const uint64_t *negative, uint32_t n_words, struct gw_sparse_scratch *scratch,
                          uint32_t *n_values)
{
    uint32_t negatives;
    uint64_t bits = gw_string_put(writer, kept, n_kept, exact, n_words, scratch->string, n_values);
    for (uint32_t w = 0; w < n_words; w++)
        scratch->rest[w] = kept[w] & ~exact[w];
    return bits +
           gw_string_put(writer, scratch->rest, n_kept - *n_values, negative, n_words, scratch->string, &negatives);
}

void gw_sparse_write(const struct gw_sparse_source *source, struct gw_sparse_scratch *scratch, uint8_t *dst,
                     struct gw_frame *frame)
{
    uint64_t n_chunks = gw_sparse_n_chunks(frame);
    uint8_t *payload = dst + gw_frame_head_bytes(frame->n_scalers), *at = payload + table_bytes(frame);
    const uint8_t *end = payload + gw_sparse_bound(frame->codec, frame->count);
    const float *values = source->values;
    struct gw_sparse_exponents exponents = exponents_of(scratch);
    for (uint64_t c = 0; c < n_chunks; c++) {
        const uint64_t *kept = source->kept + c * GW_SPARSE_WORDS;
        uint32_t n = chunk_elems(frame, c), n_words = (n + 63) / 64, n_kept = count_ones(kept, n_words),
                 n_values = n_kept;
        struct gw_bit_writer writer = {.at = at, .end = (uint8_t *)(uintptr_t)end};
        gw_gaps_put(&writer, kept, n, n_kept);
        if (frame->codec == GW_WIRE_GSPAR) {
            const uint64_t *exact = source->exact + c * GW_SPARSE_WORDS,
                           *negative = source->negative + c * GW_SPARSE_WORDS;
            put_parts(&writer, kept, n_kept, exact, negative, n_words, scratch, &n_values);
        }
        uint8_t *begin = at;
        at = gw_sparse_put_values(&writer, gw_sparse_value_type(frame), values, n_values, source->fast, &exponents);
        values += n_values;
        if (n_chunks > 1)
            gw_put32(payload + 4 * c, (uint32_t)(at - begin));
    }
    frame->payload_bytes = (size_t)(at - payload);
}

bool gw_sparse_has_wire_choice(const void *options)
{
    (void)options;
    return true;
}

size_t gw_sparse_average_room(uint64_t n)
{
    /* Strings that take less than floats would, then as many values as there are elements, and a bit. */
    return 8 * (size_t)n + 1;
}

size_t gw_sparse_write_sums(const struct gw_sparse_source *source, uint32_t n, struct gw_sparse_scratch *scratch,
                            uint8_t *at)
{
    size_t most = 4 * (size_t)n;
    uint32_t n_words = (n + 63) / 64, n_kept = count_ones(source->kept, n_words), n_values;
    struct gw_bit_writer writer = {.at = at, .end = at + most};
    uint64_t bits = gw_gaps_put(&writer, source->kept, n, n_kept);
    bits += put_parts(&writer, source->kept, n_kept, source->exact, source->negative, n_words, scratch, &n_values);
    bits += gw_sparse_levels_put(&writer, scratch->levels, scratch->rest, source->negative, n_words, scratch->string);
    if (bits / 8 >= most)
        return SIZE_MAX;
    writer.end = at + gw_sparse_average_room(n);
    struct gw_sparse_exponents exponents = exponents_of(scratch);
    uint8_t *end = gw_sparse_put_values(&writer, GW_VALUE_F32, source->values, n_values, source->fast, &exponents);
    return end < at + most ? (size_t)(end - at) : SIZE_MAX;
}

size_t gw_sparse_chunk_begin(const struct gw_frame *frame, uint64_t c, size_t *at)
{
    size_t table = table_bytes(frame), begin = c ? *at : table;
    *at = table ? begin + gw_get32(frame->payload + 4 * c) : frame->payload_bytes;
    return begin;
}

gw_status gw_sparse_read(const struct gw_frame *frame, uint64_t c, size_t begin, size_t end,
                         struct gw_sparse_scratch *scratch, struct gw_sparse_chunk *chunk)
{
    uint32_t n = chunk_elems(frame, c), n_words = (n + 63) / 64, negatives;
    *chunk = (struct gw_sparse_chunk){.kept = scratch->kept, .n = n};
    struct gw_bit_reader reader = {.src = frame->payload + begin, .n_bits = 8 * (uint64_t)(end - begin)};
    GW_TRY(gw_gaps_get(&reader, n, scratch->kept, &chunk->n_kept));
    chunk->n_values = chunk->n_kept;
    chunk->position_bits = (uint32_t)reader.at;
    if (frame->codec == GW_WIRE_GSPAR) {
        GW_TRY(gw_string_get(&reader, scratch->kept, chunk->n_kept, n_words, scratch->string, scratch->exact,
                             &chunk->n_values));
        chunk->position_bits = (uint32_t)reader.at;
        for (uint32_t w = 0; w < n_words; w++)
            scratch->rest[w] = scratch->kept[w] & ~scratch->exact[w];
        GW_TRY(gw_string_get(&reader, scratch->rest, chunk->n_kept - chunk->n_values, n_words, scratch->string,
                             scratch->negative, &negatives));
        chunk->exact = scratch->exact;
        chunk->negative = scratch->negative;
        chunk->rest = scratch->rest;
        chunk->levels = frame->flags & GW_FLAG_AVERAGE ? scratch->levels : NULL;
        if (chunk->levels)
            GW_TRY(gw_sparse_levels_get(&reader, scratch->levels, scratch->rest, scratch->negative, n_words,
                                        scratch->string));
        chunk->sign_bits = (uint32_t)reader.at - chunk->position_bits;
    }
    struct gw_sparse_exponents exponents = exponents_of(scratch);
    chunk->values = scratch->values;
    return gw_sparse_get_values(&reader, gw_sparse_value_type(frame), chunk->n_values, &exponents, scratch->values,
                                &chunk->value_bits);
}
