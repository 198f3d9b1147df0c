/* Members that measure something together: their threads and links, and how they wait for each other. */
#ifndef GRADWIRE_BENCH_TEAM_H
#define GRADWIRE_BENCH_TEAM_H

#include "members.h"
#include "tool.h"

struct bench_team {
    struct gw_members members;
    gw_context *context;
    uint32_t timeout_ms;
    size_t n_links; /* of each member, besides the one on which members wait for each other */
    gw_link *links;
    double one_way_s; /* that a message of rank 0 takes, about: set by bench_work */
};

/* What a member tells the others. A command may leave what it does not need at 0. */
struct bench_report {
    double seconds, encode_seconds;
    uint64_t bytes_up, bytes_down, messages, hash;
    uint64_t settled; /* rank 0's */
};

/* A member's thread. */
struct bench_member {
    struct bench_team *team;
    void *user;
    uint32_t index, rank; /* in this process, and among all */
};

/* Link k of the member `index` of this process; k from 0 to n_links - 1. */
gw_link bench_link(const struct bench_team *team, size_t k, uint32_t index);

/* Nobody returns before all have come, and all return at about the same time: rank 0 waits as long as its word to the
 * others takes. *sum is of all members: the largest times, the bytes added up, rank 0's
 * `settled`, and rank 0's hash, or 0 if another's differs. */
gw_status bench_meet(const struct bench_member *member, const struct bench_report *own, struct bench_report *sum);

/* Adds text to what must be the same on all members, as one number; begins with 0. */
uint64_t bench_settings(uint64_t settings, const char *text);

/* Meets, and fails if the settings of another member differ from rank 0's. */
gw_status bench_agree(const struct bench_member *member, uint64_t settings);

/* Connects all members, and runs `work` once for each member of this process, on a thread of its own. If one fails, its
 * links tell the others. Returns the first error that is not merely word of another's. `work` leaves its sentence in
 * gw_last_error(). team->members has begun; its caller ends it. */
gw_status bench_work(struct bench_team *team, uint32_t threads, gw_status (*work)(struct bench_member *), void *user);

#endif
