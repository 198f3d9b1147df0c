/* Loans: memory of a link's user, from which the link sends a message, or into which it receives one, without a copy of
 * its own. A link that can has a struct gw_link_loans. */
#ifndef GW_LINK_LOAN_H
#define GW_LINK_LOAN_H

#include "link/message.h"

#include <sys/queue.h>

#define GW_LOAN_HEAD 72 /* the first bytes of each long message, which stand apart from the rest */
#define GW_LOAN_KEY 16  /* those of them that say which message it is */

/* A message of GW_LOAN_HEAD bytes at `head`, and of n_bytes at `body`. The user keeps it, and its body, as long as it
 * is lent. */
struct gw_loan {
    TAILQ_ENTRY(gw_loan) link; /* the link's */
    uint32_t peer;             /* the other member */
    atomic_bool lent;          /* the link still needs it. The link sets and clears it */
    uint8_t head[GW_LOAN_HEAD];
    void *body;
    size_t n_bytes; /* at least GW_LOAN_LEAST */
};
#define GW_LOAN_LEAST 65536 /* shorter bodies are better copied */

struct gw_link_loans {
    /* Sends the message to loan->peer. `lent` becomes false when the system has taken it, or the connection has ended:
     * in this call, or later in any other of the link's functions. Errors: as of gw_link_ops.send; then it is not
     * lent. */
    gw_status (*send)(void *self, struct gw_loan *loan);

    /* The next message of loan->peer that begins with the first GW_LOAN_KEY bytes of `head`, and is as long, is
     * received into `body`. recv then gives a message of the GW_LOAN_HEAD bytes alone, and gw_message_loan of it is
     * the loan, which is not lent any more. */
    void (*expect)(void *self, struct gw_loan *loan);

    /* Takes one loan back that was expected. What still comes for it, or has filled it and was not received, is
     * dropped. */
    void (*forget)(void *self, struct gw_loan *loan);

    /* Takes all loans back. What is still to be sent of them is copied, or if there is no memory the connection ends.
     * What still comes for them is dropped. */
    void (*take_back)(void *self);
};

/* NULL: this link makes copies. Only the tcp link lends. */
const struct gw_link_loans *gw_link_loans_of(const gw_link *link);

/* The loan whose body this message filled; NULL: none, and the message is whole. */
static inline struct gw_loan *gw_message_loan(const gw_message *message)
{
    return message->bytes ? gw_message_node_of(message->bytes)->loan : NULL;
}

#endif
