/* The hosts of a run: machines, and how many workers each of them has room for. */
#ifndef GW_TOOL_HOSTS_H
#define GW_TOOL_HOSTS_H

#include "base/host.h"

#include <stdint.h>

struct tool_host {
    char login[GW_HOST_BYTES + 64]; /* what the remote shell gets: HOST or USER@HOST */
    char name[GW_HOST_BYTES];       /* by which others reach it */
    uint32_t slots;
};

struct tool_hosts {
    struct tool_host *items; /* freed by the caller */
    uint32_t n, slots;
};

/* Reads a file with a line "HOST", "HOST 4" or "HOST slots=4" for each machine. HOST may be USER@HOST, and an IPv6
 * address may be in brackets; # begins a comment. */
int tool_read_hosts(const char *path, struct tool_hosts *hosts);

/* Ranks fill the hosts' slots in order. NULL: there are not so many slots. */
const struct tool_host *tool_host_of(const struct tool_hosts *hosts, uint32_t rank);

#endif
