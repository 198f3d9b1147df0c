/* gradwire bench: measures speed beside memcpy. bench_codec.c and bench_exchange.c do the work. */
#include "tool.h"
#include <stdio.h>
#include <string.h>

static int print_help(void)
{
    printf("Usage: gradwire bench codec|exchange [options]\n\n"
           "Measures speed beside memcpy in the same run, and wire size beside the entropy.\n\n"
           "  codec      encode, decode and reduce of every codec\n"
#ifdef GW_HAVE_TRAIN
           "  exchange   averaging a step's gradients among members, over any link\n"
#endif
           "\n"
           "Example:\n  gradwire bench codec --elements 16Mi --json\n");
    return tool_finish_output();
}

int gw_cmd_bench(int argc, char **argv)
{
    if (argc < 2)
        return tool_wrong_use("what should be measured? 'gradwire bench codec' measures codecs, 'gradwire bench "
                              "exchange' whole exchanges");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return print_help();
    if (strcmp(argv[1], "codec") == 0)
        return tool_bench_codec(argc - 1, argv + 1);
#ifdef GW_HAVE_TRAIN
    if (strcmp(argv[1], "exchange") == 0)
        return tool_bench_exchange(argc - 1, argv + 1);
#endif
    return tool_wrong_use("there is no benchmark '%s'; there are codec and exchange", argv[1]);
}
