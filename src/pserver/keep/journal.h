/* Changes of a store as records of a journal. If the changes are done again in the same order, they make the same
 * store. */
#ifndef GW_PSERVER_KEEP_JOURNAL_H
#define GW_PSERVER_KEEP_JOURNAL_H

#include "pserver/store/change.h"
#include "pserver/store/store.h"

#define GW_PS_CHANGE_BYTES 1024 /* the most bytes of the head of a change */

/* Writes the head of a change's record, at most GW_PS_CHANGE_BYTES. Returns its length. The record's type is
 * change->kind, and its body is the value. */
size_t gw_ps_journal_write(uint8_t *at, const struct gw_ps_change *change);

/* Makes the change again. *total counts the bytes of its value. Errors: GW_ERR_FRAME_MISMATCH (the store cannot make
 * this change, so it is not the store that was changed; the sentence says why), GW_ERR_CAPACITY (a limit is lower than
 * it was), GW_ERR_MEMORY. */
gw_status gw_ps_journal_apply(struct gw_ps_store *store, atomic_uint_least64_t *total, uint8_t type, const void *head,
                              size_t n_head, const void *body, size_t n_body);

#endif
