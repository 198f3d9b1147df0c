/* The reduce methods: they make one value of the many pushes of a round. */
#ifndef GW_PSERVER_STORE_REDUCE_H
#define GW_PSERVER_STORE_REDUCE_H

#include "pserver/protocol/methods.h"

#include <gradwire/codec.h>

/* One push. The bytes are borrowed. */
struct gw_ps_push {
    uint32_t rank;
    const void *bytes;
    size_t n_bytes;
};

/* The result of a reduction. gw_alloc took `bytes`. */
struct gw_ps_result {
    gw_ps_type type;
    gw_ps_shape shape;
    void *bytes;
    size_t n_bytes;
};

/* Reduces n >= 1 pushes of a key with that type and shape; not for GW_PS_LATEST, which is a push as it came. They are
 * in ascending order of rank. Each has as many bytes as type and shape need, or holds frames that were checked and have
 * as many elements as the shape. codec: averages of frames follow its options; NULL: the defaults. scale: decode_sum
 * and decode_average of uint8 are multiplied by it; NULL: by nothing. The average is then S * (s/N), with s/N rounded
 * once, as in frames. All codec threads of the context work on it. The bits do not depend on their number. Errors:
 * GW_ERR_ARGUMENT (the type does not allow the method; an integer overflows; a byte holds the code 11: the sentence
 * says whose and where), GW_ERR_FRAME_*, GW_ERR_MEMORY. */
gw_status gw_ps_reduce(gw_context *context, gw_ps_method method, gw_ps_type type, const gw_ps_shape *shape,
                       const struct gw_ps_push *pushes, uint32_t n, const gw_codec *codec, const float *scale,
                       struct gw_ps_result *out);

/* Decodes frames that lie back to back, and together have as many elements as there is room for: whoever took them has
 * checked that. */
gw_status gw_ps_decode_frames(gw_context *context, const void *bytes, size_t n_bytes, float *out);

#endif
