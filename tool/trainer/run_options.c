/* Keeps the options of a run in its folder, and takes them from there again. */
#include "run_options.h"
#include "disk/folder.h"
#include "disk/run_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rank, meeting place and folder are not here. They belong to one process or to one start, and not to the run. */
static const struct kept {
    const char *name;
    bool source;       /* data: drawn, or a path */
    bool path;         /* it is written as an absolute path */
    bool decides;      /* it decides what the run computes; the trainer refuses another value, so there is nothing to
                        * note */
    bool of_start;     /* what starts the workers says it; it is noted, and never taken */
    const char *rival; /* an option that says the same in another way; if that one is given, this one is not taken */
} kept[] = {
    {.name = "--net", .decides = true},
    {.name = "--data", .source = true, .path = true},
    {.name = "--test", .source = true, .path = true},
    {.name = "--transform", .decides = true},
    {.name = "--workers"},
    {.name = "--codec", .decides = true},
    {.name = "--batch", .decides = true},
    {.name = "--steps", .rival = "--epochs"},
    {.name = "--epochs", .rival = "--steps"},
    {.name = "--optimizer", .decides = true},
    {.name = "--lr", .decides = true},
    {.name = "--momentum", .decides = true},
    {.name = "--schedule", .decides = true},
    {.name = "--weight-decay", .decides = true, .rival = "--l2"},
    {.name = "--l2", .decides = true, .rival = "--weight-decay"},
    {.name = "--ema", .decides = true},
    {.name = "--seed", .decides = true},
    {.name = "--plan"},
    {.name = "--replan"},
    {.name = "--wire"},
    {.name = "--nonfinite"},
    {.name = "--threads"},
    {.name = "--codec-threads"},
    {.name = "--timeout"},
    {.name = "--link", .of_start = true},
    {.name = "--flat"},
    {.name = "--keys", .path = true},
    {.name = "--servers"},
    {.name = "--parameters"},
    {.name = "--insecure"},
    {.name = "--spin-us"},
    {.name = "--checkpoint-every"},
};
enum { N_KEPT = sizeof kept / sizeof *kept };

static const struct kept *find_kept(const char *name)
{
    for (int i = 0; i < N_KEPT; i++)
        if (strcmp(kept[i].name, name) == 0)
            return &kept[i];
    return NULL;
}

/* The option's name in the file: without the dashes. */
static const char *key_of(const struct kept *k)
{
    return k->name + 2;
}

static json_t *value_in_run(const tool_run *run, const struct kept *k)
{
    return json_object_get(json_object_get(run->json, "options"), key_of(k));
}

static void note(tool_run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(run->notes + run->n_notes, sizeof run->notes - run->n_notes, format, arguments);
    va_end(arguments);
    run->n_notes += (size_t)n < sizeof run->notes - run->n_notes ? (size_t)n : 0;
    run->notes[run->n_notes] = 0; /* a note that does not fit is left out whole */
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* A path that is right from other folders, too. Links in it are not resolved: a data set is named without its ending
 * (.gz), and may be behind links. */
static json_t *absolute(const char *path)
{
    char folder[4096];
    if (path[0] == '/' || !getcwd(folder, sizeof folder))
        return json_string(path);
    return json_sprintf("%s/%s", folder, path);
}

/* The value that an option has now. NULL: it has none (or there is no memory). */
static json_t *value_of(const tool_option *option, const struct kept *k)
{
    switch (option->kind) {
    case TOOL_FLAG:
        return *(bool *)option->target ? json_true() : NULL;
    case TOOL_U32:
    case TOOL_U64: {
        uint64_t value =
            option->kind == TOOL_U32 ? *(const uint32_t *)option->target : *(const uint64_t *)option->target;
        if (value < option->min) /* 0: the option was not given */
            return NULL;
        return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
    }
    case TOOL_DOUBLE:
        return isnan(*(const double *)option->target) ? NULL : json_real(*(const double *)option->target);
    default: {
        const char *text = *(const char *const *)option->target;
        if (!text)
            return NULL;
        return k->path && !(k->source && gw_data_is_drawn(text)) ? absolute(text) : json_string(text);
    }
    }
}

static void text_of(const json_t *value, char *text, size_t capacity)
{
    if (json_is_string(value))
        snprintf(text, capacity, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, capacity, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, capacity, "%.17g", json_real_value(value));
}

/* Sets an option. Texts stay in `value`. */
static int set_value(const tool_option *option, const json_t *value, const tool_run *run)
{
    char text[64] = "";
    bool is_text = option->kind == TOOL_TEXT || option->kind == TOOL_OUTPUT;
    bool fits = option->kind == TOOL_FLAG ? json_is_true(value)
                : is_text                 ? json_is_string(value)
                                          : json_is_number(value);
    if (!fits)
        return tool_fail("%s is not what %s can be, in the " GW_RUN_FILE " of %s",
                         json_is_string(value)   ? "a text"
                         : json_is_number(value) ? "a number"
                                                 : "its value",
                         option->name, run->from);
    if (!is_text)
        text_of(value, text, sizeof text);
    if (tool_set_option(option, is_text ? json_string_value(value) : text) == TOOL_PARSED)
        return TOOL_DONE;
    return tool_fail("so says the " GW_RUN_FILE " of %s", run->from);
}

/* ---- taking ------------------------------------------------------------------------------------------------ */

int tool_run_open(const char *from, tool_run *run)
{
    const char *name;
    json_t *value;
    *run = (tool_run){.from = from};
    gw_status status = gw_run_file_read(from, &run->json);
    if (status != GW_OK)
        return tool_fail_status(status, NULL);
    run->data_are = json_string_value(json_object_get(run->json, "data"));
    json_object_foreach (json_object_get(run->json, "options"), name, value) {
        char option[64];
        snprintf(option, sizeof option, "--%s", name);
        if (find_kept(option))
            continue;
        int failed = tool_fail("the " GW_RUN_FILE " of %s has an option \"%.40s\", which this version does not know",
                               from, name);
        tool_run_close(run);
        return failed;
    }
    return TOOL_DONE;
}

void tool_run_close(tool_run *run)
{
    json_decref(run->json);
    run->json = NULL;
    run->data_are = NULL;
}

/* Notes what the command line says if the run had something else. */
static void compare(const tool_option *option, const struct kept *k, tool_run *run)
{
    const json_t *theirs = value_in_run(run, k);
    json_t *mine = value_of(option, k);
    char has[256], had[256];
    if (mine && !k->decides && !json_equal(mine, theirs)) {
        text_of(mine, has, sizeof has);
        text_of(theirs, had, sizeof had);
        if (option->kind == TOOL_FLAG)
            note(run, "%s, which the run did not have\n", option->name);
        else if (theirs)
            note(run, "%s %s in place of the run's %s\n", option->name, has, had);
        else
            note(run, "%s %s, and the run had none\n", option->name, has);
    }
    json_decref(mine);
}

int tool_run_take(const tool_usage *usage, tool_run *run)
{
    for (size_t i = 0; run->json && i < usage->n_options; i++) {
        const tool_option *option = &usage->options[i];
        const struct kept *k = find_kept(option->name);
        json_t *theirs = k ? value_in_run(run, k) : NULL;
        if (!k)
            continue;
        if (usage->given[i] || (k->of_start && theirs)) {
            compare(option, k, run);
        } else if (theirs && k->rival && tool_given(usage, k->rival)) {
            char had[256];
            text_of(theirs, had, sizeof had);
            if (!k->decides)
                note(run, "%s in place of the run's %s %s\n", k->rival, k->name, had);
        } else if (theirs) {
            int status = set_value(option, theirs, run);
            if (status != TOOL_DONE)
                return status;
        }
    }
    return TOOL_DONE;
}

int tool_run_find_data(const tool_usage *usage, const tool_run *run)
{
    for (size_t i = 0; run->json && i < usage->n_options; i++) {
        const tool_option *option = &usage->options[i];
        const struct kept *k = find_kept(option->name);
        if (!k || !k->source)
            continue;
        const char *theirs = json_string_value(value_in_run(run, k)), *mine = *(const char *const *)option->target;
        if (mine && mine == theirs && !gw_data_is_drawn(mine) && !gw_data_is_there(mine))
            return tool_fail("the data of %s were in %s, and nothing is there now; say where they are with %s %s",
                             run->from, mine, option->name, option->value);
    }
    return TOOL_DONE;
}

void tool_run_tell(const tool_run *run)
{
    if (run->n_notes)
        tool_note("%.*s", (int)run->n_notes - 1, run->notes);
}

json_t *tool_run_record(const tool_usage *usage)
{
    json_t *record = json_object();
    for (size_t i = 0; record && i < usage->n_options; i++) {
        const struct kept *k = find_kept(usage->options[i].name);
        json_t *value = k ? value_of(&usage->options[i], k) : NULL;
        if (value && json_object_set_new(record, key_of(k), value) != 0) {
            json_decref(record);
            record = NULL;
        }
    }
    return record;
}
