/* The reduce methods: they make one value of the many pushes of a round. */
#ifndef GW_PSERVER_STORE_REDUCE_H
#define GW_PSERVER_STORE_REDUCE_H

#include "pserver/protocol/methods.h"

#include <gradwire/codec.h>

/* Borrowed. */
struct gw_ps_push {
    uint32_t rank;
    const void *bytes;
    size_t n_bytes;
};

/* `bytes` is taken with gw_alloc. */
struct gw_ps_result {
    gw_ps_type type;
    gw_ps_shape shape;
    void *bytes;
    size_t n_bytes;
};

/* Reduces n >= 1 pushes, ascending by rank, of a key of that type and shape; each has the bytes of these, or checked
 * frames that hold as many elements. codec: gives averages of frames its options; NULL: the defaults. scale: what
 * decode_sum and decode_average of uint8 are multiplied by (the average as S * (s/N), with s/N rounded once, as frames
 * have it); NULL: nothing. All codec threads of the context work. The
 * bits do not depend on how many those are. Errors: GW_ERR_ARGUMENT (the method is not of this type; an integer
 * overflows; a byte holds the code 11: the sentence says whose and where), GW_ERR_FRAME_*, GW_ERR_MEMORY. */
gw_status gw_ps_reduce(gw_context *context, gw_ps_method method, gw_ps_type type, const gw_ps_shape *shape,
                       const struct gw_ps_push *pushes, uint32_t n, const gw_codec *codec, const float *scale,
                       struct gw_ps_result *out);

#endif
