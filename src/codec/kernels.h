/* The loops that run once per element. There is one set per instruction set, and all sets give the same bits. `ref` is
 * the readable one that the others are tested against. */
#ifndef GW_CODEC_KERNELS_H
#define GW_CODEC_KERNELS_H

#include "base/cpu.h"
#include "base/philox.h"
#include "codec/measure.h"

#include <math.h>
#include <string.h>

/* A ternary draw: element e is not 0 if its random bits are below |f(g_e)| * to_threshold (TernGrad eq. 3). */
struct gw_ternary_draw {
    float clip;              /* f(g) = g limited to +-clip; FLT_MAX: no clipping (eq. 21) */
    float to_threshold;      /* 2^32 / s, rounded so that s * to_threshold >= 2^32 */
    enum gw_purpose purpose; /* the number after it breaks ties */
    gw_draw at;
    uint32_t tensor_id;
};

/* Elements whose random bits come from the same 16 Philox blocks. */
#define GW_DRAW_GROUP 128

/* A chunk's ternary values. The words may be at any address, so that a bitmap can be used inside a frame. */
struct gw_bitmaps {
    const void *nonzero, *sign;
};

/* How many bitmap pairs are added in one pass over the planes. */
#define GW_ADD_FRAMES 8

/* How many magnitudes are below a bound, their sum, and the sum of their squares. */
struct gw_tail {
    uint64_t count;
    double sum, sum_squares;
};

/* `split` may write so many floats behind those that it keeps. */
#define GW_SPLIT_SLACK 16

struct gw_kernels {
    const char *name;

    /* The statistics of one block of n <= GW_STATS_BLOCK elements: its lanes, added up (measure.h). */
    struct gw_stats (*stats_block)(const float *g, uint32_t n);

    /* Draws `n_groups` whole groups from element 128 * group on; g points to that element. Writes two words of each
     * bitmap for a group, bit i for element i: nonzero, and sign (1 = negative, only if nonzero). */
    void (*draw)(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                 uint64_t *nonzero, uint64_t *sign);

    /* Rounds 64 * n_words elements, none of them NaN: nonzero where |a| > half, sign where that is negative; bit i for
     * element i. */
    void (*round)(const float *a, uint64_t n_words, float half, uint64_t *nonzero, uint64_t *sign);

    /* next[i] = x[i] + what rounding with this `half` left of before[i] (half is half a level; gw_left_of). `stream`:
     * next is larger than the cache; stores may go around it. Returns the largest |next[i]|, as bits. */
    uint32_t (*carry)(const float *before, float half, const float *x, uint64_t n, bool stream, float *next);

    /* Packs the sign bits of the nonzero elements of n_words words densely into dst, and pads the last byte with 0. dst
     * has room for dst_bytes bytes, which is enough. Bytes behind the packed bits may change. Returns how many bits
     * there are. */
    uint64_t (*gather_signs)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n_words, uint8_t *dst,
                             size_t dst_bytes);

    /* The reverse: sets the sign bits of nonzero elements; all others become 0. It may read src_bytes bytes; bits that
     * are missing there count as 0. Returns how many bits the nonzeros take. `nonzero` may be at any address. */
    uint64_t (*scatter_signs)(const void *nonzero, uint64_t n_words, const uint8_t *src, size_t src_bytes,
                              uint64_t *sign);

    /* How many bits are set. */
    uint64_t (*count)(const uint64_t *words, uint64_t n_words);

    /* out[i] = nonzero ? (sign ? -s : s) : 0; sign only if nonzero. `stream`: out is larger than the cache; stores
     * may go around it. */
    void (*expand)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream, float *out);

    /* Adds n_frames (at most GW_ADD_FRAMES) ternary bitmap pairs to `n_planes` (at most 16) bit planes that hold sums:
     * digit += value + 1 for each. Plane j of word w stands in 8 bytes at planes + 8 * (w * n_planes + j), as in packed
     * codes. first: the planes are not read, and count as 0. A sign may be set only where nonzero is. */
    void (*add_digits)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t n_words, bool first,
                       uint8_t *planes, uint32_t n_planes);

    /* Turns digits into the signs and magnitudes of digit - center. Magnitudes are below 2^n_planes: n_planes planes of
     * n_words words, one after the other. negative: n_words words. Planes of digits as in add_digits. */
    void (*part_digits)(const uint8_t *planes, uint32_t n_planes, uint64_t n_words, uint32_t center, uint64_t *negative,
                        uint64_t *magnitudes);

    /* Marks the magnitudes above `level`, which is below 2^n_planes; planes one after the other. Returns how many. */
    uint64_t (*above)(const uint64_t *magnitudes, uint32_t n_planes, uint64_t n_words, uint32_t level, uint64_t *marks);

    /* out[i] = (center + x) * q over whole groups of 64, with x = digit_i - offset. If bit i of `negative` is set, x =
     * offset - digit_i; negative NULL: no bit is set. Planes as in add_digits. Returns the largest digit. */
    uint32_t (*decode_planes)(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                              const uint64_t *negative, int32_t center, float q, bool stream, float *out);

    /* Splits the magnitudes of one block of n <= GW_STATS_BLOCK elements by their bits, 1 <= low <= high. Those below
     * `low` are scaled and added up in the lanes of measure.h. Those from `low` on but below `high` are kept, in order
     * and not scaled. Returns how many are kept; none if low = high. kept: room for n + GW_SPLIT_SLACK. */
    uint32_t (*split)(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale, struct gw_tail *below,
                      float *kept);
};

extern const struct gw_kernels gw_kernels_ref;
#if defined(__x86_64__)
extern const struct gw_kernels gw_kernels_avx2, gw_kernels_avx512;
#elif defined(__aarch64__)
extern const struct gw_kernels gw_kernels_neon;
#endif

/* The kernels of one instruction set; NULL if this build has none. */
const struct gw_kernels *gw_kernels_for(enum gw_cpu cpu);

/* The kernels for gw_cpu(). */
const struct gw_kernels *gw_kernels_now(void);

/* decode_planes for n elements. Planes and signs have whole groups; out has room for n. */
uint32_t gw_decode_planes(const uint8_t *src, uint32_t n_planes, uint32_t n, uint32_t offset, const uint64_t *negative,
                          int32_t center, float q, bool stream, float *out);

/* ---- helpers that kernels share ------------------------------------------------------------- */

/* needs_wide: true if the squares of a block are too large or too small for float32. wide: the sums of such a block, in
 * float64. */
bool gw_stats_needs_wide(uint32_t max_bits);
struct gw_stats gw_stats_wide(const float *g, uint32_t n);

/* A row of lanes, of which `left` elements are there. If they are fewer than a row, it is copied, with zeros behind. */
static inline const float *gw_stats_row(const float *row, uint32_t left, float copy[GW_STATS_LANES])
{
    if (left >= GW_STATS_LANES)
        return row;
    memset(copy, 0, GW_STATS_LANES * sizeof *copy);
    return memcpy(copy, row, left * sizeof *copy);
}

/* Adds 32 lanes in the fixed order. */
double gw_stats_fold(const float lanes[GW_STATS_LANES]);

/* What is left of a when it was rounded: a, if |a| <= half; else a - sign(a) * 2 * half. */
static inline float gw_left_of(float a, float half)
{
    const float sent = fabsf(a) > half ? 2 * half : 0;
    return a < 0 ? a + sent : a - sent;
}

/* One element of `expand`. */
static inline float gw_expand_element(const uint64_t *nonzero, const uint64_t *sign, uint64_t i, float s)
{
    uint64_t bit = 1ull << (i % 64);
    return nonzero[i / 64] & bit ? sign[i / 64] & bit ? -s : s : 0;
}

/* Do what x86's pext and pdep do, a bit at a time. gather packs the bits of `sign` where `nonzero` has ones. scatter is
 * the reverse. */
static inline uint64_t gw_gather_bits(uint64_t nonzero, uint64_t sign)
{
    uint64_t out = 0;
    for (unsigned k = 0; nonzero; nonzero &= nonzero - 1, k++)
        out |= (sign >> __builtin_ctzll(nonzero) & 1) << k;
    return out;
}

static inline uint64_t gw_scatter_bits(uint64_t bits, uint64_t nonzero)
{
    uint64_t out = 0;
    for (; nonzero; nonzero &= nonzero - 1, bits >>= 1)
        out |= (bits & 1) << __builtin_ctzll(nonzero);
    return out;
}

/* Breaks ties among up to 32 elements from `element` on, whose gradients are at g. The first 16 random bits of those in
 * `ties` equal the upper 16 of their thresholds. drawn: these bits, of all elements. Returns which ties are drawn. */
uint32_t gw_draw_ties(const struct gw_ternary_draw *draw, uint64_t element, const float *g, const uint16_t *drawn,
                      uint32_t ties);

#endif
