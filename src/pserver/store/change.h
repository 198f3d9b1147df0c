/* The changes of a store. The store tells its watcher each change, and the journal has a record of each. */
#ifndef GW_PSERVER_STORE_CHANGE_H
#define GW_PSERVER_STORE_CHANGE_H

#include <gradwire/pserver.h>

struct gw_ps_blob;

#define GW_PS_MOST_CHANGES 32 /* more than any number below: other records in the same files have other numbers */

/* Types of a journal's records. A number is never used again for another type. */
enum gw_ps_change_kind {
    /* name, type, shape, codec, optimizer; if the key lies on several servers, their number u32 */
    GW_PS_CHANGE_INIT = 1,
    GW_PS_CHANGE_PUSH = 2,    /* name, rank, number, rate; value; refusal: GW_PS_PENDING if a verdict follows, else 0 */
    GW_PS_CHANGE_REFUSE = 3,  /* name, rank, number, refusal */
    GW_PS_CHANGE_ENTER = 4,   /* prefix, rank, number: the round */
    GW_PS_CHANGE_LEAVE = 5,   /* "", rank */
    GW_PS_CHANGE_SKIP = 6,    /* prefix, number: the round */
    GW_PS_CHANGE_DROP = 7,    /* prefix */
    GW_PS_CHANGE_PUT = 8,     /* name; value: the first parameters */
    GW_PS_CHANGE_DEPOSIT = 9, /* name, number: the version; value */
    GW_PS_CHANGE_ANEW = 10,   /* prefix of the keys that stay as they are */
    GW_PS_CHANGE_VERDICT = 11 /* name, rank, number, refusal (all ones: the push counts) */
};

/* One change. All pointers are borrowed. */
struct gw_ps_change {
    enum gw_ps_change_kind kind;
    const char *name; /* the key's name, or a prefix of keys' names */
    gw_ps_type type;
    const gw_ps_shape *shape;
    uint32_t n_parts;
    const char *codec, *optimizer;
    uint32_t rank;
    uint64_t number; /* the number of a push, of a round, or of a version */
    uint64_t refusal;
    double rate;
    const struct gw_ps_blob *value;
};

#endif
