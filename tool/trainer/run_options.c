/* Keeps the options of a run in its folder, and takes them from there again. */
#include "run_options.h"
#include "base/append.h"
#include "base/numbers.h"
#include "base/quote.h"
#include "disk/folder.h"
#include "disk/run_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The option's name in the file: without the dashes. */
static const char *key_of(const tool_option *option)
{
    return option->name + 2;
}

static json_t *value_in_run(const tool_run *run, const tool_option *option)
{
    return option->run == TOOL_RUN_NOT ? NULL : json_object_get(json_object_get(run->json, "options"), key_of(option));
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
static json_t *value_of(const tool_option *option)
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
        const bool is_path =
            option->run == TOOL_RUN_PATH || (option->run == TOOL_RUN_SOURCE && !gw_data_is_drawn(text));
        return is_path ? absolute(text) : json_string(text);
    }
    }
}

/* A value in one line, for notes; texts as a terminal may show them. */
static void text_of(const json_t *value, char *text, size_t capacity)
{
    if (json_is_string(value))
        gw_show(json_string_value(value), "", text, capacity);
    else if (json_is_integer(value))
        snprintf(text, capacity, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, capacity, "%s", gw_decimal_of(json_real_value(value)).text);
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
    if (tool_set_option(option, is_text ? json_string_value(value) : text) == TOOL_DONE)
        return TOOL_DONE;
    return tool_fail("so says the " GW_RUN_FILE " of %s", run->from);
}

/* ---- taking ------------------------------------------------------------------------------------------------ */

int tool_run_open(const char *from, tool_run *run)
{
    *run = (tool_run){.from = from};
    return tool_exit_status(gw_run_file_read(from, &run->json), NULL);
}

void tool_run_close(tool_run *run)
{
    json_decref(run->json);
}

int tool_run_knows(const tool_usage *usage, const tool_run *run)
{
    const char *name;
    json_t *value;
    json_object_foreach (json_object_get(run->json, "options"), name, value) {
        size_t i = 0;
        while (i < usage->n_options &&
               (usage->options[i].run == TOOL_RUN_NOT || strcmp(key_of(&usage->options[i]), name) != 0))
            i++;
        if (i == usage->n_options)
            return tool_fail("the " GW_RUN_FILE " of %s has an option \"%.40s\", which this version does not know",
                             run->from, name);
    }
    return TOOL_DONE;
}

/* Notes what the command line says if the run had something else. */
static void compare(const tool_option *option, tool_run *run)
{
    const json_t *theirs = value_in_run(run, option);
    json_t *mine = value_of(option);
    char has[256], had[256];
    if (mine && option->run != TOOL_RUN_DECIDES && !json_equal(mine, theirs)) {
        text_of(mine, has, sizeof has);
        text_of(theirs, had, sizeof had);
        if (option->kind == TOOL_FLAG)
            gw_append(run->notes, sizeof run->notes, "%s, which the run did not have\n", option->name);
        else if (theirs)
            gw_append(run->notes, sizeof run->notes, "%s %s in place of the run's %s\n", option->name, has, had);
        else
            gw_append(run->notes, sizeof run->notes, "%s %s, and the run had none\n", option->name, has);
    }
    json_decref(mine);
}

int tool_run_take(const tool_usage *usage, tool_run *run)
{
    for (size_t i = 0; run->json && i < usage->n_options; i++) {
        const tool_option *option = &usage->options[i];
        json_t *theirs = value_in_run(run, option);
        if (option->run == TOOL_RUN_NOT)
            continue;
        if (usage->given[i] || (option->run == TOOL_RUN_START && theirs)) {
            compare(option, run);
        } else if (theirs && option->rival && tool_given(usage, option->rival)) {
            char had[256];
            text_of(theirs, had, sizeof had);
            if (option->run != TOOL_RUN_DECIDES)
                gw_append(run->notes, sizeof run->notes, "%s in place of the run's %s %s\n", option->rival,
                          option->name, had);
        } else if (theirs) {
            TOOL_TRY(set_value(option, theirs, run));
        }
    }
    return TOOL_DONE;
}

int tool_run_find_data(const tool_usage *usage, const tool_run *run)
{
    for (size_t i = 0; run->json && i < usage->n_options; i++) {
        const tool_option *option = &usage->options[i];
        if (option->run != TOOL_RUN_SOURCE)
            continue;
        const char *theirs = json_string_value(value_in_run(run, option)), *mine = *(const char *const *)option->target;
        if (mine && mine == theirs && !gw_data_is_drawn(mine) && !gw_data_is_there(mine))
            return tool_fail("the data of %s were in %s, and nothing is there now; say where they are with %s %s",
                             run->from, mine, option->name, option->value);
    }
    return TOOL_DONE;
}

void tool_run_tell(const tool_run *run)
{
    for (const char *line = run->notes; *line;) {
        const size_t length = strcspn(line, "\n");
        tool_note("%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* A text is there, and no JSON could be made of it. */
static int cannot_keep(const tool_option *option)
{
    if (!tool_json_is_whole())
        return tool_fail("out of memory");
    return tool_wrong_use("%s: the path %s is not UTF-8, and so the run's " GW_RUN_FILE
                          " cannot keep it; a link to it with another name can be given, or a run without --out",
                          option->name, *(const char *const *)option->target);
}

int tool_run_record(const tool_usage *usage, json_t **record)
{
    int status = TOOL_DONE;
    *record = json_object();
    for (size_t i = 0; *record && status == TOOL_DONE && i < usage->n_options; i++) {
        const tool_option *option = &usage->options[i];
        json_t *value = option->run != TOOL_RUN_NOT ? value_of(option) : NULL;
        if (value)
            json_object_set_new(*record, key_of(option), value);
        else if (option->run != TOOL_RUN_NOT && option->kind == TOOL_TEXT && *(const char *const *)option->target)
            status = cannot_keep(option);
    }
    if (status == TOOL_DONE && !tool_json_is_whole()) /* an option that had no memory would be missing later */
        status = tool_fail("out of memory");
    if (status == TOOL_DONE)
        return TOOL_DONE;
    json_decref(*record);
    *record = NULL;
    return status;
}
