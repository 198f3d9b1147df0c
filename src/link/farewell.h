/* Finds out why a member is gone, if it said so. */
#ifndef GW_LINK_FAREWELL_H
#define GW_LINK_FAREWELL_H

#include <gradwire/link.h>

/* To be called after a send failed with GW_ERR_PEER, on the thread that receives. What the member said before it went
 * has come already. So this takes messages and drops them, until one says why a member failed, or none is left. Returns
 * GW_ERR_PEER with that sentence, or with the sentence of the send.
 *
 * look: sees each message before it is dropped. It returns GW_ERR_PEER, with a sentence, if the message says why; other
 * statuses change nothing. NULL: no other message does. */
typedef gw_status gw_link_look(void *user, const gw_message *message);
gw_status gw_link_why(const gw_link *link, gw_link_look *look, void *user);

#endif
