/* Parameters on the server: the pushes to a key are gradients, and an optimizer moves the parameters by them, as
 * gw_ps_key_options says. */
#ifndef GW_PSERVER_STORE_PARAMETERS_H
#define GW_PSERVER_STORE_PARAMETERS_H

#include "optimizer/optimizer.h"
#include "pserver/store/store.h"

/* What a key with an optimizer has in addition. */
struct gw_ps_parameters {
    struct gw_optimizer optimizer;
    char text[GW_OPTIMIZER_TEXT]; /* its specification, with every option in a fixed order */
    /* float32 of the key's elements; others may hold it on its way to a client. NULL: nobody has put any */
    struct gw_ps_blob *values;
    /* each has as many elements. Those that the optimizer does not use are NULL */
    struct gw_ps_blob *moments[GW_OPTIMIZER_MOMENTS];
    double *rates;     /* the learning rate of each rank's push in the open round; 0: the optimizer's own */
    uint64_t unusable; /* the last round whose pushes had no average; 0: none */
};

/* Gives a new key an optimizer. The key's other fields must be set. Errors: GW_ERR_SPEC, GW_ERR_ARGUMENT (the type
 * allows no optimizer), GW_ERR_CAPACITY, GW_ERR_MEMORY. gw_ps_parameters_free is to be called also after an error. */
gw_status gw_ps_parameters_init(struct gw_ps_store *store, struct gw_ps_key *key, const char *optimizer);
void gw_ps_parameters_free(struct gw_ps_store *store, struct gw_ps_key *key);

/* True if the key has an optimizer, and nobody has put its first parameters yet. */
static inline bool gw_ps_is_unset(const struct gw_ps_key *key)
{
    return key->parameters && !key->parameters->values;
}

/* How many bytes a key's optimizer takes without values and moments. (As blobs, these count for the store's total by
 * themselves.) 0 if the key has no optimizer. */
uint64_t gw_ps_parameters_own_bytes(const struct gw_ps_store *store, const struct gw_ps_key *key);

/* GW_OK if the key's optimizer is that of the specification; "" stands for none. Else GW_ERR_ARGUMENT. */
gw_status gw_ps_parameters_compare(const struct gw_ps_key *key, const char *optimizer);

/* Checks that a push may be used. GW_ERR_NONFINITE: a plain one holds a NaN or an infinity. */
gw_status gw_ps_parameters_admit(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value);

/* Moves the parameters by a push, which is not stored yet. After an error nothing has changed. */
gw_status gw_ps_parameters_push(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value,
                                double rate);

/* Moves the parameters by the average of the open round, which is about to be whole. If a worker refused, nothing
 * moves. If the round has no average (its frames are of different slices), nothing moves either, and `unusable` is set
 * to the round. GW_ERR_MEMORY: nothing has changed. */
gw_status gw_ps_parameters_finish(struct gw_ps_store *store, struct gw_ps_key *key);

#endif
