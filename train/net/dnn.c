/* Makes, runs and frees oneDNN's objects: memory, primitives and reorders. Its errors become sentences here. */
#include "net/dnn.h"
#include "base/error.h"
#include "base/memory.h"

#include <unistd.h>

gw_status gw_dnn_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return GW_OK;
    if (status == dnnl_out_of_memory)
        return gw_fail(GW_ERR_MEMORY, "out of memory in oneDNN: %s", what);
    return gw_fail(status == dnnl_unimplemented ? GW_ERR_UNSUPPORTED : GW_ERR_SYSTEM, "oneDNN refused %s (status %d)",
                   what, (int)status);
}

bool gw_dnn_is_quick(void)
{
    return dnnl_version()->major < 3 || access("/sys/devices/system/cpu/cpu0/cache", F_OK) == 0;
}

gw_status gw_dnn_engine(dnnl_engine_t *engine)
{
    if (!gw_dnn_is_quick())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41); /* it fails if an engine before this one has done it */
    return gw_dnn_check(dnnl_engine_create(engine, dnnl_cpu, 0), "an engine");
}

static dnnl_format_tag_t plain_tag(int rank)
{
    return rank == 1 ? dnnl_a : rank == 2 ? dnnl_ab : dnnl_abcd;
}

gw_status gw_blob_plain(dnnl_engine_t engine, int rank, const dnnl_dim_t *dims, float *data, struct gw_blob *blob)
{
    struct gw_made_layout made;
    GW_TRY(gw_dnn_check(gw_layout_make(rank, dims, plain_tag(rank), &made), "a layout"));
    const gw_status status = gw_blob_create(engine, made.layout, data, blob);
    gw_layout_drop(&made);
    return status;
}

gw_status gw_blob_create(dnnl_engine_t engine, gw_layout desc, float *data, struct gw_blob *blob)
{
    *blob = (struct gw_blob){.data = data};
    if (!data) {
        blob->data = gw_calloc(NULL, dnnl_memory_desc_get_size(desc), 1);
        if (!blob->data)
            return GW_ERR_MEMORY;
        blob->owns_data = true;
    }
    GW_TRY(gw_dnn_check(dnnl_memory_create(&blob->memory, desc, engine, blob->data), "memory"));
    return gw_dnn_check(dnnl_memory_get_memory_desc(blob->memory, &blob->desc), "memory");
}

void gw_blob_destroy(struct gw_blob *blob)
{
    if (blob->memory)
        dnnl_memory_destroy(blob->memory);
    if (blob->owns_data)
        gw_free(NULL, blob->data);
    *blob = (struct gw_blob){0};
}

size_t gw_blob_floats(const struct gw_blob *blob)
{
    return dnnl_memory_desc_get_size(blob->desc) / sizeof(float);
}

const_dnnl_primitive_desc_t gw_primitive_desc(const struct gw_primitive *primitive)
{
    const_dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_get_primitive_desc(primitive->handle, &desc);
    return desc;
}

gw_layout gw_primitive_layout(const struct gw_primitive *primitive, dnnl_query_t which)
{
    return dnnl_primitive_desc_query_md(gw_primitive_desc(primitive), which, 0);
}

gw_status gw_primitive_create(dnnl_status_t described, dnnl_primitive_desc_t *desc, const char *what,
                              struct gw_primitive *primitive)
{
    *primitive = (struct gw_primitive){0};
    GW_TRY(gw_dnn_check(described, what));
    gw_status status = gw_dnn_check(dnnl_primitive_create(&primitive->handle, *desc), what);
    dnnl_primitive_desc_destroy(*desc);
    return status;
}

void gw_primitive_arg(struct gw_primitive *primitive, int which, const struct gw_blob *blob)
{
    if (blob->memory)
        primitive->args[primitive->n_args++] = (dnnl_exec_arg_t){which, blob->memory};
}

gw_status gw_primitive_run(const struct gw_primitive *primitive, dnnl_stream_t stream)
{
    if (!primitive->handle)
        return GW_OK;
    return gw_dnn_check(dnnl_primitive_execute(primitive->handle, stream, primitive->n_args, primitive->args),
                        "a layer");
}

void gw_primitive_destroy(struct gw_primitive *primitive)
{
    if (primitive->handle)
        dnnl_primitive_destroy(primitive->handle);
    *primitive = (struct gw_primitive){0};
}

static gw_status create_reorder(dnnl_engine_t engine, const struct gw_blob *from, const struct gw_blob *to,
                                struct gw_primitive *reorder)
{
    dnnl_primitive_desc_t desc;
    GW_TRY(gw_primitive_create(dnnl_reorder_primitive_desc_create(&desc, from->desc, engine, to->desc, engine, NULL),
                               &desc, "a reorder", reorder));
    gw_primitive_arg(reorder, DNNL_ARG_FROM, from);
    gw_primitive_arg(reorder, DNNL_ARG_TO, to);
    return GW_OK;
}

gw_status gw_reorder_into(dnnl_engine_t engine, const struct gw_blob *from, gw_layout wanted, struct gw_blob *to,
                          struct gw_primitive *reorder)
{
    *reorder = (struct gw_primitive){0};
    if (dnnl_memory_desc_equal(from->desc, wanted))
        return gw_blob_create(engine, wanted, from->data, to);
    GW_TRY(gw_blob_create(engine, wanted, NULL, to));
    return create_reorder(engine, from, to, reorder);
}

gw_status gw_reorder_tagged(dnnl_engine_t engine, const struct gw_blob *from, dnnl_format_tag_t tag, struct gw_blob *to,
                            struct gw_primitive *reorder)
{
    struct gw_made_layout made;
    GW_TRY(
        gw_dnn_check(gw_layout_make(gw_layout_rank(from->desc), gw_layout_dims(from->desc), tag, &made), "a layout"));
    const gw_status status = gw_reorder_into(engine, from, made.layout, to, reorder);
    gw_layout_drop(&made);
    return status;
}

gw_status gw_reorder_plain(dnnl_engine_t engine, const struct gw_blob *from, struct gw_blob *to,
                           struct gw_primitive *reorder)
{
    return gw_reorder_tagged(engine, from, plain_tag(gw_layout_rank(from->desc)), to, reorder);
}

gw_status gw_reorder_out_of(dnnl_engine_t engine, gw_layout made, const struct gw_blob *to, struct gw_blob *from,
                            struct gw_primitive *reorder)
{
    *reorder = (struct gw_primitive){0};
    if (dnnl_memory_desc_equal(to->desc, made))
        return gw_blob_create(engine, made, to->data, from);
    GW_TRY(gw_blob_create(engine, made, NULL, from));
    return create_reorder(engine, from, to, reorder);
}

#ifdef __SANITIZE_THREAD__
/* oneDNN is not compiled for the thread sanitizer, which so cannot see the locks of its cache of primitives. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libdnnl.so\n";
}
#endif
