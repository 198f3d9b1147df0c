/* The entropy stage: zstd over packed bytes of one chunk. */
#ifndef GW_WIRE_ENTROPY_H
#define GW_WIRE_ENTROPY_H

#include <gradwire/context.h>

/* zstd's level 1: on 2-bit codes it reaches the entropy within 1 %; negative levels do not compress them at all, and
 * higher ones are slower and no smaller. */
#define GW_ENTROPY_LEVEL 1

/* Memory zstd works in for sources of at most max_src_bytes; the caller takes it, so zstd itself never allocates. */
size_t gw_entropy_workspace(size_t max_src_bytes);

/* Compresses src into dst. Returns the compressed size, or 0 where it does not fit `capacity`: the caller then keeps the
 * plain bytes. `workspace` is 64-byte aligned, of gw_entropy_workspace(at least src_bytes) bytes. */
size_t gw_entropy_compress(void *workspace, size_t workspace_bytes, const void *src, size_t src_bytes, void *dst,
                           size_t capacity);

/* Decompresses one zstd frame that fills src exactly into dst, at most `capacity` bytes; *n: bytes written. */
size_t gw_entropy_decode_workspace(void);
gw_status gw_entropy_decompress(void *workspace, const void *src, size_t src_bytes, void *dst, size_t capacity, size_t *n);

#endif
