/* Puts the page together: its frame, its style, the data and its script, all in one text. */
#include "report.h"
/* CMake makes these from page.css, page.html and page.js. */
#include "report_css.h"
#include "report_html.h"
#include "report_js.h"

#include <stdlib.h>
#include <string.h>

/* A mark in the frame, and the text that takes its place. */
struct part {
    const char *mark;
    const char *text;
    size_t n_bytes;
};

/* Where `mark` begins in the n bytes at `text`; n if it is not there. */
static size_t find(const char *text, size_t n, const char *mark)
{
    const size_t length = strlen(mark);
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(text + i, mark, length) == 0)
            return i;
    return n;
}

static char *append(char *at, const char *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

/* Puts the parts at their marks. In the frame, the marks have the order of the parts. */
static char *fill(const struct part *parts, size_t n_parts, size_t *n_bytes)
{
    const char *from = (const char *)report_html;
    size_t capacity = sizeof report_html, left = sizeof report_html;
    for (size_t i = 0; i < n_parts; i++)
        capacity += parts[i].n_bytes;
    char *page = malloc(capacity), *at = page;
    for (size_t i = 0; page && i < n_parts; i++) {
        const size_t before = find(from, left, parts[i].mark), skip = before + strlen(parts[i].mark);
        at = append(at, from, before);
        at = append(at, parts[i].text, parts[i].n_bytes);
        from += skip, left -= skip;
    }
    if (page)
        *n_bytes = (size_t)(append(at, from, left) - page);
    return page;
}

char *report_page(const json_t *data, size_t *n_bytes)
{
    char *json = tool_json_without_markup(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    if (!json)
        return NULL;
    const struct part parts[] = {{"<!--style-->", (const char *)report_css, sizeof report_css},
                                 {"<!--data-->", json, strlen(json)},
                                 {"<!--script-->", (const char *)report_js, sizeof report_js}};
    char *page = fill(parts, sizeof parts / sizeof *parts, n_bytes);
    free(json);
    return page;
}
