/* Turns one chunk of ternary values into bytes and back: docs/wire-format.md, "Ternary pushes". */
#include "base/error.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"

#include <pthread.h>

uint32_t ternary_count(const uint64_t *words, uint32_t n)
{
    return (uint32_t)gw_kernels_now()->count(words, (n + 63) / 64);
}

size_t ternary_push_chunk_bound(uint32_t n)
{
    /* 2bit takes n/4, and rans not more, because that is the limit of its packing. mask takes at most 2 bits an
     * element, and its two parts are rounded up to bytes. */
    return gw_div_up(n, 4) + 2;
}

enum ternary_code ternary_push_code(const struct ternary_packing *packing)
{
    static const enum ternary_code codes[] = {
        [PUSH_AUTO] = CODE_MIXED, [PUSH_2BIT] = CODE_2BIT, [PUSH_BASE3] = CODE_BASE3, [PUSH_MASK] = CODE_MASK};
    return packing->entropy == ENTROPY_ON ? CODE_MIXED : codes[packing->code];
}

/* Moves bits 0..31 to bits 0, 2, 4, ... 62. */
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

/* 2bit: 00 = -1, 01 = 0, 10 = +1 (Paddle#6599). The low bit is "zero", the high bit "positive". */
static void pack_2bit(const struct ternary_bits *bits, uint32_t n, uint32_t count, uint8_t *dst)
{
    (void)count;
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

static gw_status unpack_2bit(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view,
                             uint32_t *count)
{
    (void)view, (void)count;
    const uint8_t *src = piece->src;
    const uint32_t n = piece->n;
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

/* base3: a digit is value + 1. A byte has five digits, the first is the lowest. 121 is five zeros. */
static struct {
    uint8_t weight[32];              /* the sum of 3^i over the set bits */
    uint8_t nonzero[256], sign[256]; /* nonzero is 0xFF: there is no such byte */
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

/* Reads five bits from bit `at` on. It does not read past the words of the chunk. */
static uint32_t five(const uint64_t *words, uint32_t at, uint32_t n_words)
{
    uint32_t w = at / 64, shift = at % 64;
    uint64_t bits = words[w] >> shift;
    if (shift > 59 && w + 1 < n_words)
        bits |= words[w + 1] << (64 - shift);
    return bits & 31;
}

static void pack_base3(const struct ternary_bits *bits, uint32_t n, uint32_t count, uint8_t *dst)
{
    (void)count;
    base3_ready();
    uint32_t n_words = (n + 63) / 64;
    for (uint32_t i = 0; i < n; i += 5) {
        uint32_t nonzero = five(bits->nonzero, i, n_words), sign = five(bits->sign, i, n_words);
        *dst++ = (uint8_t)(121 + base3.weight[nonzero & ~sign] - base3.weight[sign & nonzero]);
    }
}

static gw_status unpack_base3(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view,
                              uint32_t *count)
{
    (void)view, (void)count;
    const uint8_t *src = piece->src;
    const uint32_t n = piece->n;
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

/* mask: a bitmap of the nonzeros, then their signs. */
static void pack_mask(const struct ternary_bits *bits, uint32_t n, uint32_t count, uint8_t *dst)
{
    const size_t head = gw_div_up(n, 8);
    memcpy(dst, bits->nonzero, head);
    gw_kernels_now()->gather_signs(bits->nonzero, bits->sign, (n + 63) / 64, dst + head, gw_div_up(count, 8));
}

static gw_status unpack_mask(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view,
                             uint32_t *count)
{
    const uint8_t *src = piece->src;
    const uint32_t n = piece->n;
    const size_t head = gw_div_up(n, 8), signs = piece->n_bytes - head;
    const uint32_t n_words = (n + 63) / 64;
    const void *nonzero = bits->nonzero;
    if (view && n % 64 == 0) {
        view->nonzero = nonzero = src;
    } else {
        if (n_words)
            bits->nonzero[n_words - 1] = 0;
        memcpy(bits->nonzero, src, head);
    }
    /* scatter_signs does not read past the piece. So it can count the signs while it reads them. */
    *count = (uint32_t)gw_kernels_now()->scatter_signs(nonzero, n_words, src + head, signs, bits->sign);
    if (signs == gw_div_up(*count, 8) && *count % 8 && src[piece->n_bytes - 1] >> (*count % 8))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's sign bits are padded with bits that are not 0");
    return GW_OK;
}

static size_t bytes_2bit(uint32_t n, uint32_t count)
{
    (void)count;
    return gw_div_up(n, 4);
}

static size_t bytes_base3(uint32_t n, uint32_t count)
{
    (void)count;
    return gw_div_up(n, 5);
}

static size_t bytes_mask(uint32_t n, uint32_t count)
{
    return gw_div_up(n, 8) + gw_div_up(count, 8);
}

/* The codes without an entropy coder, by their numbers on the wire. */
static const struct plain_code {
    /* the size of a chunk of n elements, `count` of which are not 0 */
    size_t (*bytes)(uint32_t n, uint32_t count);
    void (*pack)(const struct ternary_bits *bits, uint32_t n, uint32_t count, uint8_t *dst);
    /* The piece has at least bytes(n, 0) bytes. Sets *count if the size depends on it. view NULL: everything is copied.
     * Else a code whose chunk holds the bitmap of nonzeros may leave it there and change the view. */
    gw_status (*unpack)(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view,
                        uint32_t *count);
} plain_codes[] = {
    [CODE_2BIT] = {bytes_2bit, pack_2bit, unpack_2bit},
    [CODE_BASE3] = {bytes_base3, pack_base3, unpack_base3},
    [CODE_MASK] = {bytes_mask, pack_mask, unpack_mask},
};

size_t ternary_plain_bytes(enum ternary_code code, uint32_t n, uint32_t count)
{
    return plain_codes[code].bytes(n, count);
}

/* Returns the size. If it is above `limit`, nothing is written. */
static size_t pack_rans(const struct ternary_bits *bits, uint32_t n, uint32_t count, size_t limit,
                        struct gw_strings_writer *writer, uint8_t *dst)
{
    uint64_t signs[CHUNK_WORDS + 1];
    const enum gw_signs how = gw_signs_choose(count, ternary_count(bits->sign, n), gw_strings_estimate(n, count));
    gw_strings_begin(writer);
    gw_strings_put(writer, bits->nonzero, n, count);
    const uint32_t n_raw = gw_signs_put(writer, how, bits->nonzero, count, bits->sign, (n + 63) / 64, signs);
    return gw_strings_finish(writer, signs, n_raw, dst, limit);
}

enum ternary_code ternary_frame_code(enum ternary_code code, bool average, uint64_t n_chunks, uint32_t first_entry)
{
    if (code != CODE_MIXED || n_chunks > 1)
        return code;
    return n_chunks ? (enum ternary_code)ENTRY_CODE(first_entry) : average ? CODE_PACKED : CODE_2BIT;
}

/* True if so near one half (1/32) of the elements are not 0 that coding their places saves less than 0.3 % of a bit
 * each. */
static bool is_even(uint32_t n, uint32_t count)
{
    const uint32_t twice = 2 * count, off = twice > n ? twice - n : n - twice;
    return 16 * (uint64_t)off <= n;
}

/* The smallest of the codes without an entropy coder. Of equal ones it is the first. */
static enum ternary_code smallest_plain(uint32_t n, uint32_t count)
{
    enum ternary_code best = CODE_2BIT;
    for (enum ternary_code code = CODE_BASE3; code <= CODE_MASK; code++)
        best = ternary_plain_bytes(code, n, count) < ternary_plain_bytes(best, n, count) ? code : best;
    return best;
}

uint32_t ternary_push_pack(enum ternary_code code, int entropy, const struct ternary_bits *bits, uint32_t n,
                           uint32_t count, struct gw_strings_writer *writer, uint8_t *dst)
{
    if (code == CODE_MIXED) {
        code = smallest_plain(n, count);
        const size_t plain = ternary_plain_bytes(code, n, count),
                     limit = entropy == ENTROPY_ON ? ternary_push_chunk_bound(n) : plain - (plain > 0);
        const bool gains = !is_even(n, count) || gw_signs_are_skewed(count, ternary_count(bits->sign, n));
        if (entropy == ENTROPY_ON || (entropy == ENTROPY_AUTO && gains)) {
            const size_t coded = pack_rans(bits, n, count, limit, writer, dst);
            if (coded <= limit)
                return ENTRY(CODE_RANS, coded);
        }
    }
    plain_codes[code].pack(bits, n, count, dst);
    return ENTRY(code, ternary_plain_bytes(code, n, count));
}

/* Reads the signs. They follow the places of the nonzeros. */
static gw_status unpack_signs(struct gw_strings_reader *reader, uint32_t n, uint32_t count, struct ternary_bits *bits)
{
    uint64_t signs[CHUNK_WORDS + 1];
    enum gw_signs how;
    uint32_t n_raw;
    GW_TRY(gw_signs_get(reader, count, signs, &how, &n_raw));
    GW_TRY(gw_strings_close(reader, n_raw, signs));
    gw_kernels_now()->scatter_signs(bits->nonzero, (n + 63) / 64, (const uint8_t *)signs, sizeof signs, bits->sign);
    return GW_OK;
}

/* Unpacks chunks of code rans. */
static gw_status unpack_coded(const struct ternary_piece *pieces, uint32_t n_pieces, struct ternary_bits *bits)
{
    struct gw_strings_reader readers[GW_RANS_TOGETHER];
    uint64_t *strings[GW_RANS_TOGETHER] = {NULL};
    uint32_t n[GW_RANS_TOGETHER] = {0}, counts[GW_RANS_TOGETHER];
    for (uint32_t i = 0; i < n_pieces; i++) {
        gw_strings_open(&readers[i], pieces[i].src, pieces[i].n_bytes);
        strings[i] = bits[i].nonzero;
        n[i] = pieces[i].n;
    }
    GW_TRY(gw_strings_get_many(readers, n_pieces, n, strings, counts));
    for (uint32_t i = 0; i < n_pieces; i++)
        GW_TRY(unpack_signs(&readers[i], n[i], counts[i], &bits[i]));
    return GW_OK;
}

gw_status ternary_push_unpack(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view)
{
    const enum ternary_code code = piece->code;
    const uint32_t n = piece->n;
    if (view)
        *view = (struct gw_bitmaps){bits->nonzero, bits->sign};
    if (code == CODE_RANS)
        return unpack_coded(piece, 1, bits);
    const size_t least = ternary_plain_bytes(code, n, 0);
    uint32_t count = 0;
    if (piece->n_bytes < least)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes of %s codes; it takes at least %zu",
                       n, piece->n_bytes, ternary_code_names[code], least);
    GW_TRY(plain_codes[code].unpack(piece, bits, view, &count));
    if (n % 64 && bits->nonzero[n / 64] >> (n % 64)) /* for such an n, unpack always copies the nonzeros */
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's padding holds values past its %u elements", n);
    const size_t bytes = ternary_plain_bytes(code, n, count);
    if (piece->n_bytes != bytes)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u elements has %zu bytes of %s codes; its values take %zu", n,
                       piece->n_bytes, ternary_code_names[code], bytes);
    return GW_OK;
}

gw_status ternary_push_unpack_many(const struct ternary_piece *pieces, uint32_t n_pieces, struct ternary_bits *bits,
                                   struct gw_bitmaps *views)
{
    bool coded = true;
    for (uint32_t i = 0; i < n_pieces; i++)
        coded = coded && pieces[i].code == CODE_RANS;
    if (coded) {
        for (uint32_t i = 0; views && i < n_pieces; i++)
            views[i] = (struct gw_bitmaps){bits[i].nonzero, bits[i].sign};
        return unpack_coded(pieces, n_pieces, bits);
    }
    for (uint32_t i = 0; i < n_pieces; i++)
        GW_TRY(ternary_push_unpack(&pieces[i], &bits[i], views ? &views[i] : NULL));
    return GW_OK;
}
