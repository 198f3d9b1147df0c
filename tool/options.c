/* Reads options by tables: it parses them, prints help, and finds the nearest word to a misspelt one. */
#include "tool.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST_OPTIONS 64

/* Names that other programs give to options. A word of a few letters is too far from those to be found otherwise. */
static const struct gw_synonym synonyms[] = {{"--learning-rate", "--lr"},    {"--rate", "--lr"},
                                             {"--batch-size", "--batch"},    {"--iterations", "--steps"},
                                             {"--num-workers", "--workers"}, {"--nproc", "--workers"},
                                             {"--world-size", "--workers"},  {"--model", "--net"},
                                             {"--network", "--net"},         {"--dataset", "--data"},
                                             {"--compression", "--codec"},   {"--compress", "--codec"},
                                             {"--output", "--out"},          {"--output", "-o"},
                                             {"--port", "--listen"},         {NULL, NULL}};

/* Prints words, and breaks lines before column `most`. The text begins at `column`, and later lines at `indent`. */
static void print_words(const char *text, size_t column, size_t indent, size_t most)
{
    for (size_t length; *text; text += length) {
        size_t spaces = strspn(text, " ");
        length = spaces + strcspn(text + spaces, " \n");
        if (column + length > most && column > indent) {
            printf("\n%*s", (int)indent, "");
            text += spaces;
            length -= spaces;
            column = indent;
        }
        printf("%.*s", (int)length, text);
        column += length;
        if (text[length] == '\n') {
            printf("\n%*s", (int)indent, "");
            length++;
            column = indent;
        }
    }
    printf("\n");
}

static void print_option(const char *name, const char *value, const char *help, size_t most)
{
    enum { TEXTS = 25 }; /* the column at which the texts of options begin */
    char left[64];
    snprintf(left, sizeof left, "%s%s%s", name, value ? " " : "", value ? value : "");
    if (printf("  %-22s", left) < TEXTS)
        printf(" ");
    else
        printf("\n%*s", TEXTS, "");
    print_words(help, TEXTS, TEXTS, most);
}

static int print_help(const tool_usage *usage)
{
    enum { WIDEST = 110 };
    const size_t columns = tool_columns(STDOUT_FILENO, WIDEST), most = columns < WIDEST ? columns : WIDEST;
    printf("Usage: gradwire %s\n\n", usage->synopsis);
    print_words(usage->about, 0, 0, most);
    printf("\nOptions:\n");
    for (const tool_option *o = usage->options; o < usage->options + usage->n_options; o++)
        print_option(o->name, o->value, o->help, most);
    if (usage->is_long)
        print_option("--quiet", NULL, "show no progress and no notes, only results, warnings and errors", most);
    print_option("--help", NULL, "this help", most);
    printf("\nExample:\n  %s\n", usage->example);
    return tool_finish_output();
}

static const tool_option *find_option(const tool_usage *usage, const char *name)
{
    for (size_t i = 0; i < usage->n_options; i++)
        if (strcmp(usage->options[i].name, name) == 0)
            return &usage->options[i];
    return NULL;
}

/* operand: a word before it is no option. */
static int unknown_option(const tool_usage *usage, const char *name, bool operand)
{
    const char *names[MOST_OPTIONS] = {"--help"};
    size_t n = 1;
    if (usage->is_long)
        names[n++] = "--quiet";
    for (size_t i = 0; i < usage->n_options && n < MOST_OPTIONS; i++)
        names[n++] = usage->options[i].name;
    const char *nearest = gw_nearest(name, names, n, synonyms);
    if (usage->unknown_hint && operand)
        return tool_wrong_use("there is no option '%s'; %s", name, usage->unknown_hint);
    if (nearest)
        return tool_wrong_use("there is no option '%s'; did you mean '%s'?", name, nearest);
    return tool_wrong_use("there is no option '%s'", name);
}

int tool_set_option(const tool_option *option, const char *text)
{
    const bool is_folder = option->value && strcmp(option->value, "DIR") == 0;
    if (*text == 0 && option->kind != TOOL_FLAG)
        return tool_wrong_use("%s is empty; %s", option->name,
                              option->kind != TOOL_OUTPUT ? "leave it away, or give a value"
                              : is_folder                 ? "name a folder"
                                                          : "name a file");
    switch (option->kind) {
    case TOOL_FLAG:
        *(bool *)option->target = true;
        break;
    case TOOL_OUTPUT:
        if (strcmp(text, "-") == 0)
            return tool_wrong_use(
                "%s is '-', but standard output is not for binary files; name a %s (./- is one called -)", option->name,
                is_folder ? "folder" : "file");
        *(const char **)option->target = text;
        break;
    case TOOL_TEXT:
        *(const char **)option->target = text;
        break;
    case TOOL_TEXTS: {
        tool_texts *texts = option->target;
        if (texts->n == TOOL_MAX_TEXTS)
            return tool_wrong_use("%s is given more than %d times", option->name, TOOL_MAX_TEXTS);
        texts->items[texts->n++] = text;
        break;
    }
    case TOOL_U32:
    case TOOL_U64: {
        uint64_t limit = option->kind == TOOL_U32 ? UINT32_MAX : UINT64_MAX, value;
        uint64_t max = option->max ? option->max : limit;
        if (!gw_parse_number(text, &value) || value < option->min || value > max)
            return tool_wrong_use("%s is '%s', and must be a whole number from %llu to %llu", option->name, text,
                                  (unsigned long long)option->min, (unsigned long long)max);
        if (option->kind == TOOL_U32)
            *(uint32_t *)option->target = (uint32_t)value;
        else
            *(uint64_t *)option->target = value;
        break;
    }
    case TOOL_DOUBLE:
        if (!gw_parse_decimal(text, option->target))
            return tool_wrong_use("%s is '%s', and must be a number", option->name, text);
        break;
    }
    return TOOL_DONE;
}

bool tool_given(const tool_usage *usage, const char *name)
{
    const tool_option *option = find_option(usage, name);
    return option && usage->given[option - usage->options];
}

int tool_parse(const tool_usage *usage, int *argc, char **argv)
{
    int n_args = 0;
    bool options_ended = false;
    for (int i = 1; i < *argc; i++) {
        char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == 0) {
            if (!*word)
                return tool_wrong_use("a word of the command line is empty: %s", usage->args);
            argv[++n_args] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            options_ended = true;
            continue;
        }
        char *value = word[1] == '-' ? strchr(word, '=') : NULL;
        if (value)
            *value++ = 0;
        const bool is_help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
        const bool is_quiet = usage->is_long && strcmp(word, "--quiet") == 0;
        const tool_option *option = find_option(usage, word);
        if (!option && !is_help && !is_quiet)
            return unknown_option(usage, word, n_args > 0);
        if (value && (!option || option->kind == TOOL_FLAG))
            return tool_wrong_use("%s takes no value", word);
        if (is_help) {
            TOOL_TRY(print_help(usage));
            return TOOL_HELPED;
        }
        if (is_quiet) {
            tool_quiet = true;
            continue;
        }
        if (option->kind != TOOL_FLAG && !value) {
            if (i + 1 == *argc)
                return tool_wrong_use("%s needs a value: %s %s", word, word, option->value);
            value = argv[++i];
        }
        TOOL_TRY(tool_set_option(option, value ? value : ""));
        if (usage->given)
            usage->given[option - usage->options] = true;
    }
    if (n_args < usage->min_args)
        return tool_wrong_use("%s: %s", n_args == 0 ? "nothing to work on" : "too few files", usage->args);
    if (usage->max_args >= 0 && n_args > usage->max_args)
        return tool_wrong_use("'%s' is one word too many: %s", argv[usage->max_args + 1], usage->args);
    *argc = n_args + 1;
    return TOOL_DONE;
}
