/* The trainer's random numbers: Philox streams with the run's seed, different from those of the codecs. */
#ifndef GW_TRAIN_RANDOM_H
#define GW_TRAIN_RANDOM_H

#include "base/philox.h"

/* What the trainer draws for. Each use is a stream of its own; changing a number changes every run. */
enum gw_train_purpose {
    GW_PURPOSE_INIT = GW_PURPOSE_TRAINER,         /* first parameters: one stream for each tensor */
    GW_PURPOSE_ORDER = GW_PURPOSE_TRAINER + 1,    /* order of samples: one stream for each epoch */
    GW_PURPOSE_DIGITS = GW_PURPOSE_TRAINER + 2,   /* drawn digits: one stream for each picture */
    GW_PURPOSE_UNEVEN = GW_PURPOSE_TRAINER + 3,   /* data of uneven magnitude: one stream for each row, and two more */
    GW_PURPOSE_DROPOUT = GW_PURPOSE_TRAINER + 4,  /* dropout: one stream for each sample and layer */
    GW_PURPOSE_TRANSFORM = GW_PURPOSE_TRAINER + 5 /* crops and the like: one stream for each sample */
};

/* A stream read from its start. */
struct gw_random {
    uint64_t seed;
    uint32_t counter[4];
    uint32_t words[4];
    unsigned n_left;
};

static inline struct gw_random gw_random_open(uint64_t seed, enum gw_train_purpose purpose, uint32_t major,
                                              uint32_t minor)
{
    struct gw_random r = {.seed = seed, .n_left = 0};
    gw_philox_counter(r.counter, 0, major, (enum gw_purpose)purpose, 0, minor);
    return r;
}

static inline uint32_t gw_random_word(struct gw_random *r)
{
    if (r->n_left == 0) {
        gw_philox(r->counter, r->seed, r->words);
        r->counter[0]++;
        r->n_left = 4;
    }
    return r->words[4 - r->n_left--];
}

/* Uniform in [0, 1), multiples of 2^-24. */
static inline float gw_random_unit(struct gw_random *r)
{
    return (float)(gw_random_word(r) >> 8) * 0x1p-24f;
}

static inline float gw_random_between(struct gw_random *r, float low, float high)
{
    return low + (high - low) * gw_random_unit(r);
}

/* Uniform in [0, n), without bias (Lemire, "Fast random integer generation in an interval", 2019). n > 0. */
static inline uint32_t gw_random_below(struct gw_random *r, uint32_t n)
{
    uint64_t product = (uint64_t)gw_random_word(r) * n;
    if ((uint32_t)product < n) {
        uint32_t reject_below = -n % n;
        while ((uint32_t)product < reject_below)
            product = (uint64_t)gw_random_word(r) * n;
    }
    return (uint32_t)(product >> 32);
}

#endif
