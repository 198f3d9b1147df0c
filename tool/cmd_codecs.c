/* gradwire codecs: lists the codecs, their options, and the kernels that run here. */
#include "tool.h"
#include <stdio.h>

static json_t *codec_json(const gw_codec_info *codec)
{
    json_t *options = json_array();
    for (size_t i = 0; i < codec->n_options; i++) {
        const gw_codec_option *option = &codec->options[i];
        json_array_append_new(options,
                              json_pack("{s:s, s:s, s:s, s:s}", "key", option->key, "default", option->default_value,
                                        "values", option->values, "help", option->help));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:b, s:b, s:o}", "name", codec->name, "summary", codec->summary, "source",
                     codec->source, "wire_id", codec->wire_id, "lossy", codec->lossy, "unbiased", codec->unbiased,
                     "options", options);
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
    putchar('\n');
}

int gw_cmd_codecs(int argc, char **argv)
{
    bool json = false;
    const tool_option options[] = {{"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json, 0, 0}};
    const tool_usage usage = {
        .synopsis = "codecs [--json]",
        .about = "Lists the codecs, their options with the defaults, and the kernels that run here.",
        .example = "gradwire codecs",
        .options = options,
        .n_options = 1,
        .args = "codecs takes no files",
    };
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    const gw_codec_info *codec;
    if (json) {
        json_t *list = json_array();
        for (size_t i = 0; (codec = gw_codec_list(i)); i++)
            json_array_append_new(list, codec_json(codec));
        return tool_print_json(json_pack("{s:s, s:o}", "kernels", gw_cpu_level(), "codecs", list));
    }
    for (size_t i = 0; (codec = gw_codec_list(i)); i++)
        print_codec(codec);
    printf("Write NAME, or NAME:key=value,key=value,... The values above are the defaults.\n"
           "Kernels that run here: %s (GRADWIRE_CPU=scalar|avx2|avx512|neon caps them).\n",
           gw_cpu_level());
    return tool_finish_output();
}
