/* What tests of the tcp link share: n members in n threads of one process, a free port, files. */
#ifndef GW_LINK_TCP_TEST_WORLD_H
#define GW_LINK_TCP_TEST_WORLD_H

#include "base/error.h"
#include "link/scheme.h"
#include "link/tcp/state.h"
#include "link_conformance.h"
#include "log_shape.h"
#include "net/test_peer.h"

#include <sys/resource.h>

#define WORLD_MAX_LINKS 4
#define WORLD_MAX_RANKS LINK_MAX_RANKS

struct world_member {
    pthread_t thread;
    gw_context *context;
    struct gw_link_request options;
    bool by_address; /* it has no other options than world_prepare gives it */
    uint32_t n_links;
    long delay_ms; /* before it comes */
    gw_link links[WORLD_MAX_LINKS];
    gw_status status;
    char sentence[400];
};

/* Every connection takes two descriptors, because both ends are in this process. */
static inline void world_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The socket if it could be bound to that port of 127.0.0.1, else -1. */
static inline int world_bind(int type, unsigned port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* "127.0.0.1:PORT" with a port that nobody uses now. It is below 32768. The kernel gives higher ports to connections,
 * so any process's connection could take one before a member listens there. A process has 64 ports of its own: it keeps
 * the first one's UDP port. tests/ports.py has the same rule. */
static inline void world_free_place(char place[32])
{
    enum { FIRST = 21000, N_BLOCKS = 170, OF_ONE = 64 };
    static int mine = -1;
    static unsigned block, n_tried;
    for (unsigned i = 0; i < N_BLOCKS && mine < 0; i++) {
        block = ((unsigned)getpid() + i) % N_BLOCKS;
        mine = world_bind(SOCK_DGRAM, FIRST + block * OF_ONE);
    }
    assert_true(mine >= 0);
    int fd = -1;
    unsigned port = 0;
    for (int i = 0; i < OF_ONE && fd < 0; i++) {
        port = FIRST + block * OF_ONE + n_tried++ % OF_ONE;
        fd = world_bind(SOCK_STREAM, port);
    }
    assert_true(fd >= 0);
    close(fd);
    snprintf(place, 32, "127.0.0.1:%u", port);
}

static inline void *world_come(void *argument)
{
    struct world_member *member = argument;
    const struct timespec delay = {member->delay_ms / 1000, member->delay_ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
    const struct gw_link_request *of = &member->options;
    char address[128];
    snprintf(address, sizeof address, "tcp://%s?rank=%u&size=%u&timeout_ms=%u", of->rendezvous, of->rank, of->size,
             of->timeout_ms);
    member->status = member->by_address ? gw_link_open(member->context, address, NULL, member->n_links, member->links)
                                        : gw_tcp_open(member->context, of, member->n_links, member->links);
    if (member->status < 0)
        snprintf(member->sentence, sizeof member->sentence, "%s", gw_last_error());
    return NULL;
}

static inline void world_start_one(struct world_member *member)
{
    assert_int_equal(pthread_create(&member->thread, NULL, world_come, member), 0);
}

static inline void world_start(struct world_member *members, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        world_start_one(&members[r]);
}

static inline void world_join(struct world_member *members, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        pthread_join(members[r].thread, NULL);
}

/* Prepares n members, whose options differ in the rank alone. They meet at a free port. `place` has room for 32 bytes,
 * and gets the address. */
static inline void world_prepare(gw_context *context, uint32_t n, uint32_t n_links, struct world_member *members,
                                 char *place)
{
    world_free_place(place);
    for (uint32_t r = 0; r < n; r++)
        members[r] =
            (struct world_member){.context = context,
                                  .n_links = n_links,
                                  .options = {.rank = r, .size = n, .rendezvous = place, .timeout_ms = LINK_LONG_MS}};
}

/* Lets the members meet, each in a thread of its own. If `change` is not NULL, it is called before that, and may change
 * their options. */
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

static inline void world_end_links(struct world_member *members, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t l = 0; l < members[r].n_links && members[r].status == GW_OK; l++)
            gw_link_destroy(&members[r].links[l]);
}

static inline void world_expect_all(struct world_member *members, uint32_t n, gw_status status, const char *words)
{
    for (uint32_t r = 0; r < n; r++) {
        if (members[r].status != status || (words && !strstr(members[r].sentence, words)))
            fail_msg("thread %u: status %d, \"%s\"; wanted %d, \"%s\"", r, members[r].status, members[r].sentence,
                     status, words ? words : "");
    }
}

/* All have met, or hear why not. */
static inline void world_join_all(struct world_member *members, uint32_t n, gw_status status, const char *words)
{
    world_join(members, n);
    world_expect_all(members, n, status, words);
}

/* Every member of link l hears from every other. */
static inline void world_talk(gw_context *context, struct world_member *members, uint32_t n, uint32_t l)
{
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            link_test_send(context, &members[from].links[l], to, 100, from, to);
    for (uint32_t to = 0; to < n; to++) {
        uint32_t seen = 0;
        for (uint32_t i = 0; i < n; i++) {
            gw_message message;
            assert_int_equal(members[to].links[l].ops->recv(members[to].links[l].self, LINK_LONG_MS, &message), GW_OK);
            assert_true(link_test_message_is(&message, 100, message.from, to));
            seen |= 1u << message.from;
            gw_message_free(message.bytes);
        }
        assert_int_equal(seen, (1u << n) - 1);
    }
}

/* Ends all links, and the context, in which nothing may be left. */
static inline void world_end(gw_context *context, struct world_member *members, uint32_t n)
{
    world_end_links(members, n);
    link_test_end(context, NULL, 0);
}

/* All that were started meet, hear each other, and end. */
static inline void world_meets_and_ends(gw_context *context, struct world_member *members, uint32_t n)
{
    world_join_all(members, n, GW_OK, NULL);
    world_talk(context, members, n, 0);
    world_end(context, members, n);
}

/* Rank 0 answers those who come late while it receives. No message comes meanwhile. */
struct world_attendance {
    pthread_t thread;
    const gw_link *link;
    atomic_bool ends;
};

static inline void *world_receive(void *argument)
{
    struct world_attendance *a = argument;
    gw_message message;
    while (!atomic_load(&a->ends) && a->link->ops->recv(a->link->self, 20, &message) == GW_ERR_TIMEOUT)
        ;
    return NULL;
}

static inline void world_attend(struct world_attendance *a, const gw_link *link)
{
    a->link = link;
    atomic_init(&a->ends, false);
    assert_int_equal(pthread_create(&a->thread, NULL, world_receive, a), 0);
}

static inline void world_attend_no_more(struct world_attendance *a)
{
    atomic_store(&a->ends, true);
    pthread_join(a->thread, NULL);
}

/* ---- memory that runs out: the allocation of number world_fail_at fails; 0: none does ---- */

static atomic_int world_allocations, world_fail_at;

static inline void *world_short_alloc(size_t bytes, void *user)
{
    return ++world_allocations == world_fail_at ? NULL : link_test_alloc(bytes, user);
}

static inline gw_context *world_short_context(void)
{
    const gw_allocator allocator = {world_short_alloc, link_test_free, NULL};
    gw_context *context;
    ok(gw_context_create(&(gw_context_options){.struct_bytes = sizeof(gw_context_options), .allocator = &allocator},
                         &context));
    return context;
}

/* ---- logs, and newcomers ---- */

static atomic_int world_n_lines;
static char world_lines[20000]; /* the first of them */
static pthread_mutex_t world_line_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void world_keep_line(const char *line, void *user)
{
    (void)user;
    check_log_line(line);
    pthread_mutex_lock(&world_line_lock);
    size_t used = strlen(world_lines);
    snprintf(world_lines + used, sizeof world_lines - used, "%s\n", line);
    pthread_mutex_unlock(&world_line_lock);
    world_n_lines++;
}

static inline void world_forget_lines(void)
{
    world_lines[0] = 0;
    world_n_lines = 0;
}

static inline bool world_has_line(const char *words)
{
    pthread_mutex_lock(&world_line_lock);
    bool found = strstr(world_lines, words);
    pthread_mutex_unlock(&world_line_lock);
    return found;
}

/* Prepares n members, in a context of their own. The log of rank 0 is kept. */
static inline gw_context *world_begin(struct world_member *members, uint32_t n, uint32_t n_links, char place[32])
{
    gw_context *context = link_test_context();
    world_forget_lines();
    world_prepare(context, n, n_links, members, place);
    members[0].options.log = world_keep_line;
    return context;
}

/* Waits until a line with these words has come. */
static inline void world_await_line(const char *words)
{
    for (int i = 0; i < 3000 && !world_has_line(words); i++)
        link_test_pause(10);
    if (!world_has_line(words))
        fail_msg("no line says \"%s\"; there are: %s", words, world_lines);
}

/* Connects to "127.0.0.1:PORT" as anybody can; waits until somebody listens there. */
static inline int world_dial(const char *place)
{
    const struct sockaddr_in address = peer_address(place);
    for (int i = 0; i < 3000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        peer_patience(fd, PEER_SECONDS);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        link_test_pause(10);
    }
    fail_msg("nobody listens at %s", place);
    return -1;
}

/* Sends a message by hand. false: the other side has closed the connection. */
static inline bool world_say(int fd, uint16_t kind, const void *body, size_t n_bytes)
{
    return peer_send(fd, kind, NULL, 0, body, n_bytes);
}

/* The JOIN of a member that listens at 127.0.0.1:1, where nobody does. */
static inline void world_write_join(uint8_t body[GW_TCP_JOIN_BYTES], struct gw_tcp_join join)
{
    ok(gw_net_address_parse("it", "127.0.0.1:1", false, &join.address));
    gw_tcp_join_write(body, &join);
}

/* Comes to the rendezvous by hand, and wants one link. */
static inline bool world_say_join(int fd, uint16_t version, uint32_t rank, uint32_t size)
{
    uint8_t body[GW_TCP_JOIN_BYTES];
    world_write_join(body, (struct gw_tcp_join){.version = version, .rank = rank, .size = size, .n_links = 1});
    return world_say(fd, GW_TCP_JOIN, body, sizeof body);
}

#endif
