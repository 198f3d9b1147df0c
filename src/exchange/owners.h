/* Who owns the slices. Either each worker owns a part of them (exchange/peers.c), or parameter servers own them all
 * (exchange/servers.c). The pipeline knows owners by one record of functions. A new kind of owner is one more record.
 *
 * Owners have numbers. The number of a worker is its rank. The numbers of servers follow after the last rank. */
#ifndef GW_EXCHANGE_OWNERS_H
#define GW_EXCHANGE_OWNERS_H

#include "exchange/verdict.h"

#include <gradwire/link.h>

#include <stddef.h>

struct gw_exchange;
struct gw_exchange_options;
struct group;
struct run;

/* Something that has come for a group or a run. */
struct arrival {
    uint32_t from; /* a rank, or a server's number */
    bool in_place; /* the body is the head of a frame of floats, and these are in the gradient already */
    struct verdict verdict;
    /* NULL if the verdict is bad. Else the bytes that came, which may begin at any address. They are valid until the
     * call returns */
    const void *body;
    size_t n_bytes;
};

/* All entries are required, except those that say so. The pipeline's thread calls them; but the caller's thread calls
 * init, fini, call, fail and close. `bytes` is a message of the pipeline (exchange/send.c): a header, and its body
 * behind it. The function owns it from the call on, even if it fails. */
struct gw_owners {
    /* Sets rank, size, n_owners and first_owner, and takes the memory and sockets that the other functions need. fini
     * gives them back, also after an init that failed. */
    gw_status (*init)(struct gw_exchange *exchange, const struct gw_exchange_options *options);
    void (*fini)(struct gw_exchange *exchange);

    /* The first call of all. It tells the other workers what must be the same on all of them. It tells servers which
     * keys will come. */
    gw_status (*declare)(struct gw_exchange *exchange);

    /* A step or another operation (enum operation) has begun. NULL: nothing is to be done. */
    gw_status (*begin)(struct gw_exchange *exchange);

    /* Sends this worker's frames of a run to the owner of the run. run NULL: sends its statistics of the group, to the
     * coordinator or to a server. */
    gw_status (*push)(struct gw_exchange *exchange, struct group *group, struct run *run, void *bytes, size_t n_bytes);

    /* Sends a run of one slice from where its gradient stands, and asks for the averages to come there. The loans of
     * the run are ready. NULL: these owners get copies, and no slice stands alone (layout.c). */
    gw_status (*lend)(struct gw_exchange *exchange, struct group *group, struct run *run);

    /* Gives this worker's verdict on a step, after its last push. The step's pushes count only from then on. Owners
     * that keep no parameters have NULL here. */
    gw_status (*give_verdict)(struct gw_exchange *exchange, struct verdict verdict);

    /* Takes the place of push if a gradient is not finite, and says so. */
    gw_status (*refuse)(struct gw_exchange *exchange, struct group *group, struct run *run, struct verdict verdict);

    /* Asks for the result of all workers' pushes: averages, parameters, or shared numbers (run NULL). `receive` gets it
     * later. If owners keep parameters, the pipeline calls this after the verdict. In an operation that is no step, it
     * asks for the parameters as they are now. */
    gw_status (*pull)(struct gw_exchange *exchange, struct group *group, struct run *run);

    /* Brings the first parameters of a run: a float32 for each element. Owners that keep no parameters have NULL here.
     * It owns `values`, a message that holds nothing else. */
    gw_status (*put)(struct gw_exchange *exchange, struct group *group, struct run *run, void *values);

    /* Waits at most timeout_ms for what comes next, and handles it. It may be a wake of the caller (gw_pipeline_look,
     * which sets *stop), or a message of others. GW_NOT_YET: nothing came. */
    gw_status (*receive)(struct gw_exchange *exchange, uint32_t timeout_ms, bool *stop);

    /* Makes `receive` return and look at what the caller left. wake: the exchange's wake message. gw_pipeline_look puts
     * it back. */
    gw_status (*call)(struct gw_exchange *exchange, void *wake);

    /* To be called if this member waits and `receive` returned GW_NOT_YET. If members have been silent for the timeout,
     * it stores GW_ERR_TIMEOUT with a sentence that names them, and returns true. since: the clock's time when this
     * member last got on. */
    bool (*silent)(const struct gw_exchange *exchange, double since);

    /* Waits until all that was sent has left this process, because this thread receives no more. It waits at most as
     * long as a member may be silent. NULL: nothing stays here. */
    gw_status (*flush)(struct gw_exchange *exchange);

    /* Tells the others that this member begins no more steps. NULL: these owners need not be told. */
    void (*leave)(struct gw_exchange *exchange);

    /* Tells the others that this member failed, and why. NULL: servers find out that it is gone, and tell who waits. */
    void (*fail)(struct gw_exchange *exchange, gw_status status, const char *why);

    /* Makes `receive` end if `call` has failed. NULL: `call` never fails. */
    void (*close)(struct gw_exchange *exchange);
};

/* Checks a link, which a program may have brought itself. Errors: GW_ERR_ARGUMENT (a NULL, a function that is missing,
 * or ranks that cannot be). */
GW_MUST_CHECK gw_status gw_peers_check_link(const gw_link *link);

extern const struct gw_owners gw_owners_peers;
extern const struct gw_owners gw_owners_servers;

#endif
