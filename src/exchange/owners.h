/* Who owns the slices. The workers themselves own a part each (exchange/peers.c), or parameter servers own them all
 * (exchange/servers.c). The pipeline knows them by one record of functions. A new kind of owner is one more record.
 *
 * Owners have numbers as ranks have: workers theirs, servers the numbers after the last worker's. */
#ifndef GW_EXCHANGE_OWNERS_H
#define GW_EXCHANGE_OWNERS_H

#include "exchange/verdict.h"

#include <gradwire/status.h>

#include <stddef.h>

struct gw_exchange;
struct gw_exchange_options;
struct group;
struct run;

/* What has come of a group or run. */
struct arrival {
    uint32_t from; /* a rank, or a server's number */
    struct verdict verdict;
    /* if the verdict is bad, there is none; else of any alignment, and the sender's until the call returns */
    const void *body;
    size_t n_bytes;
};

/* All entries are required but those that say so. The pipeline's thread calls them; the caller's thread calls init,
 * fini, call, fail and close. `bytes` is a message of the pipeline's (exchange/send.c): its body stands behind a
 * header. The callee owns it, even if it fails. */
struct gw_owners {
    /* They may go on without a worker. An average is then of fewer. */
    bool leave_out;
    /* Sets rank, size, n_owners and first_owner, and takes what the other functions need. fini gives that back, after
     * an init that failed too. */
    gw_status (*init)(struct gw_exchange *exchange, const struct gw_exchange_options *options);
    void (*fini)(struct gw_exchange *exchange);

    /* Before anything else: says what must be the same on all workers, and to servers what they will get. */
    gw_status (*declare)(struct gw_exchange *exchange);

    /* A step or an errand has begun. rate: the learning rate of its pushes, for owners that keep parameters. */
    gw_status (*begin)(struct gw_exchange *exchange, double rate);

    /* Sends this worker's frames of a run to its owner, or with run NULL its statistics of the group to whoever finds
     * the largest. */
    gw_status (*push)(struct gw_exchange *exchange, struct group *group, struct run *run, void *bytes, size_t n_bytes);

    /* For owners that keep parameters; the others have NULL. The pushes of a step count once the worker has given its
     * verdict on all of them: after the last push. */
    gw_status (*judge)(struct gw_exchange *exchange, struct verdict verdict);

    /* Says in place of push that a gradient is not finite. */
    gw_status (*refuse)(struct gw_exchange *exchange, struct group *group, struct run *run, struct verdict verdict);

    /* Asks for what all workers' pushes come to: averages, parameters, shared numbers. `receive` has it later. If
     * owners keep parameters, these are asked for after the verdict. */
    gw_status (*pull)(struct gw_exchange *exchange, struct group *group, struct run *run);

    /* The first parameters of a run, float32 of its elements; and a question for the parameters as they are now. Owners
     * that keep no parameters have NULL for both. put owns `values`, a message of exactly those. */
    gw_status (*put)(struct gw_exchange *exchange, struct group *group, struct run *run, void *values);
    gw_status (*get)(struct gw_exchange *exchange, struct group *group, struct run *run);

    /* Waits at most timeout_ms for what comes next, and handles it: a word of the caller's (gw_pipeline_look, which
     * sets *stop), or what others sent. GW_NOT_YET: nothing came. */
    gw_status (*receive)(struct gw_exchange *exchange, uint32_t timeout_ms, bool *stop);

    /* Has `receive` look at what the caller left. wake: the exchange's, which gw_pipeline_look puts back. */
    gw_status (*call)(struct gw_exchange *exchange, void *wake);

    /* After a deadline: says who is silent, stores GW_ERR_TIMEOUT and its sentence, and returns true. false: those who
     * are missing may be waiting in turn, and `any` is false. */
    bool (*silent)(const struct gw_exchange *exchange, bool any);

    /* Tells the others that this member failed, and why. */
    void (*fail)(struct gw_exchange *exchange, gw_status status, const char *why);

    /* Ends a `receive` that no call reaches. NULL: `call` never fails. */
    void (*close)(struct gw_exchange *exchange);
};

extern const struct gw_owners gw_owners_peers;
extern const struct gw_owners gw_owners_servers;

#endif
