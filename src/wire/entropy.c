/* Static contexts, so that zstd takes no memory of its own (and so does not escape the allocator hook). */
#define ZSTD_STATIC_LINKING_ONLY
#include "wire/entropy.h"
#include "base/error.h"
#include "wire/bytes.h"

#include <zstd.h>

size_t gw_entropy_workspace(size_t max_src_bytes)
{
    /* zstd has its parameters in tiers by source size, and a lower tier may need the larger tables. */
    static const size_t tiers[] = {16 << 10, 128 << 10, 256 << 10, SIZE_MAX};
    size_t most = 0;
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++) {
        size_t src = tiers[i] < max_src_bytes ? tiers[i] : max_src_bytes;
        size_t bytes = ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(GW_ENTROPY_LEVEL, src ? src : 1, 0));
        most = bytes > most ? bytes : most;
    }
    return most + 64;
}

size_t gw_entropy_compress(void *workspace, size_t workspace_bytes, const void *src, size_t src_bytes, void *dst,
                           size_t capacity)
{
    ZSTD_CCtx *ctx = ZSTD_initStaticCCtx(workspace, workspace_bytes);
    if (!ctx || !src_bytes)
        return 0;
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, GW_ENTROPY_LEVEL);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_contentSizeFlag, 0);
    size_t n = ZSTD_compress2(ctx, dst, capacity, src, src_bytes);
    return ZSTD_isError(n) ? 0 : n;
}

size_t gw_entropy_decode_workspace(void)
{
    return ZSTD_estimateDCtxSize();
}

gw_status gw_entropy_decompress(void *workspace, const void *src, size_t src_bytes, void *dst, size_t capacity, size_t *n)
{
    /* zstd would also take no frame at all, several, and ones that say "skip me" as nothing: other bytes for the same. */
    if (src_bytes < 4 || gw_get32(src) != ZSTD_MAGICNUMBER || ZSTD_findFrameCompressedSize(src, src_bytes) != src_bytes)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a compressed chunk does not decompress: it is not one zstd frame");
    ZSTD_DCtx *ctx = ZSTD_initStaticDCtx(workspace, ZSTD_estimateDCtxSize());
    size_t got = ZSTD_decompressDCtx(ctx, dst, capacity, src, src_bytes);
    if (ZSTD_isError(got))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a compressed chunk does not decompress: %s", ZSTD_getErrorName(got));
    *n = got;
    return GW_OK;
}
