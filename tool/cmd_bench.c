/* gradwire bench: measures speed beside memcpy. bench_codec.c and bench_exchange.c do the work. */
#include "tool.h"
#include "base/append.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} benchmarks[] = {
    {"codec", tool_bench_codec, "encode, decode and reduce of every codec"},
#ifdef GW_HAVE_TRAIN
    {"exchange", tool_bench_exchange, "averaging a step's gradients among members, over any link"},
#endif
};
enum { N_BENCHMARKS = sizeof benchmarks / sizeof *benchmarks };

static int print_help(void)
{
    printf("Usage: gradwire bench ");
    for (int i = 0; i < N_BENCHMARKS; i++)
        printf("%s%s", i ? "|" : "", benchmarks[i].name);
    printf(" [options]\n\nMeasures speed beside memcpy in the same run, and wire size beside the entropy.\n\n");
    for (int i = 0; i < N_BENCHMARKS; i++)
        printf("  %-10s %s\n", benchmarks[i].name, benchmarks[i].summary);
    printf("\nExample:\n  gradwire bench codec --elements 16Mi --json\n");
    return tool_finish_output();
}

int gw_cmd_bench(int argc, char **argv)
{
    char names[64] = "";
    for (int i = 0; i < N_BENCHMARKS; i++) {
        if (argc > 1 && strcmp(argv[1], benchmarks[i].name) == 0)
            return benchmarks[i].run(argc - 1, argv + 1);
        gw_append(names, sizeof names, "%sbench %s", i ? " and " : "", benchmarks[i].name);
    }
    if (argc < 2)
        return tool_wrong_use("what should be measured? There are %s", names);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return print_help();
    return tool_wrong_use("there is no benchmark '%s'; there are %s", argv[1], names);
}
