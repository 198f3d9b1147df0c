/* What a server may answer to a request. A client trusts no number of an answer before these checks. */
#ifndef GW_PSERVER_CLIENT_ANSWER_H
#define GW_PSERVER_CLIENT_ANSWER_H

#include "pserver/protocol/message.h"

/* What was asked, and what the client knows about the answer. */
struct gw_ps_asked {
    const struct gw_ps_request *request;
    /* type and shape of the key, or of its part on that server; type 0: the client has not initialised the key */
    gw_ps_type type;
    gw_ps_shape shape;
    uint32_t n_workers; /* the number of workers of that server */
    uint64_t most;      /* the most bytes of a value of unknown length */
};

/* The shape of the value that answers a pull or a get of a key whose shape is known. */
gw_ps_shape gw_ps_answer_shape(const struct gw_ps_asked *asked);

/* Checks that an answer can be the answer to what was asked. gw_ps_answer_read must have accepted its head. n_bytes:
 * the length of its body. Errors: GW_ERR_PEER (it cannot; the sentence says why). */
gw_status gw_ps_answer_check(const struct gw_ps_asked *asked, const struct gw_ps_answer *answer, uint64_t n_bytes);

/* Makes the error that no answer has come in time. place: the server's HOST:PORT. */
gw_status gw_ps_answer_missing(const struct gw_ps_request *request, const char *place);

#endif
