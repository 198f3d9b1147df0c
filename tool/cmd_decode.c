/* gradwire decode: turns a frame into a tensor. */
#include "npy.h"
#include "tool.h"
#include <stdlib.h>
#include <sys/stat.h>

/* True for OUT.npy, for OUT.f32, and for what is there already and is no regular file, which gets raw values. */
static bool legal_name(const char *path)
{
    struct stat about;
    return tool_has_suffix(path, ".npy") || tool_has_suffix(path, ".f32") ||
           (stat(path, &about) == 0 && !S_ISREG(about.st_mode));
}

static int write_tensor(const char *path, const float *values, uint64_t n_elems)
{
    if (!tool_has_suffix(path, ".npy"))
        return tool_write_file(path, values, n_elems * sizeof(float));
    tool_output output;
    TOOL_TRY(tool_npy_write(&output, path, values, &n_elems, 1));
    return tool_output_commit(&output);
}

int gw_cmd_decode(int argc, char **argv)
{
    const char *out_path = NULL;
    bool json = false;
    const tool_option options[] = {
        {"-o", "OUT", "where to write: OUT.f32 (raw little-endian float32) or OUT.npy", TOOL_OUTPUT, &out_path},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "decode IN.gw -o OUT.f32|OUT.npy",
        .about = "Decodes one frame: a worker's, or an average that reduce made.",
        .example = "gradwire decode average.gw -o average.npy",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = 1,
        .args = "decode takes one frame, IN.gw",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!out_path)
        return tool_wrong_use("-o is missing: where should the values go?");
    if (!legal_name(out_path))
        return tool_wrong_use("%s: the output's name must end in .f32 or .npy", out_path);
    TOOL_TRY(tool_check_apart("-o", out_path, "the input", argv[1]));

    tool_frame frame;
    TOOL_TRY(tool_read_frame(argv[1], &frame));
    const uint64_t n_elems = frame.info.n_elems;
    float *values = tool_alloc(n_elems, sizeof(float));
    int status =
        values ? tool_exit_status(gw_decode(NULL, frame.bytes, frame.n_bytes, values, n_elems), argv[1]) : TOOL_FAILED;
    if (status == TOOL_DONE)
        status = write_tensor(out_path, values, n_elems);
    if (status == TOOL_DONE)
        tool_note("%s: %llu elements from %llu on, %s of %u worker%s", out_path, (unsigned long long)n_elems,
                  (unsigned long long)frame.info.begin, frame.info.average ? "the average" : "the push",
                  frame.info.workers, frame.info.workers == 1 ? "" : "s");
    if (status == TOOL_DONE && json)
        status = tool_print_json(json_pack("{s:o, s:s, s:I, s:I}", "output", gw_json_text(out_path), "codec",
                                           frame.info.codec, "begin", (json_int_t)frame.info.begin, "elements",
                                           (json_int_t)n_elems));
    free(values);
    free(frame.bytes);
    return status;
}
