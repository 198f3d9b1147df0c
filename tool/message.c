/* Prints sentences for people, and JSON for programs. */
#include "base/quote.h"
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *command; /* NULL: the tool itself */

void tool_set_command(const char *name)
{
    command = name;
}

/* Names in a text may come from files of others, and a terminal must not obey them. */
static void print(const char *before, const char *format, va_list arguments)
{
    char text[8192], shown[sizeof text];
    vsnprintf(text, sizeof text, format, arguments);
    gw_show(text, "", shown, sizeof shown);
    fprintf(stderr, "%s%s\n", before, shown); /* in one piece, because other processes write to the same terminal */
}

static void print_sentence(const char *format, va_list arguments)
{
    char before[64];
    snprintf(before, sizeof before, "gradwire%s%s: ", command ? " " : "", command ? command : "");
    print(before, format, arguments);
}

int tool_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_sentence(format, arguments);
    va_end(arguments);
    return TOOL_FAILED;
}

int tool_wrong_use(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_sentence(format, arguments);
    va_end(arguments);
    if (command)
        fprintf(stderr, "Try 'gradwire %s --help'.\n", command);
    else
        fprintf(stderr, "Try 'gradwire help'.\n");
    return TOOL_WRONG_USE;
}

int tool_exit_status(gw_status status, const char *where)
{
    const char *sentence = gw_last_error();
    if (status >= 0)
        return TOOL_DONE;
    if (!*sentence)
        sentence = gw_status_text(status);
    return (status == GW_ERR_SPEC ? tool_wrong_use : tool_fail)("%s%s%s", where ? where : "", where ? ": " : "",
                                                                sentence);
}

int tool_exit_status_of_use(gw_status status)
{
    return status == GW_ERR_ARGUMENT ? tool_wrong_use("%s", gw_last_error()) : tool_exit_status(status, NULL);
}

void tool_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print("", format, arguments);
    va_end(arguments);
}

int tool_finish_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return tool_fail("cannot write to standard output: %s", strerror(errno));
    return TOOL_DONE;
}

/* True if jansson got no memory in this thread since it last made text. */
static _Thread_local bool json_lacks;

static void *json_memory(size_t n_bytes)
{
    void *memory = malloc(n_bytes);
    json_lacks = json_lacks || !memory;
    return memory;
}

void tool_json_begin(void)
{
    json_set_alloc_funcs(json_memory, free);
}

bool tool_json_is_whole(void)
{
    const bool whole = !json_lacks;
    json_lacks = false;
    return whole;
}

char *tool_json_without_markup(const json_t *json, size_t flags)
{
    char *plain = json ? json_dumps(json, flags) : NULL;
    if (!tool_json_is_whole()) {
        free(plain);
        return NULL;
    }
    size_t n = 0, n_marked = 0;
    for (; plain && plain[n]; n++)
        n_marked += strchr("<>&", plain[n]) != NULL;
    char *out = plain ? malloc(n + 5 * n_marked + 1) : NULL, *at = out;
    for (size_t i = 0; out && i <= n; i++)
        if (plain[i] && strchr("<>&", plain[i]))
            at += sprintf(at, "\\u%04x", (unsigned)plain[i]);
        else
            *at++ = plain[i];
    free(plain);
    return out;
}

int tool_print_json(json_t *object)
{
    const bool printed = tool_json_is_whole() && object &&
                         json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII) == 0;
    json_decref(object);
    if (printed)
        fputc('\n', stdout);
    else if (!ferror(stdout))
        return tool_fail("out of memory for the JSON output");
    return tool_finish_output();
}
