/* Reads the file that says on which machines a run's workers start. */
#include "hosts.h"
#include "base/lines.h"
#include "base/numbers.h"
#include "base/quote.h"
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_HOSTS = 1024 };

#define BLANKS " \t\r\n\f\v"

/* Reads "HOST" or "USER@HOST". */
static bool read_host(const char *word, struct tool_host *host)
{
    const char *at = strrchr(word, '@'), *name = at ? at + 1 : word;
    if (word[0] == '-' || at == word || !gw_host_copy(name, strlen(name), host->name))
        return false;
    const int n = snprintf(host->login, sizeof host->login, "%.*s%s", (int)(name - word), word, host->name);
    return n >= 0 && (size_t)n < sizeof host->login;
}

/* Reads a line without its comment. *empty: there is nothing in it. */
static bool read_line(char *line, struct tool_host *host, bool *empty)
{
    char *rest;
    const char *name = strtok_r(line, BLANKS, &rest), *slots = strtok_r(NULL, BLANKS, &rest);
    uint64_t n = 1;
    *empty = !name;
    if (!slots)
        slots = "1";
    else if (strncmp(slots, "slots=", 6) == 0)
        slots += 6;
    if (*empty || strtok_r(NULL, BLANKS, &rest) || !gw_parse_whole(slots, GW_MAX_WORKERS, &n) || n == 0)
        return *empty;
    host->slots = (uint32_t)n;
    return read_host(name, host);
}

static int read_lines(FILE *file, const char *path, struct tool_hosts *hosts)
{
    char text[1024], shown[64];
    for (unsigned n_line = 1; fgets(text, sizeof text, file); n_line++) {
        struct tool_host host;
        char *line = text + (n_line == 1 ? gw_lines_mark(text, strlen(text)) : 0);
        const size_t end = strcspn(line, "\r\n");
        /* \r stands before \n if an editor of Windows wrote it. Alone, it is the line end of old Macs: hosts follow. */
        bool empty, whole = (strchr(text, '\n') || feof(file)) &&
                            (line[end] != '\r' || strcmp(line + end, "\r\n") == 0 || !line[end + 1]);
        line[end] = 0;
        line[strcspn(line, "#")] = 0;
        snprintf(shown, sizeof shown, "%.60s", line);
        if (!whole || !read_line(line, &host, &empty))
            return tool_fail("%s, line %u: \"%s\" is no host; right is HOST, or HOST and its number of workers", path,
                             n_line, gw_quote(shown).text);
        if (empty)
            continue;
        if (hosts->n == MAX_HOSTS)
            return tool_fail("%s has more than %d hosts", path, MAX_HOSTS);
        hosts->items[hosts->n++] = host;
        hosts->slots += host.slots;
    }
    if (ferror(file))
        return tool_fail("%s cannot be read: %s", path, strerror(errno));
    return hosts->n ? TOOL_DONE : tool_fail("%s names no host", path);
}

int tool_read_hosts(const char *path, struct tool_hosts *hosts)
{
    uint64_t n_bytes;
    *hosts = (struct tool_hosts){.items = calloc(MAX_HOSTS, sizeof *hosts->items)};
    const int fd = tool_open_file(path, &n_bytes);
    if (fd < 0)
        return TOOL_FAILED;
    FILE *file = hosts->items ? fdopen(fd, "r") : NULL;
    if (!file) {
        close(fd);
        return tool_fail("%s cannot be read: %s", path, strerror(errno));
    }
    const int status = read_lines(file, path, hosts);
    fclose(file);
    return status;
}

const struct tool_host *tool_host_of(const struct tool_hosts *hosts, uint32_t rank)
{
    for (uint32_t h = 0; h < hosts->n; h++) {
        if (rank < hosts->items[h].slots)
            return &hosts->items[h];
        rank -= hosts->items[h].slots;
    }
    return NULL;
}
