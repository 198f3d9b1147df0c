/* One chunk of sums as levels: docs/wire-format.md, "Ternary averages". Every sum is found by yes-or-no questions - is it nonzero,
 * is it negative, is it beyond 1, beyond 2, ... - and the answers to one question are one string of bits, coded at its own
 * entropy. So the whole comes near the entropy of the sums, however they are distributed. */
#include "base/error.h"
#include "codec/ternary/ternary.h"

static void clear_tail(uint64_t *words, uint32_t n)
{
    if (n % 64)
        words[n / 64] &= (1ull << (n % 64)) - 1;
}

/* Marks the sums of at least `level` where it is positive, of at most `level` where it is negative. */
static void mark_beyond(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, int32_t level, uint64_t *marks)
{
    uint32_t n_words = (n + 63) / 64;
    /* digit >= bound; and digit <= N + level is not digit >= N + level + 1 */
    uint32_t bound = (uint32_t)((int32_t)sums->workers + level) + (level < 0);
    for (uint32_t w = 0; w < n_words; w++, planes += 8 * sums->n_planes) {
        uint64_t above = 0, equal = ~0ull; /* beside the bound, in the planes seen so far */
        for (uint32_t j = sums->n_planes; j-- > 0;) {
            uint64_t plane = gw_get64(planes + 8 * j);
            if (bound >> j & 1) {
                equal &= plane;
            } else {
                above |= equal & plane;
                equal &= ~plane;
            }
        }
        marks[w] = level < 0 ? ~(above | equal) : above | equal;
    }
    clear_tail(marks, n);
}

size_t ternary_levels_pack(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, size_t limit,
                           struct ternary_sum_scratch *scratch, uint8_t *dst)
{
    struct ternary_levels *levels = scratch->levels;
    struct gw_bit_writer writer = {.at = dst, .end = dst + limit};
    uint32_t n_words = (n + 63) / 64, count[2], beyond, zero = sums->workers;
    uint64_t *marks[2] = {levels->at[0].beyond[0], levels->at[0].beyond[1]}, *next = levels->at[0].any, bits;
    for (uint32_t negative = 0; negative < 2; negative++) {
        mark_beyond(sums, planes, n, negative ? -1 : 1, marks[negative]);
        count[negative] = ternary_count(marks[negative], n);
    }
    for (uint32_t w = 0; w < n_words; w++)
        next[w] = marks[0][w] | marks[1][w];
    bits = gw_gaps_put(&writer, next, n, count[0] + count[1]);
    bits += gw_string_put(&writer, next, count[0] + count[1], marks[1], n_words, levels->string, &beyond);
    memset(scratch->counts, 0, (2 * (size_t)sums->workers + 1) * sizeof *scratch->counts);
    scratch->counts[zero] = n - count[0] - count[1];
    for (uint32_t level = 1; level <= sums->workers && count[0] + count[1]; level++)
        for (uint32_t negative = 0; negative < 2; negative++) {
            beyond = 0;
            if (level < sums->workers && count[negative]) {
                mark_beyond(sums, planes, n, negative ? -(int32_t)level - 1 : (int32_t)level + 1, next);
                bits += gw_string_put(&writer, marks[negative], count[negative], next, n_words, levels->string, &beyond);
                uint64_t *free = marks[negative];
                marks[negative] = next;
                next = free;
            }
            scratch->counts[negative ? zero - level : zero + level] = count[negative] - beyond;
            count[negative] = beyond;
        }
    gw_bits_finish(&writer);
    return (size_t)((bits + 7) / 8);
}

gw_status ternary_levels_unpack(const struct ternary_sums *sums, const uint8_t *src, size_t src_bytes, uint32_t n,
                                struct ternary_sum_scratch *scratch, uint32_t *n_levels)
{
    struct ternary_levels *levels = scratch->levels;
    struct ternary_level *at = &levels->at[0];
    struct gw_bit_reader reader = {.src = src, .n_bits = 8 * (uint64_t)src_bytes};
    /* What is beyond a level adds a 1 or a -1, just as a push does, and is added up as pushes are. */
    struct gw_bitmaps batch[GW_ADD_FRAMES];
    uint32_t n_words = (n + 63) / 64, count[2], nonzeros, level = 0;
    GW_TRY(gw_gaps_get(&reader, n, at->any, &nonzeros));
    GW_TRY(gw_string_get(&reader, at->any, nonzeros, n_words, levels->string, at->beyond[1], &count[1]));
    count[0] = nonzeros - count[1];
    for (uint32_t w = 0; w < n_words; w++)
        at->beyond[0][w] = at->any[w] & ~at->beyond[1][w];
    while (count[0] + count[1]) {
        struct ternary_level *next = &levels->at[(level + 1) % GW_ADD_FRAMES];
        for (uint32_t w = 0; w < n_words; w++)
            at->any[w] = at->beyond[0][w] | at->beyond[1][w];
        batch[level % GW_ADD_FRAMES] = (struct gw_bitmaps){at->any, at->beyond[1]};
        if (++level % GW_ADD_FRAMES == 0)
            gw_kernels_now()->add_digits(batch, GW_ADD_FRAMES, n_words, level == GW_ADD_FRAMES, scratch->planes, sums->n_planes);
        if (level == sums->workers)
            break;
        for (uint32_t negative = 0; negative < 2; negative++)
            GW_TRY(gw_string_get(&reader, at->beyond[negative], count[negative], n_words, levels->string, next->beyond[negative],
                                 &count[negative]));
        at = next;
    }
    if (level % GW_ADD_FRAMES)
        gw_kernels_now()->add_digits(batch, level % GW_ADD_FRAMES, n_words, level < GW_ADD_FRAMES, scratch->planes, sums->n_planes);
    else if (level == 0)
        memset(scratch->planes, 0, 8 * (size_t)n_words * sums->n_planes);
    *n_levels = level;
    if (gw_bits_at_end(&reader))
        return GW_OK;
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk of %u sums has %zu bytes of levels codes; its values take %llu and padding of zeros", n,
                   src_bytes, (unsigned long long)(reader.at + 7) / 8);
}
