/* Values that belong to no round. One client puts them at a key for others, with a version. */
#include "base/error.h"
#include "pserver/store/store.h"

/* Checks that values can be put at the key. If not, the sentence says what follows. */
static gw_status check_plain(const struct gw_ps_key *key, const char *so)
{
    return key->parameters || key->type == GW_PS_FRAME
               ? gw_fail(GW_ERR_ARGUMENT, "\"%s\" %s; %s", key->name,
                         key->parameters ? "has an optimizer" : "is of frames", so)
               : GW_OK;
}

gw_status gw_ps_store_put(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t version, struct gw_ps_blob *value)
{
    const uint64_t n_bytes = key->n_elems * gw_ps_type_bytes(key->type);
    GW_TRY(check_plain(key, "only what is pushed there can be pulled"));
    if (value->n_bytes != n_bytes)
        return gw_fail(GW_ERR_ARGUMENT, "what is put at \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64, key->name,
                       value->n_bytes, gw_ps_type_name(key->type), gw_ps_shape_text(&key->shape).text, n_bytes);
    if (key->put && key->put_version >= version)
        return GW_OK;
    /* this value is counted already; the one before will be dropped */
    if (*store->total - (key->put ? n_bytes : 0) > store->options.max_bytes)
        return gw_ps_no_room(store, "what is put at", key->name, n_bytes);
    gw_ps_value_drop(store, key, &key->put);
    key->put = gw_ps_blob_hold(value);
    key->put_version = version;
    gw_ps_key_count(store, key, n_bytes, 0);
    store->woken(store->user, key);
    gw_ps_key_change(store, key);
    return GW_OK;
}

gw_status gw_ps_store_get(const struct gw_ps_key *key, uint64_t least, struct gw_ps_pulled *out)
{
    GW_TRY(check_plain(key, "nothing can be put there"));
    if (!key->put || key->put_version < least)
        return GW_PS_WAIT;
    *out = (struct gw_ps_pulled){.type = key->type,
                                 .shape = key->shape,
                                 .round = key->put_version,
                                 .value = gw_ps_blob_hold(key->put)};
    return GW_OK;
}
