/* Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011). It makes four random words of every 128-bit counter under a 64-bit key. It keeps no
 * state, so any element's random bits can be computed alone. */
#ifndef GW_BASE_PHILOX_H
#define GW_BASE_PHILOX_H

#include <stdint.h>

/* What random numbers are used for; each use has its own stream. Part of the wire format: never renumber. */
enum gw_purpose {
    GW_PURPOSE_TERNARY = 1,     /* the draw of ternary values */
    GW_PURPOSE_TERNARY_TIE = 2, /* its tie-breaking bits; of other draws, too, the number after their own */
    GW_PURPOSE_GSPAR = 3,       /* which elements gspar sends */
    GW_PURPOSE_UNIFORM = 5,     /* which uniform sends */
    GW_PURPOSE_RUN_IN = 7,      /* measurements only: what a codec would have kept of earlier steps */
    GW_PURPOSE_TRAINER = 64     /* the trainer's own: 64..95 */
};

#define GW_PHILOX_M0 0xD2511F53u
#define GW_PHILOX_M1 0xCD9E8D57u
#define GW_PHILOX_W0 0x9E3779B9u /* golden ratio */
#define GW_PHILOX_W1 0xBB67AE85u /* sqrt(3) - 1 */

/* One block: counter and key in, four words out. */
static inline void gw_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)GW_PHILOX_M0 * c0, p1 = (uint64_t)GW_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += GW_PHILOX_W0;
        k1 += GW_PHILOX_W1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The counter of docs/wire-format.md, section 8: (block, step, purpose and rank, tensor id). */
static inline void gw_philox_counter(uint32_t counter[4], uint32_t block, uint32_t step, enum gw_purpose purpose,
                                     uint32_t rank, uint32_t tensor_id)
{
    counter[0] = block;
    counter[1] = step;
    counter[2] = (uint32_t)purpose << 24 | rank;
    counter[3] = tensor_id;
}

#endif
