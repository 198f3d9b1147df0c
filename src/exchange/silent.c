/* Finds the members that this member waits for, and names them in a sentence. */
#include "base/append.h"
#include "base/error.h"
#include "exchange/relay.h"

#include <stdio.h>
#include <string.h>

#define MOST_NAMED 8

/* A list of ranks: "rank 3", "ranks 1 and 4", "ranks 0, 1, 2 and 9 more". */
struct names {
    char text[160];
    uint32_t n, last;
    uint32_t ranks[MOST_NAMED];
};

static void names_add(struct names *names, uint32_t rank)
{
    if (names->n < MOST_NAMED)
        names->ranks[names->n] = rank;
    names->n++;
    names->last = rank;
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

static bool say(const struct gw_exchange *ex, const struct group *group, const char *what, struct names *names)
{
    if (names->n == 0)
        return false;
    /* The sentence has no number of the step. The caller began the step and knows it. A trainer puts the number before
     * this sentence, counted as it counts steps. */
    gw_fail(GW_ERR_TIMEOUT, "no %s of group %u came from %s within %u ms", what, group->index, names_text(names),
            ex->timeout_ms);
    return true;
}

/* True if something that `rank` must send is missing in a run that this member adds up: its own part (direct), or what
 * it sends for its machine. */
static bool owes_pushes(const struct gw_exchange *ex, const struct group *group, uint32_t rank, bool direct)
{
    for (uint32_t i = 0; i < group->n_runs; i++) {
        const struct run *run = &group->runs[i];
        uint32_t n;
        if (!run->round || run->n_in == run->n_expected || run->pushes[rank].bytes || (run->own_in && rank == ex->rank))
            continue;
        /* An owner waits for the relays of other machines, and a relay may itself be waiting for a worker of its
         * machine. */
        bool sends_here =
            run->owner != ex->rank ? gw_same_machine(ex, rank, ex->rank) : gw_relay_of(ex, run, rank) == rank;
        gw_sent_by(ex, run, &rank, &n);
        if (sends_here && (n == 1) == direct)
            return true;
    }
    return false;
}

bool gw_silent_members(const struct gw_exchange *ex, bool any)
{
    struct names strangers = {.n = 0};
    for (uint32_t r = 0; r < ex->size; r++)
        if (r != ex->rank && !ex->have_hello[r])
            names_add(&strangers, r);
    if (strangers.n > 0) {
        gw_fail(GW_ERR_TIMEOUT, "nothing has come from %s yet, and this rank has waited for %u ms",
                names_text(&strangers), ex->timeout_ms);
        return true;
    }
    for (uint32_t g = 0; g < ex->n_groups; g++) { /* things that a member can send without waiting for others */
        const struct group *group = &ex->groups[g];
        struct names names = {.n = 0};
        if (group->state == GROUP_WAITS_SHARED && group->largest) {
            for (uint32_t r = 0; r < ex->size; r++)
                if (!group->have_stats[r])
                    names_add(&names, r);
            if (say(ex, group, "statistics", &names))
                return true;
        }
        if (group->state == GROUP_WAITS_PULLS) {
            for (uint32_t r = 0; r < ex->size; r++)
                if (owes_pushes(ex, group, r, true))
                    names_add(&names, r);
            if (say(ex, group, "gradients", &names))
                return true;
        }
    }
    /* things that a member can send only after it has heard from others */
    for (uint32_t g = 0; any && g < ex->n_groups; g++) {
        const struct group *group = &ex->groups[g];
        struct names names = {.n = 0};
        if (group->state == GROUP_WAITS_SHARED) {
            names_add(&names, group->coordinator);
            return say(ex, group, "shared numbers", &names);
        }
        if (group->state == GROUP_WAITS_PULLS) {
            for (uint32_t r = 0; r < ex->size; r++)
                if (owes_pushes(ex, group, r, false))
                    names_add(&names, r);
            if (say(ex, group, "gradients", &names))
                return true;
            for (uint32_t i = 0; i < group->n_runs; i++)
                if (!group->runs[i].pulled &&
                    (names.n == 0 || names.last != group->runs[i].owner)) /* runs are sorted by owner */
                    names_add(&names, group->runs[i].owner);
            return say(ex, group, "averages", &names);
        }
    }
    return false;
}
