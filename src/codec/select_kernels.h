/* The loops of selection. There is one set per instruction set; all give the same bits, and `ref` is the
 * readable one. */
#ifndef GW_CODEC_SELECT_KERNELS_H
#define GW_CODEC_SELECT_KERNELS_H

#include "base/cpu.h"
#include "wire/float16.h"

#include <stdbool.h>
#include <stdint.h>

/* Kernels may write so many floats behind a buffer of values, which have no meaning. */
#define GW_SELECT_SLACK 16

/* A run of elements; select.h says what is done with them. */
struct gw_select_run {
    const float *g;
    uint64_t n;              /* less than 2^32 */
    uint32_t threshold_bits; /* the threshold's; at most 0x7FFFFFFF */
    uint64_t *kept;          /* which are above */
    /* If there is no residual, these three are NULL, and a = g. */
    const float *residual;
    const uint64_t *sent; /* elements that were sent: their residual is gw_select_left */
    float *next;          /* a */
    enum gw_value_type value;
    float over;  /* what is sent is (1 + over) * a, rounded to `value` */
    bool stream; /* next is larger than the cache; stores may go around it */
};

struct gw_select_counts {
    uint64_t n_above, n_equal; /* elements with |a| above the threshold, and with |a| equal to it */
    uint32_t max_bits;
};

struct gw_select_kernels {
    const char *name;

    /* Selects |a| > threshold; not rounded. values: room for n + GW_SELECT_SLACK. */
    struct gw_select_counts (*select)(const struct gw_select_run *run, float *values);

    /* out[i] = bit i of kept ? the next value : 0. n_values: how many bits are set below n. `stream`: as above. */
    void (*expand)(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, bool stream, float *out);

    /* sum[i] += the next value, if bit i of kept is set. Other elements are not touched. */
    void (*add)(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, float *sum);

    /* Of 64 * n_words bytes: which are less than `bound`. */
    void (*below)(const uint8_t *bytes, uint64_t n_words, uint8_t bound, uint64_t *out);

    /* Subtracts 1 from each byte whose bit is set. */
    void (*lower)(const uint64_t *bits, uint64_t n_words, uint8_t *bytes);

    /* Floats from their exponent fields and, in three bytes each, fraction and sign; and those three bytes. */
    void (*join)(const uint8_t *rests, const uint8_t *exponents, uint64_t n, float *out);
    void (*rests)(const float *values, uint64_t n, uint8_t *out);
};

/* What is left of a run after `done` elements, a multiple of 64, of which n_above were found: selected by `ref`. */
struct gw_select_counts gw_select_rest(const struct gw_select_run *run, uint64_t done, float *values, uint64_t n_above);

/* The ends of runs. */
void gw_select_join_ref(const uint8_t *rests, const uint8_t *exponents, uint64_t n, float *out);
void gw_select_rests_ref(const float *values, uint64_t n, uint8_t *out);

/* One by one; what a set uses if masked loads and stores gain nothing. */
void gw_select_add_ref(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, float *sum);

/* "scalar", "avx2" and "avx512". */
extern const struct gw_select_kernels gw_select_kernels_ref;
#if defined(__x86_64__)
extern const struct gw_select_kernels gw_select_kernels_avx2, gw_select_kernels_avx512;
/* 512 bits gain nothing here. */
void gw_select_join_avx2(const uint8_t *rests, const uint8_t *exponents, uint64_t n, float *out);
void gw_select_rests_avx2(const float *values, uint64_t n, uint8_t *out);
#endif

/* Those of one instruction set; NULL if this build has none. NEON's are the reference. */
const struct gw_select_kernels *gw_select_kernels_for(enum gw_cpu cpu);

/* Those of gw_cpu(). */
const struct gw_select_kernels *gw_select_kernels_now(void);

/* `x` as it is after it was sent as `value`. */
float gw_select_round(enum gw_value_type value, float x);

/* What is sent for a selected element, once it has arrived. */
static inline float gw_select_sent(enum gw_value_type value, float over, float a)
{
    return gw_select_round(value, a * (1 + over));
}

/* What stays of it in the residual. */
static inline float gw_select_left(enum gw_value_type value, float over, float a)
{
    return a - gw_select_sent(value, over, a);
}

#endif
