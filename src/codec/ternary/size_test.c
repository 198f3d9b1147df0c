/* DESIGN 4.1, 6: for slices of 64 Ki elements or more the payload that auto makes is within 5 % of the order-0 entropy of its symbols,
 * at any share of nonzeros from 0.003 up. */
#include "codecs.h"

#include <stdio.h>

static const double shares[] = {0.003, 0.004, 0.005, 0.007, 0.01, 0.014, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1,  0.13, 0.16, 0.2, 0.25,
                                0.3,   0.35,  0.4,   0.45,  0.5,  0.55,  0.6,  0.64, 0.67, 0.7,  0.75, 0.8,  0.85, 0.9,  0.94, 0.97};
#define N_SHARES (sizeof shares / sizeof *shares)

/* A tensor of which `share` comes out nonzero, as a push of rank r. Gaussian where that is possible: clipped at 2.5 sigma it gives
 * 0.32 with its own scaler, and less with a larger one. Above that magnitudes are even between two bounds. */
static struct whole_frame push_with(double share, uint64_t n, uint32_t rank, uint64_t seed)
{
    float *g = room_for(n, sizeof *g), s = 1;
    bool gaussian = share <= 0.3;
    struct numbers numbers = numbers_from(seed * 1000 + rank);
    for (uint64_t i = 0; i < n; i++) {
        float low = share > 0.5 ? (float)(2 * share - 1) : 0, high = share > 0.5 ? 1 : (float)(2 * share);
        if (gaussian)
            g[i] = numbers_bell(&numbers);
        else
            g[i] = (low + (high - low) * numbers_unit(&numbers)) * (numbers_word(&numbers) & 1 ? 1 : -1);
    }
    gw_encoder *encoder = encoder_of(NULL, gaussian ? "ternary" : "ternary:clip=0", n);
    if (gaussian)
        s = (float)(0.8143 / share); /* the mean magnitude of numbers_bell() */
    struct whole_frame frame = encode_whole(encoder, g, n, &s, (gw_draw){.seed = seed, .rank = rank});
    gw_encoder_destroy(encoder);
    free(g);
    return frame;
}

static uint32_t n_misses;

/* Notes a frame that is too large, and goes on: the list of misses says more than the first. */
static void check_size(struct whole_frame frame, double share)
{
    gw_frame_info info;
    uint64_t nonzeros;
    double entropy;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, &nonzeros, &entropy), GW_OK);
    double n = (double)info.n_elems, p = (double)nonzeros / n, bits = 8.0 * (double)info.payload_bytes / n;
    CHECK(fabs(p - share) < 0.01 * share + 5 * sqrt(share / n), "wanted %g nonzero, got %g", share, p);
    if (bits > 1.05 * entropy) {
        print_error("%llu elements, share %g: %g bits an element with %s%s, entropy %g: %.2f %% over\n",
                    (unsigned long long)info.n_elems, p, bits, info.code, info.entropy ? " and zstd" : "", entropy,
                    100 * (bits / entropy - 1));
        n_misses++;
    }
}

static void pushes_are_near_their_entropy(void **state)
{
    (void)state;
    n_misses = 0;
    for (size_t i = 0; i < N_SHARES; i++)
        for (uint64_t n = 65536; n <= 262144; n *= 4)
            for (uint64_t seed = 1; seed <= 3; seed++) {
                struct whole_frame frame = push_with(shares[i], n, (uint32_t)seed, seed);
                check_size(frame, shares[i]);
                free(frame.bytes);
            }
    assert_int_equal(n_misses, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_are_near_their_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
