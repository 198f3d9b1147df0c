/* Adds up signs of N workers as bit planes and codes the sums as levels: which are beyond 1, beyond 2, ... The answers
 * to one question are one string of bits, coded at its own entropy. So the whole comes near the entropy of the sums. */
#include "codec/sparse/levels.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "wire/bytes.h"

void gw_sparse_levels_destroy(gw_context *context, struct gw_sparse_levels *levels)
{
    if (!levels)
        return;
    gw_scratch_give(context, levels->bitmaps);
    gw_scratch_give(context, levels->magnitudes);
    gw_scratch_give(context, levels->planes);
    gw_free(context, levels);
}

gw_status gw_sparse_levels_create(gw_context *context, uint32_t workers, uint32_t max_words,
                                  struct gw_sparse_levels **out)
{
    struct gw_sparse_levels *levels = gw_calloc(context, 1, sizeof *levels);
    if (!levels)
        return GW_ERR_MEMORY;
    levels->workers = workers;
    levels->n_planes = 32 - (uint32_t)__builtin_clz(2 * workers);
    levels->planes = gw_scratch_take(context, (size_t)max_words * levels->n_planes, 8);
    levels->magnitudes = gw_scratch_take(context, (size_t)max_words * levels->n_planes, 8);
    levels->bitmaps = gw_scratch_take(context, 4 * (size_t)max_words, sizeof *levels->bitmaps);
    if (!levels->planes || !levels->magnitudes || !levels->bitmaps) {
        gw_sparse_levels_destroy(context, levels);
        return GW_ERR_MEMORY;
    }
    levels->farther = levels->bitmaps;
    for (int i = 0; i < 3; i++)
        levels->marks[i] = levels->bitmaps + (i + 1) * (size_t)max_words;
    *out = levels;
    return GW_OK;
}

void gw_sparse_levels_add(struct gw_sparse_levels *levels, uint32_t i, const uint64_t *nonzero,
                          const uint64_t *negative, uint32_t n_words)
{
    gw_kernels_now()->add_digits(&(struct gw_bitmaps){nonzero, negative}, 1, n_words, i == 0, levels->planes,
                                 levels->n_planes);
    levels->offset = i + 1;
}

int32_t gw_sparse_levels_at(const struct gw_sparse_levels *levels, uint32_t i)
{
    const uint8_t *planes = levels->planes + 8 * (size_t)(i / 64) * levels->n_planes;
    uint32_t digit = 0;
    for (uint32_t j = 0; j < levels->n_planes; j++)
        digit |= (uint32_t)(gw_get64(planes + 8 * j) >> (i % 64) & 1) << j;
    return (int32_t)digit - (int32_t)levels->offset;
}

void gw_sparse_levels_mark(struct gw_sparse_levels *levels, const uint64_t *without, uint32_t n_words,
                           uint64_t *nonzero, uint64_t *negative)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    kernels->part_digits(levels->planes, levels->n_planes, n_words, levels->offset, negative, levels->magnitudes);
    kernels->above(levels->magnitudes, levels->n_planes, n_words, 0, nonzero);
    for (uint32_t w = 0; w < n_words; w++) {
        negative[w] &= ~without[w];
        nonzero[w] &= ~without[w];
    }
}

/* Marks the elements beyond level 0: those above 0, and those below it. Counts both. */
static void begin_marks(const struct gw_sparse_levels *levels, const uint64_t *nonzero, const uint64_t *negative,
                        uint32_t n_words, uint32_t count[2])
{
    for (uint32_t w = 0; w < n_words; w++) {
        levels->marks[0][w] = nonzero[w] & ~negative[w];
        levels->marks[1][w] = negative[w];
    }
    for (int side = 0; side < 2; side++)
        count[side] = (uint32_t)gw_kernels_now()->count(levels->marks[side], n_words);
}

void gw_sparse_levels_put(struct gw_strings_writer *writer, struct gw_sparse_levels *levels, const uint64_t *nonzero,
                          const uint64_t *negative, uint32_t n_words)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    uint32_t count[2];
    begin_marks(levels, nonzero, negative, n_words, count);
    for (uint32_t level = 1; level < levels->workers && count[0] + count[1]; level++) {
        kernels->above(levels->magnitudes, levels->n_planes, n_words, level, levels->farther);
        for (int side = 0; side < 2; side++) {
            if (!count[side])
                continue;
            for (uint32_t w = 0; w < n_words; w++)
                levels->marks[2][w] = levels->farther[w] & levels->marks[side][w];
            const uint32_t beyond = (uint32_t)kernels->count(levels->marks[2], n_words);
            gw_marked_put(writer, levels->marks[side], count[side], levels->marks[2], n_words, beyond);
            count[side] = beyond;
            gw_marks_swap(&levels->marks[side], &levels->marks[2]);
        }
    }
}

gw_status gw_sparse_levels_get(struct gw_strings_reader *reader, struct gw_sparse_levels *levels,
                               const uint64_t *nonzero, const uint64_t *negative, uint32_t n_words, uint64_t *string)
{
    uint32_t count[2];
    begin_marks(levels, nonzero, negative, n_words, count);
    gw_sparse_levels_add(levels, 0, nonzero, negative, n_words);
    for (uint32_t level = 1; level < levels->workers; level++) {
        for (int side = 0; side < 2; side++) {
            if (!count[side])
                continue;
            GW_TRY(gw_marked_get(reader, levels->marks[side], count[side], n_words, string, levels->marks[2],
                                 &count[side]));
            gw_marks_swap(&levels->marks[side], &levels->marks[2]);
        }
        if (count[0] + count[1] == 0)
            break;
        /* What is beyond a level adds a 1 or a -1, just as a push does. */
        for (uint32_t w = 0; w < n_words; w++)
            levels->marks[2][w] = levels->marks[0][w] | levels->marks[1][w];
        gw_sparse_levels_add(levels, level, levels->marks[2], levels->marks[1], n_words);
    }
    return GW_OK;
}

void gw_sparse_levels_expand(const struct gw_sparse_levels *levels, uint32_t n, float unit, float *out)
{
    gw_decode_planes(levels->planes, levels->n_planes, n, levels->offset, NULL, 0, unit, false, out);
}
