/* Why a member went, where it said so. */
#ifndef GW_LINK_LAST_WORDS_H
#define GW_LINK_LAST_WORDS_H

#include <gradwire/link.h>

/* After a send failed with GW_ERR_PEER, on the thread that receives: takes what has come in and drops it, until the link says which
 * member failed and why; true where it does, and gw_last_error() has that sentence. Else false, and the sentence is what it was.
 * On a network a connection may end before what was said on another one has been read. Waits half a second at most for news. */
bool gw_link_last_words(const gw_link *link);

#endif
