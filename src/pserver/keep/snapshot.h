/* A store as the records of a snapshot, and a store made of them again. The records hold all that decides the store's
 * answers, and nothing that can be made again. */
#ifndef GW_PSERVER_KEEP_SNAPSHOT_H
#define GW_PSERVER_KEEP_SNAPSHOT_H

#include "pserver/store/store.h"

/* Record types, beyond those of changes. Those of a key come after the change that makes it. */
enum gw_ps_snapshot_record {
    GW_PS_SNAPSHOT_STORE = 32,     /* rounds, foremost u64; begun u8 */
    GW_PS_SNAPSHOT_WORKER = 33,    /* of the store, one of each rank: rank u32; pushes, skipped u64; present u8 */
    GW_PS_SNAPSHOT_KEY = 34,       /* latest, n_due u32; foremost u64; of the rounds before, whole, open: number u64 */
    GW_PS_SNAPSHOT_KEY_RANKS = 35, /* of each rank: pushed, taken u64 */
    /* round u8: 0 before, 1 whole, 2 open; rank u32; refusal u64, all ones: none; body: the value */
    GW_PS_SNAPSHOT_PUSH = 36,
    /* of a key with an optimizer: set u8, unusable u64, of each rank: rate float64; body: the values, if set */
    GW_PS_SNAPSHOT_PARAMETERS = 37,
    GW_PS_SNAPSHOT_MOMENT = 38, /* which u8; body: its values */
};

/* Gives `add` each record in turn; a blob is held by whoever keeps it. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_snapshot_write(struct gw_ps_store *store,
                               void (*add)(void *user, uint8_t type, const void *head, size_t n_head,
                                           struct gw_ps_blob *blob),
                               void *user);

/* Reads them: into a new store. */
struct gw_ps_snapshot_reader {
    struct gw_ps_store *store;
    atomic_uint_least64_t *total;
};

/* One record, of those above. Errors: GW_ERR_FRAME_FIELD (it cannot be), GW_ERR_ARGUMENT and GW_ERR_FRAME_* (a push
 * that is no value of its key), GW_ERR_MEMORY. */
gw_status gw_ps_snapshot_apply(const struct gw_ps_snapshot_reader *into, uint8_t type, const void *head, size_t n_head,
                               const void *body, size_t n_body);

#endif
