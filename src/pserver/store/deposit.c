/* Deposits: values of keys that belong to no round. One client puts them there for others, with a version. */
#include "base/error.h"
#include "pserver/store/state.h"
#include "pserver/protocol/value.h"

#include <inttypes.h>

void gw_ps_deposit_drop(struct gw_ps_store *store, struct gw_ps_key *key)
{
    if (key->deposit.value)
        gw_ps_key_count(store, key, 0, key->deposit.value->n_bytes);
    gw_ps_blob_give(key->deposit.value);
    key->deposit = (struct gw_ps_deposit){0};
}

gw_status gw_ps_store_deposit(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t version,
                              struct gw_ps_blob *value)
{
    const uint64_t n_bytes = key->n_elems * gw_ps_type_bytes(key->type), held = atomic_load(store->options.total);
    if (key->parameters || key->type == GW_PS_FRAME)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" %s; only what is pushed there can be pulled", key->name,
                       key->parameters ? "has an optimizer" : "is of frames");
    if (value->n_bytes != n_bytes)
        return gw_fail(GW_ERR_ARGUMENT, "what is deposited at \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64,
                       key->name, value->n_bytes, gw_ps_type_name(key->type), gw_ps_shape_text(&key->shape).text,
                       n_bytes);
    if (key->deposit.value && key->deposit.version >= version)
        return GW_OK;
    if (held - (key->deposit.value ? n_bytes : 0) >
        store->options.max_bytes) /* this value is counted already; the one before will be dropped */
        return gw_fail(GW_ERR_CAPACITY,
                       "what is deposited at \"%s\" has %zu bytes, and with them the server holds %" PRIu64
                       " of at most %" PRIu64 " (--max-bytes)",
                       key->name, value->n_bytes, held, store->options.max_bytes);
    gw_ps_deposit_drop(store, key);
    key->deposit = (struct gw_ps_deposit){version, gw_ps_blob_hold(value)};
    gw_ps_key_count(store, key, n_bytes, 0);
    store->options.woken(store->options.user, key);
    gw_ps_key_change(store, key);
    return GW_OK;
}

gw_status gw_ps_store_deposited(const struct gw_ps_key *key, uint64_t least, struct gw_ps_answer *out)
{
    if (key->parameters || key->type == GW_PS_FRAME)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" %s; nothing can be deposited there", key->name,
                       key->parameters ? "has an optimizer" : "is of frames");
    if (!key->deposit.value || key->deposit.version < least)
        return GW_PS_WAIT;
    *out = (struct gw_ps_answer){.type = key->type,
                                 .shape = key->shape,
                                 .round = key->deposit.version,
                                 .value = gw_ps_blob_hold(key->deposit.value)};
    return GW_OK;
}
