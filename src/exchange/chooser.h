/* Finds out which wire choice gives the shorter steps (docs/design.md, "Wire choice"). It is told how long each step
 * took, and says what the next step is to use. It knows nothing of messages or codecs.
 *
 * One choice stands. Now and then the other is tried for a few steps (a probe), and if its median is clearly the
 * shorter one, it stands from then on. Values never depend on it, so it may look at a clock. */
#ifndef GW_EXCHANGE_CHOOSER_H
#define GW_EXCHANGE_CHOOSER_H

#include <stdbool.h>
#include <stdint.h>

enum { GW_CHOOSER_STEPS = 9 }; /* the medians are of so many steps at most: the last ones */

struct gw_chooser_times {
    double last[GW_CHOOSER_STEPS]; /* a ring */
    uint32_t n;                    /* how many were told since it was emptied */
};

struct gw_chooser {
    bool fast;     /* the choice that stands; false: small */
    bool probing;  /* the other one is being tried */
    uint32_t skip; /* steps still to come that do not count: some of their frames are of the choice before */
    uint32_t left; /* steps of the standing choice before the next probe */
    uint32_t interval;
    struct gw_chooser_times times[2]; /* of small and of fast */
    double compared[2];               /* their medians when they were compared last; 0: never were */
    uint32_t n_probes, n_changes;     /* done */
};

/* Small stands at first. */
void gw_chooser_init(struct gw_chooser *chooser);

/* What the next step is to use: true: fast. */
bool gw_chooser_next(const struct gw_chooser *chooser);

/* How long a step took that used what gw_chooser_next had said. True: a probe has ended with it. */
bool gw_chooser_note(struct gw_chooser *chooser, double seconds);

#endif
