#include "wire/gaps.h"
#include "base/error.h"

#include <string.h>

#define FORM_BITS 2 /* 0: as they are; 1, 2, 3: gaps, with k one of three near the best */

static unsigned bit_length(uint32_t x)
{
    return x ? 32 - (unsigned)__builtin_clz(x) : 0;
}

/* Bits in which a count of 0..m stands: how long it is, then what follows its leading one. */
static unsigned count_bits(uint32_t m, uint32_t count)
{
    unsigned length = bit_length(count);
    return bit_length(bit_length(m)) + (length ? length - 1 : 0);
}

/* The least of the three k for `count` marked bits among m. The geometric distribution's best is near log2(mean * ln 2); both
 * ends find it, so it is not sent. At most 17. */
static uint32_t first_k(uint32_t m, uint32_t count)
{
    uint64_t aim = count ? (uint64_t)(m - count) * 45426 / ((uint64_t)65536 * count) : 0;
    return aim > 1 ? 63 - (uint32_t)__builtin_clzll(aim) : 1;
}

/* Calls body with `gap` set for every bit of `string ^ flip` in order. */
#define FOR_EACH_GAP(string, m, flip, gap, body)                    \
    do {                                                            \
        uint32_t next_ = 0; /* first position not yet accounted */  \
        for (uint32_t w_ = 0; w_ < ((m) + 63) / 64; w_++) {         \
            uint64_t bits_ = (string)[w_] ^ (flip);                 \
            if ((m) - 64 * w_ < 64)                                 \
                bits_ &= (1ull << ((m) - 64 * w_)) - 1;             \
            for (; bits_; bits_ &= bits_ - 1) {                     \
                uint32_t at_ = 64 * w_ + (uint32_t)__builtin_ctzll(bits_); \
                uint32_t gap = at_ - next_;                         \
                next_ = at_ + 1;                                    \
                body                                                \
            }                                                       \
        }                                                           \
    } while (0)

/* The three k are costed exactly. Returns the bits of the gaps. */
static uint64_t best_form(const uint64_t *string, uint32_t m, uint64_t flip, uint32_t count, uint32_t *form)
{
    *form = 1;
    uint32_t first = first_k(m, count);
    uint64_t unary[3] = {0, 0, 0}, best = UINT64_MAX;
    FOR_EACH_GAP(string, m, flip, gap, {
        unary[0] += gap >> first;
        unary[1] += gap >> (first + 1);
        unary[2] += gap >> (first + 2);
    });
    for (uint32_t j = 0; j < 3; j++) {
        uint64_t bits = unary[j] + (uint64_t)count * (first + j + 1);
        if (bits < best) {
            best = bits;
            *form = 1 + j;
        }
    }
    return best;
}

/* Here and below writer and reader are copied to where the compiler can keep them in registers: the bytes written could be
 * theirs, for all it knows. */
static void put_plain(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m)
{
    struct gw_bit_writer w = *writer;
    gw_bits_put(&w, 0, FORM_BITS);
    for (uint32_t at = 0; at < m; at += 32) {
        unsigned n = m - at < 32 ? m - at : 32;
        gw_bits_put(&w, string[at / 64] >> (at % 64) & (0xFFFFFFFFull >> (32 - n)), n);
    }
    *writer = w;
}

uint64_t gw_gaps_put(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones)
{
    if (!m)
        return 0;
    bool marks_ones = ones <= m - ones;
    uint32_t count = marks_ones ? ones : m - ones, form;
    uint64_t flip = marks_ones ? 0 : ~0ull, plain = FORM_BITS + (uint64_t)m, bits = plain;
    if (5 * (uint64_t)count < 2 * (uint64_t)m)
        bits = FORM_BITS + 1 + count_bits(m, count) + best_form(string, m, flip, count, &form);
    if (bits >= plain) {
        put_plain(writer, string, m);
        return plain;
    }
    struct gw_bit_writer w = *writer;
    unsigned length = bit_length(count), length_bits = bit_length(bit_length(m));
    uint32_t k = first_k(m, count) + form - 1, low = (1u << k) - 1;
    gw_bits_put(&w, form | (uint64_t)marks_ones << FORM_BITS | (uint64_t)length << (FORM_BITS + 1), FORM_BITS + 1 + length_bits);
    if (length > 1)
        gw_bits_put(&w, count & ((1u << (length - 1)) - 1), length - 1);
    FOR_EACH_GAP(string, m, flip, gap, {
        uint32_t zeros = gap >> k;
        for (; zeros > 32; zeros -= 32)
            gw_bits_put(&w, 0, 32);
        /* the last zeros, a one, k low bits: at most 32 + 1 + 19 bits */
        gw_bits_put(&w, ((uint64_t)(gap & low) << 1 | 1) << zeros, zeros + 1 + k);
    });
    *writer = w;
    return bits;
}

static uint32_t take(struct gw_bit_reader *reader, unsigned n)
{
    uint32_t bits = (uint32_t)(gw_bits_peek(reader) & ((1ull << n) - 1));
    reader->at += n;
    return bits;
}

static gw_status ends_early(uint32_t m)
{
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a coded string of %u bits ends early or runs past its end", m);
}

static gw_status get_plain(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones)
{
    struct gw_bit_reader r = *reader;
    uint32_t found = 0;
    if (r.n_bits < r.at || r.n_bits - r.at < m)
        return ends_early(m);
    for (uint32_t at = 0; at < m; at += 32) {
        uint64_t bits = take(&r, m - at < 32 ? m - at : 32);
        string[at / 64] |= bits << (at % 64);
        found += (uint32_t)__builtin_popcountll(bits);
    }
    *ones = found;
    *reader = r;
    return GW_OK;
}

gw_status gw_gaps_get(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones)
{
    *ones = 0;
    if (!m)
        return GW_OK;
    uint32_t n_words = (m + 63) / 64, form = take(reader, FORM_BITS);
    memset(string, 0, n_words * sizeof *string);
    if (form == 0)
        return get_plain(reader, m, string, ones);
    bool marks_ones = take(reader, 1);
    unsigned length = take(reader, bit_length(bit_length(m)));
    if (length > bit_length(m))
        return ends_early(m);
    uint32_t count = length ? 1u << (length - 1) | take(reader, length - 1) : 0, at = 0;
    if (count > m)
        return ends_early(m);
    uint32_t k = first_k(m, count) + form - 1, low = (1u << k) - 1;
    struct gw_bit_reader r = *reader;
    uint64_t skipped = 0; /* zeros of a unary code that began before this look */
    for (uint32_t left = count; left;) {
        uint64_t bits = gw_bits_peek(&r);
        if (!(bits & 0xFFFFFFFFFull)) {
            skipped += 36;
            r.at += 36;
            if (r.at >= r.n_bits || skipped << k > m)
                return ends_early(m);
            continue;
        }
        /* As many gaps as lie whole in this look: at least one, of at most 35 zeros, a one and 19 bits. */
        uint32_t used = 0;
        for (; left && bits; left--) {
            uint32_t zeros = (uint32_t)__builtin_ctzll(bits), taken = zeros + 1 + k;
            if (used + taken > GW_BITS_PEEKED)
                break;
            uint64_t gap = (skipped + zeros) << k | (bits >> zeros >> 1 & low);
            bits = bits >> zeros >> (k + 1);
            skipped = 0;
            used += taken;
            if (gap >= m - at)
                return ends_early(m);
            at += (uint32_t)gap;
            string[at / 64] |= 1ull << (at % 64);
            at++;
        }
        r.at += used;
    }
    reader->at = r.at;
    if (reader->at > reader->n_bits)
        return ends_early(m);
    *ones = count;
    if (!marks_ones) {
        for (uint32_t w = 0; w < n_words; w++)
            string[w] = ~string[w];
        if (m % 64)
            string[n_words - 1] &= (1ull << (m % 64)) - 1;
        *ones = m - count;
    }
    return GW_OK;
}
