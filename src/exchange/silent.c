/* Finds the silent members among those that this member waits for, and names them in a sentence. A member that owes
 * nothing, and itself waits for others, says so (WAITING), and is not silent. */
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "exchange/relay.h"

#include <stdio.h>
#include <string.h>

#define MOST_NAMED 8

/* A list of ranks: "rank 3", "ranks 1 and 4", "ranks 0, 1, 2 and 9 more". */
struct names {
    char text[160];
    uint32_t n;
    uint32_t ranks[MOST_NAMED];
};

static void names_add(struct names *names, uint32_t rank)
{
    if (names->n < MOST_NAMED)
        names->ranks[names->n] = rank;
    names->n++;
}

static const char *names_text(struct names *names)
{
    uint32_t shown = names->n < MOST_NAMED ? names->n : MOST_NAMED;
    snprintf(names->text, sizeof names->text, names->n == 1 ? "rank" : "ranks");
    for (uint32_t i = 0; i < shown; i++) {
        const char *before = i == 0 ? " " : i + 1 == names->n ? " and " : ", ";
        gw_append(names->text, sizeof names->text, "%s%u", before, names->ranks[i]);
    }
    if (names->n > shown)
        gw_append(names->text, sizeof names->text, " and %u more", names->n - shown);
    return names->text;
}

/* ---- what a member owes to this one ---------------------------------------------------------------------- */

static bool owes_statistics(const struct gw_exchange *ex, const struct group *group, uint32_t rank)
{
    (void)ex;
    return group->state == GROUP_WAITS_SHARED && group->largest && !group->have_stats[rank];
}

static bool owes_shared(const struct gw_exchange *ex, const struct group *group, uint32_t rank)
{
    (void)ex;
    return group->state == GROUP_WAITS_SHARED && rank == group->coordinator;
}

/* Pushes of a run that this member adds up: a worker's own part, or what a relay sends for its machine. */
static bool owes_gradients(const struct gw_exchange *ex, const struct group *group, uint32_t rank)
{
    for (uint32_t i = 0; group->state == GROUP_WAITS_PULLS && i < group->n_runs; i++) {
        const struct run *run = &group->runs[i];
        if (run->round && run->n_in < run->n_expected && !run->pushes[rank].bytes &&
            (run->owner != ex->rank ? gw_same_machine(ex, rank, ex->rank) : gw_relay_of(ex, run, rank) == rank))
            return true;
    }
    return false;
}

static bool owes_averages(const struct gw_exchange *ex, const struct group *group, uint32_t rank)
{
    for (uint32_t i = 0; group->state == GROUP_WAITS_PULLS && i < group->n_runs; i++)
        if (!group->runs[i].pulled && gw_averages_from(ex, &group->runs[i]) == rank)
            return true;
    return false;
}

/* ---- the silent ones --------------------------------------------------------------------------------------- */

/* If this member hears nothing but WAITING for so many timeouts, somebody is wrong, and it gives up all the same. So no
 * two members wait for each other for ever. */
#define MOST_TIMEOUTS 4

static bool is_silent(const struct gw_exchange *ex, uint32_t rank, double since, double now)
{
    const double heard = ex->heard_waiting[rank];
    return now - (heard > since ? heard : since) >= ex->timeout_ms / 1000.0;
}

/* Names those that owe something: the silent ones, or any. */
static bool name_debtors(const struct gw_exchange *ex, double since, double now, bool any)
{
    static const struct {
        const char *what;
        bool (*owes)(const struct gw_exchange *ex, const struct group *group, uint32_t rank);
    } kinds[] = {{"statistics", owes_statistics},
                 {"gradients", owes_gradients},
                 {"shared numbers", owes_shared},
                 {"averages", owes_averages}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t g = 0; g < ex->n_groups; g++) {
            struct names names = {.n = 0};
            for (uint32_t r = 0; r < ex->size; r++)
                if (r != ex->rank && (any || is_silent(ex, r, since, now)) && kinds[k].owes(ex, &ex->groups[g], r))
                    names_add(&names, r);
            if (names.n == 0)
                continue;
            /* The sentence has no number of the step. The caller began the step and knows it. A trainer puts the number
             * before this sentence, counted as it counts steps. */
            gw_fail(GW_ERR_TIMEOUT, "no %s of group %u came from %s within %u ms", kinds[k].what, g, names_text(&names),
                    ex->timeout_ms);
            return true;
        }
    return false;
}

bool gw_silent_members(const struct gw_exchange *ex, double since)
{
    const double now = gw_clock_seconds(), timeout = ex->timeout_ms / 1000.0;
    struct names strangers = {.n = 0};
    if (now - since < timeout)
        return false;
    for (uint32_t r = 0; r < ex->size; r++)
        if (r != ex->rank && !ex->have_hello[r])
            names_add(&strangers, r);
    if (strangers.n > 0) {
        gw_fail(GW_ERR_TIMEOUT, "nothing has come from %s yet, and this rank has waited for %u ms",
                names_text(&strangers), ex->timeout_ms);
        return true;
    }
    return name_debtors(ex, since, now, false) ||
           (now - since >= MOST_TIMEOUTS * timeout && name_debtors(ex, since, now, true));
}
