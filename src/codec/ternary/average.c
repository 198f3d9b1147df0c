/* Turns one chunk of sums into bytes and back: docs/wire-format.md, "Ternary averages". A sum S of N ternary values is
 * the digit S + N, which is in 0..2N. While they are added up, digits stand as bit planes. */
#include "base/error.h"
#include "base/scratch.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"

struct ternary_sums ternary_sums_of(uint32_t workers)
{
    return (struct ternary_sums){.workers = workers, .n_planes = 32 - (uint32_t)__builtin_clz(2 * workers)};
}

size_t ternary_packed_size(const struct ternary_sums *sums, uint32_t n)
{
    return sums->n_planes * ((size_t)(n / 64) * 8 + gw_div_up(n % 64, 8));
}

enum ternary_code ternary_pull_code(const struct ternary_packing *packing)
{
    const bool coded =
        packing->entropy == ENTROPY_ON || (packing->entropy == ENTROPY_AUTO && packing->pull == PULL_AUTO);
    return coded ? CODE_MIXED : CODE_PACKED;
}

/* The strings of a chunk may take so many bits together. Sums that are spread so evenly that they would take more are
 * sent packed. docs/wire-format.md, section 5, names both numbers. */
#define STRINGS_BITS (16u << 16)
#define STRINGS_MOST (2 * (LEVELS_MAX_WORKERS + 1))

/* The sums of few workers, or of few elements, never come near that. Small frames are many. So they take less
 * memory. */
static gw_status init_writer(gw_context *context, const struct ternary_sums *sums, uint64_t n_words,
                             struct gw_strings_writer *writer)
{
    const uint64_t n_strings = 2 * ((uint64_t)sums->workers + 1), n_bits = 64 * n_words * n_strings;
    if (n_strings <= STRINGS_MOST && n_bits <= STRINGS_BITS)
        return gw_strings_writer_init(context, n_bits, (uint32_t)n_strings, 17, writer);
    return gw_strings_writer_init(context, STRINGS_BITS, STRINGS_MOST, 17, writer);
}

gw_status ternary_sum_scratch_init(gw_context *context, const struct ternary_sums *sums, uint64_t n_elems,
                                   struct ternary_sum_scratch *scratch)
{
    const uint64_t n = n_elems < GW_CHUNK ? n_elems : GW_CHUNK, n_words = gw_div_up(n, 64);
    *scratch = (struct ternary_sum_scratch){0};
    scratch->planes = gw_scratch_take(context, n_words, 8 * ((size_t)sums->n_planes + 1));
    scratch->magnitudes = gw_scratch_take(context, n_words, 8 * sums->n_planes);
    scratch->bits = gw_scratch_take(context, 1, sizeof *scratch->bits);
    if (!scratch->planes || !scratch->magnitudes || !scratch->bits)
        return GW_ERR_MEMORY;
    return init_writer(context, sums, n_words, &scratch->writer);
}

void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch)
{
    gw_scratch_give(context, scratch->planes);
    gw_scratch_give(context, scratch->magnitudes);
    gw_scratch_give(context, scratch->bits);
    gw_strings_writer_fini(context, &scratch->writer);
}

/* Planes already stand as whole words. If the last group is short, its planes are cut to the bytes that it needs. */
static void write_packed(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, uint8_t *dst)
{
    size_t whole = 8 * (size_t)(n / 64) * sums->n_planes, bytes = gw_div_up(n % 64, 8);
    if (dst != planes)
        memcpy(dst, planes, whole);
    for (uint32_t j = 0; j < sums->n_planes && bytes; j++) {
        /* Padding is 0, whatever the adders left there. */
        uint64_t plane = gw_get64(planes + whole + 8 * j) & ((1ull << (n % 64)) - 1);
        memcpy(dst + whole + j * bytes, &plane, bytes);
    }
}

/* Reads the planes of the last group, if it is short. Returns false if padding is not 0. */
static bool read_last(const struct ternary_sums *sums, const uint8_t *src, uint32_t n, uint8_t *planes)
{
    size_t whole = 8 * (size_t)(n / 64) * sums->n_planes, bytes = gw_div_up(n % 64, 8);
    for (uint32_t j = 0; j < sums->n_planes; j++) {
        const uint64_t plane = gw_get_partial(src + whole + j * bytes, bytes);
        if (plane >> (n % 64))
            return false;
        gw_put64(planes + 8 * j, plane);
    }
    return true;
}

uint32_t ternary_sum_pack(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *planes, uint32_t n,
                          struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    const size_t packed = ternary_packed_size(sums, n);
    if (code == CODE_MIXED && sums->workers <= LEVELS_MAX_WORKERS && packed) {
        const size_t coded = ternary_levels_pack(sums, planes, n, packed - 1, scratch, dst);
        if (coded < packed)
            return ENTRY(CODE_RANS, coded);
    }
    write_packed(sums, planes, n, dst);
    return ENTRY(CODE_PACKED, packed);
}

/* Whole groups are decoded where they stand. */
static gw_status decode_packed(const struct ternary_sums *sums, const struct ternary_piece *piece, float q, bool stream,
                               float *out)
{
    const uint32_t n = piece->n, n_planes = sums->n_planes, whole = n / 64 * 64, center = sums->workers;
    uint8_t last[8 * 16];
    if (piece->n_bytes != ternary_packed_size(sums, n))
        return gw_fail(GW_ERR_FRAME_PAYLOAD,
                       "a chunk of %u sums of %u workers has %zu bytes of packed codes; its values take %zu", n,
                       sums->workers, piece->n_bytes, ternary_packed_size(sums, n));
    if (!read_last(sums, piece->src, n, last))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the padding after a chunk's %u packed sums is not 0", n);
    const uint32_t most = gw_decode_planes(piece->src, n_planes, whole, center, NULL, 0, q, stream, out),
                   most_last = gw_decode_planes(last, n_planes, n % 64, center, NULL, 0, q, false, out + whole);
    if (most > 2 * sums->workers || most_last > 2 * sums->workers)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed sum is %u above its lowest; %u workers reach %u",
                       most > most_last ? most : most_last, sums->workers, 2 * sums->workers);
    return GW_OK;
}

gw_status ternary_sum_decode(const struct ternary_sums *sums, const struct ternary_piece *piece,
                             struct ternary_sum_scratch *scratch, float q, bool stream, float *out)
{
    struct ternary_levels levels;
    if (piece->code == CODE_PACKED)
        return decode_packed(sums, piece, q, stream, out);
    GW_TRY(ternary_levels_unpack(sums, piece, scratch, &levels));
    gw_decode_planes(scratch->planes, levels.n_planes, piece->n, levels.n_levels, scratch->bits->negative.words,
                     (int32_t)levels.center - (int32_t)sums->workers, q, stream, out);
    return GW_OK;
}
