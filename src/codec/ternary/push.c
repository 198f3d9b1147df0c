/* One chunk of ternary values to bytes and back: docs/wire-format.md, "Push codes". */
#include "base/error.h"
#include "base/memory.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"
#include "wire/entropy.h"

#include <math.h>
#include <pthread.h>

uint32_t ternary_count(const uint64_t *words, uint32_t n)
{
    return (uint32_t)gw_kernels_now()->count(words, (n + 63) / 64);
}

size_t ternary_push_chunk_bound(uint32_t n)
{
    /* 2bit: n/4. mask and gaps at worst 2 bits an element too, mask's two parts rounded up to bytes, gaps' with a head each. */
    return gw_div_up(n, 4) + 2;
}

/* Bits 0..31 to bits 0, 2, 4, ... 62. */
static uint64_t spread(uint64_t x)
{
    x &= 0xFFFFFFFFull;
    x = (x | x << 16) & 0x0000FFFF0000FFFFull;
    x = (x | x << 8) & 0x00FF00FF00FF00FFull;
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0Full;
    x = (x | x << 2) & 0x3333333333333333ull;
    return (x | x << 1) & 0x5555555555555555ull;
}

static uint64_t unspread(uint64_t x)
{
    x &= 0x5555555555555555ull;
    x = (x | x >> 1) & 0x3333333333333333ull;
    x = (x | x >> 2) & 0x0F0F0F0F0F0F0F0Full;
    x = (x | x >> 4) & 0x00FF00FF00FF00FFull;
    x = (x | x >> 8) & 0x0000FFFF0000FFFFull;
    return (x | x >> 16) & 0xFFFFFFFFull;
}

/* 2bit: 00 = -1, 01 = 0, 10 = +1 (Paddle#6599): the low bit is "zero", the high bit "positive". */
static void pack_2bit(const struct ternary_bits *bits, uint32_t n, uint8_t *dst)
{
    size_t left = (size_t)gw_div_up(n, 4);
    for (uint32_t half = 0; left; half++) {
        uint32_t shift = 32 * (half % 2);
        uint64_t nonzero = bits->nonzero[half / 2] >> shift, sign = bits->sign[half / 2] >> shift;
        uint64_t word = spread(~nonzero) | spread(nonzero & ~sign) << 1;
        size_t bytes = left < 8 ? left : 8;
        memcpy(dst, &word, bytes);
        dst += bytes;
        left -= bytes;
    }
}

static gw_status unpack_2bit(const uint8_t *src, uint32_t n, struct ternary_bits *bits)
{
    size_t left = (size_t)gw_div_up(n, 4);
    for (uint32_t half = 0; half < 2 * ((n + 63) / 64); half++) {
        uint64_t word = 0x5555555555555555ull;
        size_t bytes = left < 8 ? left : 8;
        memcpy(&word, src, bytes);
        src += bytes;
        left -= bytes;
        uint64_t zero = word & 0x5555555555555555ull, positive = word >> 1 & 0x5555555555555555ull;
        if (zero & positive)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a 2-bit code is 11, which stands for nothing");
        uint64_t nonzero = ~unspread(zero) & 0xFFFFFFFFull, sign = nonzero & ~unspread(positive);
        if (half % 2 == 0)
            bits->nonzero[half / 2] = bits->sign[half / 2] = 0;
        bits->nonzero[half / 2] |= nonzero << 32 * (half % 2);
        bits->sign[half / 2] |= sign << 32 * (half % 2);
    }
    return GW_OK;
}

/* base3: digits value + 1, five to a byte, the first the lowest: 121 is five zeros. */
static struct {
    uint8_t weight[32];                  /* the sum of 3^i over the set bits */
    uint8_t nonzero[256], sign[256];     /* 0xFF in nonzero: no such byte */
} base3;

static void base3_fill(void)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    for (int set = 0; set < 32; set++)
        for (int i = 0; i < 5; i++)
            base3.weight[set] += set >> i & 1 ? powers[i] : 0;
    for (int byte = 0; byte < 256; byte++) {
        if (byte > 242) {
            base3.nonzero[byte] = 0xFF;
            continue;
        }
        for (int i = 0, rest = byte; i < 5; i++, rest /= 3) {
            base3.nonzero[byte] |= (rest % 3 != 1) << i;
            base3.sign[byte] |= (rest % 3 == 0) << i;
        }
    }
}

static void base3_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, base3_fill);
}

/* Five bits from bit `at` on; words past the chunk's end are not read. */
static uint32_t five(const uint64_t *words, uint32_t at, uint32_t n_words)
{
    uint32_t w = at / 64, shift = at % 64;
    uint64_t bits = words[w] >> shift;
    if (shift > 59 && w + 1 < n_words)
        bits |= words[w + 1] << (64 - shift);
    return bits & 31;
}

static void pack_base3(const struct ternary_bits *bits, uint32_t n, uint8_t *dst)
{
    base3_ready();
    uint32_t n_words = (n + 63) / 64;
    for (uint32_t i = 0; i < n; i += 5) {
        uint32_t nonzero = five(bits->nonzero, i, n_words), sign = five(bits->sign, i, n_words);
        *dst++ = (uint8_t)(121 + base3.weight[nonzero & ~sign] - base3.weight[sign & nonzero]);
    }
}

static gw_status unpack_base3(const uint8_t *src, uint32_t n, struct ternary_bits *bits)
{
    base3_ready();
    uint32_t n_words = (n + 63) / 64;
    memset(bits->nonzero, 0, 8 * n_words);
    memset(bits->sign, 0, 8 * n_words);
    for (uint32_t i = 0; i < n; i += 5) {
        uint64_t nonzero = base3.nonzero[*src], sign = base3.sign[*src];
        if (nonzero == 0xFF)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a base-3 byte is %u; the highest possible is 242", *src);
        src++;
        uint32_t w = i / 64, shift = i % 64;
        bits->nonzero[w] |= nonzero << shift;
        bits->sign[w] |= sign << shift;
        if (shift > 59 && w + 1 < n_words) {
            bits->nonzero[w + 1] |= nonzero >> (64 - shift);
            bits->sign[w + 1] |= sign >> (64 - shift);
        } else if (shift > 59 && nonzero >> (64 - shift)) {
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a base-3 byte holds values past the last element");
        }
    }
    return GW_OK;
}

/* Returns the size, also where it is above `limit`: the bytes at dst are then cut. */
static size_t pack_gaps(const struct ternary_bits *bits, uint32_t n, uint32_t count, size_t limit, uint8_t *dst)
{
    struct gw_bit_writer writer = {.at = dst, .end = dst + limit};
    uint32_t negative;
    uint64_t signs[CHUNK_WORDS + 1], size = gw_gaps_put(&writer, bits->nonzero, n, count);
    size += gw_string_put(&writer, bits->nonzero, count, bits->sign, (n + 63) / 64, signs, &negative);
    gw_bits_finish(&writer);
    return (size_t)((size + 7) / 8);
}

/* Returns the size. */
static size_t pack_plain(enum ternary_code code, const struct ternary_bits *bits, uint32_t n, uint32_t count, uint8_t *dst)
{
    size_t head = gw_div_up(n, 8);
    switch (code) {
    case CODE_2BIT:
        pack_2bit(bits, n, dst);
        return gw_div_up(n, 4);
    case CODE_BASE3:
        pack_base3(bits, n, dst);
        return gw_div_up(n, 5);
    case CODE_MASK:
        memcpy(dst, bits->nonzero, head);
        gw_kernels_now()->gather_signs(bits->nonzero, bits->sign, (n + 63) / 64, dst + head);
        return head + gw_div_up(count, 8);
    default:
        return pack_gaps(bits, n, count, ternary_push_chunk_bound(n), dst);
    }
}

size_t ternary_settle(struct gw_frame *frame, enum ternary_code code, uint64_t n_chunks, uint32_t first_entry, bool any_zstd,
                      uint8_t *payload, size_t n_bytes)
{
    if (any_zstd)
        frame->flags |= GW_FLAG_ENTROPY;
    frame->code = (uint8_t)code;
    if (code != CODE_MIXED || n_chunks > 1)
        return n_bytes;
    bool average = frame->flags & GW_FLAG_AVERAGE;
    frame->code = n_chunks ? (uint8_t)ENTRY_CODE(first_entry) : average ? CODE_PACKED : CODE_2BIT;
    if (!n_chunks || code_has_table(frame->code, frame->flags))
        return n_bytes;
    memmove(payload, payload + 4, n_bytes - 4);
    return n_bytes - 4;
}

double ternary_entropy_bytes(const uint32_t *counts, uint32_t n_symbols, uint32_t n)
{
    double bits = 0;
    for (uint32_t i = 0; i < n_symbols; i++)
        if (counts[i])
            bits -= counts[i] * log2((double)counts[i] / n);
    return bits / 8;
}

size_t ternary_stage_pack(const struct ternary_stage *stage, size_t n, size_t limit, uint8_t *dst)
{
    return limit > 1 ? gw_entropy_compress(stage->workspace, stage->workspace_bytes, stage->plain, n, dst, limit - 1) : 0;
}

static uint32_t pack_smallest(int entropy, const struct ternary_bits *bits, uint32_t n, uint32_t count,
                              const struct ternary_stage *stage, uint8_t *dst)
{
    size_t size[] = {gw_div_up(n, 4), gw_div_up(n, 5), gw_div_up(n, 8) + gw_div_up(count, 8)};
    enum ternary_code code = CODE_2BIT;
    for (enum ternary_code c = CODE_BASE3; c <= CODE_MASK; c++)
        code = size[c] < size[code] ? c : code;
    size_t gaps = pack_gaps(bits, n, count, size[code], dst), best = size[code];
    if (gaps < best) {
        code = CODE_GAPS;
        best = gaps;
    }
    if (entropy == ENTROPY_AUTO) {
        uint32_t negative = ternary_count(bits->sign, n);
        uint32_t counts[3] = {negative, n - count, count - negative};
        if (!ternary_worth_trying(best, ternary_entropy_bytes(counts, 3, n)))
            entropy = ENTROPY_OFF;
    }
    if (entropy != ENTROPY_OFF) {
        /* Four whole values in each byte: what zstd's Huffman stage likes best. */
        size_t packed = ternary_stage_pack(stage, pack_plain(CODE_2BIT, bits, n, count, stage->plain), best, stage->packed);
        if (packed) {
            memcpy(dst, stage->packed, packed);
            return (uint32_t)packed | CODE_2BIT << 28 | ENTRY_ZSTD;
        }
    }
    if (code != CODE_GAPS)
        pack_plain(code, bits, n, count, dst);
    return (uint32_t)best | (uint32_t)code << 28;
}

uint32_t ternary_push_pack(enum ternary_code code, int entropy, const struct ternary_bits *bits, uint32_t n, uint32_t count,
                           const struct ternary_stage *stage, uint8_t *dst)
{
    if (code == CODE_MIXED)
        return pack_smallest(entropy, bits, n, count, stage, dst);
    if (entropy != ENTROPY_ON)
        return (uint32_t)pack_plain(code, bits, n, count, dst) | (uint32_t)code << 28;
    size_t plain = pack_plain(code, bits, n, count, stage->plain), packed = ternary_stage_pack(stage, plain, plain, dst);
    if (packed)
        return (uint32_t)packed | (uint32_t)code << 28 | ENTRY_ZSTD;
    memcpy(dst, stage->plain, plain);
    return (uint32_t)plain | (uint32_t)code << 28;
}

/* True where every bit past n in the last word is 0. */
static bool tail_is_clear(const uint64_t *words, uint32_t n)
{
    return n % 64 == 0 || words[n / 64] >> (n % 64) == 0;
}

static gw_status unpack_gaps(const uint8_t *src, size_t src_bytes, uint32_t n, struct ternary_bits *bits)
{
    struct gw_bit_reader reader = {.src = src, .n_bits = 8 * (uint64_t)src_bytes};
    uint64_t signs[CHUNK_WORDS];
    uint32_t count, negative;
    GW_TRY(gw_gaps_get(&reader, n, bits->nonzero, &count));
    GW_TRY(gw_string_get(&reader, bits->nonzero, count, (n + 63) / 64, signs, bits->sign, &negative));
    if (!gw_bits_at_end(&reader))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes of gaps codes; its values take %llu and padding of zeros",
                       n, src_bytes, (unsigned long long)(reader.at + 7) / 8);
    return GW_OK;
}

gw_status ternary_push_unpack(enum ternary_code code, const uint8_t *src, size_t src_bytes, bool zstd, uint32_t n,
                              const struct ternary_stage *stage, struct ternary_bits *bits, struct gw_bitmaps *view)
{
    const void *nonzero = bits->nonzero;
    if (zstd) {
        GW_TRY(gw_entropy_decompress(stage->workspace, src, src_bytes, stage->plain, ternary_push_chunk_bound(n), &src_bytes));
        src = stage->plain;
    }
    if (view)
        *view = (struct gw_bitmaps){nonzero, bits->sign};
    if (code == CODE_GAPS)
        return unpack_gaps(src, src_bytes, n, bits);
    uint32_t n_words = (n + 63) / 64, count;
    size_t head = code == CODE_2BIT ? gw_div_up(n, 4) : code == CODE_BASE3 ? gw_div_up(n, 5) : gw_div_up(n, 8), total = head;
    if (src_bytes < head)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes of %s codes; it takes at least %zu", n,
                       src_bytes, ternary_code_names[code], head);
    switch (code) {
    case CODE_2BIT:
        GW_TRY(unpack_2bit(src, n, bits));
        break;
    case CODE_BASE3:
        GW_TRY(unpack_base3(src, n, bits));
        break;
    default:
        if (view && !zstd && n % 64 == 0) { /* the stage is used again for the next frame */
            view->nonzero = nonzero = src;
            break;
        }
        if (n_words)
            bits->nonzero[n_words - 1] = 0;
        memcpy(bits->nonzero, src, head);
    }
    if (!tail_is_clear(bits->nonzero, n))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's padding holds values past its %u elements", n);
    if (code == CODE_MASK) {
        /* Reading stops at src_bytes, so the signs can be counted while they are read. */
        count = (uint32_t)gw_kernels_now()->scatter_signs(nonzero, n_words, src + head, src_bytes - head, bits->sign);
        total += gw_div_up(count, 8);
        if (src_bytes == total && count % 8 && src[total - 1] >> (count % 8))
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's sign bits are padded with bits that are not 0");
    }
    if (src_bytes != total)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes of %s codes; its values take %zu", n, src_bytes,
                       ternary_code_names[code], total);
    return GW_OK;
}

gw_status ternary_stage_init(gw_context *context, size_t plain_bytes, struct ternary_stage *stage)
{
    size_t compress = gw_entropy_workspace(plain_bytes), decompress = gw_entropy_decode_workspace();
    stage->workspace_bytes = compress > decompress ? compress : decompress;
    stage->workspace = gw_alloc(context, stage->workspace_bytes, 1);
    stage->plain = gw_alloc(context, plain_bytes, 1);
    stage->packed = gw_alloc(context, plain_bytes, 1);
    if (!stage->workspace || !stage->plain || !stage->packed) {
        ternary_stage_fini(context, stage);
        return GW_ERR_MEMORY;
    }
    return GW_OK;
}

void ternary_stage_fini(gw_context *context, struct ternary_stage *stage)
{
    gw_free(context, stage->workspace);
    gw_free(context, stage->plain);
    gw_free(context, stage->packed);
    *stage = (struct ternary_stage){0};
}
