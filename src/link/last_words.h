/* Finds out why a member left or failed, if it said so. Also writes the sentence that a failing member sends to others.
 */
#ifndef GW_LINK_LAST_WORDS_H
#define GW_LINK_LAST_WORDS_H

#include <gradwire/link.h>

#include <stdio.h>

/* To be called after a send failed with GW_ERR_PEER, on the thread that receives. It takes messages and drops them,
 * until the link says which member failed and why, or a message says so. Then it returns true, and gw_last_error() has
 * that sentence. Else it returns false, and the sentence of gw_last_error() stays. This is needed because a connection
 * may end before this member has read what came on another connection. It waits at most four seconds.
 *
 * look: sees each message before it is dropped. It returns GW_ERR_PEER, with a sentence, if the message says why; other
 * statuses change nothing. NULL: no message does. */
typedef gw_status gw_link_look(void *user, const gw_message *message);
bool gw_link_last_words(const gw_link *link, gw_link_look *look, void *user);

/* Writes what the others are told when this member fails: "rank 2 failed: ...". If this member waited in vain, or heard
 * that another one failed, it is not the cause. Then the sentence is "rank 2 gave up: ...". why NULL or "": the general
 * text of the status. */
static inline void gw_link_tell_failure(char *out, size_t out_bytes, uint32_t rank, gw_status status, const char *why)
{
    const bool of_another = status == GW_ERR_TIMEOUT || status == GW_ERR_PEER;
    snprintf(out, out_bytes, "rank %u %s: %s", rank, of_another ? "gave up" : "failed",
             why && why[0] ? why : gw_status_text(status));
}

#endif
