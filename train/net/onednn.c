/* The calls that differ between oneDNN 2 and 3. */
#include "net/onednn.h"

#include <stddef.h>

static const dnnl_dims_t none = {0};

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t gw_layout_make(int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag, struct gw_made_layout *made)
{
    const dnnl_status_t status = dnnl_memory_desc_create_with_tag(&made->desc, rank, dims, dnnl_f32, tag);
    made->layout = status == dnnl_success ? made->desc : NULL;
    return status;
}

void gw_layout_drop(struct gw_made_layout *made)
{
    if (made->layout)
        dnnl_memory_desc_destroy(made->desc);
}

int gw_layout_rank(gw_layout layout)
{
    int rank = 0;
    dnnl_memory_desc_query(layout, dnnl_query_ndims_s32, &rank);
    return rank;
}

const dnnl_dim_t *gw_layout_dims(gw_layout layout)
{
    const dnnl_dims_t *dims = NULL;
    dnnl_memory_desc_query(layout, dnnl_query_dims, &dims);
    return dims ? *dims : NULL;
}

dnnl_status_t gw_describe_convolution(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout weights,
                                      gw_layout bias, gw_layout dst, const struct gw_window *w,
                                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc)
{
    if (prop == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_primitive_desc_create(desc, engine, dnnl_convolution_direct, src,
                                                                       weights, bias, dst, w->strides, none, w->before,
                                                                       w->behind, hint, NULL);
    if (prop == dnnl_backward_data)
        return dnnl_convolution_backward_data_primitive_desc_create(desc, engine, dnnl_convolution_direct, src, weights,
                                                                    dst, w->strides, none, w->before, w->behind, hint,
                                                                    NULL);
    return dnnl_convolution_forward_primitive_desc_create(desc, engine, prop, dnnl_convolution_direct, src, weights,
                                                          bias, dst, w->strides, none, w->before, w->behind, NULL);
}

dnnl_status_t gw_describe_pooling(dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind, gw_layout src,
                                  gw_layout dst, const struct gw_window *w, const_dnnl_primitive_desc_t hint,
                                  dnnl_primitive_desc_t *desc)
{
    if (prop == dnnl_backward_data)
        return dnnl_pooling_backward_primitive_desc_create(desc, engine, kind, src, dst, w->strides, w->kernel, none,
                                                           w->before, w->behind, hint, NULL);
    return dnnl_pooling_forward_primitive_desc_create(desc, engine, prop, kind, src, dst, w->strides, w->kernel, none,
                                                      w->before, w->behind, NULL);
}

dnnl_status_t gw_describe_batchnorm(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout dst,
                                    float epsilon, unsigned flags, const_dnnl_primitive_desc_t hint,
                                    dnnl_primitive_desc_t *desc)
{
    if (prop == dnnl_backward)
        return dnnl_batch_normalization_backward_primitive_desc_create(desc, engine, prop, dst, dst, src, epsilon,
                                                                       flags, hint, NULL);
    return dnnl_batch_normalization_forward_primitive_desc_create(desc, engine, prop, src, dst, epsilon, flags, NULL);
}

dnnl_status_t gw_describe_sum(dnnl_engine_t engine, gw_layout dst, int n, const gw_layout *src, const float *scales,
                              dnnl_primitive_desc_t *desc)
{
    return dnnl_sum_primitive_desc_create(desc, engine, dst, n, scales, src, NULL);
}

#else

dnnl_status_t gw_layout_make(int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag, struct gw_made_layout *made)
{
    const dnnl_status_t status = dnnl_memory_desc_init_by_tag(&made->desc, rank, dims, dnnl_f32, tag);
    made->layout = status == dnnl_success ? &made->desc : NULL;
    return status;
}

void gw_layout_drop(struct gw_made_layout *made)
{
    (void)made; /* 2 takes no memory for a layout */
}

int gw_layout_rank(gw_layout layout)
{
    return layout->ndims;
}

const dnnl_dim_t *gw_layout_dims(gw_layout layout)
{
    return layout->dims;
}

dnnl_status_t gw_describe_convolution(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout weights,
                                      gw_layout bias, gw_layout dst, const struct gw_window *w,
                                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status;
    if (prop == dnnl_backward_weights)
        status = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, src, weights, bias, dst,
                                                             w->strides, w->before, w->behind);
    else if (prop == dnnl_backward_data)
        status = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, src, weights, dst, w->strides,
                                                          w->before, w->behind);
    else
        status = dnnl_convolution_forward_desc_init(&op, prop, dnnl_convolution_direct, src, weights, bias, dst,
                                                    w->strides, w->before, w->behind);
    return status == dnnl_success ? dnnl_primitive_desc_create(desc, &op, NULL, engine, hint) : status;
}

dnnl_status_t gw_describe_pooling(dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind, gw_layout src,
                                  gw_layout dst, const struct gw_window *w, const_dnnl_primitive_desc_t hint,
                                  dnnl_primitive_desc_t *desc)
{
    dnnl_pooling_v2_desc_t op;
    const dnnl_status_t status =
        prop == dnnl_backward_data
            ? dnnl_pooling_v2_backward_desc_init(&op, kind, src, dst, w->strides, w->kernel, none, w->before, w->behind)
            : dnnl_pooling_v2_forward_desc_init(&op, prop, kind, src, dst, w->strides, w->kernel, none, w->before,
                                                w->behind);
    return status == dnnl_success ? dnnl_primitive_desc_create(desc, &op, NULL, engine, hint) : status;
}

dnnl_status_t gw_describe_batchnorm(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout dst,
                                    float epsilon, unsigned flags, const_dnnl_primitive_desc_t hint,
                                    dnnl_primitive_desc_t *desc)
{
    dnnl_batch_normalization_desc_t op;
    const dnnl_status_t status = prop == dnnl_backward
                                     ? dnnl_batch_normalization_backward_desc_init(&op, prop, dst, src, epsilon, flags)
                                     : dnnl_batch_normalization_forward_desc_init(&op, prop, src, epsilon, flags);
    return status == dnnl_success ? dnnl_primitive_desc_create(desc, &op, NULL, engine, hint) : status;
}

dnnl_status_t gw_describe_sum(dnnl_engine_t engine, gw_layout dst, int n, const gw_layout *src, const float *scales,
                              dnnl_primitive_desc_t *desc)
{
    dnnl_memory_desc_t copies[16];
    if (n > 16)
        return dnnl_invalid_arguments;
    for (int i = 0; i < n; i++)
        copies[i] = *src[i];
    return dnnl_sum_primitive_desc_create(desc, dst, n, scales, copies, NULL, engine);
}

#endif
