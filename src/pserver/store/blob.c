/* Makes blobs: bytes with a count of holders. When the last holder gives its hold up, the bytes are freed. */
#include "pserver/store/blob.h"
#include "base/memory.h"

#include <string.h>

static void release(struct gw_ps_blob *blob)
{
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
    *blob =
        (struct gw_ps_blob){.bytes = bytes, .n_bytes = n_bytes, .release = release, .context = context, .total = total};
    gw_ps_blob_begin(blob);
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
