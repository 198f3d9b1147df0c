#include "codec/sparse/sparse.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/kernels.h"
#include "codec/strings.h"
#include "wire/float16.h"

struct gw_sparse_scratch {
    uint64_t kept[GW_SPARSE_WORDS], exact[GW_SPARSE_WORDS], negative[GW_SPARSE_WORDS], rest[GW_SPARSE_WORDS];
    uint64_t string[GW_SPARSE_WORDS + 1];
    float values[GW_SPARSE_CHUNK];
};

gw_status gw_sparse_scratch_create(gw_context *context, struct gw_sparse_scratch **out)
{
    *out = gw_alloc(context, 1, sizeof **out);
    return *out ? GW_OK : GW_ERR_MEMORY;
}

void gw_sparse_scratch_destroy(gw_context *context, struct gw_sparse_scratch *scratch)
{
    gw_free(context, scratch);
}

static size_t value_bytes(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_SPARSE && frame->code != GW_VALUE_F32 ? 2 : 4;
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
    /* A string of m bits takes at most m + 5. gspar has three: of all elements, of the kept, of those without a value. */
    uint64_t n_chunks = gw_div_up(n, GW_SPARSE_CHUNK), strings = wire_id == GW_WIRE_GSPAR ? 3 : 1;
    return 4 * n_chunks + (size_t)((strings * (n + 5 * n_chunks) + 7) / 8 + n_chunks) + 4 * (size_t)n;
}

static uint32_t count_ones(const uint64_t *words, uint32_t n_words)
{
    return (uint32_t)gw_kernels_now()->count(words, n_words);
}

static uint8_t *put_values(const struct gw_frame *frame, const float *values, uint32_t n, uint8_t *dst)
{
    size_t width = value_bytes(frame);
    for (uint32_t i = 0; i < n; i++) {
        if (width == 4)
            gw_put_float(dst + 4 * (size_t)i, values[i]);
        else
            gw_put16(dst + 2 * (size_t)i, frame->code == GW_VALUE_BF16 ? gw_to_bf16(values[i]) : gw_to_f16(values[i]));
    }
    return dst + width * n;
}

void gw_sparse_write(const struct gw_sparse_source *source, struct gw_sparse_scratch *scratch, uint8_t *dst, struct gw_frame *frame)
{
    uint64_t n_chunks = gw_sparse_n_chunks(frame);
    uint8_t *payload = dst + gw_frame_head_bytes(frame->n_scalers), *at = payload + table_bytes(frame);
    const uint8_t *end = payload + gw_sparse_bound(frame->codec, frame->count);
    const float *values = source->values;
    for (uint64_t c = 0; c < n_chunks; c++) {
        const uint64_t *kept = source->kept + c * GW_SPARSE_WORDS;
        uint32_t n = chunk_elems(frame, c), n_words = (n + 63) / 64, n_kept = count_ones(kept, n_words), n_values = n_kept;
        struct gw_bit_writer writer = {.at = at, .end = (uint8_t *)(uintptr_t)end};
        gw_gaps_put(&writer, kept, n, n_kept);
        if (frame->codec == GW_WIRE_GSPAR) {
            const uint64_t *exact = source->exact + c * GW_SPARSE_WORDS, *negative = source->negative + c * GW_SPARSE_WORDS;
            uint32_t negatives;
            gw_string_put(&writer, kept, n_kept, exact, n_words, scratch->string, &n_values);
            for (uint32_t w = 0; w < n_words; w++)
                scratch->rest[w] = kept[w] & ~exact[w];
            gw_string_put(&writer, scratch->rest, n_kept - n_values, negative, n_words, scratch->string, &negatives);
        }
        uint8_t *begin = at;
        at = put_values(frame, values, n_values, gw_bits_finish(&writer));
        values += n_values;
        if (n_chunks > 1)
            gw_put32(payload + 4 * c, (uint32_t)(at - begin));
    }
    frame->payload_bytes = (size_t)(at - payload);
}

size_t gw_sparse_chunk_begin(const struct gw_frame *frame, uint64_t c, size_t *at)
{
    size_t table = table_bytes(frame), begin = c ? *at : table;
    *at = table ? begin + gw_get32(frame->payload + 4 * c) : frame->payload_bytes;
    return begin;
}

static void get_values(const struct gw_frame *frame, const uint8_t *src, uint32_t n, float *values)
{
    if (value_bytes(frame) == 4) {
        memcpy(values, src, 4 * (size_t)n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half = gw_get16(src + 2 * (size_t)i);
        values[i] = frame->code == GW_VALUE_BF16 ? gw_from_bf16(half) : gw_from_f16(half);
    }
}

gw_status gw_sparse_read(const struct gw_frame *frame, uint64_t c, size_t begin, size_t end, struct gw_sparse_scratch *scratch,
                         struct gw_sparse_chunk *chunk)
{
    uint32_t n = chunk_elems(frame, c), n_words = (n + 63) / 64, negatives;
    *chunk = (struct gw_sparse_chunk){.kept = scratch->kept, .n = n};
    struct gw_bit_reader reader = {.src = frame->payload + begin, .n_bits = 8 * (uint64_t)(end - begin)};
    GW_TRY(gw_gaps_get(&reader, n, scratch->kept, &chunk->n_kept));
    chunk->n_values = chunk->n_kept;
    chunk->position_bits = (uint32_t)reader.at;
    if (frame->codec == GW_WIRE_GSPAR) {
        GW_TRY(gw_string_get(&reader, scratch->kept, chunk->n_kept, n_words, scratch->string, scratch->exact, &chunk->n_values));
        chunk->position_bits = (uint32_t)reader.at;
        for (uint32_t w = 0; w < n_words; w++)
            scratch->rest[w] = scratch->kept[w] & ~scratch->exact[w];
        GW_TRY(gw_string_get(&reader, scratch->rest, chunk->n_kept - chunk->n_values, n_words, scratch->string, scratch->negative,
                         &negatives));
        chunk->sign_bits = (uint32_t)reader.at - chunk->position_bits;
        chunk->exact = scratch->exact;
        chunk->negative = scratch->negative;
    }
    size_t strings = (size_t)((reader.at + 7) / 8), values = value_bytes(frame) * chunk->n_values;
    if (end - begin != strings + values)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes; the %u it sends take %zu", n, end - begin,
                       chunk->n_kept, strings + values);
    if (reader.at % 8 && reader.src[reader.at / 8] >> (reader.at % 8))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's positions are padded with bits that are not 0");
    get_values(frame, frame->payload + begin + strings, chunk->n_values, scratch->values);
    chunk->values = scratch->values;
    chunk->value_bytes = values;
    return GW_OK;
}
