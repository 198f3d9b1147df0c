/* Streams into memory that notice when there is none. */
#define _GNU_SOURCE /* fopencookie */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* Returns 0 if it fails. */
static ssize_t take(void *cookie, const char *bytes, size_t n_bytes)
{
    tool_text *text = cookie;
    if (n_bytes >= text->capacity - text->n) { /* a 0 must fit behind them */
        const size_t capacity = 2 * (text->n + n_bytes + 1);
        char *more = realloc(text->bytes, capacity);
        if (!more)
            return 0;
        text->bytes = more;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->n, bytes, n_bytes);
    text->n += n_bytes;
    text->bytes[text->n] = 0;
    return (ssize_t)n_bytes;
}

FILE *tool_text_open(tool_text *text)
{
    *text = (tool_text){.capacity = 1, .bytes = calloc(1, 1)};
    FILE *stream = text->bytes ? fopencookie(text, "w", (cookie_io_functions_t){.write = take}) : NULL;
    if (!stream) {
        free(text->bytes);
        text->bytes = NULL;
    }
    return stream;
}

char *tool_text_close(FILE *stream, tool_text *text, size_t *n_bytes)
{
    const bool whole = !ferror(stream), closed = fclose(stream) == 0; /* this writes the rest */
    char *bytes = text->bytes;
    if (n_bytes)
        *n_bytes = text->n;
    *text = (tool_text){0};
    if (whole && closed)
        return bytes;
    free(bytes);
    return NULL;
}
