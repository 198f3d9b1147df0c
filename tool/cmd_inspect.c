/* gradwire inspect: tells what a frame says of itself. */
#include "base/quote.h"
#include "codec/parts.h"
#include "tool.h"
#include <stdio.h>
#include <stdlib.h>

static int print_frame(const char *path, const tool_frame *frame, const tool_frame_facts *facts)
{
    const gw_frame_info *info = &frame->info;
    unsigned long long first = info->begin, n = info->n_elems;
    char shown[8192];
    gw_show(path, "", shown, sizeof shown);
    printf("%s\n", shown);
    printf("  codec      %s, code %s\n", info->codec, info->code);
    if (info->average)
        printf("  holds      the average of %u workers, which travels down\n", info->workers);
    else
        printf("  holds      the push of worker %u, which travels up\n", info->rank);
    printf("  tensor     %u, step %u, elements %llu to %llu\n", info->tensor_id, info->step, first, first + n);
    printf("  elements   %llu, %llu of them nonzero\n", n, (unsigned long long)facts->nonzeros);
    printf("  bytes      %zu, of them payload %zu; %.2f times smaller than float32, %s\n", info->frame_bytes,
           info->payload_bytes, facts->times_smaller, info->average ? "on the way down only" : "on the way up only");
    printf("  bits       %.4f an element", facts->bits_per_element);
    if (info->n_scalers > 0 && !facts->parts.sparse)
        printf("; entropy of the symbols %.4f", facts->entropy_bits);
    printf("\n");
    if (facts->parts.sparse) {
        const gw_frame_parts *p = &facts->parts;
        double sent = p->n_sent ? (double)p->n_sent : 1;
        printf("  sent       %llu, %.4g %% of all, %.2f bits each\n", (unsigned long long)p->n_sent,
               n ? 100 * (double)p->n_sent / (double)n : 0, 8 * (double)info->frame_bytes / sent);
        printf("  of these   positions %.2f (entropy %.2f), signs %.2f, values %.2f (%.2f), head %.2f\n",
               (double)p->position_bits / sent, p->position_entropy_bits / sent, (double)p->sign_bits / sent,
               (double)p->value_bits / sent, p->value_entropy_bits / sent, (double)p->head_bits / sent);
    }
    if (info->bucket > 0 && n > 0)
        printf("  scalers    %llu, %llu for every %llu elements\n", (unsigned long long)info->n_scalers,
               (unsigned long long)info->n_scalers / ((n - 1) / info->bucket + 1), (unsigned long long)info->bucket);
    for (uint64_t i = 0; i < info->n_scalers && info->bucket == 0; i++)
        printf("  scaler     %.9g\n", (double)gw_frame_scaler(frame->bytes, frame->n_bytes, i));
    printf("  finite     %s\n  checksum   ok\n", facts->finite ? "yes" : "no");
    return tool_finish_output();
}

int gw_cmd_inspect(int argc, char **argv)
{
    bool json = false;
    const tool_option options[] = {
        {"--json", NULL,
         "one JSON object on standard output. sent: elements whose position is in the frame; own_values: those of them "
         "with a value of their own (in gspar frames part_a; part_b: those without)",
         TOOL_FLAG, &json}};
    const tool_usage usage = {
        .synopsis = "inspect IN.gw [--json]",
        .about =
            "Checks a frame and shows what it holds, and how much smaller than float32 it is. That is one direction: a "
            "worker's push travels up, an average down. Bits per element count the payload. Beside them is the order-0 "
            "entropy of the frame's symbols. These are the ternary values or integer sums; for sparse frames they are "
            "which elements are sent, and gspar's signs; for others it is 0. For sparse frames inspect also shows what "
            "an element that is sent costs, and what positions and values cost beside their entropies.",
        .example = "gradwire inspect grad.gw --json",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = 1,
        .args = "inspect takes one frame, IN.gw",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    tool_frame frame;
    tool_frame_facts facts;
    TOOL_TRY(tool_read_frame(argv[1], &frame));
    int status = tool_frame_examine(argv[1], &frame, &facts);
    if (status == TOOL_DONE)
        status = json ? tool_print_json(tool_frame_json(&frame, &facts)) : print_frame(argv[1], &frame, &facts);
    free(frame.bytes);
    return status;
}
