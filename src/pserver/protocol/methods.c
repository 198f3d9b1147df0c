/* Knows the reduce methods by name, and the types of their results. */
#include "pserver/protocol/methods.h"
#include "base/append.h"

enum { NONE = 0, SAME = -1, FLOAT32 = GW_PS_FLOAT32, INT64 = GW_PS_INT64 };

static const struct {
    const char *name;
    int of_floats, of_integers, of_uint8, of_frames;
    const char *help;
} methods[] = {
#define ENTRY(number, word, floats, integers, uint8, frames, join, finish, text)                                       \
    [number] = {word, floats, integers, uint8, frames, text},
    GW_PS_METHODS(ENTRY)
#undef ENTRY
};
#define N_METHODS (sizeof methods / sizeof *methods)

const char *gw_ps_method_name(gw_ps_method method)
{
    return (size_t)method < N_METHODS ? methods[method].name : NULL;
}

const char *gw_ps_method_help(gw_ps_method method)
{
    return (size_t)method < N_METHODS ? methods[method].help : NULL;
}

gw_ps_type gw_ps_result_type(gw_ps_method method, gw_ps_type type)
{
    if (!gw_ps_type_name(type) || !gw_ps_method_name(method))
        return (gw_ps_type)NONE;
    const int result = type == GW_PS_FRAME    ? methods[method].of_frames
                       : type == GW_PS_UINT8  ? methods[method].of_uint8
                       : gw_ps_is_float(type) ? methods[method].of_floats
                                              : methods[method].of_integers;
    return result == SAME ? type : (gw_ps_type)result;
}

gw_status gw_ps_method_check(gw_ps_method method, gw_ps_type type)
{
    char has[N_METHODS * 16] = "";
    if (gw_ps_result_type(method, type))
        return GW_OK;
    for (size_t m = 1; m < N_METHODS; m++)
        if (gw_ps_result_type((gw_ps_method)m, type))
            gw_append(has, sizeof has, "%s%s", has[0] ? ", " : "", methods[m].name);
    const char *name = gw_ps_method_name(method);
    return gw_fail(GW_ERR_ARGUMENT, "%s values cannot be pulled with %s; with %s they can", gw_ps_type_name(type),
                   name ? name : "a method of that number", has);
}

/* True if the method makes floats of 2-bit codes that were pushed. Only these may be multiplied by a scale. */
static bool decodes(gw_ps_method method, gw_ps_type type)
{
    return type == GW_PS_UINT8 && (method == GW_PS_DECODE_SUM || method == GW_PS_DECODE_AVERAGE);
}

gw_ps_shape gw_ps_result_shape(gw_ps_method method, gw_ps_type type, const gw_ps_shape *shape)
{
    gw_ps_shape result = *shape;
    if (!decodes(method, type))
        return result;
    if (result.n_dims == 0)
        result = (gw_ps_shape){.n_dims = 1, .dims = {1}};
    result.dims[result.n_dims - 1] *= 4;
    return result;
}

uint64_t gw_ps_result_bytes(gw_ps_method method, gw_ps_type type, uint64_t n_elems)
{
    const gw_ps_type result = gw_ps_result_type(method, type);
    return n_elems * (decodes(method, type) ? 4 : 1) *
           (result == GW_PS_FRAME ? sizeof(float) : gw_ps_type_bytes(result));
}

gw_status gw_ps_check_scale(const char *key, gw_ps_type type, gw_ps_method method, const char *scale_key,
                            gw_ps_type scale_type, const gw_ps_shape *scale_shape)
{
    uint64_t n_elems;
    if (!decodes(method, type))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "\"%s\" is %s and pulled with %s; a scale_key goes with decode_sum and decode_average of uint8 only", key,
            gw_ps_type_name(type), gw_ps_method_name(method));
    if (scale_type != GW_PS_FLOAT32 || !gw_ps_shape_elems(scale_shape, &n_elems) || n_elems != 1)
        return gw_fail(GW_ERR_ARGUMENT, "the scale_key \"%s\" is %s of shape %s; it must be one float32", scale_key,
                       gw_ps_type_name(scale_type), gw_ps_shape_text(scale_shape).text);
    return GW_OK;
}
