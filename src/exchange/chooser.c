/* Compares step times of the two wire choices: when it probes, for how long, and what follows. */
#include "exchange/chooser.h"

/* The first steps take memory and open the network's windows. */
#define WARM_UP 2
/* Steps of the standing choice before the first probe; then the interval doubles. */
#define FIRST_INTERVAL 4
#define LONGEST_INTERVAL 200
/* After a change, the next probe comes soon. */
#define INTERVAL_AFTER_CHANGE 16
/* A probe may be slower than the standing choice. Then the next one comes only after so many steps that the time lost
 * was 1 % of them. */
#define STEPS_FOR_A_LOST_ONE 100
#define LONGEST_PAUSE 4000
/* The first step after a change of choice does not count: other members follow a step later. */
#define SETTLING 1

#define PROBE 4 /* steps */
/* The other choice wins only if its median is below this part of the standing choice's. */
#define SHORTER 0.98

void gw_chooser_init(struct gw_chooser *c)
{
    *c = (struct gw_chooser){.skip = WARM_UP, .left = FIRST_INTERVAL, .interval = FIRST_INTERVAL};
}

bool gw_chooser_next(const struct gw_chooser *c)
{
    return c->fast != c->probing;
}

/* If there is an even number of times, the lower one of the two in the middle: a disturbance only makes a step longer.
 */
static double median(const struct gw_chooser_times *t)
{
    double sorted[GW_CHOOSER_STEPS];
    const uint32_t n = t->n < GW_CHOOSER_STEPS ? t->n : GW_CHOOSER_STEPS;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > t->last[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = t->last[i];
    }
    return n == 0 ? 0 : sorted[(n - 1) / 2];
}

/* How many steps go by before the next probe. Their number grows from probe to probe, and more if a probe costs much.
 */
static uint32_t pause(const struct gw_chooser *c)
{
    double standing = c->compared[c->fast], tried = c->compared[!c->fast];
    double lost = tried > standing && standing > 0 ? (PROBE + 2 * SETTLING) * (tried / standing - 1) : 0;
    double steps = lost * STEPS_FOR_A_LOST_ONE;
    uint32_t dear = steps < LONGEST_PAUSE ? (uint32_t)steps : LONGEST_PAUSE;
    return dear > c->interval ? dear : c->interval;
}

static void end_probe(struct gw_chooser *c)
{
    c->compared[0] = median(&c->times[0]);
    c->compared[1] = median(&c->times[1]);
    c->probing = false;
    c->n_probes++;
    c->interval = 2 * c->interval < LONGEST_INTERVAL ? 2 * c->interval : LONGEST_INTERVAL;
    if (c->compared[!c->fast] < SHORTER * c->compared[c->fast]) {
        c->fast = !c->fast;
        c->n_changes++;
        c->interval = INTERVAL_AFTER_CHANGE;
    } else {
        c->skip = SETTLING;
    }
    c->left = pause(c);
}

void gw_chooser_note(struct gw_chooser *c, double seconds)
{
    if (c->skip > 0) {
        c->skip--;
        return;
    }
    struct gw_chooser_times *t = &c->times[gw_chooser_next(c)];
    t->last[t->n++ % GW_CHOOSER_STEPS] = seconds;
    if (c->probing) {
        if (t->n == PROBE)
            end_probe(c);
    } else if (--c->left == 0) {
        c->probing = true;
        c->skip = SETTLING;
        c->times[!c->fast].n = 0;
    }
}
