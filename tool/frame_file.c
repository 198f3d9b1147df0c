/* Frames in files, and what `inspect`, `encode` and `reduce` tell about one. */
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int tool_read_frame(const char *path, tool_frame *out)
{
    *out = (tool_frame){0};
    out->bytes = tool_read_file(path, &out->n_bytes);
    if (!out->bytes)
        return -1;
    gw_status status = gw_frame_parse(out->bytes, out->n_bytes, &out->info);
    if (status < 0)
        tool_fail_status(status, path);
    else if (out->info.frame_bytes != out->n_bytes)
        tool_fail("%s: %zu bytes follow the frame's %zu; a file holds one frame", path,
                  out->n_bytes - out->info.frame_bytes, out->info.frame_bytes);
    else
        return 0;
    free(out->bytes);
    *out = (tool_frame){0};
    return -1;
}

/* Whether every value of a frame is finite: for ternary frames that of the scalers; others are decoded. */
static int check_finite(gw_context *context, const char *path, const tool_frame *frame, bool *finite)
{
    *finite = true;
    for (uint64_t i = 0; i < frame->info.n_scalers; i++)
        *finite = *finite && isfinite(gw_frame_scaler(frame->bytes, frame->n_bytes, i));
    if (strcmp(frame->info.codec, "ternary") == 0 || frame->info.n_elems == 0)
        return 0;
    float *values = tool_alloc(frame->info.n_elems, sizeof(float));
    if (!values)
        return -1;
    gw_status status = gw_decode(context, frame->bytes, frame->n_bytes, values, frame->info.n_elems);
    if (status < 0)
        tool_fail_status(status, path);
    for (uint64_t i = 0; status >= 0 && i < frame->info.n_elems; i++)
        *finite = *finite && isfinite(values[i]);
    free(values);
    return status < 0 ? -1 : 0;
}

int tool_frame_examine(gw_context *context, const char *path, const tool_frame *frame, tool_frame_facts *out)
{
    *out = (tool_frame_facts){0};
    gw_status status =
        gw_frame_symbols(context, frame->bytes, frame->n_bytes, NULL, &out->nonzeros, &out->entropy_bits);
    if (status >= 0)
        status = gw_frame_read_parts(context, frame->bytes, frame->n_bytes, &out->parts);
    if (status < 0) {
        tool_fail_status(status, path);
        return -1;
    }
    if (frame->info.n_elems > 0)
        out->bits_per_element = 8.0 * (double)frame->info.payload_bytes / (double)frame->info.n_elems;
    return check_finite(context, path, frame, &out->finite);
}

json_t *tool_frame_json(const tool_frame *frame, const tool_frame_facts *facts)
{
    const gw_frame_info *info = &frame->info;
    json_t *object =
        json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I}", //
                  "codec", info->codec, "code", info->code, "entropy_stage", info->entropy, "frame",
                  info->average ? "average" : "push", "workers", (json_int_t)info->workers, "rank",
                  (json_int_t)info->rank, "step", (json_int_t)info->step, "tensor", (json_int_t)info->tensor_id,
                  "begin", (json_int_t)info->begin, "elements", (json_int_t)info->n_elems, "frame_bytes",
                  (json_int_t)info->frame_bytes, "payload_bytes", (json_int_t)info->payload_bytes, "bits_per_element",
                  facts->bits_per_element, "entropy_bits_per_element", facts->entropy_bits, "nonzeros",
                  (json_int_t)facts->nonzeros);
    if (!object)
        return NULL;
    int failed = 0;
    if (info->n_scalers > 0) {
        /* One number for one scaler; with buckets the largest, and all of them beside it. */
        float largest = 0;
        json_t *all = json_array();
        for (uint64_t i = 0; i < info->n_scalers; i++) {
            float scaler = gw_frame_scaler(frame->bytes, frame->n_bytes, i);
            largest = scaler > largest ? scaler : largest;
            if (info->bucket > 0)
                failed |= json_array_append_new(all, json_real(isfinite(scaler) ? (double)scaler : 0.0));
        }
        failed |= json_object_set_new(object, "scaler", json_real(isfinite(largest) ? (double)largest : 0.0));
        if (info->bucket > 0) {
            failed |= json_object_set_new(object, "bucket", json_integer((json_int_t)info->bucket));
            failed |= json_object_set(object, "scalers", all);
        }
        json_decref(all);
    }
    if (facts->parts.sparse) {
        const gw_frame_parts *p = &facts->parts;
        failed |= json_object_update_new(
            object, json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:f}", "sent", (json_int_t)p->n_sent, "own_values",
                              (json_int_t)p->n_values, "density",
                              info->n_elems ? (double)p->n_sent / (double)info->n_elems : 0.0, "head_bits",
                              (json_int_t)p->head_bits, "position_bits", (json_int_t)p->position_bits, "sign_bits",
                              (json_int_t)p->sign_bits, "value_bits", (json_int_t)p->value_bits, "position_entropy_bits",
                              p->position_entropy_bits, "value_entropy_bits", p->value_entropy_bits));
    }
    if (strcmp(info->codec, "gspar") == 0) {
        const gw_frame_parts *p = &facts->parts;
        failed |= json_object_update_new(object, json_pack("{s:I, s:I, s:f}", "part_a", (json_int_t)p->n_values, "part_b",
                                                           (json_int_t)(p->n_sent - p->n_values), "inverse_lambda",
                                                           (double)gw_frame_scaler(frame->bytes, frame->n_bytes, 0)));
    }
    failed |= json_object_set_new(object, "finite", json_boolean(facts->finite));
    failed |= json_object_set_new(object, "checksum", json_string("ok"));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}
