/* The watch: a thread that counts what came on each connection to the sockets of a net. It closes connections that send
 * too much, and strangers that say nothing. */
#define _GNU_SOURCE /* dup3 */
#include "zmq/watch.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "zmq/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

/* between two looks while there are strangers. It limits what a stranger can send between them */
#define STRANGERS_SECONDS 0.005
#define MEMBERS_SECONDS 0.05 /* between two looks while there are none */
/* a connection with fewer bytes has not spoken: a greeting and a first message have more */
#define SPOKE_BYTES 100
#define SLACK_BYTES (64u << 10) /* how far a member may go beyond its limit: framing takes some bytes */
#define PART_BYTES 42           /* what encryption and framing add to a part */
#define HEARTBEAT_BYTES 100     /* of a heartbeat: a question and an answer, encrypted, and some more */
#define PAGE 256u               /* connections in a page of the table */
#define PAGES 4096u             /* the most pages: enough for descriptors up to a million */
#define RESERVE 32u             /* descriptors that strangers do not get */
#define LINES_AT_ONCE 20.0      /* lines of the log that may come at once; after them, one line in LINE_SECONDS */
#define LINE_SECONDS 5.0

struct connection {
    atomic_uint_least64_t taken; /* bytes of the complete messages so far: an upper bound */
    atomic_uint n_taken;         /* messages */
    bool used, admitted, closing;
    int fd;
    uint32_t place;   /* in `live` */
    ino_t inode;      /* shows whether the descriptor still belongs to this connection */
    double since;     /* when it was accepted; once it is admitted, when that was */
    int64_t offset;   /* bytes that were received and belong to no message: handshake, heartbeats */
    uint64_t waiting; /* bytes that were received and not taken, at the last look */
    unsigned lap_n;   /* n_taken when the lap began */
    bool lap_over;    /* it was over its limit when the lap began */
    uint8_t address[16];
};

struct gw_zmq_door {
    struct gw_zmq_watch *watch;
    struct gw_zmq_door *next;
    struct gw_zmq_limits limits;
    void *events; /* events from ZeroMQ. Every thread that reads them holds the lock */
    int events_fd, news_fd, socket_fd;
    bool (*serve)(void *user); /* NULL: another thread uses the socket. Used under the watch's lock */
    void *serve_user;
    pthread_mutex_t lock;
    struct gw_zmq_event *news; /* a ring of events that were read, and that the application has not asked for yet */
    size_t n_news, first_news, news_capacity;
    _Atomic(struct connection *) pages[PAGES];
    struct connection **live;
    uint32_t n_live, n_strangers, live_capacity;
    atomic_uint_least64_t n_taken; /* messages */
    atomic_uint n_empty;           /* how often the socket was found empty */
    /* a lap is over when the application has taken all messages that were complete when the lap began */
    double lap_began, seen_until;
    uint64_t lap_taken, lap_connections;
    unsigned lap_empty;
    double members_next;
    bool hurries; /* a member seems to be over its limit; but a complete message may be on its way to the application */
};

struct gw_zmq_watch {
    struct gw_zmq_watch_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the list of doors. It is taken before the lock of a door */
    struct gw_zmq_door *doors;
    int wake, spare; /* two eventfds. While a connection is closed, its copy has the number of `spare` */
    bool ends;
    double line_room, line_at;
    uint64_t n_untold;
};

static void signal_fd(int fd)
{
    const uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void clear_fd(int fd)
{
    uint64_t n;
    while (read(fd, &n, sizeof n) < 0 && errno == EINTR)
        ;
}

/* ---- the table of connections ----------------------------------------------------------------------- */

static struct connection *connection_of(struct gw_zmq_door *door, int fd)
{
    if (fd < 0 || (uint32_t)fd >= PAGE * PAGES)
        return NULL;
    struct connection *page = atomic_load_explicit(&door->pages[(uint32_t)fd / PAGE], memory_order_acquire);
    return page ? &page[(uint32_t)fd % PAGE] : NULL;
}

/* Here and below, memory does not come from the context: this thread must not depend on the caller's allocator. */
static bool grow(void **array, size_t n, size_t each, uint32_t *capacity)
{
    if (n < *capacity)
        return true;
    const uint32_t more = *capacity ? 2 * *capacity : 64;
    void *larger = gw_alloc(NULL, more, each);
    if (!larger)
        return false;
    if (n)
        memcpy(larger, *array, n * each);
    gw_free(NULL, *array);
    *array = larger;
    *capacity = more;
    return true;
}

static struct connection *new_connection(struct gw_zmq_door *door, int fd)
{
    if (fd < 0 || (uint32_t)fd >= PAGE * PAGES ||
        !grow((void **)&door->live, door->n_live, sizeof door->live[0], &door->live_capacity))
        return NULL;
    if (!connection_of(door, fd)) {
        struct connection *page = gw_calloc(NULL, PAGE, sizeof *page);
        if (!page)
            return NULL;
        atomic_store_explicit(&door->pages[(uint32_t)fd / PAGE], page, memory_order_release);
    }
    return connection_of(door, fd);
}

static void forget(struct gw_zmq_door *door, struct connection *c)
{
    if (!c || !c->used)
        return;
    door->n_strangers -= !c->admitted;
    door->live[c->place] = door->live[--door->n_live];
    door->live[c->place]->place = c->place;
    c->used = false;
}

static void read_address(struct connection *c)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof from;
    memset(c->address, 0, sizeof c->address);
    if (getpeername(c->fd, (struct sockaddr *)&from, &bytes) != 0)
        return;
    if (from.ss_family == AF_INET6)
        memcpy(c->address, &((struct sockaddr_in6 *)&from)->sin6_addr, sizeof c->address);
    else if (from.ss_family == AF_INET)
        memcpy(c->address + 12, &((struct sockaddr_in *)&from)->sin_addr, 4);
}

static bool reset_descriptor(int fd);

static void came(struct gw_zmq_door *door, int fd)
{
    struct stat status;
    struct connection *c = new_connection(door, fd);
    /* Without memory for it, the watch cannot watch the connection, so it must not come in. In rare cases the number
     * may belong to another file by now. */
    if (!c) {
        reset_descriptor(fd);
        return;
    }
    forget(door, c);
    c->fd = fd;
    c->used = true;
    c->admitted = c->closing = c->lap_over = false;
    c->inode = fstat(fd, &status) == 0 ? status.st_ino : 0;
    c->since = gw_clock_seconds();
    c->offset = 0;
    c->waiting = 0;
    c->place = door->n_live;
    atomic_store(&c->taken, 0);
    atomic_store(&c->n_taken, 0);
    read_address(c);
    door->live[door->n_live++] = c;
    door->n_strangers++;
    /* Wake the watch: if the application has read this event, ZeroMQ's descriptor does not tell the watch, which could
     * sleep for ever. */
    signal_fd(door->watch->wake);
}

/* ---- news --------------------------------------------------------------------------------------------- */

static void keep_news(struct gw_zmq_door *door, const struct gw_zmq_event *event)
{
    if (door->n_news == door->news_capacity) {
        const size_t capacity = door->news_capacity ? 2 * door->news_capacity : 64;
        struct gw_zmq_event *news = gw_alloc(NULL, capacity, sizeof *news);
        if (!news)
            return; /* without memory the event is lost */
        for (size_t i = 0; i < door->n_news; i++)
            news[i] = door->news[(door->first_news + i) % door->news_capacity];
        gw_free(NULL, door->news);
        door->news = news;
        door->news_capacity = capacity;
        door->first_news = 0;
    }
    door->news[(door->first_news + door->n_news++) % door->news_capacity] = *event;
}

/* Reads the events that ZeroMQ has told. The lock must be held. */
static bool read_news(struct gw_zmq_door *door)
{
    struct gw_zmq_event event;
    bool any = false;
    while (gw_zmq_next_event(door->events, &event)) {
        any = true;
        if (event.what == ZMQ_EVENT_ACCEPTED)
            came(door, (int)event.value);
        else if (event.what == ZMQ_EVENT_DISCONNECTED)
            forget(door, connection_of(door, (int)event.value));
        keep_news(door, &event);
    }
    return any;
}

/* Reads all events, and keeps them for the application. ZeroMQ tells of a connection's end before its descriptor is
 * free. So once a reading has found no more events, each descriptor that was noted belonged to its connection then. */
static void read_all_news(struct gw_zmq_door *door)
{
    while (read_news(door))
        ;
    if (door->n_news > 0)
        signal_fd(door->news_fd);
}

bool gw_zmq_door_event(struct gw_zmq_door *door, struct gw_zmq_event *event)
{
    pthread_mutex_lock(&door->lock);
    read_news(door);
    const bool any = door->n_news > 0;
    if (any) {
        *event = door->news[door->first_news];
        door->first_news = (door->first_news + 1) % door->news_capacity;
        door->n_news--;
    } else {
        clear_fd(door->news_fd);
    }
    pthread_mutex_unlock(&door->lock);
    return any;
}

int gw_zmq_door_fd(const struct gw_zmq_door *door)
{
    return door->news_fd;
}

/* ---- closing ------------------------------------------------------------------------------------------- */

/* Ends a TCP connection at once, and drops what the kernel has received on it. After a shutdown, ZeroMQ would still
 * read that. */
static bool reset_descriptor(int fd)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    return connect(fd, &nobody, sizeof nobody) == 0;
}

static void tell(struct gw_zmq_watch *watch, const struct connection *c, const char *reason)
{
    const double now = gw_clock_seconds(), room = watch->line_room + (now - watch->line_at) / LINE_SECONDS;
    watch->line_room = room < LINES_AT_ONCE ? room : LINES_AT_ONCE;
    watch->line_at = now;
    if (!watch->options.log)
        return;
    if (watch->line_room < 1) {
        watch->n_untold++;
        return;
    }
    watch->line_room--;
    struct sockaddr_in6 from = {.sin6_family = AF_INET6};
    struct sockaddr_in from4 = {.sin_family = AF_INET};
    char address[80] = "?", more[48] = "", line[512];
    memcpy(&from.sin6_addr, c->address, sizeof c->address);
    memcpy(&from4.sin_addr, c->address + 12, 4);
    static const uint8_t none[12];
    const bool v4 = memcmp(c->address, none, sizeof none) == 0 && (c->address[12] || c->address[13]);
    getnameinfo(v4 ? (struct sockaddr *)&from4 : (struct sockaddr *)&from, v4 ? sizeof from4 : sizeof from, address,
                sizeof address, NULL, 0, NI_NUMERICHOST);
    if (watch->n_untold)
        snprintf(more, sizeof more, " untold=%llu", (unsigned long long)watch->n_untold);
    watch->n_untold = 0;
    snprintf(line, sizeof line, "closed address=%s reason=\"%s\"%s", address, reason, more);
    watch->options.log(line, watch->options.log_user);
}

/* Closes a connection. Its number may belong to another file by now. So this makes a copy of the descriptor and looks
 * at that first: the copy stays the same file. */
static void close_connection(struct gw_zmq_watch *watch, struct connection *c, const char *reason)
{
    struct stat status;
    c->closing = true;
    const int copy = dup3(c->fd, watch->spare, O_CLOEXEC); /* this needs no new descriptor; there may be none left */
    if (copy >= 0 && fstat(copy, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == c->inode &&
        reset_descriptor(copy))
        tell(watch, c, reason);
    if (copy >= 0)
        dup3(watch->wake, watch->spare, O_CLOEXEC);
}

/* ---- looking -------------------------------------------------------------------------------------------- */

/* Sets c->waiting to the bytes that have come and were not taken. */
static void measure(struct connection *c)
{
    /* Read `taken` first, so that the kernel has counted all of these bytes when we ask it. */
    const uint64_t taken = atomic_load(&c->taken);
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return;
    int64_t waiting = (int64_t)(info.tcpi_bytes_received - taken) - c->offset;
    if (waiting < 0) { /* a message's bytes on the wire are an estimate, which is never too low */
        c->offset += waiting;
        waiting = 0;
    }
    c->waiting = (uint64_t)waiting;
}

/* Bytes that the kernel still holds take none of this process's memory, so they do not count. */
static uint64_t in_process(const struct connection *c)
{
    int queued = 0;
    if (ioctl(c->fd, FIONREAD, &queued) != 0 || queued < 0)
        queued = 0;
    return c->waiting > (uint64_t)queued ? c->waiting - (uint64_t)queued : 0;
}

static uint64_t heartbeats(const struct gw_zmq_door *door, const struct connection *c, double now)
{
    return (uint64_t)((now - c->since) * HEARTBEAT_BYTES * 8000 / (door->watch->options.timeout_ms + 1.0));
}

static bool is_over(const struct gw_zmq_door *door, const struct connection *c, double now)
{
    if (!c->admitted)
        return c->waiting > door->limits.stranger_bytes;
    const uint64_t most = door->limits.member_bytes + SLACK_BYTES + heartbeats(door, c, now);
    return door->limits.member_bytes && c->waiting > most && in_process(c) > most;
}

/* True if the application has taken all messages that were complete when the lap began. That is so if the socket was
 * found empty since then. It is also so if the socket has given as many messages as there are connections, because it
 * takes from each in turn. */
static bool lap_is_over(const struct gw_zmq_door *door, double now)
{
    return now >= door->lap_began + 2 * STRANGERS_SECONDS &&
           (atomic_load(&door->n_empty) != door->lap_empty ||
            atomic_load(&door->n_taken) > door->lap_taken + door->lap_connections);
}

static void begin_lap(struct gw_zmq_door *door, double now)
{
    door->lap_empty = atomic_load(&door->n_empty);
    door->lap_taken = atomic_load(&door->n_taken);
    door->lap_connections = door->n_live + 16;
    door->lap_began = now;
    for (uint32_t i = 0; i < door->n_live; i++) {
        struct connection *c = door->live[i];
        c->lap_n = atomic_load(&c->n_taken);
        c->lap_over = is_over(door, c, now);
    }
}

/* After a lap: closes connections whose bytes are still no complete message, and strangers that have said nothing for
 * too long. */
static void look_after_lap(struct gw_zmq_watch *watch, struct gw_zmq_door *door)
{
    door->seen_until = door->lap_began;
    for (uint32_t i = 0; i < door->n_live; i++) {
        struct connection *c = door->live[i];
        char reason[160];
        if (c->closing)
            continue;
        if (c->lap_over && atomic_load(&c->n_taken) == c->lap_n && c->admitted) {
            snprintf(reason, sizeof reason, "%llu bytes of it are no whole message; no message is so long",
                     (unsigned long long)c->waiting);
            close_connection(watch, c, reason);
        } else if (c->lap_over && atomic_load(&c->n_taken) == c->lap_n && !c->admitted) {
            close_connection(watch, c, "it sent more than it may before it has said who it is");
        } else if (!c->admitted && door->seen_until - c->since >= door->limits.silent_s) {
            snprintf(reason, sizeof reason, "it has not said who it is within %g s", door->limits.silent_s);
            close_connection(watch, c, reason);
        }
    }
}

static unsigned address_slot(const struct connection *c)
{
    unsigned hash = 0;
    for (size_t i = 0; i < sizeof c->address; i++)
        hash = hash * 31 + c->address[i];
    return hash % 256;
}

/* Chooses a stranger to close: one of the address with the most strangers. It is the oldest one that has said nothing,
 * or else the oldest one. */
static struct connection *stranger_to_close(const struct gw_zmq_door *door)
{
    uint32_t n_of[256] = {0}, most = 0;
    struct connection *found = NULL;
    for (uint32_t i = 0; i < door->n_live; i++)
        if (!door->live[i]->admitted && !door->live[i]->closing) {
            const uint32_t n = ++n_of[address_slot(door->live[i])];
            most = n > most ? n : most;
        }
    for (uint32_t i = 0; i < door->n_live; i++) {
        struct connection *c = door->live[i];
        if (c->admitted || c->closing || n_of[address_slot(c)] < most)
            continue;
        const bool silent = c->waiting < SPOKE_BYTES, other = found && found->waiting < SPOKE_BYTES;
        if (!found || (silent && !other) || (silent == other && c->since < found->since))
            found = c;
    }
    return found;
}

/* Descriptors from this number on are kept for files. A new descriptor gets the lowest free number, so a connection
 * with a higher one means that few are left. */
static rlim_t reserve_begins(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return RLIM_INFINITY;
    return limit.rlim_cur > 2 * RESERVE ? limit.rlim_cur - RESERVE : limit.rlim_cur / 2;
}

/* Counts free descriptors below `end`, up to `most`. */
static uint32_t count_free(const struct gw_zmq_watch *watch, rlim_t end, uint32_t most)
{
    uint32_t n = 0;
    for (int at = 0; n < most && (at = fcntl(watch->wake, F_DUPFD_CLOEXEC, at)) >= 0; at++) {
        close(at);
        if ((rlim_t)at >= end)
            break;
        n++;
    }
    return n;
}

static void look_at_strangers(struct gw_zmq_watch *watch, struct gw_zmq_door *door)
{
    const rlim_t reserve = reserve_begins();
    uint64_t all = 0;
    uint32_t n = 0, n_high = 0, n_low_closing = 0;
    struct connection *largest = NULL;
    for (uint32_t i = 0; i < door->n_live; i++) {
        struct connection *c = door->live[i];
        n_low_closing += c->closing && (rlim_t)c->fd < reserve;
        if (c->admitted || c->closing)
            continue;
        measure(c);
        if (c->waiting > door->limits.stranger_bytes) {
            close_connection(watch, c, "it sent more than it may before it has said who it is");
        } else {
            n++;
            n_high += (rlim_t)c->fd >= reserve;
            all += c->waiting;
            largest = !largest || c->waiting > largest->waiting ? c : largest;
        }
    }
    if (all > GW_ZMQ_STRANGERS_BYTES) {
        close_connection(watch, largest, "strangers have sent too much");
        n--;
    }
    /* Strangers may have as many of the reserve as lower ones are free, or soon will be. So the reserve keeps its size,
     * and a member that came behind many strangers may stay. */
    n_high -= n_high < n_low_closing ? n_high : n_low_closing;
    n_high -= count_free(watch, reserve, n_high);
    for (struct connection *c; n_high && (c = stranger_to_close(door)); n_high--, n--)
        close_connection(watch, c, "only a reserve of open files is left (ulimit -n)");
    for (struct connection *c; n > door->limits.most_strangers && (c = stranger_to_close(door)); n--)
        close_connection(watch, c, "too many connections have not said who they are");
}

static void look_at_members(struct gw_zmq_watch *watch, struct gw_zmq_door *door)
{
    const double now = gw_clock_seconds();
    uint64_t all = 0;
    struct connection *largest = NULL;
    door->hurries = false;
    if (!door->limits.member_bytes && !door->limits.all_bytes)
        return;
    for (uint32_t i = 0; i < door->n_live; i++) {
        struct connection *c = door->live[i];
        if (!c->admitted || c->closing)
            continue;
        measure(c);
        all += c->waiting;
        largest = !largest || c->waiting > largest->waiting ? c : largest;
        door->hurries |= is_over(door, c, now);
    }
    if (!door->limits.all_bytes || all <= door->limits.all_bytes)
        return;
    all = 0;
    for (uint32_t i = 0; i < door->n_live; i++)
        all += door->live[i]->admitted && !door->live[i]->closing ? in_process(door->live[i]) : 0;
    if (all > door->limits.all_bytes)
        close_connection(watch, largest, "more is on its way to this server than it may keep");
}

/* Looks at the connections of a door. Returns the time of the next look; 0: only when something happens. */
static double look(struct gw_zmq_watch *watch, struct gw_zmq_door *door)
{
    const double now = gw_clock_seconds();
    read_all_news(door);
    if (door->n_live == 0)
        return 0;
    if (door->n_strangers)
        look_at_strangers(watch, door);
    const bool members = now >= door->members_next;
    if (members) {
        look_at_members(watch, door);
        door->members_next = now + (door->hurries ? STRANGERS_SECONDS : MEMBERS_SECONDS);
    }
    if ((members || door->n_strangers) && lap_is_over(door, now)) {
        look_after_lap(watch, door);
        begin_lap(door, now);
    }
    if (members && door->hurries)
        signal_fd(door->news_fd); /* wake an idle application: it looks at its socket, so the lap ends soon */
    if (door->n_strangers)
        return now + STRANGERS_SECONDS;
    return door->limits.member_bytes || door->limits.all_bytes ? door->members_next : 0;
}

/* ZeroMQ's descriptor tells only of new messages. So serve must be called again until it has found nothing. */
static double serve_door(struct gw_zmq_door *door, double at)
{
    return door->serve && door->serve(door->serve_user) ? gw_clock_seconds() : at;
}

static void *keep_watch(void *argument)
{
    struct gw_zmq_watch *watch = argument;
    /* for each door: its events, and its socket if this thread serves it */
    struct pollfd fds[1 + 2 * GW_ZMQ_MOST_DOORS];
    enum { MOST = sizeof fds / sizeof fds[0] };
    pthread_mutex_lock(&watch->lock);
    while (!watch->ends) {
        double next = 0;
        nfds_t n = 0;
        fds[n++] = (struct pollfd){.fd = watch->wake, .events = POLLIN};
        for (struct gw_zmq_door *door = watch->doors; door; door = door->next) {
            pthread_mutex_lock(&door->lock);
            double at = look(watch, door);
            if (n < MOST)
                fds[n++] = (struct pollfd){.fd = door->events_fd, .events = POLLIN};
            pthread_mutex_unlock(&door->lock);
            at = serve_door(door, at);
            if (door->serve && n < MOST)
                fds[n++] = (struct pollfd){.fd = door->socket_fd, .events = POLLIN};
            next = at != 0 && (next == 0 || at < next) ? at : next;
        }
        pthread_mutex_unlock(&watch->lock);
        const double left = next == 0 ? -1 : (next - gw_clock_seconds()) * 1000;
        poll(fds, n, next == 0 ? -1 : left > 0 ? (int)left + 1 : 0);
        if (fds[0].revents)
            clear_fd(watch->wake);
        pthread_mutex_lock(&watch->lock);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* ---- the application's side ------------------------------------------------------------------------------ */

void gw_zmq_door_took(struct gw_zmq_door *door, int fd, uint64_t n_bytes, uint32_t n_parts)
{
    struct connection *c = connection_of(door, fd);
    if (c) {
        atomic_fetch_add_explicit(&c->taken, n_bytes + (uint64_t)n_parts * PART_BYTES, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->n_taken, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&door->n_taken, 1, memory_order_relaxed);
}

void gw_zmq_door_empty(struct gw_zmq_door *door)
{
    atomic_fetch_add_explicit(&door->n_empty, 1, memory_order_relaxed);
}

void gw_zmq_door_admit(struct gw_zmq_door *door, int fd)
{
    pthread_mutex_lock(&door->lock);
    read_all_news(door);
    struct connection *c = connection_of(door, fd);
    if (c && c->used && !c->admitted) {
        c->admitted = true;
        c->lap_over = false;
        c->since = gw_clock_seconds();
        door->n_strangers--;
        measure(c);
        c->offset += (int64_t)c->waiting;
        c->waiting = 0;
    }
    pthread_mutex_unlock(&door->lock);
}

void gw_zmq_door_dismiss(struct gw_zmq_door *door, int fd)
{
    pthread_mutex_lock(&door->lock);
    struct connection *c = connection_of(door, fd);
    if (c && c->used && c->admitted) {
        c->admitted = c->lap_over = false;
        c->since = gw_clock_seconds();
        door->n_strangers++;
    }
    pthread_mutex_unlock(&door->lock);
    signal_fd(door->watch->wake);
}

void gw_zmq_door_serve(struct gw_zmq_door *door, bool (*serve)(void *user), void *user)
{
    struct gw_zmq_watch *watch = door->watch;
    pthread_mutex_lock(&watch->lock);
    door->serve = serve;
    door->serve_user = user;
    pthread_mutex_unlock(&watch->lock);
    signal_fd(watch->wake);
}

/* ---- beginning and end ------------------------------------------------------------------------------------ */

gw_status gw_zmq_watch_begin(const struct gw_zmq_watch_options *options, struct gw_zmq_watch **out)
{
    struct gw_zmq_watch *watch = gw_calloc(options->context, 1, sizeof *watch);
    if (!watch)
        return GW_ERR_MEMORY;
    watch->options = *options;
    watch->line_room = LINES_AT_ONCE;
    watch->line_at = gw_clock_seconds();
    watch->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->spare = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->wake >= 0 && watch->spare >= 0 && pthread_mutex_init(&watch->lock, NULL) == 0) {
        if (pthread_create(&watch->thread, NULL, keep_watch, watch) == 0) {
            *out = watch;
            return GW_OK;
        }
        pthread_mutex_destroy(&watch->lock);
    }
    if (watch->wake >= 0)
        close(watch->wake);
    if (watch->spare >= 0)
        close(watch->spare);
    gw_free(options->context, watch);
    return gw_fail(GW_ERR_SYSTEM, "no thread for the watch over connections");
}

void gw_zmq_watch_end(struct gw_zmq_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    pthread_mutex_unlock(&watch->lock);
    signal_fd(watch->wake);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->lock);
    close(watch->wake);
    close(watch->spare);
    gw_free(watch->options.context, watch);
}

static void free_door(struct gw_zmq_door *door)
{
    if (door->news_fd >= 0)
        close(door->news_fd);
    for (uint32_t p = 0; p < PAGES; p++)
        gw_free(NULL, atomic_load(&door->pages[p]));
    gw_free(NULL, door->news);
    gw_free(NULL, door->live);
    pthread_mutex_destroy(&door->lock);
    gw_free(door->watch->options.context, door);
}

gw_status gw_zmq_door_open(struct gw_zmq_watch *watch, void *socket, const char *name, int news,
                           const struct gw_zmq_limits *limits, struct gw_zmq_door **out)
{
    gw_context *context = watch->options.context;
    struct gw_zmq_door *door = gw_calloc(context, 1, sizeof *door);
    if (!door)
        return GW_ERR_MEMORY;
    if (pthread_mutex_init(&door->lock, NULL) != 0) {
        gw_free(context, door);
        return gw_fail(GW_ERR_SYSTEM, "no lock for the watch over connections");
    }
    door->watch = watch;
    door->limits = *limits;
    door->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    size_t bytes = sizeof door->events_fd;
    gw_status status = door->news_fd < 0
                           ? gw_fail(GW_ERR_SYSTEM, "no eventfd for the watch: %s", strerror(errno))
                           : gw_zmq_monitor(watch->options.zmq, socket, name,
                                            news | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED, &door->events);
    if (status == GW_OK && (zmq_getsockopt(door->events, ZMQ_FD, &door->events_fd, &bytes) != 0 ||
                            zmq_getsockopt(socket, ZMQ_FD, &door->socket_fd, &bytes) != 0))
        status = gw_fail(GW_ERR_SYSTEM, "no news of connections: %s", zmq_strerror(zmq_errno()));
    if (status < 0) {
        zmq_socket_monitor(socket, NULL, 0);
        if (door->events)
            zmq_close(door->events);
        free_door(door);
        return status;
    }
    pthread_mutex_lock(&watch->lock);
    door->next = watch->doors;
    watch->doors = door;
    pthread_mutex_unlock(&watch->lock);
    signal_fd(watch->wake);
    *out = door;
    return GW_OK;
}

void gw_zmq_door_close(void **socket, struct gw_zmq_door **door)
{
    void *events = NULL;
    if (*door) {
        struct gw_zmq_watch *watch = (*door)->watch;
        pthread_mutex_lock(&watch->lock);
        struct gw_zmq_door **at = &watch->doors;
        while (*at != *door)
            at = &(*at)->next;
        *at = (*door)->next;
        pthread_mutex_unlock(&watch->lock);
        signal_fd(watch->wake); /* it still polls the descriptors that are closed below */
        events = (*door)->events;
    }
    gw_zmq_close_monitored(socket, &events);
    if (*door)
        free_door(*door);
    *door = NULL;
}
