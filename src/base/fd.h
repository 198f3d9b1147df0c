/* Descriptors of this process that a forked child may not keep: sockets and locked files. The child closes its copies
 * at once. If it kept them and this process were killed, the other sides would hear of that only when the child ends,
 * and what is locked would stay locked. */
#ifndef GW_BASE_FD_H
#define GW_BASE_FD_H

#include <sys/socket.h>

/* A socket for connections, one that the listening one has accepted, and the same with the lowest number that is free.
 * No fork comes between the call of the system and the note of it. Below 0: errno. Any thread. */
int gw_fd_socket(int family);
int gw_fd_accept(int listening, struct sockaddr *from, socklen_t from_bytes);
int gw_fd_move(int fd);

/* The descriptor is this process's. gw_fd_drop closes it, and leaves errno as it was. Any thread. */
void gw_fd_own(int fd);
void gw_fd_drop(int fd);

#endif
