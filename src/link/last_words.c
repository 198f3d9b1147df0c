/* Waits a moment for the reason that a peer gave before it left. So the error names that reason, and not only the
 * broken connection. */
#include "link/last_words.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>

bool gw_link_last_words(const gw_link *link, gw_link_look *look, void *user)
{
    /* The tcp link reports after half a second what one member told of another. Other links may be slower. */
    enum { WAIT_MS = 4000 };
    const double end = gw_clock_seconds() + WAIT_MS / 1000.0;
    char sentence[1024];
    gw_message message;
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    for (double left; (left = end - gw_clock_seconds()) > 0;) {
        gw_status heard = link->ops->recv(link->self, (uint32_t)(left * 1000), &message);
        if (heard == GW_ERR_PEER)
            return true;
        if (heard < 0)
            break;
        heard = look ? look(user, &message) : GW_OK;
        gw_message_free(message.bytes);
        if (heard == GW_ERR_PEER)
            return true;
    }
    gw_fail(GW_ERR_PEER, "%s", sentence);
    return false;
}
