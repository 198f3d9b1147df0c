/* The reduce methods. One line of the list describes a method completely. */
#ifndef GW_PSERVER_PROTOCOL_METHODS_H
#define GW_PSERVER_PROTOCOL_METHODS_H

#include "pserver/protocol/value.h"

/* METHOD(number, name, of floats, of integers, of uint8, of frames, join, finish, help). The four are the types of the
 * result for keys of these types: SAME, a type, or NONE if they do not allow the method (methods.c). `join` joins the
 * pushes; `divided` is their mean (../store/reduce.c). Parsing, sentences, and the help of the tool and of the Python
 * client are made from this list. Tests compare the documents with it. The parameters of a key with an optimizer are
 * not made by a reduction of one round, so no type has them. */
#define GW_PS_METHODS(METHOD)                                                                                          \
    METHOD(GW_PS_MAX, "max", SAME, SAME, SAME, NONE, largest, as_it_is, "the largest of all pushes")                   \
    METHOD(GW_PS_MIN, "min", SAME, SAME, SAME, NONE, smallest, as_it_is, "the smallest of all pushes")                 \
    METHOD(GW_PS_SUM, "sum", SAME, INT64, INT64, NONE, sum, as_it_is, "their sum; of integers int64")                  \
    METHOD(GW_PS_MEAN, "mean", SAME, FLOAT32, FLOAT32, NONE, sum, divided,                                             \
           "their sum divided by their number; of integers float32")                                                   \
    METHOD(GW_PS_LATEST, "latest", SAME, SAME, SAME, SAME, not_of_a_round, as_it_is, "the push that came last")        \
    METHOD(GW_PS_DECODE_SUM, "decode_sum", NONE, NONE, FLOAT32, FLOAT32, decoded, as_it_is,                            \
           "the sum of what 2-bit codes or frames hold")                                                               \
    METHOD(GW_PS_DECODE_AVERAGE, "decode_average", NONE, NONE, FLOAT32, SAME, decoded, divided,                        \
           "the average of what they hold")                                                                            \
    METHOD(GW_PS_PARAMETERS, "parameters", NONE, NONE, NONE, NONE, not_of_a_round, as_it_is,                           \
           "what the pushes so far have made of a key's parameters")                                                   \
    METHOD(GW_PS_MEDIAN, "median", SAME, NONE, NONE, NONE, middle, as_it_is,                                           \
           "the middle of all pushes, element by element; a NaN counts as missing")

/* One line about a method, for people. NULL: there is no such method. */
const char *gw_ps_method_help(gw_ps_method method);

/* GW_OK if the type allows the method; else GW_ERR_ARGUMENT, and the sentence says which methods the type allows. */
gw_status gw_ps_method_check(gw_ps_method method, gw_ps_type type);

/* The type of the result. 0: the type does not allow the method, or one of the two numbers is not valid. */
gw_ps_type gw_ps_result_type(gw_ps_method method, gw_ps_type type);

/* The shape of the result. Of uint8 codes the last dimension is four times as long. */
gw_ps_shape gw_ps_result_shape(gw_ps_method method, gw_ps_type type, const gw_ps_shape *shape);

/* The most bytes of a result, if the key has n_elems elements. If the result is a frame, this is an estimate. */
uint64_t gw_ps_result_bytes(gw_ps_method method, gw_ps_type type, uint64_t n_elems);

/* Checks that a pull of `key` may be multiplied by the maximum of `scale_key`. Errors: GW_ERR_ARGUMENT, and the
 * sentence says why it may not. */
gw_status gw_ps_check_scale(const char *key, gw_ps_type type, gw_ps_method method, const char *scale_key,
                            gw_ps_type scale_type, const gw_ps_shape *scale_shape);

#endif
