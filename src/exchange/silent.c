/* Finds the silent members among those that this member waits for, and names them in a sentence. A member that owes
 * nothing, and itself waits for others, says so (WAITING), and is not silent. */
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "exchange/relay.h"

#include <math.h>

/* ---- what a member owes to this one ---------------------------------------------------------------------- */

enum debt { STATISTICS, GRADIENTS, SHARED, AVERAGES };
static const char *const debts[] = {"statistics", "gradients", "shared numbers", "averages"};

static bool owes(const struct gw_exchange *ex, const struct group *group, enum debt debt, uint32_t rank)
{
    if (debt == STATISTICS || debt == SHARED)
        return group->state == GROUP_WAITS_SHARED &&
               (debt == SHARED ? rank == group->coordinator : group->largest && !group->have_stats[rank]);
    for (uint32_t i = 0; group->state == GROUP_WAITS_PULLS && i < group->n_runs; i++) {
        const struct run *run = &group->runs[i];
        /* pushes of a run that this member adds up: a worker's own part, or what a relay sends for its machine */
        const bool misses_push =
            run->round && run->n_in < run->n_expected && !run->pushes[rank].bytes && gw_pushes_here(ex, run, rank);
        if (debt == GRADIENTS ? misses_push : !run->pulled && gw_averages_from(ex, run) == rank)
            return true;
    }
    return false;
}

/* ---- the silent ones --------------------------------------------------------------------------------------- */

/* If this member hears nothing but WAITING for so many timeouts, somebody is wrong, and it gives up all the same. So no
 * two members wait for each other for ever. */
#define MOST_TIMEOUTS 4

/* Which members owe something of a kind: the silent ones, or any. */
struct question {
    const struct gw_exchange *ex;
    const struct group *group;
    enum debt debt;
    double since, now;
    bool any;
};

static bool is_no_debtor(const void *question, uint32_t rank)
{
    const struct question *q = question;
    const double heard = fmax(q->ex->members[rank].waited_at, q->since);
    const bool silent = q->now - heard >= q->ex->timeout_ms / 1000.0;
    return rank == q->ex->rank || !(q->any || silent) || !owes(q->ex, q->group, q->debt, rank);
}

static bool name_debtors(const struct gw_exchange *ex, double since, double now, bool any)
{
    for (enum debt debt = STATISTICS; debt <= AVERAGES; debt++)
        for (uint32_t g = 0; g < ex->n_groups; g++) {
            const struct question question = {ex, &ex->groups[g], debt, since, now, any};
            const struct gw_missing debtors = gw_missing_ranks(ex->size, is_no_debtor, &question);
            if (!debtors.text[0])
                continue;
            /* The sentence has no number of the step. The caller began the step and knows it. A trainer puts the number
             * before this sentence, counted as it counts steps. */
            gw_fail(GW_ERR_TIMEOUT, "no %s of group %u came from %s within %u ms", debts[debt], g, debtors.text,
                    ex->timeout_ms);
            return true;
        }
    return false;
}

static bool has_said_hello(const void *exchange, uint32_t rank)
{
    const struct gw_exchange *ex = exchange;
    return rank == ex->rank || ex->members[rank].said_hello;
}

bool gw_silent_members(const struct gw_exchange *ex, double since)
{
    const double now = gw_clock_seconds(), timeout = ex->timeout_ms / 1000.0;
    if (now - since < timeout)
        return false;
    const struct gw_missing strangers = gw_missing_ranks(ex->size, has_said_hello, ex);
    if (strangers.text[0]) {
        gw_fail(GW_ERR_TIMEOUT, "nothing has come from %s yet, and this rank has waited for %u ms", strangers.text,
                ex->timeout_ms);
        return true;
    }
    return name_debtors(ex, since, now, false) ||
           (now - since >= MOST_TIMEOUTS * timeout && name_debtors(ex, since, now, true));
}
