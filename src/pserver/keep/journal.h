/* Changes of a store as records of a journal. If the changes are done again in the same order, they make the same
 * store. */
#ifndef GW_PSERVER_KEEP_JOURNAL_H
#define GW_PSERVER_KEEP_JOURNAL_H

#include "pserver/store/change.h"
#include "pserver/store/store.h"

#define GW_PS_CHANGE_BYTES 1024 /* no head of one is longer */

/* Writes the record's head, at most GW_PS_CHANGE_BYTES; returns its bytes. The record's type is the kind, its body the
 * value. */
size_t gw_ps_journal_write(uint8_t *at, const struct gw_ps_change *change);

/* Does it again; total counts what the value takes. Errors: GW_ERR_FRAME_MISMATCH (the store cannot do it, and why: it
 * is not the one that was changed), GW_ERR_CAPACITY (a limit is lower than it was), GW_ERR_MEMORY. */
gw_status gw_ps_journal_apply(struct gw_ps_store *store, atomic_uint_least64_t *total, uint8_t type, const void *head,
                              size_t n_head, const void *body, size_t n_body);

#endif
