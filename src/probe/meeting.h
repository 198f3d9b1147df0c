/* Members of a measurement wait for each other, and tell each other what each has measured. */
#ifndef GW_PROBE_MEETING_H
#define GW_PROBE_MEETING_H

#include <gradwire/link.h>

/* A member's end. Nothing else travels over its link. */
struct gw_meeting {
    gw_context *context;
    gw_link link; /* borrowed */
    uint32_t timeout_ms;
    double one_way_s;         /* about how long a message of rank 0 takes; set by gw_meeting_begin */
    bool (*stop)(void *user); /* says whether this member wishes to stop; NULL: it never does */
    void *stop_user;
    bool stopped; /* a member wished to: then all have left the same gw_meet with GW_ERR_CLOSED */
};

/* What a member tells the others, as it travels. Fields that are not needed may stay 0. */
struct gw_report {
    double seconds, encode_seconds;
    double busy; /* the share of the time in which this machine's processors were busy; 0: not known */
    uint64_t bytes_up, bytes_down, messages, hash;
    uint64_t settled; /* only rank 0's counts */
    uint64_t stop;    /* not 0: a member wishes to stop; gw_meet sets it */
};

/* All members call it first: it measures how long a message takes. */
gw_status gw_meeting_begin(struct gw_meeting *meeting);

/* Waits until all members have come. All return at about the same time: rank 0 waits as long as its message to the
 * others takes. *sum has:
 *   - seconds, encode_seconds, busy: the largest of all members;
 *   - bytes_up, bytes_down, messages: the sums over all members;
 *   - settled: rank 0's;
 *   - hash: rank 0's; 0 if another member's hash differs.
 * own NULL: this member has nothing to tell. sum NULL: it is not wanted. */
gw_status gw_meet(struct gw_meeting *meeting, const struct gw_report *own, struct gw_report *sum);

/* Sends n bytes of rank 0 to all others. On the others, `bytes` gets them. */
gw_status gw_meeting_tell(const struct gw_meeting *meeting, void *bytes, size_t n_bytes);

#endif
