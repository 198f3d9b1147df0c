/* The coding of bit strings for one instruction set. Include it inside a region that is compiled for that instruction
 * set, and define GW_GAPS, the record's name, first. Counting bits and finding the next one takes half the time if the
 * processor has instructions for it. */
#include "base/error.h"
#include "wire/gaps.h"

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

/* The least of the three k for `count` marked bits among m. The geometric distribution's best is near log2(mean * ln
 * 2); both ends find it, so it is not sent. At most 17. */
static uint32_t first_k(uint32_t m, uint32_t count)
{
    uint64_t aim = count ? (uint64_t)(m - count) * 45426 / ((uint64_t)65536 * count) : 0;
    return aim > 1 ? 63 - (uint32_t)__builtin_clzll(aim) : 1;
}

/* Gaps are worked out for this many words of a string at a time, into memory that stays in the nearest cache. */
#define BLOCK_WORDS 128u
/* positions written at once; those past the last nobody reads: it saves a branch that cannot be foreseen */
#define AT_ONCE 8u

struct gaps {
    uint32_t n;
    uint32_t before[1 + 64 * BLOCK_WORDS + AT_ONCE]; /* the marked position before the block, then those in it */
    uint32_t gap[64 * BLOCK_WORDS];
};

/* The gaps before the marked bits of the block of words from `first` on. */
static void find_gaps(const uint64_t *string, uint32_t m, uint64_t flip, uint32_t first, struct gaps *gaps)
{
    uint32_t n_words = (m + 63) / 64, end = n_words - first < BLOCK_WORDS ? n_words : first + BLOCK_WORDS;
    uint32_t *before = gaps->before;
    before[0] = first ? before[gaps->n] : UINT32_MAX;
    size_t n = 0;
    for (uint32_t w = first; w < end; w++) {
        uint64_t bits = string[w] ^ flip;
        if (m - 64 * w < 64)
            bits &= (1ull << (m - 64 * w)) - 1;
        uint32_t count = (uint32_t)__builtin_popcountll(bits), *at = before + 1 + n;
        for (uint32_t i = 0; i < count; i += AT_ONCE)
            for (uint32_t j = 0; j < AT_ONCE; j++) {
                at[i + j] = 64 * w + (uint32_t)__builtin_ctzll(bits | 1ull << 63);
                bits &= bits - 1;
            }
        n += count;
    }
    for (size_t i = 0; i < n; i++)
        gaps->gap[i] = before[i + 1] - before[i] - 1;
    gaps->n = (uint32_t)n;
}

/* The three k are costed exactly. Returns the bits of the gaps. */
static uint64_t best_form(const uint64_t *string, uint32_t m, uint64_t flip, uint32_t count, uint32_t *form)
{
    struct gaps gaps;
    uint32_t first = first_k(m, count), unary[3] = {0, 0, 0}; /* no sum of gaps is above m */
    uint64_t best = UINT64_MAX;
    for (uint32_t w = 0; w < (m + 63) / 64; w += BLOCK_WORDS) {
        find_gaps(string, m, flip, w, &gaps);
        for (uint32_t i = 0; i < gaps.n; i++) {
            unary[0] += gaps.gap[i] >> first;
            unary[1] += gaps.gap[i] >> (first + 1);
            unary[2] += gaps.gap[i] >> (first + 2);
        }
    }
    *form = 1;
    for (uint32_t j = 0; j < 3; j++) {
        uint64_t bits = unary[j] + (uint64_t)count * (first + j + 1);
        if (bits < best) {
            best = bits;
            *form = 1 + j;
        }
    }
    return best;
}

/* Here and below writer and reader are copied to where the compiler can keep them in registers: the bytes written could
 * be theirs, for all it knows. */
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

/* Four gaps where they are short, else the first; returns how many. The codes of four are put together before the
 * writer, whose state each step must wait for, sees them. */
static uint32_t put_gaps(struct gw_bit_writer *w, const uint32_t *gap, uint32_t left, uint32_t k)
{
    uint32_t low = (1u << k) - 1, zeros = gap[0] >> k;
    if (left >= 4) {
        uint32_t zeros1 = gap[1] >> k, zeros2 = gap[2] >> k, zeros3 = gap[3] >> k,
                 length01 = zeros + zeros1 + 2 * (1 + k), length23 = zeros2 + zeros3 + 2 * (1 + k);
        if (length01 + length23 <= GW_BITS_PUT) {
            uint64_t code01 = ((uint64_t)(gap[0] & low) << 1 | 1) << zeros | ((uint64_t)(gap[1] & low) << 1 | 1)
                                                                                 << (zeros + 1 + k + zeros1);
            uint64_t code23 = ((uint64_t)(gap[2] & low) << 1 | 1) << zeros2 | ((uint64_t)(gap[3] & low) << 1 | 1)
                                                                                  << (zeros2 + 1 + k + zeros3);
            gw_bits_put(w, code01 | code23 << length01, length01 + length23);
            return 4;
        }
    }
    for (; zeros > 32; zeros -= 32)
        gw_bits_put(w, 0, 32);
    /* the last zeros, a one, k low bits: at most 32 + 1 + 19 bits */
    gw_bits_put(w, ((uint64_t)(gap[0] & low) << 1 | 1) << zeros, zeros + 1 + k);
    return 1;
}

static uint64_t put(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones)
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
    uint32_t k = first_k(m, count) + form - 1;
    gw_bits_put(&w, form | (uint64_t)marks_ones << FORM_BITS | (uint64_t)length << (FORM_BITS + 1),
                FORM_BITS + 1 + length_bits);
    if (length > 1)
        gw_bits_put(&w, count & ((1u << (length - 1)) - 1), length - 1);
    struct gaps gaps;
    for (uint32_t at = 0; at < (m + 63) / 64; at += BLOCK_WORDS) {
        find_gaps(string, m, flip, at, &gaps);
        uint32_t i = 0;
        while (i < gaps.n)
            i += put_gaps(&w, gaps.gap + i, gaps.n - i, k);
    }
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

/* Decodes whole entries of the table from the bits of one look; returns how many bits they took. */
static uint32_t get_by_table(const uint64_t *table, uint64_t bits, uint32_t m, uint64_t *string, uint64_t *word,
                             uint32_t *at, uint32_t *left)
{
    uint32_t used = 0, to = *at, gaps_left = *left;
    uint64_t filling = *word; /* in a register: bits set in memory would wait for each other */
    while (used <= GW_BITS_PEEKED - GW_GAPS_LOOK && gaps_left >= GW_GAPS_LOOK && m - to > 64) {
        uint64_t entry = table[bits & ((1u << GW_GAPS_LOOK) - 1)], marks = entry & GW_GAPS_MARKS;
        uint32_t length = (uint32_t)(entry >> 60), advance = (uint32_t)(entry >> 54) & 63, shift = to % 64;
        if (!length)
            break;
        bits >>= length;
        used += length;
        gaps_left -= (uint32_t)(entry >> 50) & 15;
        string[to / 64] = filling |= marks << shift;
        filling = shift + advance < 64 ? filling : marks >> 1 >> (63 - shift);
        to += advance;
    }
    string[to / 64] = filling;
    *word = filling;
    *at = to;
    *left = gaps_left;
    return used;
}

static gw_status get(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones)
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
    uint64_t word = 0;    /* what the word with position `at` holds so far */
    const uint64_t *table = gw_gaps_table(k);
    for (uint32_t left = count; left;) {
        uint64_t bits = gw_bits_peek(&r);
        /* Several gaps at a time, while all that the table may say is inside of the string and its words. */
        if (table && !skipped && left >= GW_GAPS_LOOK && m - at > 64) {
            uint32_t used = get_by_table(table, bits, m, string, &word, &at, &left);
            if (used) {
                r.at += used;
                continue;
            }
        }
        if (!(bits & 0xFFFFFFFFFull)) {
            skipped += 36;
            r.at += 36;
            if (r.at >= r.n_bits || skipped << k > m)
                return ends_early(m);
            continue;
        }
        /* As many gaps as lie whole in this look, where the table does not go on: at least one, of at most 35 zeros, a
         * one and 19 bits. */
        uint32_t used = 0;
        do {
            uint32_t zeros = (uint32_t)__builtin_ctzll(bits), taken = zeros + 1 + k;
            if (used + taken > GW_BITS_PEEKED)
                break;
            uint64_t gap = (skipped + zeros) << k | (bits >> zeros >> 1 & low);
            bits = bits >> zeros >> (k + 1);
            skipped = 0;
            used += taken;
            if (gap >= m - at)
                return ends_early(m);
            uint32_t to = at + (uint32_t)gap;
            word = (to / 64 == at / 64 ? word : 0) | 1ull << (to % 64);
            string[to / 64] = word;
            at = to + 1;
            word = at % 64 ? word : 0;
            left--;
        } while (left && bits && !table);
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

const struct gw_gaps GW_GAPS = {put, get};
