/* gradwire reduce: makes one frame of the average, as an owner does. */
#include "tool.h"
#include <stdlib.h>

/* Reads all frames. `out` has room for n of them, and is cleared before. */
static int read_frames(char **paths, uint32_t n, tool_frame *out, const void **bytes, size_t *sizes)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tool_read_frame(paths[i], &out[i]) != 0)
            return -1;
        bytes[i] = out[i].bytes;
        sizes[i] = out[i].n_bytes;
    }
    return 0;
}

/* Writes the average and tells about it. Returns an exit status. */
static int deliver(gw_context *context, tool_output *output, const char *path, void *bytes, size_t n_bytes, bool json)
{
    tool_frame average = {.bytes = bytes, .n_bytes = n_bytes};
    tool_frame_facts facts;
    gw_status result = gw_frame_parse(bytes, n_bytes, &average.info);
    if (result < 0)
        return tool_fail_status(result, path);
    if (json && tool_frame_examine(context, path, &average, &facts) != 0)
        return TOOL_FAILED;
    if (tool_output_write(output, bytes, n_bytes) != 0 || tool_output_commit(output) != 0)
        return TOOL_FAILED;
    tool_note("%s: the average of %u worker%s, %llu elements, %zu bytes, code %s", path, average.info.workers,
              average.info.workers == 1 ? "" : "s", (unsigned long long)average.info.n_elems, n_bytes,
              average.info.code);
    return json ? tool_print_json(tool_frame_json(&average, &facts)) : TOOL_DONE;
}

int gw_cmd_reduce(int argc, char **argv)
{
    const char *out_path = NULL, *spec = NULL;
    bool json = false;
    const tool_option options[] = {
        {"-o", "OUT.gw", "where to write the average", TOOL_OUTPUT, &out_path},
        {"--codec", "SPEC", "ternary frames: its pull= and entropy= choose how the average is packed", TOOL_TEXT,
         &spec},
        {"--json", NULL, "one JSON object on standard output: what inspect says of OUT.gw", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "reduce IN.gw... -o OUT.gw [--codec SPEC] [--json]",
        .about = "Adds the frames that the workers pushed for one slice, in rank order, and writes one frame that "
                 "holds their average. Ternary frames with a shared scaler are added as integers. Frames of topk and "
                 "uniform are both sparse, whatever their options, so they add up together.",
        .example = "gradwire reduce w0.gw w1.gw w2.gw w3.gw -o average.gw",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = GW_MAX_WORKERS,
        .args = "reduce takes the frames of the workers, IN.gw...",
    };
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    if (!out_path)
        return tool_wrong_use("-o is missing: where should the average go?");
    uint32_t n = (uint32_t)(argc - 1);
    for (uint32_t i = 0; i < n; i++) {
        const tool_named_file files[] = {{"-o", out_path, true}, {"an input", argv[1 + i], false}};
        if ((status = tool_check_apart(files, 2)) != 0)
            return status;
    }

    gw_context *context = NULL;
    gw_codec *codec = NULL;
    tool_output output = TOOL_OUTPUT_CLOSED;
    void *average = NULL;
    size_t average_bytes;
    tool_frame *frames = calloc(n, sizeof *frames);
    const void **bytes = calloc(n, sizeof *bytes);
    size_t *sizes = calloc(n, sizeof *sizes);
    status = TOOL_FAILED;
    if (!frames || !bytes || !sizes) {
        tool_fail("out of memory");
        goto done;
    }
    gw_status result = gw_context_create(NULL, &context);
    if (result >= 0 && spec)
        result = gw_codec_parse(context, spec, &codec);
    if (result < 0) {
        status = tool_fail_status(result, NULL);
        goto done;
    }
    if (read_frames(argv + 1, n, frames, bytes, sizes) != 0)
        goto done;
    size_t capacity = gw_reduce_bound(bytes, sizes, n);
    if (!(average = tool_alloc(capacity, 1)) || tool_output_open(&output, out_path) != 0)
        goto done;
    const gw_reduce_options reduce = {.struct_bytes = sizeof reduce, .codec = codec};
    result = gw_reduce(context, bytes, sizes, n, &reduce, average, capacity, &average_bytes);
    if (result < 0)
        status = tool_fail_status(result, NULL);
    else
        status = deliver(context, &output, out_path, average, average_bytes, json);
done:
    tool_output_discard(&output);
    for (uint32_t i = 0; frames && i < n; i++)
        free(frames[i].bytes);
    free(frames);
    free(bytes);
    free(sizes);
    free(average);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
    return status;
}
