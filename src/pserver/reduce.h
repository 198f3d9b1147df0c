/* The reduce methods: they make one value of the many pushes of a round. A method is one entry of the table in
 * reduce.c. */
#ifndef GW_PSERVER_REDUCE_H
#define GW_PSERVER_REDUCE_H

#include "pserver/value.h"

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

/* GW_OK where values of the type can be reduced so; else GW_ERR_ARGUMENT, and the sentence says which methods the type
 * has. */
gw_status gw_ps_method_check(gw_ps_method method, gw_ps_type type);

/* The type of the result; 0: values of the type cannot be reduced so, or one of the two is none. */
gw_ps_type gw_ps_result_type(gw_ps_method method, gw_ps_type type);

/* The most bytes that a result has of a key of so many elements; of a frame about. */
uint64_t gw_ps_result_bytes(gw_ps_method method, gw_ps_type type, uint64_t n_elems);

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
