/* A free port for what a test listens at later, or again. */
#ifndef GW_NET_TEST_PLACE_H
#define GW_NET_TEST_PLACE_H

#include "checks.h"
#include "net/address.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACE_BYTES 32

/* Writes "127.0.0.1:PORT" with a port that nobody uses now. A socket that does not listen keeps it, at all addresses,
 * until the second one after it: so the kernel gives it to no connection and to no other program, also while nobody
 * listens there. Who says SO_REUSEADDR may listen there. */
static inline void find_place(char place[PLACE_BYTES])
{
    static int keepers[2] = {-1, -1}, next;
    const int yes = 1;
    union gw_net_socket own = {.v6 = {.sin6_family = AF_INET6}};
    socklen_t n = sizeof own;
    int keeper = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (keeper < 0) { /* no IPv6 here */
        own = (union gw_net_socket){.v4 = {.sin_family = AF_INET}};
        keeper = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    assert_true(setsockopt(keeper, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 && bind(keeper, &own.any, n) == 0 &&
                getsockname(keeper, &own.any, &n) == 0);
    close(keepers[next]);
    keepers[next] = keeper;
    next = !next;
    snprintf(place, PLACE_BYTES, "127.0.0.1:%u", ntohs(own.v4.sin_port)); /* sin6_port is at the same place */
}

#endif
