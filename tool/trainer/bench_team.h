/* Members that measure something together: their threads and links. They wait for each other in a meeting. */
#ifndef GRADWIRE_BENCH_TEAM_H
#define GRADWIRE_BENCH_TEAM_H

#include "members/members.h"
#include "probe/meeting.h"
#include "tool.h"

struct bench_team {
    struct gw_members members;
    gw_context *context;
    uint32_t timeout_ms;
    size_t n_links; /* of each member, besides the one on which members wait for each other */
    gw_link *links;
};

/* A member's thread. */
struct bench_member {
    struct bench_team *team;
    void *user;
    uint32_t index, rank; /* number in this process, and rank among all */
    struct gw_meeting meeting;
};

/* If the caller names no codec: those that are measured then, one of each kind. */
void bench_default_codecs(tool_texts *specs);

/* Link k of the member `index` of this process; k from 0 to n_links - 1. */
gw_link bench_link(const struct bench_team *team, size_t k, uint32_t index);

/* Connects all members, and runs `work` once for each member of this process, on a thread of its own. If one fails, its
 * links tell the others. Returns the first error that a member made itself, and did not just hear of. `work` leaves its
 * sentence in gw_last_error(). team->members must have begun; the caller ends it. */
gw_status bench_work(struct bench_team *team, uint32_t threads, gw_status (*work)(struct bench_member *), void *user);

#endif
