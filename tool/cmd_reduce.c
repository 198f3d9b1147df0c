/* gradwire reduce: makes one frame of the average, as an owner does. */
#include "tool.h"
#include <stdlib.h>

static int deliver(tool_output *output, const char *path, void *bytes, size_t n_bytes, bool json)
{
    tool_frame average = {.bytes = bytes, .n_bytes = n_bytes};
    tool_frame_facts facts;
    TOOL_TRY(tool_exit_status(gw_frame_parse(bytes, n_bytes, &average.info), path));
    if (json)
        TOOL_TRY(tool_frame_examine(path, &average, &facts));
    TOOL_TRY(tool_output_write(output, bytes, n_bytes));
    TOOL_TRY(tool_output_commit(output));
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
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!out_path)
        return tool_wrong_use("-o is missing: where should the average go?");
    uint32_t n = (uint32_t)(argc - 1);
    for (uint32_t i = 0; i < n; i++)
        TOOL_TRY(tool_check_apart("-o", out_path, "an input", argv[1 + i]));

    gw_codec *codec = NULL;
    tool_output output = TOOL_OUTPUT_CLOSED;
    void *average = NULL;
    size_t capacity = 0, average_bytes;
    tool_frame *frames = calloc(n, sizeof *frames);
    const void **bytes = calloc(n, sizeof *bytes);
    size_t *sizes = calloc(n, sizeof *sizes);
    int status = !frames || !bytes || !sizes ? tool_fail("out of memory")
                 : spec                      ? tool_exit_status(gw_codec_parse(NULL, spec, &codec), NULL)
                                             : TOOL_DONE;
    for (uint32_t i = 0; status == TOOL_DONE && i < n; i++) {
        status = tool_read_frame(argv[1 + i], &frames[i]);
        bytes[i] = frames[i].bytes;
        sizes[i] = frames[i].n_bytes;
    }
    if (status == TOOL_DONE) {
        capacity = gw_reduce_bound(bytes, sizes, n);
        average = tool_alloc(capacity, 1);
        status = average ? tool_output_open(&output, out_path) : TOOL_FAILED;
    }
    const gw_reduce_options reduce = {.struct_bytes = sizeof reduce, .codec = codec};
    if (status == TOOL_DONE)
        status = tool_exit_status(gw_reduce(NULL, bytes, sizes, n, &reduce, average, capacity, &average_bytes), NULL);
    if (status == TOOL_DONE)
        status = deliver(&output, out_path, average, average_bytes, json);
    tool_output_discard(&output);
    for (uint32_t i = 0; frames && i < n; i++)
        free(frames[i].bytes);
    free(frames);
    free(bytes);
    free(sizes);
    free(average);
    gw_codec_destroy(codec);
    return status;
}
