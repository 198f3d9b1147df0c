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
    sums.value_tight = gw_radix_tight(2 * workers);
    sums.value_bytewise = gw_radix_bytewise(2 * workers);
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
    size_t packed = packed_size(sums, n), bytewise = gw_radix_bytes(&sums->bytewise, n);
    /* gaps: positions at most 2 bits an element, values of all */
    size_t gaps = GW_GAPS_HEAD + 1 + gw_div_up(n, 4) + gw_radix_bytes(&sums->value_bytewise, n);
    size_t most = packed > bytewise ? packed : bytewise;
    return most > gaps ? most : gaps;
}

gw_status ternary_sum_scratch_init(gw_context *context, const struct ternary_sums *sums, struct ternary_sum_scratch *scratch)
{
    *scratch = (struct ternary_sum_scratch){0};
    scratch->digits = gw_alloc(context, GW_CHUNK, sizeof *scratch->digits);
    scratch->values = gw_alloc(context, GW_CHUNK, sizeof *scratch->values);
    scratch->nonzero = gw_alloc(context, CHUNK_WORDS, sizeof *scratch->nonzero);
    scratch->counts = gw_alloc(context, 2 * (size_t)sums->workers + 1, sizeof *scratch->counts);
    gw_status status = GW_ERR_MEMORY;
    if (scratch->digits && scratch->values && scratch->nonzero && scratch->counts)
        status = ternary_stage_init(context, ternary_sum_chunk_bound(sums, GW_CHUNK), &scratch->stage);
    if (status < 0)
        ternary_sum_scratch_fini(context, scratch);
    return status;
}

void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch)
{
    gw_free(context, scratch->digits);
    gw_free(context, scratch->values);
    gw_free(context, scratch->nonzero);
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

void ternary_sum_digits(const struct ternary_sums *sums, const uint64_t *planes, uint32_t n, uint16_t *digits)
{
    uint32_t n_words = (n + 63) / 64;
    for (uint32_t i = 0; i < n; i += 8) {
        uint32_t w = i / 64, shift = i % 64;
        uint64_t low = 0, high = 0;
        for (uint32_t j = 0; j < sums->n_planes; j++) {
            uint64_t bytes = bits_to_bytes(planes[j * n_words + w] >> shift & 255);
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

/* Planes to groups of n_planes words. Inlined below for the usual numbers of planes, whose inner loop is then straight. */
static inline __attribute__((always_inline)) void interleave(const uint64_t *planes, uint32_t n_words, uint32_t whole,
                                                             uint32_t n_planes, uint8_t *dst)
{
    for (uint32_t w = 0; w < whole; w++)
        for (uint32_t j = 0; j < n_planes; j++, dst += 8)
            gw_put64(dst, planes[j * n_words + w]);
}

static size_t pack_planes(const struct ternary_sums *sums, const uint64_t *planes, uint32_t n, uint8_t *dst)
{
    uint32_t n_words = (n + 63) / 64, whole = n / 64, n_planes = sums->n_planes;
    switch (n_planes) {
    case 3: /* 2, 3 workers */
        interleave(planes, n_words, whole, 3, dst);
        break;
    case 4: /* 4 to 7 */
        interleave(planes, n_words, whole, 4, dst);
        break;
    case 5: /* 8 to 15 */
        interleave(planes, n_words, whole, 5, dst);
        break;
    default:
        interleave(planes, n_words, whole, n_planes, dst);
    }
    uint8_t *at = dst + 8 * (size_t)whole * n_planes;
    size_t bytes = gw_div_up(n % 64, 8);
    for (uint32_t j = 0; j < n_planes && bytes; j++, at += bytes) {
        /* Padding is 0 whatever the adders left there. */
        uint64_t plane = planes[j * n_words + whole] & ((1ull << (n % 64)) - 1);
        memcpy(at, &plane, bytes);
    }
    return (size_t)(at - dst);
}

/* Nonzero sums: +1, -1, +2, -2, ... are 0, 1, 2, 3, ... */
static uint16_t value_of_digit(uint32_t digit, uint32_t workers)
{
    int32_t sum = (int32_t)digit - (int32_t)workers, negative = sum < 0;
    return (uint16_t)(2 * (negative ? -sum : sum) - 2 + negative); /* no branch: signs are as good as random */
}

static uint16_t digit_of_value(uint32_t value, uint32_t workers)
{
    return (uint16_t)(value % 2 ? workers - value / 2 - 1 : workers + value / 2 + 1);
}

/* Marks the nonzero sums: those whose planes differ from the digit `workers`. Returns how many. */
static uint32_t mark_nonzero(const struct ternary_sums *sums, const uint64_t *planes, uint32_t n, uint64_t *nonzero)
{
    uint32_t n_words = (n + 63) / 64;
    memset(nonzero, 0, n_words * sizeof *nonzero);
    for (uint32_t j = 0; j < sums->n_planes; j++) {
        uint64_t zero = sums->workers >> j & 1 ? ~0ull : 0;
        for (uint32_t w = 0; w < n_words; w++)
            nonzero[w] |= planes[j * n_words + w] ^ zero;
    }
    if (n % 64)
        nonzero[n_words - 1] &= (1ull << (n % 64)) - 1;
    return ternary_count(nonzero, n);
}

static void list_values(const struct ternary_sums *sums, const uint16_t *digits, uint32_t n, const uint64_t *nonzero,
                        uint16_t *values)
{
    for (uint32_t w = 0; w < (n + 63) / 64; w++)
        for (uint64_t bits = nonzero[w]; bits; bits &= bits - 1)
            *values++ = value_of_digit(digits[64 * w + (uint32_t)__builtin_ctzll(bits)], sums->workers);
}

/* Digits bytewise through the entropy stage. 0 where that does not get below `limit` bytes. */
static size_t stage_digits(const struct gw_radix *bytewise, const uint16_t *digits, uint32_t n, const struct ternary_stage *stage,
                           size_t limit, uint8_t *dst)
{
    gw_radix_write(bytewise, digits, n, stage->plain);
    return ternary_stage_pack(stage, gw_radix_bytes(bytewise, n), limit, dst);
}

uint32_t ternary_sum_pack(const struct ternary_sums *sums, enum ternary_code code, int entropy, const uint64_t *planes,
                          uint32_t n, struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    const struct ternary_stage *stage = &scratch->stage;
    bool automatic = code == CODE_MIXED;
    struct gw_gaps_plan plan = {0};
    size_t values_bytes = 0;
    if (code != CODE_PACKED)
        ternary_sum_digits(sums, planes, n, scratch->digits);
    if (code == CODE_GAPS || automatic) {
        uint32_t count = mark_nonzero(sums, planes, n, scratch->nonzero);
        plan = gw_gaps_measure(scratch->nonzero, n, count);
        values_bytes = gw_radix_bytes(&sums->value_tight, count);
        list_values(sums, scratch->digits, n, scratch->nonzero, scratch->values);
    }
    size_t best = 0;
    if (automatic) {
        size_t packed = ternary_sum_fixed_size(sums, CODE_PACKED, n), radix = ternary_sum_fixed_size(sums, CODE_RADIX, n);
        size_t gaps = plan.bytes + values_bytes;
        code = packed <= radix && packed <= gaps ? CODE_PACKED : radix <= gaps ? CODE_RADIX : CODE_GAPS;
        best = code == CODE_PACKED ? packed : code == CODE_RADIX ? radix : gaps;
        if (entropy == ENTROPY_AUTO) {
            uint32_t *counts = scratch->counts;
            memset(counts, 0, (2 * (size_t)sums->workers + 1) * sizeof *counts);
            for (uint32_t i = 0; i < plan.count; i++)
                counts[scratch->values[i]]++;
            counts[2 * sums->workers] = n - plan.count; /* the zeros */
            double least = ternary_entropy_bytes(counts, 2 * sums->workers + 1, n);
            if (!ternary_worth_trying(best, least))
                entropy = ENTROPY_OFF;
        }
        if (entropy != ENTROPY_OFF) {
            size_t staged = stage_digits(&sums->bytewise, scratch->digits, n, stage, best, dst);
            size_t limit = staged ? staged : best, values = 0;
            if (plan.bytes < limit)
                values = stage_digits(&sums->value_bytewise, scratch->values, plan.count, stage, limit - plan.bytes, stage->packed);
            if (values) {
                gw_gaps_write(&plan, scratch->nonzero, n, dst);
                memcpy(dst + plan.bytes, stage->packed, values);
                return (uint32_t)(plan.bytes + values) | CODE_GAPS << 28 | ENTRY_ZSTD;
            }
            if (staged)
                return (uint32_t)staged | CODE_RADIX << 28 | ENTRY_ZSTD;
        }
    }
    uint32_t entry_code = (uint32_t)code << 28;
    if (code == CODE_PACKED) {
        bool staged = entropy == ENTROPY_ON && !automatic;
        size_t plain = pack_planes(sums, planes, n, staged ? stage->plain : dst), packed = 0;
        if (staged) {
            packed = ternary_stage_pack(stage, plain, plain, dst);
            if (!packed)
                memcpy(dst, stage->plain, plain);
        }
        return packed ? (uint32_t)packed | entry_code | ENTRY_ZSTD : (uint32_t)plain | entry_code;
    }
    const struct gw_radix *tight = &sums->tight, *bytewise = &sums->bytewise;
    const uint16_t *symbols = scratch->digits;
    uint32_t n_symbols = n;
    size_t head = 0;
    if (code == CODE_GAPS) {
        /* Positions are near their entropy already; only the values go through the entropy stage. */
        gw_gaps_write(&plan, scratch->nonzero, n, dst);
        tight = &sums->value_tight;
        bytewise = &sums->value_bytewise;
        symbols = scratch->values;
        n_symbols = plan.count;
        head = plan.bytes;
    }
    size_t plain = gw_radix_bytes(tight, n_symbols);
    if (entropy == ENTROPY_ON && !automatic) {
        size_t packed = stage_digits(bytewise, symbols, n_symbols, stage, plain, dst + head);
        if (packed)
            return (uint32_t)(head + packed) | entry_code | ENTRY_ZSTD;
    }
    gw_radix_write(tight, symbols, n_symbols, dst + head);
    return (uint32_t)(head + plain) | entry_code;
}

static gw_status check_size(const struct ternary_sums *sums, enum ternary_code code, size_t got, size_t want, uint32_t n)
{
    if (got == want)
        return GW_OK;
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u sums of %u workers has %zu bytes of %s codes; its values take %zu", n,
                   sums->workers, got, ternary_code_names[code], want);
}

gw_status ternary_sum_unpack(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *src, size_t src_bytes,
                             bool zstd, uint32_t n, struct ternary_sum_scratch *scratch, uint16_t *digits)
{
    uint32_t count = n;
    if (code == CODE_GAPS) {
        size_t head;
        GW_TRY(gw_gaps_read(src, src_bytes, n, scratch->nonzero, &count, &head));
        src += head;
        src_bytes -= head;
    }
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
                if (i < m ? digit > 2 * sums->workers : digit != 0)
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
    const struct gw_radix *radix = zstd ? &sums->value_bytewise : &sums->value_tight;
    GW_TRY(check_size(sums, code, src_bytes, gw_radix_bytes(radix, count), n));
    GW_TRY(gw_radix_read(radix, src, count, scratch->values));
    const uint16_t *value = scratch->values;
    for (uint32_t i = 0; i < n; i++)
        digits[i] = (uint16_t)sums->workers;
    for (uint32_t w = 0; w < (n + 63) / 64; w++)
        for (uint64_t bits = scratch->nonzero[w]; bits; bits &= bits - 1)
            digits[64 * w + (uint32_t)__builtin_ctzll(bits)] = digit_of_value(*value++, sums->workers);
    return GW_OK;
}
