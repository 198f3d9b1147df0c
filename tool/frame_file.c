/* Reads frames from files, and tells about one what `inspect`, `encode` and `reduce` print. */
#include "codec/parts.h"
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The other files that Gradwire writes: how each begins, what it is, and what reads it. */
static const struct {
    const char *magic, *what, *reader;
} others[] = {
    {"GWPARAM1", "parameters of a network", "'gradwire eval --from FILE' and 'gradwire export --from FILE' read it"},
    {"GWSTATE1", "a worker's codec state, beside a checkpoint", "'gradwire train --resume RUN' reads it"},
    {"GWST", "a codec's state between calls", "'gradwire encode --state FILE' reads it"},
    {"SQLite f", "an SQLite database", "'gradwire server --snapshot DIR' has one in its folder"},
    {"GWPNEWST", "a number that a parameter server keeps", "'gradwire server --snapshot DIR' reads its folder"},
    {"\x93NUMPY", "a tensor", "'gradwire encode' makes a frame of it"},
};

static bool is_other_file(const char *path, const tool_frame *file)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t n = strlen(others[i].magic);
        if (file->n_bytes >= n && memcmp(file->bytes, others[i].magic, n) == 0) {
            tool_fail("%s is no frame; it holds %s: %s", path, others[i].what, others[i].reader);
            return true;
        }
    }
    return false;
}

int tool_read_frame(const char *path, tool_frame *out)
{
    *out = (tool_frame){0};
    out->bytes = tool_read_file(path, "frame", SIZE_MAX, &out->n_bytes);
    if (!out->bytes)
        return TOOL_FAILED;
    const gw_status parsed = gw_frame_parse(out->bytes, out->n_bytes, &out->info);
    int status = parsed < 0 && is_other_file(path, out) ? TOOL_FAILED : tool_exit_status(parsed, path);
    if (status == TOOL_DONE && out->info.frame_bytes != out->n_bytes)
        status = tool_fail("%s: %zu bytes follow the frame's %zu; a file holds one frame", path,
                           out->n_bytes - out->info.frame_bytes, out->info.frame_bytes);
    if (status != TOOL_DONE) {
        free(out->bytes);
        *out = (tool_frame){0};
    }
    return status;
}

/* Finds out whether every value of a frame is finite. It decodes the frame only if it must. */
static int check_finite(const char *path, const tool_frame *frame, bool *finite)
{
    *finite = true;
    if (frame->info.always_finite || frame->info.n_elems == 0)
        return TOOL_DONE;
    float *values = tool_alloc(frame->info.n_elems, sizeof(float));
    if (!values)
        return TOOL_FAILED;
    gw_status status = gw_decode(NULL, frame->bytes, frame->n_bytes, values, frame->info.n_elems);
    for (uint64_t i = 0; status >= 0 && i < frame->info.n_elems; i++)
        *finite = *finite && isfinite(values[i]);
    free(values);
    return tool_exit_status(status, path);
}

int tool_frame_examine(const char *path, const tool_frame *frame, tool_frame_facts *out)
{
    *out = (tool_frame_facts){0};
    gw_status status =
        gw_frame_symbols(NULL, frame->bytes, frame->n_bytes, NULL, 0, &out->nonzeros, &out->entropy_bits);
    if (status >= 0)
        status = gw_frame_read_parts(NULL, frame->bytes, frame->n_bytes, &out->parts);
    if (status < 0)
        return tool_exit_status(status, path);
    out->times_smaller = 4.0 * (double)frame->info.n_elems / (double)frame->info.frame_bytes;
    if (frame->info.n_elems > 0)
        out->bits_per_element = 8.0 * (double)frame->info.payload_bytes / (double)frame->info.n_elems;
    return check_finite(path, frame, &out->finite);
}

json_t *tool_frame_json(const tool_frame *frame, const tool_frame_facts *facts)
{
    const gw_frame_info *info = &frame->info;
    const gw_frame_parts *p = &facts->parts;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", //
                  "codec", info->codec, "code", info->code, "frame", info->average ? "average" : "push", "workers",
                  (json_int_t)info->workers, "rank", (json_int_t)info->rank, "step", (json_int_t)info->step, "tensor",
                  (json_int_t)info->tensor_id, "begin", (json_int_t)info->begin, "elements", (json_int_t)info->n_elems,
                  "frame_bytes", (json_int_t)info->frame_bytes, "payload_bytes", (json_int_t)info->payload_bytes,
                  "times_smaller", facts->times_smaller, "bits_per_element", facts->bits_per_element,
                  "entropy_bits_per_element", facts->entropy_bits, "nonzeros", (json_int_t)facts->nonzeros);
    if (info->n_scalers > 0) {
        /* If there are several scalers, "scaler" is the largest, and a list has all of them. */
        bool several = info->n_scalers > 1 || info->bucket > 0;
        float largest = 0;
        json_t *all = json_array();
        for (uint64_t i = 0; i < info->n_scalers; i++) {
            float scaler = gw_frame_scaler(frame->bytes, frame->n_bytes, i);
            largest = scaler > largest ? scaler : largest;
            if (several)
                json_array_append_new(all, json_real(isfinite(scaler) ? (double)scaler : 0.0));
        }
        json_object_set_new(object, "scaler", json_real(isfinite(largest) ? (double)largest : 0.0));
        if (info->bucket > 0)
            json_object_set_new(object, "bucket", json_integer((json_int_t)info->bucket));
        if (several)
            json_object_set(object, "scalers", all);
        json_decref(all);
    }
    if (p->sparse)
        json_object_update_new(object,
                               json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:f}", "sent", (json_int_t)p->n_sent,
                                         "own_values", (json_int_t)p->n_values, "density",
                                         info->n_elems ? (double)p->n_sent / (double)info->n_elems : 0.0, "head_bits",
                                         (json_int_t)p->head_bits, "position_bits", (json_int_t)p->position_bits,
                                         "sign_bits", (json_int_t)p->sign_bits, "value_bits", (json_int_t)p->value_bits,
                                         "position_entropy_bits", p->position_entropy_bits, "value_entropy_bits",
                                         p->value_entropy_bits));
    if (p->two_parts)
        json_object_update_new(object, json_pack("{s:I, s:I, s:f}", "part_a", (json_int_t)p->n_values, "part_b",
                                                 (json_int_t)(p->n_sent - p->n_values), "inverse_lambda",
                                                 (double)gw_frame_scaler(frame->bytes, frame->n_bytes, 0)));
    json_object_set_new(object, "finite", json_boolean(facts->finite));
    json_object_set_new(object, "checksum", json_string("ok"));
    return object;
}
