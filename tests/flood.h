/* What tests share that flood a process with bytes or connections, and look at its memory. */
#ifndef TESTS_FLOOD_H
#define TESTS_FLOOD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sanitizers keep freed memory, so a process's memory says little. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLOOD_MEMORY_IS_TOLD false
#else
#define FLOOD_MEMORY_IS_TOLD true
#endif

/* Reads a line of /proc/PID/status, such as "VmHWM:", in MiB. Below 0: there is none. */
static inline double flood_memory(pid_t process, const char *line)
{
    char path[64], text[256];
    double kib = -1024;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *file = fopen(path, "r");
    while (file && fgets(text, sizeof text, file))
        if (strncmp(text, line, strlen(line)) == 0)
            kib = strtod(text + strlen(line), NULL);
    if (file)
        fclose(file);
    return kib / 1024;
}

/* Counts the connections that the other side has not ended. */
static inline int flood_open(const int *fds, int n)
{
    int open = 0;
    for (int i = 0; i < n; i++) {
        char bytes[256];
        ssize_t got;
        while ((got = recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
            ;
        open += got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    return open;
}

#endif
