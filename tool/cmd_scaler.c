/* gradwire scaler: finds the scaler that workers share (TernGrad, eq. 4: the maximum of their own). */
#include "tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* True if the specification asks for buckets. It reads the canonical text, which spells out every option. */
static bool has_buckets(const gw_codec *codec)
{
    const char *option = strstr(gw_codec_traits_of(codec).canonical, "bucket=");
    return option && strtoull(option + strlen("bucket="), NULL, 10) > 0;
}

/* Measures one worker's tensor. *own gets the worker's numbers, *count of them; the caller frees it. */
static int measure(const gw_codec *codec, const char *path, uint64_t *n_elems, float **own, uint64_t *count)
{
    tool_tensor tensor;
    gw_encoder *encoder = NULL;
    gw_measure measured;
    TOOL_TRY(tool_read_tensor(path, &tensor));
    const gw_tensor about = {.n_elems = tensor.n_elems};
    int status = tool_exit_status(gw_encoder_create(NULL, codec, &about, &encoder), path);
    *n_elems = tensor.n_elems;
    *count = status == TOOL_DONE ? gw_encoder_traits_of(encoder).n_shared : 0;
    /* a tensor without elements has no buckets, and so no scalers */
    if (status == TOOL_DONE && *count == 0 && (tensor.n_elems || !has_buckets(codec)))
        status = tool_wrong_use("%s: workers share no scaler under %s", path, gw_codec_traits_of(codec).canonical);
    if (status == TOOL_DONE && !(*own = tool_alloc(*count, sizeof(float))))
        status = TOOL_FAILED;
    if (status == TOOL_DONE)
        status = tool_exit_status(gw_encoder_measure(encoder, tensor.values, *own, *count, &measured), path);
    if (status == TOOL_DONE && !measured.finite)
        status = tool_fail("%s: element %llu is %g; a gradient must be finite", path,
                           (unsigned long long)measured.bad_index, (double)tensor.values[measured.bad_index]);
    gw_encoder_destroy(encoder);
    free(tensor.values);
    return status;
}

static int combine(const gw_codec *codec, char **paths, int n_paths, float **shared, uint64_t *count)
{
    uint64_t first_elems = 0;
    for (int i = 0; i < n_paths; i++) {
        float *own = NULL;
        uint64_t n_elems = 0, n_own = 0;
        int status = measure(codec, paths[i], &n_elems, &own, &n_own);
        if (status != 0) {
            free(own);
            return status;
        }
        if (i == 0) {
            *shared = own;
            *count = n_own;
            first_elems = n_elems;
            continue;
        }
        /* If one scaler is for the whole network, the tensors may have any sizes. */
        bool fits = n_own == *count && (n_elems == first_elems || gw_codec_traits_of(codec).global);
        for (uint64_t k = 0; fits && k < n_own; k++)
            if (own[k] > (*shared)[k])
                (*shared)[k] = own[k];
        free(own);
        if (!fits)
            return tool_fail("%s has %llu elements and %s has %llu; workers' tensors are of one size", paths[0],
                             (unsigned long long)first_elems, paths[i], (unsigned long long)n_elems);
    }
    return 0;
}

static int print_scalers(const float *shared, uint64_t count, bool buckets, bool json)
{
    if (!json) {
        for (uint64_t i = 0; i < count; i++)
            printf("%.9g\n", (double)shared[i]);
        return tool_finish_output();
    }
    if (!buckets)
        return tool_print_json(json_pack("{s:f}", "scaler", (double)shared[0]));
    json_t *all = json_array();
    for (uint64_t i = 0; i < count; i++)
        json_array_append_new(all, json_real((double)shared[i]));
    return tool_print_json(json_pack("{s:o}", "scalers", all));
}

int gw_cmd_scaler(int argc, char **argv)
{
    const char *spec = NULL;
    bool json = false;
    const tool_option options[] = {
        {"--codec", "SPEC", "codec and options, e.g. ternary:clip=2.5", TOOL_TEXT, &spec},
        {"--json", NULL, "{\"scaler\": s}, with buckets {\"scalers\": [...]}: what encode --scaler takes as a file",
         TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "scaler --codec SPEC IN.f32|IN.npy... [--json]",
        .about = "Prints the shared scaler of these workers' tensors: the largest of their own.",
        .example = "gradwire scaler --codec ternary grad0.npy grad1.npy --json > scaler.json",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = -1,
        .args = "scaler takes the workers' tensors, IN.f32 or IN.npy",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!spec)
        return tool_wrong_use("--codec is missing, e.g. --codec ternary");
    gw_codec *codec = NULL;
    float *shared = NULL;
    uint64_t count = 0;
    int status = tool_exit_status(gw_codec_parse(NULL, spec, &codec), NULL);
    if (status == TOOL_DONE)
        status = combine(codec, argv + 1, argc - 1, &shared, &count);
    /* The option decides how scalers are printed: a tensor of one bucket prints like a tensor with many. */
    if (status == 0)
        status = print_scalers(shared, count, has_buckets(codec), json);
    free(shared);
    gw_codec_destroy(codec);
    return status;
}
