/* The sockets of this process. A forked child closes its copies at once. If it kept them and this process were killed,
 * the other sides would hear of that only when the child ends. */
#ifndef GW_NET_SOCKETS_H
#define GW_NET_SOCKETS_H

#include "net/address.h"

/* A socket for connections, one that the listening one has accepted, and the same with the lowest number that is free.
 * No fork comes between the call of the system and the note of it. Below 0: errno. Any thread. */
int gw_net_socket(int family);
int gw_net_accept(int listening, union gw_net_socket *from);
int gw_net_move(int fd);

/* The socket is this process's. gw_net_drop closes it, and leaves errno as it was. Any thread. */
void gw_net_own(int fd);
void gw_net_drop(int fd);

#endif
