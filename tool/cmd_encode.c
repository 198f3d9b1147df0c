/* gradwire encode: turns a worker's tensor into a frame. */
#include "codec/state.h"
#include "base/numbers.h"
#include "json_file.h"
#include "tool.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct encode_job {
    const char *in_path, *out_path, *spec, *scaler, *state, *nonfinite;
    gw_draw draw;
    uint32_t tensor_id;
    bool json;
    gw_codec *codec;
    gw_encoder *encoder;
    tool_tensor tensor;
    float *shared; /* given scalers, or this worker's own */
    tool_frame frame;
    tool_output outputs[2]; /* the frame's; the state's, if there is one */
} encode_job;

/* The tensor's name, which the codec's skip= patterns see: the file's name without folder and suffix. */
static void tensor_name(const char *path, char *out, size_t capacity)
{
    const char *slash = strrchr(path, '/');
    snprintf(out, capacity, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot)
        *dot = 0;
}

/* Fills shared[0..count) from --scaler: a number, or a file with {"scaler": s} or {"scalers": [...]}. */
static int load_scalers(const char *given, uint64_t count, float *shared)
{
    double number;
    if (gw_parse_decimal(given, &number)) {
        if (count != 1)
            return tool_wrong_use("--scaler is one number, but this tensor has %llu buckets; give the file that "
                                  "'gradwire scaler --json' writes",
                                  (unsigned long long)count);
        shared[0] = (float)number;
        if (!(number >= 0) || !isfinite(shared[0]))
            return tool_wrong_use("--scaler is %s, and must be a float32 number, 0 or more", given);
        return 0;
    }
    if (access(given, F_OK) != 0)
        return tool_fail("--scaler %s is neither a number nor a file", given);
    json_t *object = tool_read_json(given, "file of scalers (JSON)", 65536 + 64 * (size_t)count);
    if (!object)
        return TOOL_FAILED;
    const json_t *one = json_object_get(object, "scaler"), *many = json_object_get(object, "scalers");
    const size_t n = json_is_array(many) ? json_array_size(many) : one != NULL;
    int status = n == count
                     ? TOOL_DONE
                     : tool_fail("%s has %zu scalers, and this tensor needs %llu", given, n, (unsigned long long)count);
    for (uint64_t i = 0; status == TOOL_DONE && i < count; i++) {
        const json_t *value = json_is_array(many) ? json_array_get(many, i) : one;
        if (!json_is_number(value))
            status = tool_fail("%s: a scaler is no number; 'gradwire scaler --json' writes such files", given);
        shared[i] = (float)json_number_value(value);
    }
    json_decref(object);
    return status;
}

/* Loads the state that an earlier call left. If the file is not there yet, nothing was left. */
static int load_state(encode_job *job)
{
    size_t n_bytes = gw_encoder_traits_of(job->encoder).state_bytes;
    if (n_bytes == 0)
        return tool_wrong_use("--state: codec %s keeps nothing between calls; leave --state away",
                              gw_codec_traits_of(job->codec).name);
    if (access(job->state, F_OK) != 0 && errno == ENOENT)
        return 0;
    size_t got;
    void *bytes = tool_read_file(job->state, "state", SIZE_MAX, &got);
    if (!bytes)
        return TOOL_FAILED;
    gw_status result = gw_encoder_load(job->encoder, bytes, got);
    free(bytes);
    return tool_exit_status(result, job->state);
}

/* Writes the state, but does not give the file its name yet. What was encoded counts as sent. */
static int write_state(encode_job *job)
{
    size_t n_bytes = gw_encoder_traits_of(job->encoder).state_bytes;
    uint8_t *bytes = tool_alloc(n_bytes, 1);
    int status = bytes ? tool_output_open(&job->outputs[1], job->state) : TOOL_FAILED;
    if (status == TOOL_DONE)
        status = tool_exit_status(gw_encoder_commit(job->encoder, true), job->state);
    if (status == TOOL_DONE)
        status = tool_exit_status(gw_encoder_save(job->encoder, bytes, n_bytes), job->state);
    if (status == TOOL_DONE)
        status = tool_output_write(&job->outputs[1], bytes, n_bytes);
    free(bytes);
    return status;
}

static int prepare(encode_job *job)
{
    TOOL_TRY(tool_exit_status(gw_codec_parse(NULL, job->spec, &job->codec), NULL));
    const gw_codec_traits traits = gw_codec_traits_of(job->codec);
    if (traits.momentum > 0 && !traits.velocity)
        return tool_wrong_use("--codec: with momentum= frames hold velocities, and decode cannot make gradients of "
                              "them; write output=velocity");
    TOOL_TRY(tool_read_tensor(job->in_path, &job->tensor));
    char name[GW_MAX_NAME];
    tensor_name(job->in_path, name, sizeof name);
    const gw_tensor about = {.name = name, .id = job->tensor_id, .n_elems = job->tensor.n_elems};
    TOOL_TRY(tool_exit_status(gw_encoder_create(NULL, job->codec, &about, &job->encoder), job->in_path));
    uint64_t count = gw_encoder_traits_of(job->encoder).n_shared;
    if (job->scaler && count == 0)
        return tool_wrong_use("--scaler: this tensor shares no scaler under %s; leave --scaler away",
                              gw_codec_traits_of(job->codec).canonical);
    if (!(job->shared = tool_alloc(count, sizeof(float))))
        return TOOL_FAILED;
    return job->state ? load_state(job) : 0;
}

/* Fills job->frame. If the tensor is not finite and may be skipped, returns TOOL_DONE and sets *skipped. */
static int encode(encode_job *job, bool *skipped)
{
    uint64_t n = job->tensor.n_elems;
    gw_measure measured;
    const uint64_t n_shared = gw_encoder_traits_of(job->encoder).n_shared;
    TOOL_TRY(tool_exit_status(gw_encoder_measure(job->encoder, job->tensor.values, job->shared, n_shared, &measured),
                              job->in_path));
    if (!measured.finite) {
        const double value = (double)job->tensor.values[measured.bad_index];
        char bad[128];
        snprintf(bad, sizeof bad, "element %llu is %g%s", (unsigned long long)measured.bad_index, value,
                 isfinite(value) ? ", which with what waits of it in the state is beyond float32" : "");
        *skipped = strcmp(job->nonfinite, "skip") == 0;
        if (!*skipped)
            return tool_fail("%s: %s; a gradient must be finite", job->in_path, bad);
        tool_note("%s: %s: skipped, nothing is written", job->in_path, bad);
        return 0;
    }
    TOOL_TRY(tool_exit_status(gw_encoders_combine(&job->encoder, 1, NULL), job->in_path));
    if (job->scaler)
        TOOL_TRY(load_scalers(job->scaler, n_shared, job->shared));
    size_t capacity = gw_encoder_bound(job->encoder, n);
    if (!(job->frame.bytes = tool_alloc(capacity, 1)))
        return TOOL_FAILED;
    TOOL_TRY(tool_output_open(&job->outputs[0], job->out_path));
    gw_status result = gw_encoder_encode(job->encoder, job->tensor.values, n_shared > 0 ? job->shared : NULL,
                                         &job->draw, 0, n, job->frame.bytes, capacity, &job->frame.n_bytes);
    if (result >= 0)
        result = gw_frame_parse(job->frame.bytes, job->frame.n_bytes, &job->frame.info);
    return tool_exit_status(result, job->in_path);
}

/* Adds what only this worker can say: the variance factor sum Q^2 / sum g^2 (GSpar), and what waits in the state. */
static int add_analysis(encode_job *job, json_t *object)
{
    uint64_t n = job->tensor.n_elems;
    float *sent = tool_alloc(n, sizeof *sent);
    if (!sent)
        return TOOL_FAILED;
    double sum_sent = 0, sum = 0;
    gw_status result = gw_decode(NULL, job->frame.bytes, job->frame.n_bytes, sent, n);
    for (uint64_t i = 0; i < n && result >= 0; i++) {
        sum_sent += (double)sent[i] * (double)sent[i];
        sum += (double)job->tensor.values[i] * (double)job->tensor.values[i];
    }
    free(sent);
    if (result < 0)
        return tool_exit_status(result, job->out_path);
    json_object_set_new(object, "variance_factor", gw_json_real(sum_sent / sum));
    if (gw_encoder_traits_of(job->encoder).state_bytes > 0 && job->state) {
        gw_encoder_condition condition;
        gw_encoder_describe(job->encoder, &condition);
        json_object_update_new(object,
                               json_pack("{s:f, s:f, s:I}", "residual_norm", condition.residual_norm, "threshold",
                                         condition.threshold, "threshold_age", (json_int_t)condition.threshold_age));
    }
    return TOOL_DONE;
}

static int deliver(encode_job *job)
{
    const gw_frame_info *info = &job->frame.info;
    tool_frame_facts facts;
    if (job->json)
        TOOL_TRY(tool_frame_examine(job->out_path, &job->frame, &facts));
    /* Both files are whole before either gets its name, and they get them together. If the frame had its name and the
     * state did not, the next call would send the same again. */
    TOOL_TRY(tool_output_write(&job->outputs[0], job->frame.bytes, job->frame.n_bytes));
    if (job->state)
        TOOL_TRY(write_state(job));
    TOOL_TRY(tool_output_commit_all(job->outputs, job->state ? 2 : 1));
    tool_note("%s: %llu elements, %zu bytes, code %s", job->out_path, (unsigned long long)info->n_elems,
              info->frame_bytes, info->code);
    if (!job->json)
        return TOOL_DONE;
    json_t *object = tool_frame_json(&job->frame, &facts);
    if (add_analysis(job, object) != TOOL_DONE) {
        json_decref(object);
        return TOOL_FAILED;
    }
    return tool_print_json(object);
}

int gw_cmd_encode(int argc, char **argv)
{
    encode_job job = {.nonfinite = "stop", .outputs = {TOOL_OUTPUT_CLOSED, TOOL_OUTPUT_CLOSED}};
    const tool_option options[] = {
        {"--codec", "SPEC", "codec and options, for example ternary:code=mask ('gradwire codecs' lists them)",
         TOOL_TEXT, &job.spec},
        {"-o", "OUT.gw", "where to write the frame", TOOL_OUTPUT, &job.out_path},
        {"--seed", "S", "seed of the random draws (default 0)", TOOL_U64, &job.draw.seed},
        {"--rank", "R", "this worker's rank (default 0)", TOOL_U32, &job.draw.rank, 0, GW_MAX_WORKERS - 1},
        {"--step", "T", "the step (default 0)", TOOL_U32, &job.draw.step},
        {"--tensor", "ID", "the tensor's position among all tensors (default 0)", TOOL_U32, &job.tensor_id},
        {"--scaler", "X|FILE", "the shared scaler, or what 'gradwire scaler --json' wrote (default: this tensor's own)",
         TOOL_TEXT, &job.scaler},
        {"--nonfinite", "stop|skip",
         "at a NaN or infinity: stop with an error (default), or skip: write nothing and succeed", TOOL_TEXT,
         &job.nonfinite},
        {"--state", "FILE",
         "the codec's state (residual, threshold): encode reads FILE if it is there, and writes it after OUT.gw",
         TOOL_OUTPUT, &job.state},
        {"--json", NULL, "one JSON object on standard output: what inspect says of OUT.gw, and the variance factor",
         TOOL_FLAG, &job.json},
    };
    const tool_usage usage = {
        .synopsis = "encode --codec SPEC [options] IN.f32|IN.npy -o OUT.gw",
        .about = "Encodes one worker's tensor into one frame. The frame depends on the values, the codec, seed, rank, "
                 "step and tensor id, and on nothing else. The tensor's name, which skip= looks at, is the file's name "
                 "without its suffix.",
        .example = "gradwire encode --codec ternary --seed 1 --rank 0 grad0.npy -o w0.gw",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = 1,
        .args = "encode takes one tensor, IN.f32 or IN.npy",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!job.spec)
        return tool_wrong_use("--codec is missing, e.g. --codec ternary");
    if (!job.out_path)
        return tool_wrong_use("-o is missing: where should the frame go?");
    if (strcmp(job.nonfinite, "stop") != 0 && strcmp(job.nonfinite, "skip") != 0)
        return tool_wrong_use("--nonfinite is '%s', and must be stop or skip", job.nonfinite);
    job.in_path = argv[1];
    double number;
    const char *scaler_file = job.scaler && !gw_parse_decimal(job.scaler, &number) ? job.scaler : NULL;
    TOOL_TRY(tool_check_apart("-o", job.out_path, "--state", job.state));
    TOOL_TRY(tool_check_apart("-o", job.out_path, "the input", job.in_path));
    TOOL_TRY(tool_check_apart("-o", job.out_path, "--scaler", scaler_file));
    TOOL_TRY(tool_check_apart("--state", job.state, "the input", job.in_path));
    TOOL_TRY(tool_check_apart("--state", job.state, "--scaler", scaler_file));

    bool skipped = false;
    int status = prepare(&job);
    if (status == 0)
        status = encode(&job, &skipped);
    if (status == 0 && skipped)
        status = job.json ? tool_print_json(json_pack("{s:b}", "skipped", 1)) : TOOL_DONE;
    else if (status == 0)
        status = deliver(&job);
    tool_output_discard(&job.outputs[0]);
    tool_output_discard(&job.outputs[1]);
    gw_encoder_destroy(job.encoder);
    free(job.shared);
    free(job.frame.bytes);
    free(job.tensor.values);
    gw_codec_destroy(job.codec);
    return status;
}
