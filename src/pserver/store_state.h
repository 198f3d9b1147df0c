/* Inside of the store: keys, their rounds, and what is kept of these. */
#ifndef GW_PSERVER_STORE_STATE_H
#define GW_PSERVER_STORE_STATE_H

#include "pserver/names.h"
#include "pserver/store.h"

#include <gradwire/codec.h>

#define GW_PS_NOT_REFUSED UINT64_MAX
#define GW_PS_KEPT_RESULTS 4 /* of one round: workers pull with the same method or two */

/* One result of a round, for the workers that ask later. */
struct gw_ps_kept {
    gw_ps_method method;
    const struct gw_ps_key *scale_key;
    uint64_t scale_round;
    struct gw_ps_answer answer; /* value NULL: none */
};

/* The pushes of all workers that count together. */
struct gw_ps_round {
    uint64_t number;            /* 0: none yet */
    uint32_t n_in;
    struct gw_ps_blob **pushes; /* of each rank; NULL: not in */
    uint64_t *refusals;         /* of each rank: why its push is empty; GW_PS_NOT_REFUSED: it is not */
    struct gw_ps_kept results[GW_PS_KEPT_RESULTS];
    uint32_t n_results; /* made so far: the next one takes the place of the oldest */
};

struct gw_ps_key {
    const char *name; /* the table's */
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    gw_codec *codec;           /* NULL: none was named */
    uint64_t *pushed;          /* by each rank, so far */
    uint64_t foremost;         /* of those the most */
    struct gw_ps_round whole, open;  /* GW_PS_SYNC; otherwise all is in `open`, whose number counts changes */
    uint32_t latest; /* rank of the newest push */
    uint64_t bytes;
    void *waiting;
};

struct gw_ps_store {
    gw_context *context;
    struct gw_ps_store_options options;
    struct gw_ps_names names;
    struct gw_ps_key **keys; /* by their names' numbers */
    uint64_t capacity;
    uint64_t bytes, rounds;
    uint64_t *pushes;  /* by each rank, to all keys */
    uint64_t foremost; /* of all keys, added up */
};

#endif
