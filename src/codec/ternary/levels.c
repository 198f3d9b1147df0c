/* Codes one chunk of sums as levels: docs/wire-format.md, "Ternary averages". Yes-or-no questions find every sum: is
 * it other than the usual one, the center; is it below; is it more than 1 away, more than 2, ... The answers to one
 * question are one string of bits, coded at its own entropy. So the whole comes near the entropy of the sums, however
 * they are distributed. */
#include "base/clones.h"
#include "base/error.h"
#include "codec/ternary/ternary.h"

/* The sums to which the next question goes: all that are above a level, or only those on one side of the center. */
struct side {
    uint64_t *marks, *next;
    uint32_t count, most; /* how many sums there are, and how far from the center they may be */
};

GW_CLONES static uint64_t sum_planes(const uint8_t *planes, uint32_t n_planes, uint32_t n_words)
{
    uint64_t sum = 0;
    for (uint32_t w = 0; w < n_words; w++)
        for (uint32_t j = 0; j < n_planes; j++, planes += 8)
            sum += (uint64_t)__builtin_popcountll(gw_get64(planes)) << j;
    return sum;
}

/* The mean of the digits, rounded. */
static uint32_t center_of(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n)
{
    const uint8_t *last = planes + 8 * (size_t)(n / 64) * sums->n_planes;
    uint64_t sum = sum_planes(planes, sums->n_planes, n / 64);
    for (uint32_t j = 0; j < sums->n_planes && n % 64; j++) /* the adders may leave anything past the end */
        sum += (uint64_t)__builtin_popcountll(gw_get64(last + 8 * j) & ((1ull << (n % 64)) - 1)) << j;
    return (uint32_t)((2 * sum + n) / (2 * (uint64_t)n));
}

/* How many bits are lost if one string says of both sides which digits are farther from the center. That is 3/4 of
 * Pearson's chi-square. */
static uint64_t loss_together(uint32_t k, uint32_t n_negative, uint32_t n_farther, uint32_t n_below)
{
    const int64_t above = (int64_t)k - n_negative, below = n_negative,
                  off = (int64_t)(n_farther - n_below) * below - (int64_t)n_below * above;
    if (!above || !below || !n_farther || n_farther == k)
        return 0;
    return (uint64_t)(3 * k * (off * off / (above * below)) / (4 * (int64_t)n_farther * (k - n_farther)));
}

/* Returns how many digits are more than `level` from the center. *n_below: how many of these are below it. */
static uint32_t count_farther(const struct ternary_sum_scratch *scratch, uint32_t n, uint32_t n_planes, uint32_t level,
                              uint32_t *n_below)
{
    uint64_t *farther = scratch->bits->nonzero.words;
    const uint32_t n_words = (n + 63) / 64,
                   count = (uint32_t)gw_kernels_now()->above(scratch->magnitudes, n_planes, n_words, level, farther);
    for (uint32_t w = 0; w < n_words; w++)
        farther[w] &= scratch->bits->negative.words[w];
    *n_below = ternary_count(farther, n);
    return count;
}

/* Chooses how the signs of k digits are sent. If they are coded, they come first, and each side has strings of its own.
 * Else both sides share strings. They do so if there are about as many digits on each side and about as many of them go
 * on, or if sharing costs little. */
static enum gw_signs choose(const struct ternary_sum_scratch *scratch, uint32_t n, uint32_t n_planes, uint32_t k,
                            uint32_t n_negative)
{
    const bool skewed = gw_signs_are_skewed(k, n_negative);
    const uint64_t most = gw_strings_estimate(n, k) + k;
    uint32_t count = k, below = n_negative, n_below, n_farther = count_farther(scratch, n, n_planes, 1, &n_below);
    if (!skewed && !gw_signs_are_skewed(n_farther, n_below))
        return GW_SIGNS_RAW;
    uint64_t loss = gw_signs_loss(k, n_negative);
    for (uint32_t level = 1; n_farther && GW_SIGNS_WORTH * loss <= most; level++) {
        loss += loss_together(count, below, n_farther, n_below);
        count = n_farther;
        below = n_below;
        n_farther = count_farther(scratch, n, n_planes, level + 1, &n_below);
    }
    if (GW_SIGNS_WORTH * loss > most)
        return GW_SIGNS_CODED;
    return skewed && k > GW_SIGNS_FIRST ? GW_SIGNS_MIXED : GW_SIGNS_RAW;
}

size_t ternary_levels_pack(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, size_t limit,
                           struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    struct gw_strings_writer *writer = &scratch->writer;
    const uint32_t n_words = (n + 63) / 64, n_planes = sums->n_planes, above = 2 * sums->workers,
                   center = center_of(sums, planes, n), most = center > above - center ? center : above - center;
    uint64_t signs[CHUNK_WORDS + 1], *marks = scratch->bits->above[0].words, *farther = scratch->bits->nonzero.words,
                                     *negative = scratch->bits->negative.words;
    kernels->part_digits(planes, n_planes, n_words, center, negative, scratch->magnitudes);
    if (n % 64) {
        const uint64_t tail = (1ull << (n % 64)) - 1;
        negative[n_words - 1] &= tail;
        for (uint32_t j = 0; j < n_planes; j++)
            scratch->magnitudes[(size_t)j * n_words + n_words - 1] &= tail;
    }
    const uint32_t count = (uint32_t)kernels->above(scratch->magnitudes, n_planes, n_words, 0, marks),
                   n_negative = ternary_count(negative, n);
    const enum gw_signs how = choose(scratch, n, n_planes, count, n_negative);
    const bool apart = how == GW_SIGNS_CODED;
    uint32_t n_raw = 0;
    struct side sides[2] = {{marks, scratch->bits->above[1].words, count, most}};
    gw_strings_begin(writer);
    gw_strings_field(writer, center, n_planes);
    gw_strings_put(writer, marks, n, count);
    if (apart) {
        gw_strings_field(writer, how, 2);
        gw_marked_put(writer, marks, count, negative, n_words, n_negative);
        sides[1] = (struct side){scratch->bits->above[2].words, scratch->bits->above[3].words, n_negative, center};
        memcpy(sides[1].marks, negative, 8 * (size_t)n_words);
        for (uint32_t w = 0; w < n_words; w++)
            marks[w] &= ~negative[w];
        sides[0].count = count - n_negative;
        sides[0].most = above - center;
    } else {
        n_raw = gw_signs_put(writer, how, marks, count, negative, n_words, signs);
    }
    for (uint32_t level = 1; sides[0].count + sides[1].count; level++) {
        uint64_t *to = apart ? farther : sides[0].next;
        const uint32_t beyond = (uint32_t)kernels->above(scratch->magnitudes, n_planes, n_words, level, to);
        for (uint32_t s = 0; s < 2; s++) {
            struct side *side = &sides[s];
            if (!side->count || level == side->most) {
                side->count = 0;
                continue;
            }
            for (uint32_t w = 0; apart && w < n_words; w++)
                side->next[w] = farther[w] & side->marks[w];
            const uint32_t more = apart ? ternary_count(side->next, n) : beyond;
            gw_marked_put(writer, side->marks, side->count, side->next, n_words, more);
            gw_marks_swap(&side->marks, &side->next);
            side->count = more;
        }
    }
    return gw_strings_finish(writer, signs, n_raw, dst, limit);
}

/* Reads which of a side's sums are farther than `level` from the center. The answer goes to side->next. */
static gw_status ask(struct gw_strings_reader *reader, uint32_t level, uint32_t n_words, uint64_t *string,
                     struct side *side)
{
    if (level >= side->most)
        side->count = 0;
    if (side->count)
        return gw_marked_get(reader, side->marks, side->count, n_words, string, side->next, &side->count);
    memset(side->next, 0, 8 * (size_t)n_words);
    return GW_OK;
}

/* Checks sums whose signs came after the levels. No sum may be past the end on the side whose end is nearer to the
 * center. */
static gw_status check_ends(const struct ternary_sums *sums, uint32_t center, const uint64_t *past,
                            const uint64_t *negative, uint32_t n_words)
{
    uint64_t wrong = 0;
    for (uint32_t w = 0; w < n_words; w++)
        wrong |= past[w] & (center < sums->workers ? negative[w] : ~negative[w]);
    if (!wrong)
        return GW_OK;
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a coded sum is beyond what %u workers reach", sums->workers);
}

gw_status ternary_levels_unpack(const struct ternary_sums *sums, const struct ternary_piece *piece,
                                struct ternary_sum_scratch *scratch, struct ternary_levels *levels)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    static const uint64_t none[CHUNK_WORDS];
    uint64_t *string = scratch->bits->string.words, *nonzero = scratch->bits->nonzero.words,
             *negative = scratch->bits->negative.words;
    struct gw_strings_reader reader;
    /* What is above a level adds a 1, as a positive value of a push does. So it is added up as pushes are. The adders
     * add value + 1, so a digit is the sum plus the number of levels. That takes one plane more. */
    struct gw_bitmaps batch[GW_ADD_FRAMES];
    const uint32_t n = piece->n, n_words = (n + 63) / 64, above = 2 * sums->workers;
    uint32_t count, level = 0, n_planes = sums->n_planes + 1;
    gw_strings_open(&reader, piece->src, piece->n_bytes);
    const uint32_t center = gw_strings_number(&reader, sums->n_planes);
    if (center > above)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk's center is %u above the lowest sum; %u workers reach %u", center,
                       sums->workers, above);
    const uint32_t most = center > above - center ? center : above - center, least = above - most;
    GW_TRY(gw_strings_get(&reader, n, nonzero, &count));
    uint64_t signs[CHUNK_WORDS + 1];
    enum gw_signs how;
    uint32_t n_raw;
    GW_TRY(gw_signs_get(&reader, count, signs, &how, &n_raw));
    const bool apart = how == GW_SIGNS_CODED;
    struct side sides[2] = {{nonzero, NULL, count, most}};
    if (apart) {
        kernels->scatter_signs(nonzero, n_words, (const uint8_t *)signs, sizeof signs, negative);
        const uint32_t n_negative = ternary_count(negative, n);
        sides[0] = (struct side){scratch->bits->parted[0].words, scratch->bits->parted[0].words, count - n_negative,
                                 above - center};
        sides[1] = (struct side){scratch->bits->parted[1].words, scratch->bits->parted[1].words, n_negative, center};
        if ((sides[0].count && !sides[0].most) || (sides[1].count && !sides[1].most))
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a coded sum is beyond what %u workers reach", sums->workers);
        for (uint32_t w = 0; w < n_words; w++)
            sides[0].marks[w] = nonzero[w] & ~negative[w];
        memcpy(sides[1].marks, negative, 8 * (size_t)n_words);
    } else {
        memcpy(scratch->bits->parted[0].words, nonzero, 8 * (size_t)n_words);
    }
    const uint64_t *marks = nonzero;
    while (sides[0].count + sides[1].count) {
        batch[level % GW_ADD_FRAMES] = (struct gw_bitmaps){marks, none};
        if (++level % GW_ADD_FRAMES == 0)
            kernels->add_digits(batch, GW_ADD_FRAMES, n_words, level == GW_ADD_FRAMES, scratch->planes, n_planes);
        uint64_t *next = scratch->bits->above[level % GW_ADD_FRAMES].words;
        if (apart) {
            GW_TRY(ask(&reader, level, n_words, string, &sides[0]));
            GW_TRY(ask(&reader, level, n_words, string, &sides[1]));
            for (uint32_t w = 0; w < n_words; w++)
                next[w] = sides[0].next[w] | sides[1].next[w];
        } else {
            sides[0].next = next;
            GW_TRY(ask(&reader, level, n_words, string, &sides[0]));
            sides[0].marks = next;
            if (level <= least)
                memcpy(scratch->bits->parted[0].words, next, 8 * (size_t)n_words);
        }
        marks = next;
    }
    if (level < GW_ADD_FRAMES) /* takes only as many planes as so many levels need */
        n_planes = level ? 32 - (uint32_t)__builtin_clz(2 * level) : 0;
    if (level % GW_ADD_FRAMES)
        kernels->add_digits(batch, level % GW_ADD_FRAMES, n_words, level < GW_ADD_FRAMES, scratch->planes, n_planes);
    *levels = (struct ternary_levels){level, center, n_planes};
    GW_TRY(gw_strings_close(&reader, n_raw, signs));
    if (apart)
        return GW_OK;
    kernels->scatter_signs(nonzero, n_words, (const uint8_t *)signs, sizeof signs, negative);
    return center == sums->workers ? GW_OK
                                   : check_ends(sums, center, scratch->bits->parted[0].words, negative, n_words);
}
