/* Tests the sizes of pushes and averages. For slices of 64 Ki elements or more, the payload that auto makes is within
 * 1 % of the order-0 entropy of its symbols (averages: 2 %) at any share of nonzeros from 0.02 to 0.97, and within 5 %
 * from 0.003 up. */
#include "checks.h"
#include "codecs.h"

#include <stdio.h>

static const double shares[] = {0.003, 0.004, 0.005, 0.007, 0.01, 0.014, 0.02, 0.03, 0.04, 0.05, 0.07,
                                0.1,   0.13,  0.16,  0.2,   0.25, 0.3,   0.35, 0.4,  0.45, 0.5,  0.55,
                                0.6,   0.64,  0.67,  0.7,   0.75, 0.8,   0.85, 0.9,  0.94, 0.97};
#define N_SHARES (sizeof shares / sizeof *shares)

/* A push of rank r of a tensor. `share` of its elements come out nonzero, and `negative` of these are below zero.
 * Magnitudes are Gaussian if that is possible: clipped at 2.5 sigma, a share of 0.32 comes out with their own scaler,
 * and less with a larger one. For a larger share, magnitudes are even between two bounds. */
static struct whole_frame push_with(double share, double negative, uint64_t n, uint32_t rank, uint64_t seed)
{
    float *g = room_for(n, sizeof *g), s = 1;
    bool gaussian = share <= 0.3;
    struct numbers numbers = numbers_from(seed * 1000 + rank);
    for (uint64_t i = 0; i < n; i++) {
        float low = share > 0.5 ? (float)(2 * share - 1) : 0, high = share > 0.5 ? 1 : (float)(2 * share);
        g[i] = gaussian ? fabsf(numbers_bell(&numbers)) : low + (high - low) * numbers_unit(&numbers);
        if (numbers_unit(&numbers) < (float)negative)
            g[i] = -g[i];
    }
    gw_encoder *encoder = encoder_of(NULL, gaussian ? "ternary" : "ternary:clip=0", n);
    if (gaussian)
        s = (float)(0.8143 / share); /* 0.8143 is the mean magnitude of numbers_bell() */
    struct whole_frame frame = encode_whole(encoder, g, n, &s, (gw_draw){.seed = seed, .rank = rank});
    gw_encoder_destroy(encoder);
    free(g);
    return frame;
}

static uint32_t n_misses;

/* Notes a frame that is too large, and goes on. The list of all of them says more than the first one. */
static void check_size(struct whole_frame frame, double share, double negative, uint32_t n_workers)
{
    gw_frame_info info;
    uint64_t nonzeros;
    double entropy;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, 0, &nonzeros, &entropy), GW_OK);
    double n = (double)info.n_elems, p = (double)nonzeros / n, bits = 8.0 * (double)info.payload_bytes / n;
    if (!info.average && negative == 0.5) /* else there is a mean, and both sigma and the clip are smaller */
        CHECK(fabs(p - share) < 0.01 * share + 5 * sqrt(share / n), "wanted %g nonzero, got %g", share, p);
    if (bits > (p < 0.02 ? 1.05 : info.average ? 1.02 : 1.01) * entropy) {
        print_error("%u workers, %llu elements, share %g, %g of it negative (%g nonzero sums): %g bits an element with "
                    "%s, entropy %g: %.2f %% over\n",
                    n_workers, (unsigned long long)info.n_elems, share, negative, p, bits, info.code, entropy,
                    100 * (bits / entropy - 1));
        n_misses++;
    }
}

TEST(pushes_are_near_their_entropy)
{
    n_misses = 0;
    for (size_t i = 0; i < N_SHARES; i++)
        for (uint64_t n = 65536; n <= 262144; n *= 4)
            for (uint64_t seed = 1; seed <= 3; seed++) {
                const double negative = seed == 1 ? 0.5 : seed == 2 ? 0.3 : 0.95;
                struct whole_frame frame = push_with(shares[i], negative, n, (uint32_t)seed, seed);
                check_size(frame, shares[i], negative, 1);
                free(frame.bytes);
            }
    assert_int_equal(n_misses, 0);
}

static void averages_of(uint32_t n_workers, double negative, uint64_t n, size_t every)
{
    n_misses = 0;
    for (size_t i = 0; i < N_SHARES; i += every) {
        struct whole_frame pushes[64];
        for (uint32_t r = 0; r < n_workers; r++)
            pushes[r] = push_with(shares[i], negative, n, r, 7);
        struct whole_frame average = reduce_frames(NULL, pushes, n_workers, "ternary");
        check_size(average, shares[i], negative, n_workers);
        free(average.bytes);
        for (uint32_t r = 0; r < n_workers; r++)
            free(pushes[r].bytes);
    }
    assert_int_equal(n_misses, 0);
}

TEST(averages_of_two_are_near_their_entropy)
{
    averages_of(2, 0.5, 65536, 1);
    averages_of(2, 0.5, 262144, 2);
}

TEST(averages_of_four_are_near_their_entropy)
{
    averages_of(4, 0.5, 65536, 1);
    averages_of(4, 0.5, 262144, 3);
    averages_of(4, 0.7, 65536, 2);
    averages_of(4, 0.05, 65536, 3);
}

TEST(averages_of_eight_are_near_their_entropy)
{
    averages_of(8, 0.5, 65536, 1);
    averages_of(8, 0.5, 262144, 4);
}

TEST(averages_of_many_are_near_their_entropy)
{
    averages_of(64, 0.5, 65536, 2);
    averages_of(64, 0.8, 65536, 9);
}

RUN_TESTS("size", NULL, NULL)
