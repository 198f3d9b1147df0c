/* A blob: bytes that several parts of the server hold at the same time. It may be a push that is stored as it came from
 * the socket, or a result on its way to several workers. Each holder gives its hold up, and the last one frees the
 * blob. Only the server's one thread has to do with blobs. */
#ifndef GW_PSERVER_STORE_BLOB_H
#define GW_PSERVER_STORE_BLOB_H

#include <gradwire/context.h>

struct gw_ps_blob {
    void *bytes;
    size_t n_bytes;
    gw_context *context;
    uint64_t *total; /* counts n_bytes as long as there is a hold */
    uint32_t holds;
    /* for the server's folder (folder.c): the commit with which the bytes were written there, and their checksum. 0:
     * they are not there; whoever changes the bytes sets that */
    uint64_t committed_by, sum;
};

/* Makes a blob of what gw_alloc gave for n_bytes, with one hold. The blob owns the bytes. NULL: there is no memory, or
 * gw_alloc had none; the bytes are freed. If n_bytes is 0, `bytes` may be NULL. */
struct gw_ps_blob *gw_ps_blob_new(gw_context *context, uint64_t *total, void *bytes, size_t n_bytes);

/* Makes a blob of a copy of the caller's bytes. */
struct gw_ps_blob *gw_ps_blob_copy(gw_context *context, uint64_t *total, const void *bytes, size_t n_bytes);

static inline struct gw_ps_blob *gw_ps_blob_hold(struct gw_ps_blob *blob)
{
    blob->holds++;
    return blob;
}

/* Gives a hold up. NULL is allowed. */
void gw_ps_blob_give(struct gw_ps_blob *blob);

#endif
