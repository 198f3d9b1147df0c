/* Reads JSON files that people write or change, and says what is wrong with them. */
#include "json_file.h"
#include "base/append.h"
#include "base/lines.h"
#include "base/nearest.h"
#include "base/quote.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No time, size or bandwidth is larger: milliseconds of 30,000 years. So sums and products of some of them are finite,
 * and fit into a table. */
#define MOST_NUMBER 1e15

json_t *tool_read_json(const char *path, const char *what, size_t most)
{
    size_t length;
    char *text = tool_read_file(path, what, most, &length);
    json_error_t error;
    const size_t mark = text ? gw_lines_mark(text, length) : 0;
    json_t *json = text ? json_loadb(text + mark, length - mark, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (text && !json)
        tool_fail("%s is no %s: line %d: %s", path, what, error.line, error.text);
    free(text);
    return json;
}

static int unknown_field(const char *where, const char *name, const tool_field *fields, size_t n)
{
    const char *names[16];
    char list[300] = "";
    for (size_t i = 0; i < n; i++) {
        names[i] = fields[i].name;
        gw_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = name ? gw_nearest(name, names, n, NULL) : NULL;
    if (!name)
        return tool_fail("%s must be an object { ... } with the fields %s", where, list);
    if (nearest)
        return tool_fail("%s has a field \"%s\", which is unknown; is \"%s\" meant?", where, gw_quote(name).text,
                         nearest);
    return tool_fail("%s has a field \"%s\", which is unknown; the fields are %s", where, gw_quote(name).text, list);
}

int tool_read_number(const char *where, const char *name, const json_t *value, double *out)
{
    if (!json_is_number(value))
        return tool_fail("%s: \"%s\" must be a number", where, name);
    *out = json_number_value(value);
    return fabs(*out) <= MOST_NUMBER ? TOOL_DONE
                                     : tool_fail("%s: \"%s\" is %g; it is %g at most", where, name, *out, MOST_NUMBER);
}

int tool_read_fields(const char *where, const json_t *object, const tool_field *fields, size_t n)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return unknown_field(where, NULL, fields, n);
    json_object_foreach ((json_t *)object, name, value) {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == n)
            return unknown_field(where, name, fields, n);
        if (!fields[i].text)
            TOOL_TRY(tool_read_number(where, name, value, fields[i].number));
        else if (!(*fields[i].text = json_string_value(value)))
            return tool_fail("%s: \"%s\" must be a text", where, name);
    }
    for (size_t i = 0; i < n; i++)
        if (!fields[i].optional && !json_object_get(object, fields[i].name))
            return tool_fail("%s has no \"%s\"", where, fields[i].name);
    return TOOL_DONE;
}

int tool_read_count(const char *where, const char *name, double value, double most, uint64_t *out)
{
    if (!(value >= 0 && value <= most) || value != (double)(uint64_t)value)
        return tool_fail("%s: \"%s\" is %g, and must be a whole number from 1 to %.0f", where, name, value, most);
    *out = (uint64_t)value;
    return TOOL_DONE;
}
