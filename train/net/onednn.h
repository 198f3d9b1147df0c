/* What differs between oneDNN 2 and 3: a layout (dnnl_memory_desc_t) is a struct in 2 and a handle in 3, and 3 makes
 * the description of a primitive in one call. Only this header and onednn.c know which of the two there is. */
#ifndef GW_TRAIN_ONEDNN_H
#define GW_TRAIN_ONEDNN_H

#include <dnnl.h>
#include <gradwire/status.h>

/* A layout that somebody else keeps: a memory, a primitive, or a gw_made_layout. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t gw_layout;
#else
typedef const dnnl_memory_desc_t *gw_layout;
#endif

/* Batch norm's backward reads the shift in 2, and refuses it in 3. */
enum { GW_BATCHNORM_BACKWARD_READS_SHIFT = DNNL_VERSION_MAJOR < 3 };

/* A layout of our own: float32, of this tag. `layout` is NULL if it was not made. gw_layout_drop frees it; it does
 * nothing if all bytes are 0. */
struct gw_made_layout {
    gw_layout layout;
    dnnl_memory_desc_t desc;
};
dnnl_status_t gw_layout_make(int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag, struct gw_made_layout *made);
void gw_layout_drop(struct gw_made_layout *made);

int gw_layout_rank(gw_layout layout);
const dnnl_dim_t *gw_layout_dims(gw_layout layout);

/* Of convolutions, which have the kernel's size in their weights, and pooling. before, behind: pixels of padding. */
struct gw_window {
    dnnl_dims_t strides, kernel, before, behind;
};

/* These describe a primitive. prop: the pass. hint: the forward primitive's description, for backward; else NULL. For
 * backward, src and dst are the layouts of their gradients. bias: NULL if there is none. */

dnnl_status_t gw_describe_convolution(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout weights,
                                      gw_layout bias, gw_layout dst, const struct gw_window *window,
                                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc);
dnnl_status_t gw_describe_pooling(dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind, gw_layout src,
                                  gw_layout dst, const struct gw_window *window, const_dnnl_primitive_desc_t hint,
                                  dnnl_primitive_desc_t *desc);
dnnl_status_t gw_describe_batchnorm(dnnl_engine_t engine, dnnl_prop_kind_t prop, gw_layout src, gw_layout dst,
                                    float epsilon, unsigned flags, const_dnnl_primitive_desc_t hint,
                                    dnnl_primitive_desc_t *desc);
dnnl_status_t gw_describe_sum(dnnl_engine_t engine, gw_layout dst, int n, const gw_layout *src, const float *scales,
                              dnnl_primitive_desc_t *desc);

#endif
