/* Writes real frames as seeds for the fuzzers: every codec and code, pushes and averages, small slices.
 * Usage: fuzz_seeds FOLDER */
#include "base/philox.h"
#include "examples.h"
#include "link/tcp/wire.h"
#include "net/connection.h"
#include "pserver/protocol/message.h"
#include "wire/bytes.h"

#include <gradwire/gradwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ELEMENTS 70000u /* two chunks of ternary, whose strings take all lanes of the coder */
#define WORKERS 3u
#define MAX_SEED 65535u /* larger inputs are not tried, so they are not written */
#define MAX_FRAME (4 * MAX_ELEMENTS + 65536)

static const uint64_t sizes[] = {0, 1, 100, 3000, MAX_ELEMENTS};

static void check(gw_status status)
{
    if (status < 0) {
        fprintf(stderr, "fuzz_seeds: %s\n", gw_last_error());
        exit(1);
    }
}

static void write_file(const char *path, uint8_t mode, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fputc(mode, file) == EOF || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

/* Writes a seed in mode 1 (seal), so that mutations of it get past the checksum. Seeds for reduce are in mode 7, so
 * that mutated frames also agree. */
static void write_seed(const char *folder, const char *name, size_t i, size_t k, const void *bytes, size_t n_bytes)
{
    char path[4096];
    if (n_bytes >= MAX_SEED)
        return;
    snprintf(path, sizeof path, "%s/%s-%zu-%zu", folder, name, i, k);
    write_file(path, name[0] == 'r' ? 7 : 1, bytes, n_bytes);
}

static void write_head(const char *folder, const char *name, uint8_t operation, uint8_t mode, const void *bytes,
                       size_t n_bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/pserver-%s-%u", folder, name, operation);
    write_file(path, mode, bytes, n_bytes);
}

/* Draws a few large elements among small ones, so that all codes have something to do. */
static void draw(float *g, uint64_t n, uint32_t rank)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t counter[4] = {(uint32_t)i, rank, 0, 0}, words[4];
        gw_philox(counter, 7, words);
        g[i] = (float)(int32_t)words[0] * 0x1p-31f * (words[1] % 50 == 0 ? 1.0f : 0.01f);
    }
}

static void write_seeds(const char *folder, gw_context *context, size_t i, size_t k)
{
    static float gradients[WORKERS][MAX_ELEMENTS], shared[MAX_ELEMENTS], own[MAX_ELEMENTS];
    static uint8_t frames[WORKERS][MAX_FRAME], average[WORKERS * MAX_FRAME], joined[WORKERS * MAX_FRAME];
    const void *pointers[WORKERS];
    size_t bytes[WORKERS], average_bytes, at = 0;
    const gw_tensor tensor = {.name = "seed", .n_elems = sizes[k]};
    gw_codec *codec;
    gw_encoder *encoder;
    check(gw_codec_parse(context, example(i), &codec));
    check(gw_encoder_create(context, codec, &tensor, &encoder));
    uint64_t count = gw_encoder_traits_of(encoder).n_shared;
    memset(shared, 0, sizeof shared);
    for (uint32_t w = 0; w < WORKERS; w++) {
        draw(gradients[w], sizes[k], w);
        check(gw_encoder_measure(encoder, gradients[w], own, MAX_ELEMENTS, NULL));
        for (uint64_t s = 0; s < count; s++)
            shared[s] = own[s] > shared[s] ? own[s] : shared[s];
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        const gw_draw where = {.seed = 1, .rank = w, .step = 2};
        check(gw_encoder_measure(encoder, gradients[w], own, MAX_ELEMENTS, NULL));
        check(gw_encoders_combine(&encoder, 1, NULL));
        check(gw_encoder_encode(encoder, gradients[w], count ? shared : NULL, &where, 0, sizes[k], frames[w], MAX_FRAME,
                                &bytes[w]));
        pointers[w] = frames[w];
        joined[at++] = (uint8_t)bytes[w];
        joined[at++] = (uint8_t)(bytes[w] >> 8);
        memcpy(joined + at, frames[w], bytes[w]);
        at += bytes[w];
    }
    const gw_reduce_options options = {.struct_bytes = sizeof options, .codec = codec};
    check(gw_reduce(context, pointers, bytes, WORKERS, &options, average, sizeof average, &average_bytes));
    write_seed(folder, "push", i, k, frames[0], bytes[0]);
    write_seed(folder, "average", i, k, average, average_bytes);
    write_seed(folder, "reduce", i, k, joined, at);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
}

/* Writes heads of the parameter server: for every operation one request (mode 1), one answer and one error (mode 0).
 * The fuzzer reads them as they are. */
static void write_heads(const char *folder)
{
    for (uint8_t operation = GW_PS_HELLO; operation < GW_PS_OPERATIONS; operation++) {
        const struct gw_ps_request request = {.operation = (enum gw_ps_operation)operation,
                                              .id = 7,
                                              .number = 1,
                                              .timeout_ms = 1000,
                                              .key = "gradient",
                                              .scale_key = "scale",
                                              .codec = "ternary",
                                              .optimizer = "momentum:lr=0.1",
                                              .rate = 0.1,
                                              .code = operation != GW_PS_VERDICT,
                                              .refusal = 5,
                                              .incarnation = 77,
                                              .place = 1,
                                              .n_servers = 3,
                                              .n_parts = 3,
                                              .shape = {.n_dims = 2, .dims = {3, 4}}};
        const struct gw_ps_answer answer = {.operation = (enum gw_ps_operation)operation,
                                            .id = 7,
                                            .number = 1,
                                            .shape = {.n_dims = 1, .dims = {12}},
                                            .n_pushes = 2,
                                            .n_workers = 3,
                                            .max_key_bytes = 1u << 20,
                                            .timeout_ms = 1000},
                                  error = {.operation = (enum gw_ps_operation)operation,
                                           .id = 7,
                                           .status = GW_ERR_TIMEOUT,
                                           .sentence = "late"};
        uint8_t head[GW_PS_HEAD_BYTES];
        write_head(folder, "request", operation, 1, head, gw_ps_request_write(head, &request));
        write_head(folder, "answer", operation, 0, head, gw_ps_answer_write(head, &answer));
        write_head(folder, "error", operation, 0, head, gw_ps_answer_write(head, &error));
    }
}

/* Writes what a client asks of 1 to 3 servers, and honest answers of all of them. Each file has one kind of call and
 * one key, with all codes (fuzz/client_entry.c). The fuzzer makes the lies. */
static void write_answers(const char *folder)
{
    enum { CALLS = 13, KEYS = 7, CODES = 9 };
    for (uint8_t servers = 0; servers < 3; servers++)
        for (uint8_t call = 0; call < CALLS; call++)
            for (uint8_t key = 0; key < KEYS; key++) {
                char path[4096];
                uint8_t bytes[256];
                size_t n = 0;
                for (uint8_t code = 0; code < CODES; code++) {
                    bytes[n++] = call;
                    if (call > 0 && call < 10) /* these calls have a key, a code and a number */
                        bytes[n++] = key, bytes[n++] = code, bytes[n++] = 2;
                    bytes[n++] = servers + 2; /* how many answers; the first is for the scale, if there is one */
                    for (uint8_t s = 0; s < servers + 2; s++) {
                        bytes[n++] = s == 0 ? 16 : 0;
                        bytes[n++] = s;
                        bytes[n++] = 0, bytes[n++] = 0; /* nothing of the head is altered */
                    }
                }
                snprintf(path, sizeof path, "%s/client-%u-%u-%u", folder, servers, call, key);
                write_file(path, servers | (call == 0 ? 4 : 0), bytes, n);
            }
}

/* Writes an answer to a pull and to a get of frames, whose value is long and comes in two pieces. */
static void write_long_answers(const char *folder)
{
    for (uint8_t call = 4; call <= 7; call += 3) {
        const uint8_t bytes[] = {call, 5, GW_PS_LATEST, 0, /* one answer: */ 1, 2 | 8, 0, 0, 0, 5000 % 256, 5000 / 256};
        char path[4096];
        snprintf(path, sizeof path, "%s/client-long-%u", folder, call);
        write_file(path, 0, bytes, sizeof bytes);
    }
}

/* Writes messages of net/connection.h, short and long, with and without a header. */
static void write_messages(const char *folder)
{
    for (uint16_t n_header = 0; n_header <= 30; n_header += 30)
        for (uint16_t n_body = 0; n_body <= 5000; n_body += 2500) {
            uint8_t message[GW_NET_HEAD + 30 + 5000] = {0};
            char path[4096];
            gw_put64(message, n_header + n_body);
            gw_put16(message + 8, GW_TCP_DATA);
            gw_put16(message + 10, n_header);
            memcpy(message + 12, "GWN1", 4);
            snprintf(path, sizeof path, "%s/message-%u-%u", folder, n_header, n_body);
            write_file(path, 3, message, GW_NET_HEAD + n_header + n_body);
        }
}

int main(int argc, char **argv)
{
    gw_context *context;
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    mkdir(argv[1], 0777);
    check(gw_context_create(NULL, &context));
    for (size_t i = 0; example(i); i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            write_seeds(argv[1], context, i, k);
    write_heads(argv[1]);
    write_answers(argv[1]);
    write_long_answers(argv[1]);
    write_messages(argv[1]);
    gw_context_destroy(context);
    return 0;
}
