/* One chunk of sums to bytes and back: docs/wire-format.md, "Average codes". A sum S of N ternary values is the digit S + N,
 * 0..2N; while summing, digits stand as bit planes. */
#include "base/error.h"
#include "base/memory.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"
#include "wire/entropy.h"

struct ternary_sums ternary_sums_of(uint32_t workers)
{
    struct ternary_sums sums = {.workers = workers, .n_planes = 32 - (uint32_t)__builtin_clz(2 * workers)};
    sums.tight = gw_radix_tight(2 * workers + 1);
    sums.bytewise = gw_radix_bytewise(2 * workers + 1);
    return sums;
}

static size_t packed_size(const struct ternary_sums *sums, uint32_t n)
{
    return sums->n_planes * ((size_t)(n / 64) * 8 + gw_div_up(n % 64, 8));
}

size_t ternary_sum_fixed_size(const struct ternary_sums *sums, enum ternary_code code, uint32_t n)
{
    return code == CODE_PACKED ? packed_size(sums, n) : gw_radix_bytes(&sums->tight, n);
}

size_t ternary_sum_chunk_bound(const struct ternary_sums *sums, uint32_t n)
{
    /* Levels are taken where they are smaller only. */
    size_t packed = packed_size(sums, n), bytewise = gw_radix_bytes(&sums->bytewise, n);
    return packed > bytewise ? packed : bytewise;
}

gw_status ternary_sum_scratch_init(gw_context *context, const struct ternary_sums *sums, struct ternary_sum_scratch *scratch)
{
    *scratch = (struct ternary_sum_scratch){0};
    scratch->digits = gw_alloc(context, GW_CHUNK, sizeof *scratch->digits);
    scratch->planes = gw_alloc(context, CHUNK_WORDS, 8 * sums->n_planes);
    scratch->levels = gw_alloc(context, 1, sizeof *scratch->levels);
    scratch->counts = gw_alloc(context, 2 * (size_t)sums->workers + 1, sizeof *scratch->counts);
    gw_status status = GW_ERR_MEMORY;
    if (scratch->digits && scratch->planes && scratch->levels && scratch->counts)
        status = ternary_stage_init(context, ternary_sum_chunk_bound(sums, GW_CHUNK), &scratch->stage);
    if (status < 0)
        ternary_sum_scratch_fini(context, scratch);
    return status;
}

void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch)
{
    gw_free(context, scratch->digits);
    gw_free(context, scratch->planes);
    gw_free(context, scratch->levels);
    gw_free(context, scratch->counts);
    ternary_stage_fini(context, &scratch->stage);
    *scratch = (struct ternary_sum_scratch){0};
}

/* Bit i of `byte` to the lowest bit of byte i. */
static uint64_t bits_to_bytes(uint64_t byte)
{
    uint64_t one_each = byte * 0x0101010101010101ull & 0x8040201008040201ull;
    return (one_each + 0x7F7F7F7F7F7F7F7Full) >> 7 & 0x0101010101010101ull;
}

static void list_digits(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, uint16_t *digits)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const uint8_t *at = planes + 8 * (size_t)(i / 64) * sums->n_planes + i % 64 / 8;
        uint64_t low = 0, high = 0;
        for (uint32_t j = 0; j < sums->n_planes; j++) {
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

static void count_digits(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, struct ternary_sum_scratch *scratch)
{
    list_digits(sums, planes, n, scratch->digits);
    memset(scratch->counts, 0, (2 * (size_t)sums->workers + 1) * sizeof *scratch->counts);
    for (uint32_t i = 0; i < n; i++)
        scratch->counts[scratch->digits[i]]++;
}

/* Planes stand in whole words already; those of a last, short group are cut to its bytes. */
static void write_packed(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, uint8_t *dst)
{
    size_t whole = 8 * (size_t)(n / 64) * sums->n_planes, bytes = gw_div_up(n % 64, 8);
    if (dst != planes)
        memcpy(dst, planes, whole);
    for (uint32_t j = 0; j < sums->n_planes && bytes; j++) {
        /* Padding is 0 whatever the adders left there. */
        uint64_t plane = gw_get64(planes + whole + 8 * j) & ((1ull << (n % 64)) - 1);
        memcpy(dst + whole + j * bytes, &plane, bytes);
    }
}

/* The plain form of a code whose size follows from n. */
static void write_plain(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *planes, uint32_t n,
                        const struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    if (code == CODE_PACKED)
        write_packed(sums, planes, n, dst);
    else
        gw_radix_write(&sums->tight, scratch->digits, n, dst);
}

/* A chunk through the entropy stage: packed as it is, radix bytewise. 0 where that does not get below `limit` bytes. */
static size_t write_staged(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *planes, uint32_t n, size_t limit,
                           const struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    const struct ternary_stage *stage = &scratch->stage;
    size_t plain = code == CODE_PACKED ? packed_size(sums, n) : gw_radix_bytes(&sums->bytewise, n);
    if (code == CODE_PACKED)
        write_packed(sums, planes, n, stage->plain);
    else
        gw_radix_write(&sums->bytewise, scratch->digits, n, stage->plain);
    return ternary_stage_pack(stage, plain, limit, dst);
}

static uint32_t pack_smallest(const struct ternary_sums *sums, int entropy, const uint8_t *planes, uint32_t n,
                              struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    size_t packed = packed_size(sums, n), radix = gw_radix_bytes(&sums->tight, n), best = packed < radix ? packed : radix;
    enum ternary_code code = packed <= radix ? CODE_PACKED : CODE_RADIX;
    if (sums->workers <= LEVELS_MAX_WORKERS) {
        size_t levels = ternary_levels_pack(sums, planes, n, best, scratch, dst);
        if (levels < best) {
            code = CODE_LEVELS;
            best = levels;
        }
    } else {
        count_digits(sums, planes, n, scratch);
    }
    if (entropy == ENTROPY_AUTO && !ternary_worth_trying(best, ternary_entropy_bytes(scratch->counts, 2 * sums->workers + 1, n)))
        entropy = ENTROPY_OFF;
    if (code == CODE_RADIX || entropy != ENTROPY_OFF)
        list_digits(sums, planes, n, scratch->digits);
    if (entropy != ENTROPY_OFF) {
        size_t staged = write_staged(sums, CODE_RADIX, planes, n, best, scratch, scratch->stage.packed);
        if (staged) {
            memcpy(dst, scratch->stage.packed, staged);
            return (uint32_t)staged | CODE_RADIX << 28 | ENTRY_ZSTD;
        }
    }
    if (code != CODE_LEVELS)
        write_plain(sums, code, planes, n, scratch, dst);
    return (uint32_t)best | (uint32_t)code << 28;
}

uint8_t *ternary_sum_planes(enum ternary_code code, int entropy, uint32_t n, struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    return code == CODE_PACKED && entropy != ENTROPY_ON && n % 64 == 0 ? dst : scratch->planes;
}

uint32_t ternary_sum_pack(const struct ternary_sums *sums, enum ternary_code code, int entropy, const uint8_t *planes, uint32_t n,
                          struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    if (code == CODE_MIXED)
        return pack_smallest(sums, entropy, planes, n, scratch, dst);
    if (code == CODE_RADIX)
        list_digits(sums, planes, n, scratch->digits);
    size_t plain = ternary_sum_fixed_size(sums, code, n);
    size_t staged = entropy == ENTROPY_ON ? write_staged(sums, code, planes, n, plain, scratch, dst) : 0;
    if (staged)
        return (uint32_t)staged | (uint32_t)code << 28 | ENTRY_ZSTD;
    write_plain(sums, code, planes, n, scratch, dst);
    return (uint32_t)plain | (uint32_t)code << 28;
}

static gw_status check_size(const struct ternary_sums *sums, enum ternary_code code, size_t got, size_t want, uint32_t n)
{
    if (got == want)
        return GW_OK;
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u sums of %u workers has %zu bytes of %s codes; its values take %zu", n,
                   sums->workers, got, ternary_code_names[code], want);
}

gw_status ternary_sum_unpack(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *src, size_t src_bytes,
                             bool zstd, uint32_t n, struct ternary_sum_scratch *scratch)
{
    uint16_t *digits = scratch->digits;
    if (zstd) {
        struct ternary_stage *stage = &scratch->stage;
        GW_TRY(gw_entropy_decompress(stage->workspace, src, src_bytes, stage->plain, ternary_sum_chunk_bound(sums, GW_CHUNK),
                                     &src_bytes));
        src = stage->plain;
    }
    if (code == CODE_PACKED) {
        GW_TRY(check_size(sums, code, src_bytes, packed_size(sums, n), n));
        for (uint32_t w = 0; w < (n + 63) / 64; w++) {
            uint32_t m = n - 64 * w < 64 ? n - 64 * w : 64;
            size_t bytes = gw_div_up(m, 8);
            for (uint32_t i = 0; i < 8 * bytes; i++) {
                uint32_t digit = 0;
                for (uint32_t j = 0; j < sums->n_planes; j++)
                    digit |= (uint32_t)(src[j * bytes + i / 8] >> (i % 8) & 1) << j;
                if (i >= m && digit)
                    return gw_fail(GW_ERR_FRAME_PAYLOAD, "the padding after a chunk's %u packed sums is not 0", n);
                if (digit > 2 * sums->workers)
                    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed sum is %u above its lowest; %u workers reach %u", digit,
                                   sums->workers, 2 * sums->workers);
                if (i < m)
                    digits[64 * w + i] = (uint16_t)digit;
            }
            src += sums->n_planes * bytes;
        }
        return GW_OK;
    }
    if (code == CODE_RADIX) {
        const struct gw_radix *radix = zstd ? &sums->bytewise : &sums->tight;
        GW_TRY(check_size(sums, code, src_bytes, gw_radix_bytes(radix, n), n));
        return gw_radix_read(radix, src, n, digits);
    }
    uint32_t n_levels;
    GW_TRY(ternary_levels_unpack(sums, src, src_bytes, n, scratch, &n_levels));
    list_digits(sums, scratch->planes, n, digits);
    for (uint32_t i = 0; i < n; i++)
        digits[i] = (uint16_t)(digits[i] + sums->workers - n_levels);
    return GW_OK;
}
