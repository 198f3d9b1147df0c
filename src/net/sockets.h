/* The sockets of this process. A forked child closes its copies at once. If it kept them and this process were killed,
 * the other sides would hear of that only when the child ends. */
#ifndef GW_NET_SOCKETS_H
#define GW_NET_SOCKETS_H

/* The socket is this process's. gw_net_drop closes it. Any thread. */
void gw_net_own(int fd);
void gw_net_drop(int fd);

#endif
