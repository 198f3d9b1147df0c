/* Parameters on the server: the pushes to a key are gradients, and an optimizer moves the parameters by them.
 *
 * With GW_PS_SYNC a round's average moves the parameters once, when the round becomes whole; with GW_PS_STALE and
 * GW_PS_ASYNC each push does by itself, at a rate divided by the number of workers that take part. A round, or a push,
 * that a worker refused changes nothing. */
#ifndef GW_PSERVER_STORE_PARAMETERS_H
#define GW_PSERVER_STORE_PARAMETERS_H

#include "optimizer/optimizer.h"
#include "pserver/store/store.h"

/* All that a key with an optimizer has beyond others. */
struct gw_ps_parameters {
    struct gw_optimizer optimizer;
    char text[GW_OPTIMIZER_TEXT]; /* its specification, every option in its place */
    /* float32 of the key's elements; others may hold it on its way to a client. NULL: nobody has brought any */
    struct gw_ps_blob *values;
    struct gw_ps_blob *moments[GW_OPTIMIZER_MOMENTS]; /* of as many elements; NULL beyond the optimizer's number */
    double *rates;     /* of each rank's push in the open round; 0: the optimizer's own */
    uint64_t unusable; /* the last round whose pushes had no average; 0: none */
};

/* Gives a new key, whose other fields stand, an optimizer. Errors: GW_ERR_SPEC, GW_ERR_ARGUMENT (a type that has none),
 * GW_ERR_CAPACITY, GW_ERR_MEMORY. What it took is freed by gw_ps_parameters_free, after an error too. */
gw_status gw_ps_parameters_init(struct gw_ps_store *store, struct gw_ps_key *key, const char *name,
                                const char *optimizer);
void gw_ps_parameters_free(struct gw_ps_store *store, struct gw_ps_key *key);

/* Bytes that a key's optimizer takes beside values and moments, which count for the store's total by themselves; with
 * them. 0 if it has none. */
uint64_t gw_ps_parameters_own_bytes(const struct gw_ps_store *store, const struct gw_ps_key *key);
uint64_t gw_ps_parameters_bytes(const struct gw_ps_store *store, const struct gw_ps_key *key);

/* Whether the key's optimizer is that of the specification; "": none. */
gw_status gw_ps_parameters_compare(const struct gw_ps_key *key, const char *optimizer);

/* Whether a push may be used: GW_ERR_NONFINITE if a plain one holds a NaN or an infinity. */
gw_status gw_ps_parameters_admit(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value);

/* Whether parameters, as many float32 as the key has elements, may be the first ones: GW_ERR_NONFINITE as above. */
gw_status gw_ps_parameters_admit_first(const struct gw_ps_key *key, const struct gw_ps_blob *value);

/* A push moves the parameters by itself, before it is stored. After an error nothing has changed. */
gw_status gw_ps_parameters_push(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value,
                                double rate);

/* The open round is about to be whole: its average moves the parameters, unless a worker refused. A round without an
 * average (frames of other slices) moves nothing either, and is `unusable`. GW_ERR_MEMORY: nothing has changed. */
gw_status gw_ps_parameters_finish(struct gw_ps_store *store, struct gw_ps_key *key);

#endif
