/* gradwire bench codec: measures how long encode, decode and reduce take, beside memcpy of the same floats in the same
 * run.
 *
 * The gradient is drawn (probe/gradient.h). Worker w's gradient is the same sequence read 1024*w elements further on,
 * so that W workers need the memory of one. Every operation is run once to touch its buffers, then R times, each run
 * after one memcpy; medians are reported. memcpy runs on one thread whatever --threads says. Codecs that keep a state
 * (topk) have been through some steps before, and every timed one begins where those ended: with a residual, and with a
 * threshold that the last of them took. If refresh is above 1, that threshold is used again. */
#include "base/cpu.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/gradient.h"
#include "pushes.h"
#include "tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKER_STRIDE 1024u /* elements between the gradients of two workers */
#define SETTLING_STEPS 16u

/* For --json without --codec. The specifications that name a code have no entropy stage and name their pull code, so
 * that each code is shown by itself. */
static const char *const default_specs[] = {
    "none",
    "bf16",
    "ternary:code=2bit,pull=packed,entropy=off",
    "ternary:code=base3,pull=packed,entropy=off",
    "ternary:code=mask,pull=packed,entropy=off",
    "ternary",
    "ternary:bucket=65536,share=off,code=mask,entropy=off",
    "gspar",
    "gspar:density=0.01",
    "uniform:density=0.01",
    "topk:ratio=0.01,refresh=1",
    "topk:ratio=0.01",
    NULL,
};

/* For the table without --codec: one of each kind. */
static const char *const table_specs[] = {
    "none", "bf16", "f16", "ternary", "gspar", "uniform:density=0.01", "topk:ratio=0.01", "onebit", NULL,
};

typedef struct bench {
    gw_context *context;
    uint64_t n_elems;
    uint32_t threads, runs, workers;
    float *gradients;     /* of all workers: n_elems + WORKER_STRIDE * (workers - 1) */
    float *copy;          /* n_elems; memcpy and decode write here */
    double *copy_seconds; /* of every memcpy so far */
    size_t n_copies;
    json_t *results;
    double began;
    size_t spec, n_specs;
} bench;

typedef struct subject {
    const char *spec;
    gw_codec *codec;
    struct tool_pushes pushes;
} subject;

static const float *gradient_of(void *user, uint32_t worker)
{
    const bench *b = user;
    return b->gradients + (uint64_t)worker * WORKER_STRIDE;
}

static void progress(const bench *b, const char *spec, const char *operation)
{
    double spent = gw_clock_seconds() - b->began;
    char left[32] = "";
    if (b->spec > 0)
        snprintf(left, sizeof left, ", %.0f s left", spent / (double)b->spec * (double)(b->n_specs - b->spec));
    tool_progress("%zu of %zu: %s, %s%s", b->spec + 1, b->n_specs, spec, operation, left);
}

/* ---- the operations ---- */

enum operation { ENCODE, DECODE, REDUCE, DECODE_AVERAGE, OPERATIONS };
static const char *const operations[OPERATIONS] = {"encode", "decode", "reduce", "decode_average"};

static gw_status operate(bench *b, subject *s, enum operation operation)
{
    const struct tool_pushes *p = &s->pushes;
    switch (operation) {
    case ENCODE:
        return tool_pushes_encode(&s->pushes, 0);
    case DECODE:
        return gw_decode(b->context, p->frames[0], p->frame_bytes[0], b->copy, b->n_elems);
    case REDUCE:
        return tool_pushes_reduce(&s->pushes);
    default:
        return gw_decode(b->context, p->average, p->average_bytes, b->copy, b->n_elems);
    }
}

static int time_operation(bench *b, subject *s, enum operation operation, double *seconds)
{
    double *samples = tool_alloc(b->runs, sizeof *samples);
    if (!samples)
        return TOOL_FAILED;
    gw_status status = operate(b, s, operation);
    for (uint32_t run = 0; run < b->runs && status >= 0; run++) {
        double start = gw_clock_seconds();
        memcpy(b->copy, b->gradients, b->n_elems * sizeof(float));
        b->copy_seconds[b->n_copies++] = gw_clock_seconds() - start;
        start = gw_clock_seconds();
        status = operate(b, s, operation);
        samples[run] = gw_clock_seconds() - start;
    }
    *seconds = gw_median(samples, b->runs);
    free(samples);
    return tool_exit_status(status, s->spec);
}

/* Adds a row. Its memcpy_ratio is added when all memcpys are done. */
static int add_row(bench *b, const subject *s, enum operation operation, double seconds)
{
    const bool push = operation < REDUCE;
    const void *frame = push ? s->pushes.frames[0] : s->pushes.average;
    const size_t frame_bytes = push ? s->pushes.frame_bytes[0] : s->pushes.average_bytes;
    gw_frame_info info;
    uint64_t nonzeros;
    double entropy;
    gw_status status = gw_frame_parse(frame, frame_bytes, &info);
    if (status >= 0)
        status = gw_frame_symbols(b->context, frame, frame_bytes, NULL, 0, &nonzeros, &entropy);
    if (status < 0)
        return tool_exit_status(status, s->spec);
    double n = (double)b->n_elems;
    json_t *row = json_pack("{s:o, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "codec", gw_json_text(s->spec), "operation",
                            operations[operation], "frame", push ? "push" : "average", "code", info.code, "seconds",
                            seconds, "elements_per_second", n / seconds, "bits_per_element",
                            8.0 * (double)info.payload_bytes / n, "entropy_bits_per_element", entropy);
    return json_array_append_new(b->results, row) == 0 ? 0 : tool_fail("out of memory for the results");
}

/* Takes an encoder with refresh=1 through SETTLING_STEPS steps. Then the subject's encoder gets its state. */
static gw_status settle(bench *b, subject *s)
{
    char spec[512];
    const char *canonical = gw_codec_traits_of(s->codec).canonical, *refresh = strstr(canonical, "refresh=");
    int before = refresh ? (int)(refresh - canonical) : (int)strlen(canonical);
    snprintf(spec, sizeof spec, "%.*s%s%s", before, canonical, refresh ? "refresh=1" : "",
             refresh ? refresh + strcspn(refresh, ",") : "");
    gw_codec *codec = NULL;
    struct tool_pushes alone = s->pushes; /* so it shares its own numbers */
    alone.encoder = NULL;
    alone.shared = alone.own;
    const gw_tensor tensor = {.name = "gradient", .n_elems = b->n_elems};
    size_t n_bytes = gw_encoder_traits_of(s->pushes.encoder).state_bytes;
    void *state = tool_alloc(n_bytes, 1);
    gw_status status = state ? gw_codec_parse(b->context, spec, &codec) : GW_ERR_MEMORY;
    if (status >= 0)
        status = gw_encoder_create(b->context, codec, &tensor, &alone.encoder);
    for (uint32_t step = 0; step < SETTLING_STEPS && status >= 0; step++) {
        status = tool_pushes_encode(&alone, step % b->workers);
        if (status >= 0)
            status = gw_encoder_commit(alone.encoder, true);
    }
    if (status >= 0)
        status = gw_encoder_save(alone.encoder, state, n_bytes);
    if (status >= 0)
        status = gw_encoder_load(s->pushes.encoder, state, n_bytes);
    gw_encoder_destroy(alone.encoder);
    gw_codec_destroy(codec);
    free(state);
    return status;
}

static gw_status prepare_subject(bench *b, subject *s)
{
    GW_TRY(gw_codec_parse(b->context, s->spec, &s->codec));
    s->pushes = (struct tool_pushes){.context = b->context,
                                     .codec = s->codec,
                                     .n_workers = b->workers,
                                     .n_elems = b->n_elems,
                                     .gradient_of = gradient_of,
                                     .user = b};
    GW_TRY(tool_pushes_begin(&s->pushes));
    if (gw_encoder_traits_of(s->pushes.encoder).state_bytes > 0)
        GW_TRY(settle(b, s));
    return tool_pushes_make(&s->pushes);
}

static int measure_subject(bench *b, subject *s)
{
    for (enum operation o = ENCODE; o < OPERATIONS; o++) {
        double seconds;
        progress(b, s->spec, operations[o]);
        TOOL_TRY(time_operation(b, s, o, &seconds));
        TOOL_TRY(add_row(b, s, o, seconds));
    }
    return 0;
}

/* ---- the report ---- */

static double field(const bench *b, size_t row, const char *name)
{
    return json_real_value(json_object_get(json_array_get(b->results, row), name));
}

/* One line a codec: each has OPERATIONS rows in the results, in the order of measure_subject. */
static void print_table(const bench *b)
{
    enum { NAME = 24 };
    printf("%-*s %31s %7s %15s %15s\n", NAME, "", "milliseconds", "memcpys", "bits of a push", "of the average");
    printf("%-*s %7s %7s %7s %7s %7s %7s %7s %7s %7s\n", NAME, "codec", "encode", "decode", "reduce", "average",
           "encode", "payload", "entropy", "payload", "entropy");
    for (size_t r = 0; r < json_array_size(b->results); r += OPERATIONS) {
        const char *spec = json_string_value(json_object_get(json_array_get(b->results, r), "codec"));
        printf("%-*s", NAME, spec);
        if (strlen(spec) > NAME)
            printf("\n%-*s", NAME, "");
        for (size_t o = ENCODE; o < OPERATIONS; o++)
            printf(" %7.2f", 1e3 * field(b, r + o, "seconds"));
        printf(" %7.2f %7.4f %7.4f %7.4f %7.4f\n", field(b, r + ENCODE, "memcpy_ratio"),
               field(b, r + ENCODE, "bits_per_element"), field(b, r + ENCODE, "entropy_bits_per_element"),
               field(b, r + REDUCE, "bits_per_element"), field(b, r + REDUCE, "entropy_bits_per_element"));
    }
}

static int report(bench *b, bool json)
{
    double copy = gw_median(b->copy_seconds, b->n_copies);
    size_t i;
    json_t *row;
    json_array_foreach (b->results, i, row) {
        double seconds = json_real_value(json_object_get(row, "seconds"));
        json_object_set_new(row, "memcpy_ratio", json_real(seconds / copy));
    }
    if (json)
        return tool_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:O}", "cpu", gw_cpu_level(), "threads",
                                         (json_int_t)b->threads, "elements", (json_int_t)b->n_elems, "workers",
                                         (json_int_t)b->workers, "runs", (json_int_t)b->runs, "memcpy_seconds", copy,
                                         "results", b->results));
    printf(
        "%llu elements, kernels %s, %u thread%s, medians of %u runs; memcpy %.2f ms (%.1f GB/s read and written)\n\n",
        (unsigned long long)b->n_elems, gw_cpu_level(), b->threads, b->threads == 1 ? "" : "s", b->runs, copy * 1e3,
        2.0 * (double)b->n_elems * sizeof(float) / copy * 1e-9);
    print_table(b);
    printf(
        "\nmemcpys: encode's time in memcpys; reduce adds %u workers, and average decodes their sum. Bits are payload "
        "an element,\nbehind them the order-0 entropy of the symbols (0 for floats).\n",
        b->workers);
    return tool_finish_output();
}

static int prepare(bench *b)
{
    const gw_context_options options = {.struct_bytes = sizeof options, .n_threads = b->threads};
    TOOL_TRY(tool_exit_status(gw_context_create(&options, &b->context), NULL));
    b->gradients = tool_alloc(b->n_elems + (uint64_t)WORKER_STRIDE * (b->workers - 1), sizeof(float));
    b->copy = tool_alloc(b->n_elems, sizeof(float));
    b->copy_seconds = tool_alloc((uint64_t)b->runs * 4 * b->n_specs, sizeof(double));
    b->results = json_array();
    if (!b->gradients || !b->copy || !b->copy_seconds || !b->results)
        return TOOL_FAILED;
    tool_progress("drawing %llu elements", (unsigned long long)b->n_elems);
    gw_draw_gradient(b->gradients, 0, b->n_elems + (uint64_t)WORKER_STRIDE * (b->workers - 1));
    memcpy(b->copy, b->gradients, b->n_elems * sizeof(float));
    return 0;
}

int tool_bench_codec(int argc, char **argv)
{
    bench b = {.n_elems = 64ull << 20, .threads = 1, .runs = 7, .workers = 8};
    tool_texts specs = {.n = 0};
    bool json = false;
    const tool_option options[] = {
        {"--codec", "SPEC",
         "measure this codec; may be given several times (default: one of each kind; with "
         "--json also variants of their options)",
         TOOL_TEXTS, &specs},
        {"--elements", "N", "elements of the gradient (default 64Mi)", TOOL_U64, &b.n_elems, 1, GW_MAX_ELEMENTS},
        {"--threads", "T", "codec threads (default 1)", TOOL_U32, &b.threads, 1, 256},
        {"--runs", "R", "how many runs; the median counts (default 7)", TOOL_U32, &b.runs, 1, 1000},
        {"--workers", "W", "frames that reduce adds (default 8)", TOOL_U32, &b.workers, 1, 1024},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "bench codec [--codec SPEC]... [options]",
        .about = "Encodes (statistics included), decodes and reduces a gradient drawn from a Gaussian with 0.1 % "
                 "outliers. Before every run it copies the same floats with memcpy on one thread.",
        .example = "gradwire bench codec --codec ternary:code=mask --elements 16Mi",
        TOOL_OPTIONS(options),
        .is_long = true,
        .args = "bench codec takes no files",
    };
    tool_set_command("bench codec");
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (specs.n == 0)
        for (const char *const *spec = json ? default_specs : table_specs; *spec; spec++)
            specs.items[specs.n++] = *spec;
    b.n_specs = specs.n;
    int status = prepare(&b);
    b.began = gw_clock_seconds();
    for (b.spec = 0; b.spec < specs.n && status == 0; b.spec++) {
        subject s = {.spec = specs.items[b.spec]};
        progress(&b, s.spec, "preparing");
        status = tool_exit_status(prepare_subject(&b, &s), s.spec);
        if (status == 0)
            status = measure_subject(&b, &s);
        tool_pushes_end(&s.pushes);
        gw_codec_destroy(s.codec);
    }
    tool_progress_clear();
    if (status == 0)
        status = report(&b, json);
    json_decref(b.results);
    free(b.copy_seconds);
    free(b.copy);
    free(b.gradients);
    gw_context_destroy(b.context);
    return status;
}
