/* Compares step times of the two wire choices: when it probes, for how long, and what follows. */
#include "exchange/chooser.h"

/* The first steps take memory and open the network's windows. */
#define WARM_UP 2
/* Steps of the standing choice before the first probe; then the interval doubles. */
#define FIRST_INTERVAL 4
#define LONGEST_INTERVAL 200
/* A change is looked at again soon. */
#define INTERVAL_AFTER_CHANGE 16
/* A probe that cost so much more than the standing choice comes again only after steps among which that is 1 %. */
#define STEPS_FOR_A_LOST_ONE 100
#define LONGEST_PAUSE 4000
/* A change of choice: the first step with it is not like the others, since members follow a step later. */
#define SETTLING 1

#define PROBE_LEAST 2
#define PROBE_MOST 7
/* Two steps that are both so much worse or better than the median of the standing choice are enough. */
#define CLEARLY_LONGER 1.25
#define CLEARLY_SHORTER 0.8
/* Else the medians decide, and the standing choice has this much in its favour. */
#define SHORTER 0.98

void gw_chooser_init(struct gw_chooser *c)
{
    *c = (struct gw_chooser){.skip = WARM_UP, .left = FIRST_INTERVAL, .interval = FIRST_INTERVAL};
}

bool gw_chooser_next(const struct gw_chooser *c)
{
    return c->fast != c->probing;
}

static uint32_t kept(const struct gw_chooser_times *t)
{
    return t->n < GW_CHOOSER_STEPS ? t->n : GW_CHOOSER_STEPS;
}

/* Ascending. Returns how many. */
static uint32_t sorted(const struct gw_chooser_times *t, double *out)
{
    uint32_t n = kept(t);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && out[at - 1] > t->last[i]; at--)
            out[at] = out[at - 1];
        out[at] = t->last[i];
    }
    return n;
}

/* Of an even number the lower one: what disturbs a step makes it longer. */
static double median(const struct gw_chooser_times *t)
{
    double times[GW_CHOOSER_STEPS];
    uint32_t n = sorted(t, times);
    return n == 0 ? 0 : times[(n - 1) / 2];
}

/* Whether the probe has shown enough; *better: that what it tries is the shorter one. */
static bool decides(const struct gw_chooser *c, bool *better)
{
    const struct gw_chooser_times *tried = &c->times[!c->fast];
    double times[GW_CHOOSER_STEPS], standing = median(&c->times[c->fast]);
    uint32_t n = sorted(tried, times);
    *better = median(tried) < SHORTER * standing;
    return n >= PROBE_MOST ||
           (n >= PROBE_LEAST && (times[0] > CLEARLY_LONGER * standing || times[n - 1] < CLEARLY_SHORTER * standing));
}

/* How many steps go by before the next probe: more and more, and more still where probing is dear. */
static uint32_t pause(const struct gw_chooser *c, uint32_t n_tried)
{
    double standing = c->compared[c->fast], tried = c->compared[!c->fast];
    double lost = tried > standing && standing > 0 ? (n_tried + 2 * SETTLING) * (tried / standing - 1) : 0;
    double steps = lost * STEPS_FOR_A_LOST_ONE;
    uint32_t dear = steps < LONGEST_PAUSE ? (uint32_t)steps : LONGEST_PAUSE;
    return dear > c->interval ? dear : c->interval;
}

static void end_probe(struct gw_chooser *c, bool better)
{
    uint32_t n_tried = kept(&c->times[!c->fast]);
    c->compared[0] = median(&c->times[0]);
    c->compared[1] = median(&c->times[1]);
    c->probing = false;
    c->n_probes++;
    c->interval = 2 * c->interval < LONGEST_INTERVAL ? 2 * c->interval : LONGEST_INTERVAL;
    if (better) {
        c->fast = !c->fast;
        c->n_changes++;
        c->interval = INTERVAL_AFTER_CHANGE;
    } else {
        c->skip = SETTLING;
    }
    c->left = pause(c, n_tried);
}

bool gw_chooser_note(struct gw_chooser *c, double seconds)
{
    if (c->skip > 0) {
        c->skip--;
        return false;
    }
    struct gw_chooser_times *t = &c->times[gw_chooser_next(c)];
    t->last[t->n++ % GW_CHOOSER_STEPS] = seconds;
    if (c->probing) {
        bool better;
        if (!decides(c, &better))
            return false;
        end_probe(c, better);
        return true;
    }
    if (--c->left > 0)
        return false;
    c->probing = true;
    c->skip = SETTLING;
    c->times[!c->fast].n = 0;
    return false;
}
