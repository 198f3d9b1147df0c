/* Bytes that several hold at once: a push that is stored as it came from the socket, or a result on its way to several
 * workers. */
#ifndef GW_PSERVER_STORE_BLOB_H
#define GW_PSERVER_STORE_BLOB_H

#include <gradwire/context.h>

#include <stdatomic.h>

struct gw_ps_blob {
    void *bytes;
    size_t n_bytes;
    void (*release)(struct gw_ps_blob *blob); /* by whoever gives up the last hold, from any thread */
    gw_context *context;
    atomic_uint_least64_t *total; /* n_bytes are part of it as long as anybody has a hold */
    atomic_uint holds;
};

/* One hold on a blob of bytes that gw_alloc took; freed with it. NULL if there is no memory: the bytes are freed
 * then. */
struct gw_ps_blob *gw_ps_blob_new(gw_context *context, atomic_uint_least64_t *total, void *bytes, size_t n_bytes);

/* The same with a copy of bytes of the caller's. */
struct gw_ps_blob *gw_ps_blob_copy(gw_context *context, atomic_uint_least64_t *total, const void *bytes,
                                   size_t n_bytes);

/* The first hold on one whose other fields are set. */
static inline void gw_ps_blob_begin(struct gw_ps_blob *blob)
{
    atomic_init(&blob->holds, 1);
    atomic_fetch_add_explicit(blob->total, blob->n_bytes, memory_order_relaxed);
}

static inline struct gw_ps_blob *gw_ps_blob_hold(struct gw_ps_blob *blob)
{
    atomic_fetch_add_explicit(&blob->holds, 1, memory_order_relaxed);
    return blob;
}

/* NULL is allowed. */
static inline void gw_ps_blob_give(struct gw_ps_blob *blob)
{
    if (!blob || atomic_fetch_sub_explicit(&blob->holds, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub_explicit(blob->total, blob->n_bytes, memory_order_relaxed);
    blob->release(blob);
}

#endif
