/* Shows how far a long command is: one line of the terminal that is rewritten. It never fills the line, because a
 * terminal that wraps it would show every state of it. */
#include "base/numbers.h"
#include "tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS = 80, LEAST = 20, MOST = 500 };

bool tool_quiet;
static bool shown;

bool tool_has_terminal(void)
{
    return !tool_quiet && isatty(STDERR_FILENO);
}

/* The window's size and COLUMNS may both be there. The line fits both. */
size_t tool_columns(int fd, size_t without)
{
    const char *said = getenv("COLUMNS");
    struct winsize window;
    uint64_t columns = 0, given; /* 0: not known yet */
    if (!isatty(fd))
        return without;
    if (ioctl(fd, TIOCGWINSZ, &window) == 0)
        columns = window.ws_col;
    if (said && gw_parse_whole(said, UINT32_MAX, &given) && given > 0 && (columns == 0 || given < columns))
        columns = given;
    return columns == 0 ? COLUMNS : columns < LEAST ? LEAST : (size_t)columns;
}

void tool_progress(const char *format, ...)
{
    char text[MOST + 1];
    va_list arguments;
    if (!tool_has_terminal())
        return;
    const size_t columns = tool_columns(STDERR_FILENO, COLUMNS);
    va_start(arguments, format);
    vsnprintf(text, columns < sizeof text ? columns : sizeof text, format, arguments); /* one column stays free */
    va_end(arguments);
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
    shown = true;
}

void tool_progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}

void tool_progress_keep(void)
{
    if (shown)
        fputc('\n', stderr);
    shown = false;
}
