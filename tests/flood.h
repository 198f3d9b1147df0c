/* What tests share that flood a process with bytes or connections, and look at its memory. */
#ifndef TESTS_FLOOD_H
#define TESTS_FLOOD_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
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

/* Makes a plain connection from the loopback address `from` to a port of this machine. Below 0: it failed. */
static inline int flood_connect_from(const char *from, uint16_t port)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&own, sizeof own) != 0 ||
                    connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline int flood_connect(uint16_t port)
{
    return flood_connect_from("127.0.0.1", port);
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
