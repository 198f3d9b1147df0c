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
    scratch->digits = gw_scratch_take(context, 64 * n_words, sizeof *scratch->digits);
    scratch->planes = gw_scratch_take(context, n_words, 8 * ((size_t)sums->n_planes + 1));
    scratch->magnitudes = gw_scratch_take(context, n_words, 8 * sums->n_planes);
    scratch->bits = gw_scratch_take(context, 1, sizeof *scratch->bits);
    if (!scratch->digits || !scratch->planes || !scratch->magnitudes || !scratch->bits)
        return GW_ERR_MEMORY;
    return init_writer(context, sums, n_words, &scratch->writer);
}

void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch)
{
    gw_scratch_give(context, scratch->digits);
    gw_scratch_give(context, scratch->planes);
    gw_scratch_give(context, scratch->magnitudes);
    gw_scratch_give(context, scratch->bits);
    gw_strings_writer_fini(context, &scratch->writer);
}

/* Moves bit i of `byte` to the lowest bit of byte i. */
static uint64_t bits_to_bytes(uint64_t byte)
{
    uint64_t one_each = byte * 0x0101010101010101ull & 0x8040201008040201ull;
    return (one_each + 0x7F7F7F7F7F7F7F7Full) >> 7 & 0x0101010101010101ull;
}

static void list_digits(uint32_t n_planes, const uint8_t *planes, uint32_t n, uint16_t *digits)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const uint8_t *at = planes + 8 * (size_t)(i / 64) * n_planes + i % 64 / 8;
        uint64_t low = 0, high = 0;
        for (uint32_t j = 0; j < n_planes; j++) {
            uint64_t bytes = bits_to_bytes(at[8 * j]);
            if (j < 8)
                low |= bytes << j;
            else
                high |= bytes << (j - 8);
        }
        uint32_t m = n - i < 8 ? n - i : 8;
        for (uint32_t k = 0; k < m; k++)
            digits[i + k] = (uint16_t)((low >> 8 * k & 255) | (high >> 8 * k & 255) << 8);
    }
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

/* The reverse of write_packed. Returns false if padding is not 0. */
static bool read_packed(const struct ternary_sums *sums, const uint8_t *src, uint32_t n, uint8_t *planes)
{
    size_t whole = 8 * (size_t)(n / 64) * sums->n_planes, bytes = gw_div_up(n % 64, 8);
    memcpy(planes, src, whole);
    for (uint32_t j = 0; j < sums->n_planes && bytes; j++) {
        const uint64_t plane = gw_get_partial(src + whole + j * bytes, bytes);
        if (plane >> (n % 64))
            return false;
        gw_put64(planes + whole + 8 * j, plane);
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

static gw_status unpack_packed(const struct ternary_sums *sums, const struct ternary_piece *piece,
                               struct ternary_sum_scratch *scratch)
{
    const uint32_t n = piece->n;
    if (piece->n_bytes != ternary_packed_size(sums, n))
        return gw_fail(GW_ERR_FRAME_PAYLOAD,
                       "a chunk of %u sums of %u workers has %zu bytes of packed codes; its values take %zu", n,
                       sums->workers, piece->n_bytes, ternary_packed_size(sums, n));
    if (!read_packed(sums, piece->src, n, scratch->planes))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the padding after a chunk's %u packed sums is not 0", n);
    uint32_t most = 0;
    list_digits(sums->n_planes, scratch->planes, n, scratch->digits);
    for (uint32_t i = 0; i < n; i++)
        most = scratch->digits[i] > most ? scratch->digits[i] : most;
    if (most > 2 * sums->workers)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed sum is %u above its lowest; %u workers reach %u", most,
                       sums->workers, 2 * sums->workers);
    return GW_OK;
}

gw_status ternary_sum_unpack(const struct ternary_sums *sums, const struct ternary_piece *piece,
                             struct ternary_sum_scratch *scratch)
{
    uint16_t *digits = scratch->digits;
    struct ternary_levels levels;
    if (piece->code == CODE_PACKED)
        return unpack_packed(sums, piece, scratch);
    GW_TRY(ternary_levels_unpack(sums, piece, scratch, &levels));
    list_digits(levels.n_planes, scratch->planes, piece->n, digits);
    for (uint32_t i = 0; i < piece->n; i++) {
        const int32_t magnitude = digits[i] - (int32_t)levels.n_levels,
                      minus = -(int32_t)(scratch->bits->negative.words[i / 64] >> (i % 64) & 1);
        digits[i] = (uint16_t)((int32_t)levels.center + (magnitude ^ minus) - minus);
    }
    return GW_OK;
}
