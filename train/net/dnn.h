/* A thin layer over oneDNN: blobs (memory with a layout), primitives with their arguments, reorders. */
#ifndef GW_TRAIN_DNN_H
#define GW_TRAIN_DNN_H

#include "net/onednn.h"

#include <stdbool.h>
#include <stdint.h>

/* Floats in memory, and their layout in oneDNN's terms. */
struct gw_blob {
    gw_layout desc; /* the memory's */
    dnnl_memory_t memory;
    float *data;
    bool owns_data;
};

enum { GW_MAX_ARGS = 12 };

/* A primitive that is ready to run. If it is not set (handle NULL), it does nothing. */
struct gw_primitive {
    dnnl_primitive_t handle;
    dnnl_exec_arg_t args[GW_MAX_ARGS];
    int n_args;
};

/* False: this machine does not say how large its caches are, as some virtual machines do not. There oneDNN 3 leaves out
 * parts of weights, or divides by zero, in its code for AVX and later (docs/pytorch.md, oneDNN#5313). So it may use
 * SSE 4.1 only, which is slower. */
bool gw_dnn_is_quick(void);

/* The engine with which all of oneDNN begins. The caller destroys it. */
gw_status gw_dnn_engine(dnnl_engine_t *engine);

/* Turns oneDNN's status into ours; `what` names the operation in the sentence. */
gw_status gw_dnn_check(dnnl_status_t status, const char *what);

/* Makes a blob of this layout. data NULL: it takes memory and sets it to 0. Else it borrows `data`. */
gw_status gw_blob_create(dnnl_engine_t engine, gw_layout desc, float *data, struct gw_blob *blob);
/* The same, of these dimensions, in the plain layout: (batch, units), (batch, channels, height, width), of weights
 * (out, in[, kernel]). */
gw_status gw_blob_plain(dnnl_engine_t engine, int rank, const dnnl_dim_t *dims, float *data, struct gw_blob *blob);
void gw_blob_destroy(struct gw_blob *blob);

/* How many floats a blob has, with the padding of its layout. */
size_t gw_blob_floats(const struct gw_blob *blob);

/* Makes a primitive of what gw_describe_... returned and described. It frees the description, even after an error. */
gw_status gw_primitive_create(dnnl_status_t described, dnnl_primitive_desc_t *desc, const char *what,
                              struct gw_primitive *primitive);
/* A blob without memory is no argument: a layer may have no bias, or leave no workspace. */
void gw_primitive_arg(struct gw_primitive *primitive, int which, const struct gw_blob *blob);
gw_status gw_primitive_run(const struct gw_primitive *primitive, dnnl_stream_t stream);
void gw_primitive_destroy(struct gw_primitive *primitive);

/* The description of a primitive, and the layouts in it. Both live as long as the primitive. */
const_dnnl_primitive_desc_t gw_primitive_desc(const struct gw_primitive *primitive);
gw_layout gw_primitive_layout(const struct gw_primitive *primitive, dnnl_query_t which);

/* Makes `to` a blob of layout `wanted`. When `reorder` has run, it holds the same values as `from`. If the layouts are
 * equal, `to` borrows from `from`, and `reorder` is not set. */
gw_status gw_reorder_into(dnnl_engine_t engine, const struct gw_blob *from, gw_layout wanted, struct gw_blob *to,
                          struct gw_primitive *reorder);
/* The same, into the layout of this tag. */
gw_status gw_reorder_tagged(dnnl_engine_t engine, const struct gw_blob *from, dnnl_format_tag_t tag, struct gw_blob *to,
                            struct gw_primitive *reorder);
/* The same, into the plain layout. */
gw_status gw_reorder_plain(dnnl_engine_t engine, const struct gw_blob *from, struct gw_blob *to,
                           struct gw_primitive *reorder);

/* Makes `from` a blob of layout `made`, from which `reorder` fills `to`; if they are equal, `from` borrows from `to`.
 */
gw_status gw_reorder_out_of(dnnl_engine_t engine, gw_layout made, const struct gw_blob *to, struct gw_blob *from,
                            struct gw_primitive *reorder);

#endif
