/* What tests share that flood a process with messages of endless parts, and look at its memory. */
#ifndef TESTS_FLOOD_H
#define TESTS_FLOOD_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

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

/* Sends one message of n_parts parts, after the parts that have been sent already (ZeroMQ sends nothing before the last
 * part). Returns true if the other side ended the connection, and false after 60 s. The socket connects only once. */
static inline bool flood_parts(void *zmq, void *socket, size_t part_bytes, size_t n_parts)
{
    static char bytes[1 << 20];
    static int nth;
    char place[64];
    bool ended = false;
    snprintf(place, sizeof place, "inproc://flood-%d-%d", (int)getpid(), nth++);
    void *news = zmq_socket(zmq, ZMQ_PAIR);
    const int patience = 60000;
    zmq_setsockopt(news, ZMQ_RCVTIMEO, &patience, sizeof patience);
    if (zmq_socket_monitor(socket, place, ZMQ_EVENT_DISCONNECTED) != 0 || zmq_connect(news, place) != 0)
        return false;
    for (size_t i = 0; i + 1 < n_parts; i++)
        if (zmq_send(socket, bytes, part_bytes, ZMQ_SNDMORE) < 0)
            break;
    zmq_send(socket, bytes, part_bytes, 0);
    char event[64];
    ended = zmq_recv(news, event, sizeof event, 0) >= 0;
    zmq_socket_monitor(socket, NULL, 0);
    const int none = 0;
    zmq_setsockopt(news, ZMQ_LINGER, &none, sizeof none);
    zmq_close(news);
    return ended;
}

/* Makes a socket that connects once. If server_key is not NULL, it has keys. Its own are client_public and
 * client_secret. */
static inline void *flood_socket(void *zmq, const char *endpoint, const char *server_key, const char *client_public,
                                 const char *client_secret)
{
    const int none = 0, never = -1, patience = 60000;
    void *socket = zmq_socket(zmq, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RECONNECT_IVL, &never, sizeof never);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof patience);
    if (server_key) {
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, client_public, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, client_secret, 40);
    }
    return zmq_connect(socket, endpoint) == 0 ? socket : NULL;
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
