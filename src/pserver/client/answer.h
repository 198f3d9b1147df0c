/* What a server may answer to a request. A client believes no number of an answer before it has looked here. */
#ifndef GW_PSERVER_CLIENT_ANSWER_H
#define GW_PSERVER_CLIENT_ANSWER_H

#include "pserver/protocol/message.h"

/* No round, version of a key's pushes or count is larger: adding 1 to one cannot wrap. */
#define GW_PS_MOST_ROUNDS (1ull << 62)

/* What was asked, and what the client knows about the answer. */
struct gw_ps_asked {
    const struct gw_ps_request *request;
    /* of the key, or of its part on that server; 0: the client has not initialised the key */
    gw_ps_type type;
    gw_ps_shape shape;
    uint32_t n_workers; /* of that server */
    uint64_t most;      /* bytes that a value of unknown length may have */
};

/* The shape of the value that answers a pull or a fetch of a key whose shape is known. */
gw_ps_shape gw_ps_answer_shape(const struct gw_ps_asked *asked);

/* The most bytes that the body of a good answer can have. */
uint64_t gw_ps_answer_most(const struct gw_ps_asked *asked);

/* Whether a head that gw_ps_reply_read found good, with a body of that many bytes, is an answer to what was asked.
 * Error: GW_ERR_PEER, and the sentence says what cannot be. */
gw_status gw_ps_answer_check(const struct gw_ps_asked *asked, const struct gw_ps_reply *reply, bool has_body,
                             uint64_t n_bytes);

/* Whether what HELLO was answered with can be a server: GW_ERR_PEER if it cannot. */
gw_status gw_ps_answer_check_hello(const struct gw_ps_reply *reply);

#endif
