/* Writes a store as the records of a snapshot, and makes a store of them again. The records hold everything on which
 * the store's answers depend. They do not hold things that the store can make again. */
#ifndef GW_PSERVER_KEEP_SNAPSHOT_H
#define GW_PSERVER_KEEP_SNAPSHOT_H

#include "pserver/store/store.h"

/* Record types, in addition to those of changes. Records of a key come after the change that makes the key. */
enum gw_ps_snapshot_record {
    GW_PS_SNAPSHOT_STORE = 32,  /* rounds u64; foremost u64; begun u8 */
    GW_PS_SNAPSHOT_WORKER = 33, /* one for each rank: rank u32; pushes u64; skipped u64; present u8 */
    /* latest u32; n_due u32; foremost u64; then u64 each: the numbers of the rounds `before`, `whole` and `open` */
    GW_PS_SNAPSHOT_KEY = 34,
    GW_PS_SNAPSHOT_KEY_RANKS = 35, /* for each rank: pushed u64; taken u64 */
    /* round u8: 0 before, 1 whole, 2 open; rank u32; refusal u64 (all ones: none); body: the value */
    GW_PS_SNAPSHOT_PUSH = 36,
    /* of a key with an optimizer: set u8, unusable u64; for each rank: rate float64; body: the values, if set is 1 */
    GW_PS_SNAPSHOT_PARAMETERS = 37,
    GW_PS_SNAPSHOT_MOMENT = 38, /* which u8; body: its values */
};

/* Calls `add` for each record in turn. If add keeps a blob, it must take a hold. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_snapshot_write(struct gw_ps_store *store,
                               void (*add)(void *user, uint8_t type, const void *head, size_t n_head,
                                           struct gw_ps_blob *blob),
                               void *user);

/* Where the records are read into: a new store. */
struct gw_ps_snapshot_reader {
    struct gw_ps_store *store;
    atomic_uint_least64_t *total;
};

/* Applies one record to the store. Errors: GW_ERR_FRAME_FIELD (a field is not possible), GW_ERR_ARGUMENT and
 * GW_ERR_FRAME_* (a push does not fit its key), GW_ERR_MEMORY. */
gw_status gw_ps_snapshot_apply(const struct gw_ps_snapshot_reader *into, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body);

#endif
