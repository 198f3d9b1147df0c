/* What tests of the tcp link share: a world of n members in n threads of one process, a free port, a log, and newcomers
 * that speak by hand. There is one world at a time. */
#ifndef GW_LINK_TCP_TEST_WORLD_H
#define GW_LINK_TCP_TEST_WORLD_H

#include "base/error.h"
#include "link/scheme.h"
#include "link/tcp/state.h"
#include "net/test_place.h"
#include "link_conformance.h"
#include "log_shape.h"
#include "net/test_peer.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define WORLD_MAX_LINKS 4

struct world_member {
    pthread_t thread;
    gw_context *context;
    struct gw_link_request options;
    bool by_address; /* it has no other options than world_prepare gives it */
    uint32_t n_links;
    gw_link links[WORLD_MAX_LINKS];
    gw_status status;
    char sentence[400];
};

static struct world_member members[LINK_MAX_RANKS];
static uint32_t n_members;
static char place[PLACE_BYTES]; /* the rendezvous */
static gw_context *context;

/* Every connection takes two descriptors, because both ends are in this process. */
static inline void world_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static inline void *world_come(void *argument)
{
    struct world_member *member = argument;
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

/* Starts `n` members, from the rank `first` on. */
static inline void world_start(uint32_t first, uint32_t n)
{
    for (uint32_t r = first; r < first + n; r++)
        world_start_one(&members[r]);
}

static inline void world_join(struct world_member *some, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        pthread_join(some[r].thread, NULL);
}

static inline void world_expect_all(struct world_member *some, uint32_t n, gw_status status, const char *words)
{
    for (uint32_t r = 0; r < n; r++) {
        if (some[r].status != status || (words && !strstr(some[r].sentence, words)))
            fail_msg("thread %u: status %d, \"%s\"; wanted %d, \"%s\"", r, some[r].status, some[r].sentence, status,
                     words ? words : "");
    }
}

/* The first n have met, or hear why not. */
static inline void world_join_all(uint32_t n, gw_status status, const char *words)
{
    world_join(members, n);
    world_expect_all(members, n, status, words);
}

/* Every member of link l hears from every other. */
static inline void world_talk(uint32_t l)
{
    const uint32_t n = n_members;
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            link_test_send(context, &members[from].links[l], to, 100, from, to);
    for (uint32_t to = 0; to < n; to++) {
        uint32_t seen = 0;
        for (uint32_t i = 0; i < n; i++) {
            gw_message message;
            assert_int_equal(link_test_recv(&members[to].links[l], LINK_LONG_MS, &message), GW_OK);
            assert_true(link_test_message_is(&message, 100, message.from, to));
            seen |= 1u << message.from;
            gw_message_free(message.bytes);
        }
        assert_int_equal(seen, (1u << n) - 1);
    }
}

static inline void world_end_links(void)
{
    for (uint32_t r = 0; r < n_members; r++)
        for (uint32_t l = 0; l < members[r].n_links && members[r].status == GW_OK; l++)
            gw_link_destroy(&members[r].links[l]);
}

/* Ends all links, and the context, in which nothing may be left. */
static inline void world_end(void)
{
    world_end_links();
    link_test_end(context, NULL, 0);
}

/* All that were started meet, hear each other, and end. */
static inline void world_meets_and_ends(void)
{
    world_join_all(n_members, GW_OK, NULL);
    world_talk(0);
    world_end();
}

/* ---- processes; a test forks before it has threads -------------------------------------------------------- */

static inline pid_t world_fork(void)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    return child;
}

/* how: 0, or the signal that kills it. */
static inline void world_expect_end(pid_t child, int how)
{
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, how);
}

/* ---- rank 0 answers those who come late while it receives; no message comes meanwhile --------------------- */

static pthread_t world_attendance;
static atomic_bool world_attends;

static inline void *world_receive(void *argument)
{
    const gw_link *link = argument;
    gw_message message;
    while (atomic_load(&world_attends) && link_test_recv(link, 20, &message) == GW_ERR_TIMEOUT)
        ;
    return NULL;
}

static inline void world_attend(gw_link *link)
{
    atomic_store(&world_attends, true);
    assert_int_equal(pthread_create(&world_attendance, NULL, world_receive, link), 0);
}

static inline void world_attend_no_more(void)
{
    atomic_store(&world_attends, false);
    pthread_join(world_attendance, NULL);
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
    pthread_mutex_lock(&world_line_lock); /* a member may write one just now */
    world_lines[0] = 0;
    pthread_mutex_unlock(&world_line_lock);
    world_n_lines = 0;
}

static inline bool world_has_line(const char *words)
{
    pthread_mutex_lock(&world_line_lock);
    bool found = strstr(world_lines, words);
    pthread_mutex_unlock(&world_line_lock);
    return found;
}

/* Prepares n members. Their options differ in the rank alone; the log of rank 0 is kept. They are to meet at a free
 * port. */
static inline void world_prepare(gw_context *of_all, uint32_t n, uint32_t n_links)
{
    context = of_all;
    n_members = n;
    world_forget_lines();
    find_place(place);
    for (uint32_t r = 0; r < n; r++)
        members[r] =
            (struct world_member){.context = context,
                                  .n_links = n_links,
                                  .options = {.rank = r, .size = n, .rendezvous = place, .timeout_ms = LINK_LONG_MS}};
    members[0].options.log = world_keep_line;
}

/* The same in a context of their own. */
static inline void world_begin(uint32_t n, uint32_t n_links)
{
    world_prepare(link_test_context(), n, n_links);
}

/* The same, and they meet. */
static inline void world_meet(uint32_t n, uint32_t n_links)
{
    world_begin(n, n_links);
    world_start(0, n);
    world_join_all(n, GW_OK, NULL);
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
static inline int world_dial(const char *there)
{
    int fd = peer_try(there, 1);
    for (int i = 0; i < 3000 && fd < 0; i++, fd = peer_try(there, 1))
        link_test_pause(10);
    if (fd < 0)
        fail_msg("nobody listens at %s", there);
    return fd;
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

/* Comes to the rendezvous by hand. */
static inline int world_join_as(struct gw_tcp_join join)
{
    uint8_t body[GW_TCP_JOIN_BYTES];
    const int fd = world_dial(place);
    world_write_join(body, join);
    assert_true(world_say(fd, GW_TCP_JOIN, body, sizeof body));
    return fd;
}

static inline int world_say_join(uint32_t rank)
{
    return world_join_as((struct gw_tcp_join){GW_TCP_VERSION, .rank = rank, .size = n_members, .n_links = 1});
}

/* Comes to a member by hand. */
static inline int world_say_hello(const char *there, struct gw_tcp_hello hello, size_t n_bytes)
{
    uint8_t body[GW_TCP_HELLO_BYTES];
    const int fd = world_dial(there);
    gw_tcp_hello_write(body, &hello);
    assert_true(world_say(fd, GW_TCP_HELLO, body, n_bytes));
    return fd;
}

/* Waits for a message of this kind, or with kind 0 for the end. Passes over WAITs. */
static inline struct peer_message world_hear(int fd, uint16_t kind)
{
    struct peer_message heard;
    do
        heard.kind = peer_hear(fd, &heard) ? heard.kind : 0;
    while (heard.kind == GW_TCP_WAIT && kind != GW_TCP_WAIT);
    assert_int_equal(heard.kind, kind);
    return heard;
}

/* Waits for the table of rank 0, and returns the session. */
static inline uint64_t world_hear_table(int fd, struct gw_tcp_member *table)
{
    uint64_t session;
    const struct peer_message m = world_hear(fd, GW_TCP_TABLE);
    assert_true(gw_tcp_table_read(m.body, m.n_bytes, n_members, 1, &session, table));
    return session;
}

#endif
