/* Knows the types, shapes and sizes of values, their names in text, and which names keys may have. */
#include "pserver/protocol/value.h"
#include "base/append.h"

#include <inttypes.h>
#include <string.h>

#define MOST_ELEMS (1ull << 48)

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [GW_PS_FLOAT32] = {"float32", 4}, [GW_PS_FLOAT16] = {"float16", 2}, [GW_PS_BFLOAT16] = {"bfloat16", 2},
    [GW_PS_INT32] = {"int32", 4},     [GW_PS_INT64] = {"int64", 8},     [GW_PS_UINT8] = {"uint8", 1},
    [GW_PS_FRAME] = {"frame", 0},
};
#define N_TYPES (sizeof types / sizeof *types)

size_t gw_ps_type_bytes(gw_ps_type type)
{
    return (size_t)type < N_TYPES ? types[type].bytes : 0;
}

const char *gw_ps_type_name(gw_ps_type type)
{
    return (size_t)type < N_TYPES ? types[type].name : NULL;
}

bool gw_ps_is_float(gw_ps_type type)
{
    return type == GW_PS_FLOAT32 || type == GW_PS_FLOAT16 || type == GW_PS_BFLOAT16;
}

bool gw_ps_shape_elems(const gw_ps_shape *shape, uint64_t *n_elems)
{
    *n_elems = 1;
    if (shape->n_dims > GW_PS_MOST_DIMS)
        return false;
    for (uint32_t d = 0; d < shape->n_dims; d++) {
        if (shape->dims[d] == 0 || shape->dims[d] > MOST_ELEMS / *n_elems)
            return false;
        *n_elems *= shape->dims[d];
    }
    return true;
}

bool gw_ps_shapes_equal(const gw_ps_shape *a, const gw_ps_shape *b)
{
    return a->n_dims == b->n_dims && memcmp(a->dims, b->dims, a->n_dims * sizeof *a->dims) == 0;
}

gw_status gw_ps_check_name(const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || length > GW_PS_MOST_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "a key's name has %zu bytes; 1 to %d are possible", length, GW_PS_MOST_NAME);
    for (size_t i = 0; i < length; i++)
        if ((uint8_t)name[i] < ' ' || name[i] == 0x7F)
            return gw_fail(GW_ERR_ARGUMENT, "a key's name holds the control character 0x%02x", (uint8_t)name[i]);
    return GW_OK;
}

struct gw_ps_text gw_ps_shape_text(const gw_ps_shape *shape)
{
    struct gw_ps_text out = {"["};
    for (uint32_t d = 0; d < shape->n_dims && d < GW_PS_MOST_DIMS; d++)
        gw_append(out.text, sizeof out.text, "%s%" PRIu64, d ? ", " : "", shape->dims[d]);
    gw_append(out.text, sizeof out.text, "]");
    return out;
}
