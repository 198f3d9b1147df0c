/* Reads the files of a run's folder. They may come from anybody, so sizes are limited, and errors become notes. */
#include "base/files.h"
#include "base/quote.h"
#include "disk/file.h"
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_LINE = 1 << 16, MOST_TEXT = 300 };

json_t *report_text(const char *text)
{
    char shown[MOST_TEXT + 1];
    if (strnlen(text, sizeof shown) < sizeof shown)
        return gw_json_text(text);
    gw_show(text, "", shown, sizeof shown - 3);
    return json_sprintf("%s...", shown);
}

void report_note(report_folder *folder, const char *format, ...)
{
    char text[MOST_TEXT];
    va_list arguments;
    if (json_array_size(folder->notes) >= REPORT_MOST_NOTES)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_array_append_new(folder->notes, report_text(text));
}

double report_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Opens regular files only. To open a pipe may never return, and a pipe may never end. */
static FILE *open_regular(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) ? gw_fopen(path, "rbe") : NULL;
}

FILE *report_open(report_folder *folder, const char *name, bool *partial)
{
    char path[4096];
    struct stat about;
    bool there = false;
    for (int i = 0; i < 2; i++) {
        const char *ending = i == 0 ? "" : GW_PARTIAL;
        if (snprintf(path, sizeof path, "%s/%s%s", folder->path, name, ending) >= (int)sizeof path)
            return NULL;
        FILE *file = open_regular(path);
        *partial = i > 0;
        if (file)
            return file;
        there |= lstat(path, &about) == 0;
    }
    if (there)
        report_note(folder, "%s cannot be read; it is left out", name);
    return NULL;
}

json_t *report_read_object(report_folder *folder, const char *name, size_t most_bytes)
{
    char path[4096];
    json_error_t where;
    struct stat about;
    if (snprintf(path, sizeof path, "%s/%s", folder->path, name) >= (int)sizeof path || stat(path, &about) != 0)
        return NULL;
    FILE *file = open_regular(path);
    json_t *object = NULL;
    if (!file)
        report_note(folder, "%s cannot be read; it is left out", name);
    else if ((uint64_t)about.st_size > most_bytes)
        report_note(folder, "%s has %lld bytes, and a run writes less than %zu; it is left out", name,
                    (long long)about.st_size, most_bytes);
    else if (!(object = json_loadf(file, 0, &where)))
        report_note(folder, "%s, line %d: %s; it is left out", name, where.line, where.text);
    else if (!json_is_object(object))
        report_note(folder, "%s holds no JSON object; it is left out", name);
    if (file)
        fclose(file);
    if (json_is_object(object))
        return object;
    json_decref(object);
    return NULL;
}

/* ---- lines ---------------------------------------------------------------------------------- */

enum line { LINE, LINE_TOO_LONG, LINE_CUT, LINE_WITHOUT_END, NO_LINE };

/* A file of holes may have terabytes without the end of a line. */
enum { MOST_SKIPPED = 1 << 26 };

/* Reads the next line, without its end. Of a line that is too long it keeps nothing. */
static enum line next_line(FILE *file, char text[MOST_LINE], size_t *n)
{
    size_t n_read = 0;
    int c;
    for (*n = 0; (c = getc_unlocked(file)) != EOF && c != '\n'; n_read++) {
        if (n_read < MOST_LINE)
            text[(*n)++] = (char)c;
        if (n_read == MOST_SKIPPED)
            return LINE_WITHOUT_END;
    }
    if (c == EOF)
        return n_read > 0 ? LINE_CUT : NO_LINE;
    return n_read <= MOST_LINE ? LINE : LINE_TOO_LONG;
}

void report_read_lines(report_folder *folder, const char *name, FILE *file, bool partial, report_take take, void *user)
{
    char *text = malloc(MOST_LINE);
    unsigned long long n_bad = 0, number = 0, first_bad = 0;
    size_t n;
    enum line kind = NO_LINE;
    while (text && (kind = next_line(file, text, &n)) <= LINE_TOO_LONG) {
        json_t *line = kind == LINE ? json_loadb(text, n, 0, NULL) : NULL;
        number++;
        if ((!line || !take(user, line)) && n_bad++ == 0)
            first_bad = number;
        json_decref(line);
    }
    if (n_bad)
        report_note(folder, "%s: %llu line%s cannot be used, the first is line %llu", name, n_bad,
                    n_bad == 1 ? "" : "s", first_bad);
    if (kind == LINE_WITHOUT_END)
        report_note(folder, "%s: line %llu has no end, and what follows is left out", name, number + 1);
    if (kind == LINE_CUT && !partial)
        report_note(folder, "%s: the last line is cut", name);
    if (!text || ferror(file))
        report_note(folder, "%s cannot be read to its end", name);
    free(text);
}
