/* gradwire codecs: lists the codecs, their options, and the kernels that run here. */
#include "base/cpu.h"
#include "tool.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *codec_json(const gw_codec_info *codec)
{
    json_t *options = json_array();
    for (size_t i = 0; i < codec->n_options; i++) {
        const gw_codec_option *option = &codec->options[i];
        json_array_append_new(options,
                              json_pack("{s:s, s:s, s:s, s:s}", "key", option->key, "default", option->default_value,
                                        "values", option->values, "help", option->help));
    }
    json_t *losses = json_array();
    for (const gw_codec_loss *loss = codec->losses; loss && loss->spec; loss++)
        json_array_append_new(losses, json_pack("{s:s, s:s, s:f, s:f, s:f, s:i}", "codec", loss->spec, "network",
                                                loss->network, "points_lost", loss->points, "bits_up", loss->bits_up,
                                                "bits_down", loss->bits_down, "seeds", (int)loss->n_seeds));
    json_t *examples = json_array();
    for (const char *const *example = codec->examples; *example; example++)
        json_array_append_new(examples, json_string(*example));
    return json_pack("{s:s, s:s, s:s, s:i, s:b, s:b, s:o, s:o, s:o}", "name", codec->name, "summary", codec->summary,
                     "source", codec->source, "wire_id", codec->wire_id, "lossy", codec->lossy, "unbiased",
                     codec->unbiased, "options", options, "examples", examples, "losses", losses);
}

static void print_codec(const gw_codec_info *codec)
{
    printf("%s\n    %s\n", codec->name, codec->summary);
    if (codec->source && *codec->source)
        printf("    %s\n", codec->source);
    for (size_t i = 0; i < codec->n_options; i++) {
        const gw_codec_option *option = &codec->options[i];
        char setting[64];
        snprintf(setting, sizeof setting, "%s=%s", option->key, option->default_value);
        printf("    %-16s %s\n    %-16s   %s\n", setting, option->help, "", option->values);
    }
    if (codec->n_options)
        printf("    Examples:\n");
    for (size_t i = 1; codec->n_options && codec->examples[i]; i++)
        printf("    %s\n", codec->examples[i]);
    if (codec->losses && codec->losses->spec)
        printf("    Test accuracy beside floats, with SGD, in points; bits of an element up and down:\n");
    for (const gw_codec_loss *loss = codec->losses; loss && loss->spec; loss++)
        printf("    %+6.2f %6.2f %6.2f  %s, %" PRIu32 " seed%s: %s\n", 0 - loss->points, loss->bits_up, loss->bits_down,
               loss->network, loss->n_seeds, loss->n_seeds == 1 ? "" : "s", loss->spec);
    putchar('\n');
}

/* True if one of the specifications names this codec, or if there are none. */
static bool is_wanted(const gw_codec_info *codec, int n_specs, char **specs)
{
    const size_t length = strlen(codec->name);
    bool wanted = n_specs == 0;
    for (int i = 0; i < n_specs && !wanted; i++)
        wanted = strcspn(specs[i], ":") == length && strncmp(specs[i], codec->name, length) == 0;
    return wanted;
}

int gw_cmd_codecs(int argc, char **argv)
{
    bool json = false;
    const tool_option options[] = {{"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json}};
    const tool_usage usage = {
        .synopsis = "codecs [--json] [NAME...]",
        .about = "Lists the codecs, their options with the defaults, and the kernels that run here. If you give names, "
                 "it lists only these codecs. In place of a name you can give a whole specification. It is checked.",
        .example = "gradwire codecs\n"
                   "  gradwire codecs topk",
        TOOL_OPTIONS(options),
        .max_args = -1,
        .args = "names of codecs",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    char **specs = argv + 1;
    const int n_specs = argc - 1;
    for (int i = 0; i < n_specs; i++) {
        gw_codec *parsed;
        TOOL_TRY(tool_exit_status(gw_codec_parse(NULL, specs[i], &parsed), NULL));
        gw_codec_destroy(parsed);
    }
    json_t *list = json ? json_array() : NULL;
    const gw_codec_info *codec;
    for (size_t i = 0; (codec = gw_codec_list(i)); i++) {
        if (!is_wanted(codec, n_specs, specs))
            continue;
        if (json)
            json_array_append_new(list, codec_json(codec));
        else
            print_codec(codec);
    }
    if (json)
        return tool_print_json(json_pack("{s:s, s:o}", "kernels", gw_cpu_level(), "codecs", list));
    printf("Write NAME, or NAME:key=value,key=value,... The values above are the defaults.\n"
           "What each codec sends, and what it costs in accuracy: " TOOL_CHOOSING ".\n"
           "Kernels that run here: %s (GRADWIRE_CPU=scalar|avx2|avx512|neon caps them).\n",
           gw_cpu_level());
    return tool_finish_output();
}
