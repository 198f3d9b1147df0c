/* Checks that lines of a log have one shape, so that programs can read them: "event name=value name="a text" ...". */
#ifndef GW_TESTS_LOG_SHAPE_H
#define GW_TESTS_LOG_SHAPE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Goes over a value: a word, or a text in quotes in which quotes have a backslash before them. NULL: it is neither. */
static inline const char *log_value_end(const char *at)
{
    if (*at != '"')
        return *at && *at != ' ' ? at + strcspn(at, " \"") : NULL;
    for (at++; *at && *at != '"'; at++)
        if ((unsigned char)*at < ' ' || (*at == '\\' && !*++at))
            return NULL;
    return *at ? at + 1 : NULL;
}

/* Ends the test program if the line has another shape. Logs come on other threads, where no test can fail. */
static inline void check_log_line(const char *line)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_-";
    const char *at = line + strspn(line, letters);
    while (at && at > line && *at == ' ') {
        const char *name = at + 1;
        at = name + strspn(name, letters);
        at = at > name && *at == '=' ? log_value_end(at + 1) : NULL;
    }
    if (at && at > line && !*at)
        return;
    fprintf(stderr, "a line of the log has another shape: %s\n", line);
    abort();
}

#endif
