/* Tests the NEON kernels against the reference, bit for bit, in emulation. It links nothing but the kernels, so that
 * no library for aarch64 is needed. It prints one line for each failed check; the exit status is 1 if any failed. */
#include "codec/kernels.h"
#include "wire/bytes.h"
#include "wire/rans.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failures, checks;
static uint64_t seed = 20261121;

static uint64_t next(void) /* splitmix64 */
{
    uint64_t z = seed += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static void check(int ok, const char *what, long detail)
{
    checks++;
    if (!ok && failures++ < 20)
        printf("failed: %s (%ld), seed 20261121\n", what, detail);
}

static float gradient(void)
{
    static const float special[] = {0, -0.0f, 1e-44f, -1e-44f, FLT_MIN, FLT_MAX, -FLT_MAX, 1};
    uint64_t r = next();
    return r % 37 == 0 ? special[r / 37 % 8] : ((float)(r >> 40) / (1 << 23) - 1) * ldexpf(1, (int)(r % 7));
}

/* Compares rows of the entropy coder with the coder that takes a symbol at a time: the same words and states, and
 * back. */
static void check_rans(void)
{
    enum { ROWS = 40, N = ROWS * GW_RANS_LANES };
    static const uint32_t one_in[] = {2, 3, 10, 100, 3000};
    static uint8_t symbols[N], read[N], words[2][2 * N + 64];
    const struct gw_rans *neon = gw_rans_for(GW_CPU_NEON);
    for (int round = 0; round < 60; round++) {
        const uint32_t rows = 1 + (uint32_t)round % ROWS, n = rows * GW_RANS_LANES;
        uint32_t ones = 0, last = 1;
        for (uint32_t i = 0; i < n; i++) {
            symbols[i] = 0;
            for (int bit = 0; bit < 8; bit++)
                symbols[i] |= (uint8_t)((next() % one_in[round % 5] == 0) << bit);
            const uint32_t class = (uint32_t)__builtin_popcount(symbols[i]);
            ones += class;
            last = class > last ? class : last;
        }
        ones = ones ? ones > 4 * n ? 4 * n : ones : 1;
        struct gw_rans_table table;
        struct gw_rans_states begin, states[2];
        gw_rans_table_make(&table, 8 * n, ones, last);
        for (int lane = 0; lane < GW_RANS_LANES; lane++) {
            begin.low[lane] = (uint16_t)next();
            begin.high[lane] = (uint16_t)(1 + next() % 65535);
        }
        states[0] = states[1] = begin;
        const uint8_t *end0 = gw_rans_encode(&table, symbols, n, GW_RANS_LANES, &states[0], words[0]);
        const uint8_t *end1 = neon->encode(&table, symbols, rows, &states[1], words[1]);
        check(end0 - words[0] == end1 - words[1] && !memcmp(words[0], words[1], (size_t)(end0 - words[0])) &&
                  !memcmp(&states[0], &states[1], sizeof begin),
              "rans encode", round);
        struct gw_rans_source source = {&table, read, &states[1], words[1], end1};
        const uint32_t done = neon->decode(&source, rows) * GW_RANS_LANES;
        check(gw_rans_decode(&source, n - done, GW_RANS_LANES) && source.words == words[1] &&
                  !memcmp(read, symbols, n) && !memcmp(&states[1], &begin, sizeof begin),
              "rans decode", round);
    }
}

int main(void)
{
    check_rans();
    const struct gw_kernels *neon = gw_kernels_for(GW_CPU_NEON), *ref = &gw_kernels_ref;
    enum { GROUPS = 5, N = GROUPS * GW_DRAW_GROUP, WORDS = 2 * GROUPS };
    float *g = malloc((N + GW_STATS_BLOCK) * sizeof *g);

    for (uint32_t n = 0; n <= GW_STATS_BLOCK; n += n < 100 ? 1 : 61) {
        for (uint32_t i = 0; i < n; i++)
            g[i + 1] = gradient();
        float kept[2][GW_STATS_BLOCK + GW_SPLIT_SLACK] = {{0}};
        uint32_t low = n ? (gw_float_bits(g[1 + next() % n]) & 0x7FFFFFFFu) + 1 : 1,
                 high = low + (uint32_t)(next() % 3 << 24);
        struct gw_tail p, q;
        uint32_t np = neon->split(g + 1, n, low, high, 0.125f, &p, kept[0]),
                 nq = ref->split(g + 1, n, low, high, 0.125f, &q, kept[1]);
        check(np == nq && !memcmp(kept[0], kept[1], nq * sizeof kept[0][0]), "split: kept", n);
        check(p.count == q.count && !(p.sum != q.sum) && !(p.sum_squares != q.sum_squares), "split: below", n);

        if (n % 5 == 4)
            g[1 + next() % n] = next() % 2 ? NAN : -INFINITY;
        struct gw_stats a = neon->stats_block(g + 1, n), b = ref->stats_block(g + 1, n);
        int same = a.max_bits == b.max_bits;
        if (b.max_bits < 0x7F800000u)
            same = same && !memcmp(&a.sum, &b.sum, 8) && !memcmp(&a.sum_abs, &b.sum_abs, 8) &&
                   !memcmp(&a.sum_squares, &b.sum_squares, 8);
        check(same, "stats_block", n);
    }

    for (int round = 0; round < 200; round++) {
        struct gw_ternary_draw draw = {.clip = round % 3 ? 3 : FLT_MAX,
                                       .purpose = 1 + 2 * (next() % 3),
                                       .at = {.seed = next(),
                                              .step = (uint32_t)next(),
                                              .rank = (uint32_t)(next() % 64)},
                                       .tensor_id = (uint32_t)next()};
        draw.to_threshold = 0x1p32f / (round % 2 ? 3 : 70);
        uint64_t group = next() % 100000, nz[2][WORDS], sg[2][WORDS];
        for (int i = 0; i < N; i++)
            g[i] = gradient();
        if (round % 4 == 0) /* thresholds with an upper half of 0: one draw in 65,536 elements ties, and so do zeros */
            for (int i = 0; i < N; i++)
                g[i] *= 1e-7f;
        neon->draw(&draw, g, group, GROUPS, nz[0], sg[0]);
        ref->draw(&draw, g, group, GROUPS, nz[1], sg[1]);
        check(!memcmp(nz[0], nz[1], sizeof nz[0]) && !memcmp(sg[0], sg[1], sizeof sg[0]), "draw", round);

        uint8_t bytes[2][8 * WORDS] = {{0}};
        uint64_t na = neon->gather_signs(nz[1], sg[1], WORDS, bytes[0], sizeof bytes[0]),
                 nb = ref->gather_signs(nz[1], sg[1], WORDS, bytes[1], sizeof bytes[1]);
        check(na == nb && !memcmp(bytes[0], bytes[1], sizeof bytes[0]), "gather_signs", round);
        size_t size = (size_t)(nb + 7) / 8;
        uint64_t back[WORDS];
        check(neon->scatter_signs(nz[1], WORDS, bytes[1], size, back) == nb && !memcmp(back, sg[1], sizeof back),
              "scatter_signs", round);
        check(neon->count(nz[1], WORDS) == ref->count(nz[1], WORDS) && ref->count(nz[1], WORDS) == nb, "count", round);

        float a[N + 1], b[N + 1];
        uint64_t n = next() % (N + 1);
        a[n] = b[n] = 7;
        neon->expand(nz[1], sg[1], n, 0.7f, round % 2, a);
        ref->expand(nz[1], sg[1], n, 0.7f, round % 2, b);
        check(!memcmp(a, b, (n + 1) * sizeof *a), "expand", (long)n);

        uint32_t n_planes = 2 + (uint32_t)(next() % 14);
        uint64_t planes[2][WORDS * 16] = {{0}};
        for (uint32_t i = 0; i < n_planes * WORDS; i++)
            planes[0][i] = planes[1][i] = next();
        struct gw_bitmaps frames[GW_ADD_FRAMES];
        for (int r = 0; r < GW_ADD_FRAMES; r++) /* the sets overlap in part */
            frames[r] = (struct gw_bitmaps){nz[1] + r % 3, sg[1] + r % 3};
        uint32_t n_frames = 1 + (uint32_t)(next() % GW_ADD_FRAMES);
        neon->add_digits(frames, n_frames, WORDS - 2, round % 3 == 0, (uint8_t *)planes[0], n_planes);
        ref->add_digits(frames, n_frames, WORDS - 2, round % 3 == 0, (uint8_t *)planes[1], n_planes);
        check(!memcmp(planes[0], planes[1], sizeof planes[0]), "add_digits", n_planes);
        uint32_t offset = (uint32_t)(next() % (1u << (n_planes - 1)));
        uint32_t most_a = neon->decode_planes((const uint8_t *)planes[0], n_planes, WORDS, offset, nz[0], round % 3 - 1,
                                              0.3f, false, a);
        uint32_t most_b = ref->decode_planes((const uint8_t *)planes[0], n_planes, WORDS, offset, nz[0], round % 3 - 1,
                                             0.3f, false, b);
        check(most_a == most_b && !memcmp(a, b, N * sizeof *a), "decode_planes", n_planes);
        uint64_t parted[2][WORDS * 18];
        const uint32_t workers = (1u << (n_planes - 1)) - (n_planes > 2);
        neon->part_digits((const uint8_t *)planes[0], n_planes, WORDS, workers, parted[0], parted[0] + WORDS);
        ref->part_digits((const uint8_t *)planes[0], n_planes, WORDS, workers, parted[1], parted[1] + WORDS);
        check(!memcmp(parted[0], parted[1], 8 * WORDS * (n_planes + 1)), "part_digits", n_planes);
    }
    free(g);
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
