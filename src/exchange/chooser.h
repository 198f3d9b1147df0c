/* Finds out which wire choice gives the shorter steps (docs/design.md, "Wire choice"). It is told how long each step
 * took, and says what the next step is to use. It knows nothing of messages or codecs.
 *
 * One choice is the standing one. Now and then the chooser tries the other one for a few steps (a probe). If the median
 * of these steps is clearly shorter, the other one is the standing choice from then on. Values never depend on the
 * choice, so the chooser may look at a clock. */
#ifndef GW_EXCHANGE_CHOOSER_H
#define GW_EXCHANGE_CHOOSER_H

#include <stdbool.h>
#include <stdint.h>

enum { GW_CHOOSER_STEPS = 9 }; /* a median is taken over the last steps, at most this many */

struct gw_chooser_times {
    double last[GW_CHOOSER_STEPS]; /* a ring: the newest takes the place of the oldest */
    uint32_t n;                    /* how many times were added since it was emptied */
};

struct gw_chooser {
    bool fast;     /* true: the standing choice is fast; false: small */
    bool probing;  /* the other choice is being tried */
    uint32_t skip; /* the next `skip` steps do not count, because some of their frames still follow the choice before */
    uint32_t left; /* how many steps of the standing choice are left before the next probe */
    uint32_t interval;
    struct gw_chooser_times times[2]; /* of small and of fast */
    double compared[2];               /* their medians when they were compared last; 0: they never were */
    uint32_t n_probes, n_changes;     /* how many have ended */
};

/* At first the standing choice is small. */
void gw_chooser_init(struct gw_chooser *chooser);

/* What the next step is to use. true: fast; false: small. */
bool gw_chooser_next(const struct gw_chooser *chooser);

/* Tells how long a step took. The step must have used what gw_chooser_next had said. */
void gw_chooser_note(struct gw_chooser *chooser, double seconds);

#endif
