/* What tests of the tcp link share: n members in n threads of one process, a free port, files. */
#ifndef GW_LINK_TCP_TEST_WORLD_H
#define GW_LINK_TCP_TEST_WORLD_H

#include "base/error.h"
#include "link_conformance.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORLD_MAX_LINKS 4
#define WORLD_MAX_RANKS LINK_MAX_RANKS

struct world_member {
    pthread_t thread;
    gw_context *context;
    gw_tcp_options options;
    uint32_t n_links;
    long delay_ms; /* before it comes */
    gw_link links[WORLD_MAX_LINKS];
    gw_status status;
    char sentence[400];
};

/* Every connection is two files of the process here. */
static inline void world_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* "127.0.0.1:PORT" with a port that nobody uses now. */
static inline void world_free_place(char place[32])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    close(fd);
    snprintf(place, 32, "127.0.0.1:%u", ntohs(address.sin_port));
}

static inline void *world_come(void *argument)
{
    struct world_member *member = argument;
    const struct timespec delay = {member->delay_ms / 1000, member->delay_ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
    member->status = gw_link_tcp_create(member->context, &member->options, member->n_links, member->links);
    if (member->status < 0)
        snprintf(member->sentence, sizeof member->sentence, "%s", gw_last_error());
    return NULL;
}

static inline void world_start(struct world_member *members, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        assert_int_equal(pthread_create(&members[r].thread, NULL, world_come, &members[r]), 0);
}

static inline void world_join(struct world_member *members, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        pthread_join(members[r].thread, NULL);
}

/* n members with the options that members differ in nothing but rank; `place` has room for 32. */
static inline void world_prepare(gw_context *context, uint32_t n, uint32_t n_links, struct world_member *members, char *place)
{
    world_free_place(place);
    for (uint32_t r = 0; r < n; r++)
        members[r] = (struct world_member){
            .context = context,
            .n_links = n_links,
            .options = {.struct_bytes = sizeof(gw_tcp_options), .rank = r, .size = n, .rendezvous = place, .timeout_ms = LINK_LONG_MS}};
}

/* They meet, each in a thread of its own; change(members), unless NULL, alters their options first. */
static inline void world_meet(gw_context *context, uint32_t n, uint32_t n_links, struct world_member *members,
                              void (*change)(struct world_member *members))
{
    char place[32];
    world_prepare(context, n, n_links, members, place);
    if (change)
        change(members);
    world_start(members, n);
    world_join(members, n);
}

#endif
