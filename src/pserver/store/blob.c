/* Makes and frees blobs. */
#include "pserver/store/blob.h"
#include "base/memory.h"

#include <string.h>

void gw_ps_blob_give(struct gw_ps_blob *blob)
{
    if (!blob || --blob->holds > 0)
        return;
    *blob->total -= blob->n_bytes;
    gw_free(blob->context, blob->bytes);
    gw_free(blob->context, blob);
}

struct gw_ps_blob *gw_ps_blob_new(gw_context *context, uint64_t *total, void *bytes, size_t n_bytes)
{
    struct gw_ps_blob *blob = bytes || n_bytes == 0 ? gw_alloc(context, 1, sizeof *blob) : NULL;
    if (!blob) {
        gw_free(context, bytes);
        return NULL;
    }
    *blob = (struct gw_ps_blob){.bytes = bytes, .n_bytes = n_bytes, .context = context, .total = total, .holds = 1};
    *total += n_bytes;
    return blob;
}

struct gw_ps_blob *gw_ps_blob_copy(gw_context *context, uint64_t *total, const void *bytes, size_t n_bytes)
{
    void *copy = gw_alloc(context, n_bytes, 1);
    if (copy && n_bytes)
        memcpy(copy, bytes, n_bytes);
    return gw_ps_blob_new(context, total, copy, n_bytes);
}
