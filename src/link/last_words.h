/* Finds out why a member went, if it said so, and words what a member says. */
#ifndef GW_LINK_LAST_WORDS_H
#define GW_LINK_LAST_WORDS_H

#include <gradwire/link.h>

#include <stdio.h>

/* After a send failed with GW_ERR_PEER, on the thread that receives: takes what has come in and drops it, until the
 * link says which member failed and why; true if it does, and gw_last_error() has that sentence. Else false, and the
 * sentence is what it was. On a network a connection may end before what was said on another one has been read. Waits
 * four seconds at most for news. */
bool gw_link_last_words(const gw_link *link);

/* What the others are told when this member fails: "rank 2 failed: ...". A member that waited in vain, or heard of
 * another's failure, is the messenger only: "rank 2 gave up: ...". why NULL or "": the status's own words. */
static inline void gw_link_tell_failure(char *out, size_t out_bytes, uint32_t rank, gw_status status, const char *why)
{
    const bool of_another = status == GW_ERR_TIMEOUT || status == GW_ERR_PEER;
    snprintf(out, out_bytes, "rank %u %s: %s", rank, of_another ? "gave up" : "failed",
             why && why[0] ? why : gw_status_text(status));
}

#endif
