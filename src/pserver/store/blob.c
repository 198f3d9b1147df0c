/* Makes blobs: bytes with a count of holders. When the last holder gives its hold up, the bytes are freed. */
#include "pserver/store/blob.h"
#include "base/memory.h"

#include <string.h>

void gw_ps_blob_give(struct gw_ps_blob *blob)
{
    if (!blob || atomic_fetch_sub_explicit(&blob->holds, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub_explicit(blob->total, blob->n_bytes, memory_order_relaxed);
    gw_free(blob->context, blob->bytes);
    gw_free(blob->context, blob);
}

struct gw_ps_blob *gw_ps_blob_new(gw_context *context, atomic_uint_least64_t *total, void *bytes, size_t n_bytes)
{
    struct gw_ps_blob *blob = gw_alloc(context, 1, sizeof *blob);
    if (!blob) {
        gw_free(context, bytes);
        return NULL;
    }
    *blob = (struct gw_ps_blob){.bytes = bytes, .n_bytes = n_bytes, .context = context, .total = total};
    atomic_init(&blob->holds, 1);
    atomic_fetch_add_explicit(total, n_bytes, memory_order_relaxed);
    return blob;
}

struct gw_ps_blob *gw_ps_blob_copy(gw_context *context, atomic_uint_least64_t *total, const void *bytes, size_t n_bytes)
{
    void *copy = gw_alloc(context, n_bytes, 1);
    if (!copy)
        return NULL;
    if (n_bytes)
        memcpy(copy, bytes, n_bytes);
    return gw_ps_blob_new(context, total, copy, n_bytes);
}
