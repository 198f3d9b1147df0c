/* What changes a store. Whoever watches it is told of each change, and a journal has a record of each. */
#ifndef GW_PSERVER_STORE_CHANGE_H
#define GW_PSERVER_STORE_CHANGE_H

#include <gradwire/pserver.h>

struct gw_ps_blob;

#define GW_PS_MOST_CHANGES 32 /* more than any of their numbers: other records of the same files have others */

/* Types of a journal's records; never used again for another. */
enum gw_ps_change_kind {
    GW_PS_CHANGE_INIT = 1,    /* name, type, shape, codec, optimizer; of a key on several servers their number u32 */
    GW_PS_CHANGE_PUSH = 2,    /* name, rank, number, rate; value. refusal: GW_PS_PENDING if a verdict follows, else 0 */
    GW_PS_CHANGE_REFUSE = 3,  /* name, rank, number, refusal */
    GW_PS_CHANGE_ENTER = 4,   /* prefix, rank, number: the round */
    GW_PS_CHANGE_LEAVE = 5,   /* "", rank */
    GW_PS_CHANGE_SKIP = 6,    /* prefix, number: the round */
    GW_PS_CHANGE_DROP = 7,    /* prefix */
    GW_PS_CHANGE_PUT = 8,     /* name; value: the first parameters */
    GW_PS_CHANGE_DEPOSIT = 9, /* name, number: the version; value */
    GW_PS_CHANGE_ANEW = 10,   /* prefix of the keys that are not meant */
    GW_PS_CHANGE_VERDICT = 11 /* name, rank, number, refusal (all ones: the push counts) */
};

/* All borrowed. */
struct gw_ps_change {
    enum gw_ps_change_kind kind;
    const char *name; /* of the key; or what keys' names begin with */
    gw_ps_type type;
    const gw_ps_shape *shape;
    uint32_t n_parts;
    const char *codec, *optimizer;
    uint32_t rank;
    uint64_t number; /* how many-th push, a round, or a version */
    uint64_t refusal;
    double rate;
    const struct gw_ps_blob *value;
};

#endif
