/* What the server keeps and sends: bytes with a type and a shape. */
#ifndef GW_PSERVER_PROTOCOL_VALUE_H
#define GW_PSERVER_PROTOCOL_VALUE_H

#include <gradwire/pserver.h>

/* How many bytes one element has; 0 for GW_PS_FRAME, whose values differ in length, and for what is no type. */
size_t gw_ps_type_bytes(gw_ps_type type);

bool gw_ps_is_float(gw_ps_type type);

/* Counts the elements of a shape. false: the shape is not legal, because it has more than GW_PS_MOST_DIMS dimensions, a
 * dimension of 0, or more than 2^48 elements. */
bool gw_ps_shape_elems(const gw_ps_shape *shape, uint64_t *n_elems);

bool gw_ps_shapes_equal(const gw_ps_shape *a, const gw_ps_shape *b);

/* Checks a key's name. Names appear in sentences, logs and pages, so control characters are not allowed. */
gw_status gw_ps_check_name(const char *name);

/* A shape as people write it, "[3, 4]". */
struct gw_ps_text {
    char text[GW_PS_MOST_DIMS * 22 + 3];
};
struct gw_ps_text gw_ps_shape_text(const gw_ps_shape *shape);

#endif
