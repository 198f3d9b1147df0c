/* Puts the page together: its frame, its style, the data and its script, all in one text. */
#define _GNU_SOURCE /* memmem */
#include "report.h"
/* CMake makes these from page.css, page.html and page.js. */
#include "report_css.h"
#include "report_html.h"
#include "report_js.h"

#include <stdlib.h>
#include <string.h>

/* A mark in the frame, and the text that takes its place. In the frame, the marks have the order of the parts. */
struct part {
    const char *mark;
    const char *text;
    size_t n_bytes;
};

char *report_page(const json_t *data, size_t *n_bytes)
{
    char *json = tool_json_without_markup(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    tool_text text;
    FILE *out = json ? tool_text_open(&text) : NULL;
    if (!out) {
        free(json);
        return NULL;
    }
    const struct part parts[] = {{"<!--style-->", (const char *)report_css, sizeof report_css},
                                 {"<!--data-->", json, strlen(json)},
                                 {"<!--script-->", (const char *)report_js, sizeof report_js}};
    const char *from = (const char *)report_html, *end = from + sizeof report_html;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *mark = memmem(from, (size_t)(end - from), parts[i].mark, strlen(parts[i].mark));
        fwrite(from, 1, (size_t)(mark - from), out);
        fwrite(parts[i].text, 1, parts[i].n_bytes, out);
        from = mark + strlen(parts[i].mark);
    }
    fwrite(from, 1, (size_t)(end - from), out);
    free(json);
    return tool_text_close(out, &text, n_bytes);
}
