/* The reduce methods: one line of the list says all of a method. */
#ifndef GW_PSERVER_PROTOCOL_METHODS_H
#define GW_PSERVER_PROTOCOL_METHODS_H

#include "pserver/protocol/value.h"

/* METHOD(number, name, result, reduce): `result` gives the type of the result (methods.c), `reduce` makes it
 * (../store/reduce.c). */
#define GW_PS_METHODS(METHOD)                                                                                          \
    METHOD(GW_PS_MAX, "max", same_if_plain, by_blocks)                                                                 \
    METHOD(GW_PS_MIN, "min", same_if_plain, by_blocks)                                                                 \
    METHOD(GW_PS_SUM, "sum", of_sum, by_blocks)                                                                        \
    METHOD(GW_PS_MEAN, "mean", of_mean, by_blocks)                                                                     \
    METHOD(GW_PS_LATEST, "latest", same, copy)                                                                         \
    METHOD(GW_PS_DECODE_SUM, "decode_sum", of_decode_sum, decoded)                                                     \
    METHOD(GW_PS_DECODE_AVERAGE, "decode_average", of_decode_average, decoded)                                         \
    METHOD(GW_PS_PARAMETERS, "parameters", of_parameters, NULL)

/* GW_OK where values of the type can be reduced so; else GW_ERR_ARGUMENT, and the sentence says which methods the type
 * has. */
gw_status gw_ps_method_check(gw_ps_method method, gw_ps_type type);

/* The type of the result; 0: values of the type cannot be reduced so, or one of the two is none. */
gw_ps_type gw_ps_result_type(gw_ps_method method, gw_ps_type type);

/* The most bytes that a result has of a key of so many elements; of a frame about. */
uint64_t gw_ps_result_bytes(gw_ps_method method, gw_ps_type type, uint64_t n_elems);

#endif
