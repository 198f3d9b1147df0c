/* The loops that run once per element. There is one set per instruction set, and all sets give the same bits. `ref` is
 * the readable one that the others are tested against. */
#ifndef GW_CODEC_KERNELS_H
#define GW_CODEC_KERNELS_H

#include "base/cpu.h"
#include "base/philox.h"
#include "codec/measure.h"

/* A ternary draw. Element e is drawn nonzero if its random bits are below |f(g_e)| * to_threshold (TernGrad eq. 3).
 */
struct gw_ternary_draw {
    float clip;              /* f(g) = g limited to +-clip; FLT_MAX: no clipping (eq. 21) */
    float to_threshold;      /* 2^32 / s, rounded so that s * to_threshold >= 2^32 */
    enum gw_purpose purpose; /* the number after it breaks ties */
    uint64_t seed;
    uint32_t step, rank, tensor_id;
};

/* Elements whose random bits come from the same 16 Philox blocks. */
#define GW_DRAW_GROUP 128

/* A chunk's ternary values: words at any address, so that a bitmap can be used where it stands in a frame. */
struct gw_bitmaps {
    const void *nonzero, *sign;
};

/* Bitmap pairs added in one pass over the planes. */
#define GW_ADD_FRAMES 8

/* How many magnitudes are below a bound, their sum, and the sum of their squares. */
struct gw_tail {
    uint64_t count;
    double sum, sum_squares;
};

/* How many floats past those it keeps `split` may write. */
#define GW_SPLIT_SLACK 16

struct gw_kernels {
    const char *name;

    /* Lanes of one block of n <= GW_STATS_BLOCK elements, added up (measure.h); *max_bits and the three sums are set.
     */
    struct gw_stats (*stats_block)(const float *g, uint32_t n);

    /* Draws `n_groups` whole groups from element 128 * group on; g points to that element. Writes two words of each
     * bitmap for a group, bit i for element i: nonzero, and sign (1 = negative, only if nonzero). */
    void (*draw)(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                 uint64_t *nonzero, uint64_t *sign);

    /* Packs the sign bits of the nonzero elements of n_words words densely into dst, padded with 0 to a byte. dst has
     * room for dst_bytes bytes, which is enough; those past the bits may change. Returns how many bits. */
    uint64_t (*gather_signs)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n_words, uint8_t *dst,
                             size_t dst_bytes);

    /* The reverse: sets sign bits where nonzero bits are, 0 elsewhere. src_bytes bytes may be read; bits missing there
     * are 0. Returns how many bits the nonzeros take. `nonzero` may stand at any address. */
    uint64_t (*scatter_signs)(const void *nonzero, uint64_t n_words, const uint8_t *src, size_t src_bytes,
                              uint64_t *sign);

    /* How many bits are set. */
    uint64_t (*count)(const uint64_t *words, uint64_t n_words);

    /* out[i] = nonzero ? (sign ? -s : s) : 0; sign only if nonzero. `stream`: out is larger than the cache; stores
     * may go around it. */
    void (*expand)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream, float *out);

    /* Adds n_frames (at most GW_ADD_FRAMES) ternary bitmap pairs to `n_planes` (at most 16) bit planes that hold sums:
     * digit += value + 1 for each. Plane j of word w stands in 8 bytes at planes + 8 * (w * n_planes + j), as in packed
     * codes. `first`: the planes are not read but count as 0. sign only if nonzero. */
    void (*add_digits)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t n_words, bool first,
                       uint8_t *planes, uint32_t n_planes);

    /* From digits to signs and magnitudes of digit - center, which is below 2^n_planes. magnitudes: n_planes planes of
     * n_words words, one after the other; negative: n_words words. Planes as in add_digits. */
    void (*part_digits)(const uint8_t *planes, uint32_t n_planes, uint64_t n_words, uint32_t center, uint64_t *negative,
                        uint64_t *magnitudes);

    /* Marks the magnitudes above `level`, which is below 2^n_planes; planes one after the other. Returns how many. */
    uint64_t (*above)(const uint64_t *magnitudes, uint32_t n_planes, uint64_t n_words, uint32_t level, uint64_t *marks);

    /* out[i] = (center + x) * q over whole groups of 64, with x = digit_i - offset, or the opposite of it if that bit
     * of `negative` is set (NULL: none). Planes as in add_digits. Returns the largest digit met. */
    uint32_t (*decode_planes)(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                              const uint64_t *negative, int32_t center, float q, bool stream, float *out);

    /* Parts the magnitudes of one block of n <= GW_STATS_BLOCK elements by their bits, 1 <= low <= high: those below
     * `low` are scaled and added up in the lanes of measure.h, those from `low` on but below `high` are kept, unscaled
     * and in order. Returns how many are kept; none if low = high. kept: room for n + GW_SPLIT_SLACK. */
    uint32_t (*split)(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale, struct gw_tail *below,
                      float *kept);
};

extern const struct gw_kernels gw_kernels_ref;
#if defined(__x86_64__)
extern const struct gw_kernels gw_kernels_avx2, gw_kernels_avx512;
#elif defined(__aarch64__)
extern const struct gw_kernels gw_kernels_neon;
#endif

/* Those of one instruction set; NULL if this build has none. */
const struct gw_kernels *gw_kernels_for(enum gw_cpu cpu);

/* Those of gw_cpu(). */
const struct gw_kernels *gw_kernels_now(void);

/* ---- helpers that kernels share ------------------------------------------------------------- */

/* The sums of a block too large or too small for float32 squares. */
bool gw_stats_needs_wide(uint32_t max_bits);
struct gw_stats gw_stats_wide(const float *g, uint32_t n);

/* Adds 32 lanes in the fixed order. */
double gw_stats_fold(const float lanes[GW_STATS_LANES]);

/* One element of `expand`. */
static inline float gw_expand_element(const uint64_t *nonzero, const uint64_t *sign, uint64_t i, float s)
{
    uint64_t bit = 1ull << (i % 64);
    return nonzero[i / 64] & bit ? sign[i / 64] & bit ? -s : s : 0;
}

/* What x86's pext and pdep do, a bit at a time: the bits of `sign` where `nonzero` has ones, packed; and the reverse.
 */
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

/* One element's draw, decided bit by bit; what every kernel does on a tie, and ref always. */
bool gw_draw_element(const struct gw_ternary_draw *draw, uint64_t element, float g);

/* The tie-break: the first 16 random bits equal the threshold's upper 16. */
bool gw_draw_tie(const struct gw_ternary_draw *draw, uint64_t element, float g, uint32_t drawn);

#endif
