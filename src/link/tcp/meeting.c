/* How members meet. Rank 0 listens at the rendezvous. The others come there, and say where they listen. When all have
 * come, rank 0 hands out a table, and everybody connects to the ranks below its own, on each link. When all have said
 * that they are connected, rank 0 says GO. So either all links stand, or everybody hears why not.
 *
 * Nothing that a newcomer sends ends the meeting. Who is no member hears why, and a line goes into the log. A member
 * whose connection ends before the table may come again. Only the deadline, the program's `stop`, and the failure of a
 * member after the table end it. */
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/state.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define TURN_MS 20       /* the longest that a member waits for an event before it looks what else is due */
#define WAIT_SECONDS 0.5 /* between two WAITs of rank 0 */
/* After an attempt to connect that failed. To rank 0, which may not be there for long, the pause doubles. */
#define REDIAL_SECONDS 0.02
#define LONGEST_REDIAL_SECONDS 0.5
#define SPARE_NEWCOMERS 64u
/* One side has keys and the other has none: after so many times a member gives up. Once may be an accident, because
 * another process may have been at the address for a moment. */
#define MOST_MISMATCHES 3
/* Numbers of epoll: the listener, rank 0's connection or that of a joiner, and of a peer: link * size + rank. */
#define OF_LISTENER UINT64_MAX
#define OF_JOINER ((uint64_t)1 << 62)

_Static_assert(GW_MISSING_BYTES >= GW_TCP_TEXT_BYTES, "the text of a WAIT fits");

/* At rank 0: a member that has come. Elsewhere the first of them is the connection to rank 0. */
struct joiner {
    struct gw_net_connection c;
    bool went, ready; /* went: it was here once, and its connection broke */
    double heard_at;  /* when it was heard last, or got the table; 0: never */
};

struct meeting {
    struct gw_tcp_group *group;
    const struct gw_link_request *request;
    const struct gw_net_host *host; /* the rendezvous. Rank 0 listens at its first address */
    uint32_t n_dialled;
    double deadline;
    int epoll;
    struct joiner *joiners;
    uint8_t *table; /* its bytes */
    size_t table_bytes;
    bool has_table, told_ready, over;
    char trouble[200]; /* why the last attempt to connect to a peer failed */
    /* at rank 0 */
    double tell_at;                  /* when to say WAIT next */
    char refused[GW_TCP_TEXT_BYTES]; /* the last refusal; "": none */
    /* elsewhere */
    double dial_host_at, pause;
    struct gw_missing waiting_for; /* what the last WAIT said */
    int n_mismatches;
};

gw_status gw_tcp_go_on(const void *of_rank)
{
    const struct gw_link_request *request = of_rank;
    if (request->stop && request->stop(request->stop_user))
        return gw_fail(GW_ERR_CLOSED, "rank %u was stopped, as asked, before all members had met", request->rank);
    return GW_OK;
}

/* ---- small things ---------------------------------------------------------------------------------------- */

static bool all_ranks(const struct meeting *m, bool (*are_so)(const void *meeting, uint32_t rank))
{
    return !gw_missing_ranks(m->group->size, are_so, m).text[0];
}

/* This rank has all its connections to that one. */
static bool all_links_stand(const void *meeting, uint32_t rank)
{
    const struct meeting *m = meeting;
    bool all = true;
    for (uint32_t l = 0; l < m->group->n_links && rank != m->group->rank; l++)
        all = all && m->group->endpoints[l].peers[rank].stands;
    return all;
}

/* At rank 0. */
static bool is_here(const struct meeting *m, uint32_t rank)
{
    return rank == 0 || m->joiners[rank].c.fd >= 0;
}

/* At rank 0: a member has come, or after the table: it is connected to all others. */
static bool has_done_so(const void *meeting, uint32_t rank)
{
    const struct meeting *m = meeting;
    return !m->has_table ? is_here(m, rank) : rank == 0 ? all_ranks(m, all_links_stand) : m->joiners[rank].ready;
}

/* The same, or it waits for another one, as far as rank 0 knows. Who came may have gone because its own deadline passed
 * first. After the table, who connects to others answers each WAIT; so one that does not is the one for which they
 * wait. */
static bool is_excused(const void *meeting, uint32_t rank)
{
    const struct meeting *m = meeting;
    const struct joiner *joiner = &m->joiners[rank];
    return rank == 0 || has_done_so(m, rank) ||
           (m->has_table ? gw_clock_seconds() - joiner->heard_at < 2 * WAIT_SECONDS : joiner->went);
}

/* The members for which all wait, as rank 0 sees it; only those without excuse, if there are some. */
static struct gw_missing awaited_ranks(const struct meeting *m)
{
    if (m->group->rank > 0)
        return m->waiting_for;
    return gw_missing_ranks(m->group->size, all_ranks(m, is_excused) ? has_done_so : is_excused, m);
}

static struct gw_tcp_peer *peer_of(const struct meeting *m, uint64_t number)
{
    const struct gw_tcp_group *group = m->group;
    return &group->endpoints[number / group->size].peers[number % group->size];
}

static void watch(const struct meeting *m, struct gw_net_connection *c, uint64_t number)
{
    gw_net_watch(c, m->epoll, (epoll_data_t){.u64 = number});
}

/* Begins to connect, with what is to be said first. Errors: as gw_net_dial. */
static gw_status dial(const struct meeting *m, const struct gw_net_address *address, const char *host,
                      struct gw_net_connection *c, uint64_t number, uint16_t kind, void *body, size_t n_bytes)
{
    GW_TRY(gw_net_dial(c, address, m->group->keys, host, m->group->timeout_ms));
    gw_ignore(gw_net_send(c, kind, body, n_bytes)); /* it leaves when the connection stands */
    watch(m, c, number);
    return GW_OK;
}

/* Says something to a joiner, or to rank 0, if it is here. */
static void tell(const struct meeting *m, uint32_t rank, uint16_t kind, void *bytes, size_t n_bytes)
{
    struct gw_net_connection *c = &m->joiners[rank].c;
    gw_ignore(gw_net_send(c, kind, bytes, n_bytes)); /* if it is gone, reading says so */
    watch(m, c, OF_JOINER | rank);
}

static void tell_joiners(const struct meeting *m, uint16_t kind, void *bytes, size_t n_bytes)
{
    for (uint32_t r = 1; r < m->group->size; r++)
        tell(m, r, kind, bytes, n_bytes);
}

static void say_who_is_missing(struct meeting *m)
{
    uint8_t body[GW_TCP_TEXT_BYTES];
    m->tell_at = gw_clock_seconds() + WAIT_SECONDS;
    tell_joiners(m, GW_TCP_WAIT, body, gw_tcp_text_write(body, awaited_ranks(m).text));
}

/* ---- connecting to peers --------------------------------------------------------------------------------- */

/* The connection to a peer stands. */
static void stand(struct meeting *m, uint64_t number)
{
    struct gw_tcp_peer *peer = peer_of(m, number);
    peer->c.most_bytes = GW_TCP_MOST_BYTES;
    peer->c.most_header = GW_LOAN_HEAD;
    peer->c.place = gw_tcp_place;
    peer->c.place_user = peer;
    peer->stands = true; /* from here on its endpoint sees what comes */
    epoll_ctl(m->epoll, EPOLL_CTL_DEL, peer->c.fd, NULL);
}

static void redial(struct meeting *m, uint64_t number, const char *trouble)
{
    struct gw_tcp_peer *peer = peer_of(m, number);
    snprintf(m->trouble, sizeof m->trouble, "%s", trouble);
    gw_net_close(&peer->c);
    peer->dial_at = gw_clock_seconds() + REDIAL_SECONDS;
}

static gw_status dial_peers(struct meeting *m, double now)
{
    const struct gw_tcp_group *group = m->group;
    const uint64_t n = m->has_table ? (uint64_t)group->n_links * group->size : 0;
    for (uint64_t number = 0; number < n; number++) {
        struct gw_tcp_peer *peer = peer_of(m, number);
        if (peer->dial_at == 0 || now < peer->dial_at)
            continue;
        uint8_t hello[GW_TCP_HELLO_BYTES];
        gw_tcp_hello_write(hello,
                           &(struct gw_tcp_hello){group->session, group->rank, (uint32_t)(number / group->size)});
        peer->dial_at = 0;
        const gw_status status = dial(m, &group->members[number % group->size].address, NULL, &peer->c, number,
                                      GW_TCP_HELLO, hello, sizeof hello);
        if (status == GW_ERR_PEER)
            redial(m, number, strerror(peer->c.error));
        else
            GW_TRY(status);
    }
    return GW_OK;
}

/* A certificate that is allowed, but is another member's. */
static bool is_another(const struct meeting *m, const struct gw_net_connection *c, const struct gw_net_identity *wanted)
{
    return m->group->keys && !gw_net_same_identity(&c->tls->peer, wanted);
}

/* Goes on with a connection that this rank has dialled. */
static gw_status go_on_with_peer(struct meeting *m, uint64_t number)
{
    struct gw_tcp_group *group = m->group;
    struct gw_tcp_peer *peer = peer_of(m, number);
    const uint32_t rank = (uint32_t)(number % group->size);
    const char *place = group->members[rank].address.place;
    struct gw_net_message message;
    if (peer->c.fd < 0 || peer->stands)
        return GW_OK;
    gw_status status = gw_net_establish(&peer->c);
    if (status == GW_OK && is_another(m, &peer->c, &group->members[rank].identity))
        return gw_fail(GW_ERR_PEER, "rank %u (%s) has another certificate than it had at the rendezvous", rank, place);
    if (status == GW_OK) {
        gw_ignore(gw_net_flush(&peer->c)); /* if that fails, reading says why */
        status = gw_net_next(&peer->c, &message);
    }
    if (status == GW_OK && message.kind == GW_TCP_WELCOME) {
        gw_net_consume(&peer->c);
        stand(m, number);
        return GW_OK;
    }
    if (status == GW_ERR_PEER || status == GW_OK) {
        redial(m, number, status == GW_OK ? "it does not speak as a member does" : gw_last_error());
        if (peer->c.refusal == GW_NET_NOT_LISTED || peer->c.refusal == GW_NET_TURNED_AWAY)
            return gw_fail(GW_ERR_PEER, "rank %u does not connect to rank %u (%s): %s", group->rank, rank, place,
                           m->trouble);
        return GW_OK;
    }
    watch(m, &peer->c, number);
    return status < 0 ? status : GW_OK;
}

/* A HELLO came. The same member may come again if its first connection was pushed out by newcomers. */
static void welcome_peer(struct meeting *m, struct gw_net_newcomer *newcomer, const struct gw_net_message *message)
{
    struct gw_tcp_group *group = m->group;
    struct gw_tcp_hello hello;
    if (!m->has_table) { /* it has the table before this rank, and comes again */
        gw_net_turn_out(newcomer);
        return;
    }
    if (!gw_tcp_hello_read(message->bytes, message->n_bytes, &hello) || hello.session != group->session ||
        hello.rank >= group->size || hello.rank <= group->rank || hello.link >= group->n_links ||
        is_another(m, &newcomer->c, &group->members[hello.rank].identity)) {
        gw_tcp_turn_out(group, newcomer, message, "this is no member of this job");
        return;
    }
    const uint64_t number = (uint64_t)hello.link * group->size + hello.rank;
    struct gw_tcp_peer *peer = peer_of(m, number);
    gw_net_close(&peer->c);
    gw_net_let_in(&group->listener, newcomer, &peer->c);
    stand(m, number);
    gw_ignore(gw_net_send(&peer->c, GW_TCP_WELCOME, NULL, 0));
}

/* ---- rank 0 ---------------------------------------------------------------------------------------------- */

static gw_status check_join(const struct meeting *m, const struct gw_net_newcomer *newcomer,
                            const struct gw_tcp_join *join)
{
    const struct gw_tcp_group *group = m->group;
    const char *place = join->address.place;
    if (join->version != GW_TCP_VERSION)
        return gw_fail(GW_ERR_PEER, "a member at %s speaks version %u of the tcp link, and rank 0 speaks version %u",
                       newcomer->c.peer.place, join->version, GW_TCP_VERSION);
    if (join->size != group->size)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) was told that there are %u ranks, and rank 0 that there are %u",
                       join->rank, place, join->size, group->size);
    if (join->rank >= group->size)
        return gw_fail(GW_ERR_PEER, "a member at %s says that it is rank %u; ranks are 0 to %u", place, join->rank,
                       group->size - 1);
    if (join->n_links != group->n_links)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) wants %u links, and rank 0 wants %u", join->rank, place,
                       join->n_links, group->n_links);
    if (is_here(m, join->rank))
        return gw_fail(GW_ERR_PEER, "two members say that they are rank %u: %s and %s", join->rank,
                       group->members[join->rank].address.place, place);
    return GW_OK;
}

static gw_status hand_out_table(struct meeting *m)
{
    struct gw_tcp_group *group = m->group;
    while (group->session == 0)
        if (getrandom(&group->session, sizeof group->session, 0) != sizeof group->session)
            return gw_fail(GW_ERR_SYSTEM, "no random number for the session");
    gw_tcp_table_write(m->table, group->session, group->size, group->n_links, group->members);
    tell_joiners(m, GW_TCP_TABLE, m->table, m->table_bytes);
    const double now = gw_clock_seconds();
    for (uint32_t r = 1; r < group->size; r++)
        m->joiners[r].heard_at = now;
    m->tell_at = now + WAIT_SECONDS;
    m->has_table = true;
    return GW_OK;
}

/* A joiner's connection has ended. Before the table it may come again. */
static gw_status joiner_went(struct meeting *m, uint32_t rank)
{
    struct joiner *joiner = &m->joiners[rank];
    const char *place = m->group->members[rank].address.place;
    const bool lied = joiner->c.error == EPROTO || joiner->c.error == EMSGSIZE;
    gw_net_close(&joiner->c);
    joiner->went = true;
    if (m->has_table && lied)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) sent what no member sends: %s", rank, place, gw_last_error());
    if (m->has_table)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) died or lost its connection before all members had met", rank, place);
    gw_net_log(&m->group->log,
               "lost rank=%u address=%s reason=\"its connection to the rendezvous has ended; it may come again\"", rank,
               place);
    return GW_OK;
}

/* Handles a message of a joiner. */
static gw_status take_joiner(struct meeting *m, uint32_t rank, const struct gw_net_message *message)
{
    struct joiner *joiner = &m->joiners[rank];
    char text[GW_TCP_TEXT_BYTES];
    gw_status status;
    const bool connects = m->has_table && !joiner->ready;
    if (message->kind == GW_TCP_WAIT && connects && message->n_bytes == 0)
        return GW_OK; /* it is there, and waits as well */
    if (message->kind == GW_TCP_READY && connects) {
        joiner->ready = true;
        return GW_OK;
    }
    if (message->kind == GW_TCP_REFUSE && m->has_table &&
        gw_tcp_refuse_read(message->bytes, message->n_bytes, &status, text))
        return gw_fail(GW_ERR_PEER, "%s", text);
    gw_fail(GW_ERR_PEER, "a message of kind %u", message->kind);
    joiner->c.error = EPROTO;
    return joiner_went(m, rank);
}

/* ---- the other ranks ------------------------------------------------------------------------------------- */

static gw_status dial_host(struct meeting *m)
{
    const struct gw_tcp_group *group = m->group;
    struct joiner *host = &m->joiners[0];
    uint8_t join[GW_TCP_JOIN_BYTES];
    m->dial_host_at = gw_clock_seconds() + m->pause;
    m->pause = fmin(2 * m->pause, LONGEST_REDIAL_SECONDS);
    host->c.most_bytes = m->table_bytes > GW_NET_SMALL ? m->table_bytes : GW_NET_SMALL;
    gw_tcp_join_write(join, &(struct gw_tcp_join){.version = GW_TCP_VERSION,
                                                  .keyed = group->keys != NULL,
                                                  .rank = group->rank,
                                                  .size = group->size,
                                                  .n_links = group->n_links,
                                                  .address = group->members[group->rank].address});
    const gw_status status = dial(m, gw_net_host_nth(m->host, m->n_dialled++), m->host->name, &host->c, OF_JOINER,
                                  GW_TCP_JOIN, join, sizeof join);
    return status == GW_ERR_PEER ? GW_OK : status;
}

static void *place_of_table(void *meeting, const struct gw_net_message *message)
{
    (void)message; /* a longer one is not received: see most_bytes */
    return ((struct meeting *)meeting)->table;
}

/* Handles a message of rank 0. */
static gw_status take_host(struct meeting *m, const struct gw_net_message *message)
{
    struct gw_tcp_group *group = m->group;
    char text[GW_TCP_TEXT_BYTES];
    gw_status status;
    if (message->kind == GW_TCP_WAIT && gw_tcp_text_read(message->bytes, message->n_bytes, m->waiting_for.text)) {
        if (m->has_table && !m->told_ready)
            tell(m, 0, GW_TCP_WAIT, NULL, 0);
        return GW_OK;
    }
    if (message->kind == GW_TCP_REFUSE && gw_tcp_refuse_read(message->bytes, message->n_bytes, &status, text))
        return gw_fail(status, "%s", text);
    if (message->kind == GW_TCP_TABLE && !m->has_table &&
        gw_tcp_table_read(message->bytes, message->n_bytes, group->size, group->n_links, &group->session,
                          group->members)) {
        m->has_table = true;
        m->waiting_for.text[0] = m->trouble[0] = 0; /* from now on WAIT names those that are not ready */
        return GW_OK;
    }
    if (message->kind == GW_TCP_GO && m->told_ready) {
        m->over = true;
        return GW_OK;
    }
    return gw_fail(GW_ERR_PEER, "rank 0 (%s) sent a message of kind %u and %zu bytes, which it never sends",
                   group->place, message->kind, message->n_bytes);
}

static gw_status keys_differ(const struct meeting *m)
{
    const bool keys = m->group->keys;
    return gw_fail(GW_ERR_PEER,
                   "rank %u has %skeys, and rank 0 (%s) has %s; give keys (--keys DIR) to all members or to none",
                   m->group->rank, keys ? "" : "no ", m->group->place, keys ? "none" : "some");
}

/* The connection to rank 0 has ended. If rank 0 had answered, it is gone. Else it may not be there yet. */
static gw_status host_went(struct meeting *m)
{
    struct joiner *host = &m->joiners[0];
    const char *place = m->group->place;
    const bool mismatch = host->c.refusal == GW_NET_WITHOUT_TLS || (!host->c.tls && host->c.error == EPROTO);
    snprintf(m->trouble, sizeof m->trouble, "%s", gw_last_error());
    gw_net_close(&host->c);
    if (host->c.refusal == GW_NET_TURNED_AWAY)
        return gw_fail(GW_ERR_PEER,
                       "rank 0 (%s) refused this machine: its certificate %s is not among the allowed ones "
                       "there",
                       place, gw_net_identity_write(&m->group->keys->own).text);
    m->n_mismatches += mismatch;
    if (m->n_mismatches >= MOST_MISMATCHES)
        return keys_differ(m);
    if (host->heard_at != 0)
        return gw_fail(GW_ERR_PEER, "rank 0 (%s) died or lost its connection before all members had met", place);
    return GW_OK;
}

/* ---- the connection between them ------------------------------------------------------------------------- */

/* Goes on with the connection to a joiner, or to rank 0. */
static gw_status hear(struct meeting *m, uint32_t rank)
{
    struct joiner *joiner = &m->joiners[rank];
    const struct gw_net_keys *keys = m->group->keys;
    const bool is_host = m->group->rank > 0;
    struct gw_net_message message;
    if (joiner->c.fd < 0)
        return GW_OK;
    gw_status status = gw_net_establish(&joiner->c);
    if (status == GW_OK && is_host && keys && keys->knows_place && is_another(m, &joiner->c, &keys->rendezvous)) {
        gw_net_close(&joiner->c); /* it may be another process, which was at the address before rank 0 */
        snprintf(m->trouble, sizeof m->trouble, "its certificate is not that of rendezvous.crt");
        return GW_OK;
    }
    if (status == GW_OK)
        gw_ignore(gw_net_flush(&joiner->c)); /* if that fails, reading says why */
    while (status == GW_OK && !m->over && (status = gw_net_next(&joiner->c, &message)) == GW_OK) {
        joiner->heard_at = gw_clock_seconds();
        GW_TRY(is_host ? take_host(m, &message) : take_joiner(m, rank, &message));
        if (joiner->c.fd < 0) /* it has said what no member says */
            return GW_OK;
        gw_net_consume(&joiner->c);
    }
    if (status == GW_ERR_PEER)
        return is_host ? host_went(m) : joiner_went(m, rank);
    watch(m, &joiner->c, OF_JOINER | rank);
    return status < 0 ? status : GW_OK;
}

static void receive_joiner(struct meeting *m, struct gw_net_newcomer *newcomer, const struct gw_net_message *message)
{
    struct gw_tcp_group *group = m->group;
    struct gw_tcp_join join;
    if (!gw_tcp_join_read(message->bytes, message->n_bytes, &join) ||
        (join.version == GW_TCP_VERSION && join.keyed != (group->keys != NULL))) {
        gw_tcp_turn_out(group, newcomer, message, GW_TCP_NO_MESSAGE);
        return;
    }
    if (join.rank > 0 && join.rank < group->size)
        gw_ignore(hear(m, join.rank)); /* it may have gone, and this process may be the next in its place */
    if (check_join(m, newcomer, &join) < 0) {
        snprintf(m->refused, sizeof m->refused, "%s", gw_last_error());
        gw_tcp_refuse(group, &group->log, newcomer, m->refused);
        return;
    }
    struct joiner *joiner = &m->joiners[join.rank];
    gw_net_close(&joiner->c);
    gw_net_let_in(&group->listener, newcomer, &joiner->c);
    group->members[join.rank].address = join.address;
    if (joiner->c.tls)
        group->members[join.rank].identity = joiner->c.tls->peer;
    watch(m, &joiner->c, OF_JOINER | join.rank);
    gw_ignore(hear(m, join.rank)); /* it may have gone already, so that its place is free again */
    m->tell_at = 0;
}

/* ---- how it ends ----------------------------------------------------------------------------------------- */

static gw_status too_late(const struct meeting *m)
{
    const struct gw_tcp_group *group = m->group;
    const char *place = group->place;
    const struct gw_missing awaited = awaited_ranks(m);
    if (m->has_table && !all_ranks(m, all_links_stand))
        return gw_fail(GW_ERR_TIMEOUT, "rank %u did not get its connections to %s within %u ms%s%s", group->rank,
                       gw_missing_ranks(group->size, all_links_stand, m).text, group->timeout_ms,
                       m->trouble[0] ? ": " : "", m->trouble);
    if (m->has_table)
        return gw_fail(GW_ERR_TIMEOUT, "%s did not get connections to all other members within %u ms",
                       awaited.text[0] ? awaited.text : "some ranks", group->timeout_ms);
    if (awaited.text[0]) {
        char went[GW_NET_PLACE_BYTES + 80] = "";
        for (uint32_t r = 1; r < group->size && !went[0]; r++)
            if (!is_here(m, r) && m->joiners[r].went)
                snprintf(went, sizeof went, "; rank %u (%s) had come, and went again", r,
                         group->members[r].address.place);
        const int no_room = group->listener.no_room;
        return gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms%s%s%s%s%s", awaited.text,
                       place, group->timeout_ms, no_room ? "; rank 0 can take no connection: " : "",
                       no_room ? strerror(no_room) : "", went, m->refused[0] ? "; refused: " : "", m->refused);
    }
    if (m->n_mismatches)
        return keys_differ(m);
    /* A try that has lasted longer than the pause that follows it: what an earlier one met is no news. */
    const bool waits = m->joiners[0].c.fd >= 0 && gw_clock_seconds() > m->dial_host_at;
    if (group->keys)
        return gw_fail(GW_ERR_TIMEOUT,
                       "rank 0 did not answer at %s within %u ms; is it there, has it keys, and is its certificate the "
                       "one that %s/ names? The last try: %s",
                       place, group->timeout_ms, group->keys->folder,
                       waits || !m->trouble[0] ? "nothing has come from there" : m->trouble);
    return gw_fail(GW_ERR_TIMEOUT,
                   "rank 0 did not answer at %s within %u ms; is it there, and without keys, as this rank is?", place,
                   group->timeout_ms);
}

/* Looks whether the meeting has failed by now. */
static gw_status look(const struct meeting *m, double now)
{
    const struct gw_tcp_group *group = m->group;
    GW_TRY(gw_tcp_go_on(m->request));
    const double heard_at = m->joiners[0].heard_at, silence = heard_at != 0 ? now - heard_at : 0;
    if (silence >= 4 * WAIT_SECONDS && (silence >= group->timeout_ms / 2000.0 || now >= m->deadline))
        return gw_fail(GW_ERR_PEER,
                       "rank 0 (%s) answers no more: it said nothing for %.1f s, and not all members had met",
                       group->place, silence);
    return now >= m->deadline ? too_late(m) : GW_OK;
}

/* What comes to the place where this rank listens. */
static void attend(struct meeting *m)
{
    struct gw_net_newcomer *newcomer;
    struct gw_net_message message;
    for (int i = 0; i < GW_NET_MOST_AT_ONCE && (newcomer = gw_net_listener_next(&m->group->listener, &message)); i++) {
        if (message.kind == GW_TCP_HELLO) {
            welcome_peer(m, newcomer, &message);
        } else if (m->group->rank == 0 && message.kind == GW_TCP_JOIN) {
            if (m->has_table) /* it comes again, and hears then that the job is running, or takes a place in the next */
                gw_net_turn_out(newcomer);
            else
                receive_joiner(m, newcomer, &message);
        } else {
            gw_tcp_turn_out(m->group, newcomer, &message, GW_TCP_NO_MESSAGE);
        }
    }
}

/* Does what is due without any event. */
static gw_status advance(struct meeting *m, double now)
{
    struct gw_tcp_group *group = m->group;
    attend(m);
    if (group->rank == 0 && !m->has_table && all_ranks(m, has_done_so))
        GW_TRY(hand_out_table(m));
    if (group->rank == 0 && now >= m->tell_at)
        say_who_is_missing(m);
    if (group->rank > 0 && m->joiners[0].c.fd < 0 && now >= m->dial_host_at)
        GW_TRY(dial_host(m));
    GW_TRY(dial_peers(m, now));
    if (!m->has_table || !all_ranks(m, all_links_stand))
        return GW_OK;
    if (group->rank == 0 && all_ranks(m, has_done_so)) {
        tell_joiners(m, GW_TCP_GO, NULL, 0);
        m->over = true;
    } else if (group->rank > 0 && !m->told_ready) {
        m->told_ready = true;
        tell(m, 0, GW_TCP_READY, NULL, 0);
    }
    return GW_OK;
}

static gw_status meet(struct meeting *m)
{
    enum { AT_ONCE = 64 };
    struct epoll_event events[AT_ONCE];
    while (!m->over) {
        const double now = gw_clock_seconds();
        GW_TRY(advance(m, now));
        if (!m->over)
            GW_TRY(look(m, now));
        /* Not past the deadline: members whose own passes a little later would go, and be named as gone. */
        const int wait_ms = (int)fmin(TURN_MS, 1 + 1000 * (m->deadline - now));
        const int n = m->over ? 0 : epoll_wait(m->epoll, events, AT_ONCE, wait_ms);
        for (int i = 0; i < n; i++) {
            const uint64_t number = events[i].data.u64;
            if (number != OF_LISTENER) /* that is looked at in every turn */
                GW_TRY(number & OF_JOINER ? hear(m, (uint32_t)number) : go_on_with_peer(m, number));
        }
    }
    return GW_OK;
}

/* Tells everybody with whom this rank has a connection at the rendezvous what went wrong. */
static void call_off(struct meeting *m, gw_status status)
{
    struct gw_net_message unread;
    uint8_t body[GW_TCP_REFUSE_BYTES];
    const size_t n_bytes = gw_tcp_refuse_write(body, status, gw_last_error());
    for (uint32_t r = 0; r < m->group->size; r++) {
        struct joiner *joiner = &m->joiners[r];
        if (joiner->c.fd < 0 || !joiner->c.connected || (m->group->rank > 0 && !m->has_table))
            continue;
        for (int i = 0; i < GW_NET_MOST_AT_ONCE && gw_net_next(&joiner->c, &unread) == GW_OK; i++)
            gw_net_consume(&joiner->c); /* what is unread when it closes would drop the REFUSE */
        gw_ignore(gw_net_send(&joiner->c, GW_TCP_REFUSE, body, n_bytes)); /* what does not leave now, never does */
        gw_net_end_sending(&joiner->c);
    }
}

/* ---- beginning ------------------------------------------------------------------------------------------- */

static gw_status listen_somewhere(struct meeting *m, const struct gw_net_address *own)
{
    struct gw_tcp_group *group = m->group;
    /* Members of one machine have one address, and so half of the room. A member that finds none comes again. */
    const uint64_t wanted = (uint64_t)2 * group->size * group->n_links, files = (uint64_t)sysconf(_SC_OPEN_MAX) / 4;
    const uint32_t most = SPARE_NEWCOMERS + (uint32_t)(wanted < files ? wanted : files < 512 ? files : 512);
    const struct gw_net_address *rendezvous = m->host->addresses;
    snprintf(group->place, sizeof group->place, "%s", rendezvous->place);
    GW_TRY(gw_net_listener_open(&group->listener, &(struct gw_net_listener_options){.context = group->context,
                                                                                    .keys = group->keys,
                                                                                    .log = &group->log,
                                                                                    .of = "job",
                                                                                    .most = most,
                                                                                    .timeout_ms = group->timeout_ms}));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = OF_LISTENER};
    epoll_ctl(m->epoll, EPOLL_CTL_ADD, group->listener.epoll, &event);
    const gw_status status =
        gw_net_listen(&group->listener, group->rank == 0 ? rendezvous : own, &group->members[group->rank].address);
    if (status < 0 && errno == EADDRINUSE)
        return gw_fail(status,
                       "this machine cannot listen at %s: a job is running at this rendezvous, or another program has "
                       "the port; wait until that has ended, or give this job another port",
                       group->place);
    return status;
}

static gw_status prepare(struct meeting *m)
{
    struct gw_tcp_group *group = m->group;
    m->table_bytes = GW_TCP_TABLE_HEAD + (size_t)group->size * GW_TCP_CONTACT_BYTES;
    m->table = gw_alloc(group->context, m->table_bytes, 1);
    m->joiners = m->table ? gw_calloc(group->context, group->size, sizeof *m->joiners) : NULL;
    if (!m->joiners)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < group->size; r++)
        gw_net_init(&m->joiners[r].c, group->context);
    m->joiners[0].c.place = place_of_table;
    m->joiners[0].c.place_user = m;
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    return m->epoll < 0 ? gw_fail(GW_ERR_SYSTEM, "no epoll for the meeting: %s", strerror(errno)) : GW_OK;
}

static void clean_up(struct meeting *m)
{
    struct gw_tcp_group *group = m->group;
    for (uint32_t r = 0; m->joiners && r < group->size; r++)
        gw_net_close(&m->joiners[r].c);
    if (m->epoll >= 0)
        close(m->epoll);
    gw_free(group->context, m->table);
    gw_free(group->context, m->joiners);
}

gw_status gw_tcp_meet(struct gw_tcp_group *group, const struct gw_link_request *request,
                      const struct gw_net_host *rendezvous, const struct gw_net_address *own)
{
    struct meeting m = {.group = group, .request = request, .host = rendezvous, .epoll = -1, .pause = REDIAL_SECONDS};
    m.deadline = gw_clock_seconds() + group->timeout_ms / 1000.0;
    gw_status status = prepare(&m);
    if (status == GW_OK)
        status = listen_somewhere(&m, own);
    if (status == GW_OK) {
        if (group->keys)
            group->members[group->rank].identity = group->keys->own;
        status = meet(&m);
        if (status < 0) {
            const struct gw_kept_error kept = gw_error_keep();
            call_off(&m, status);
            gw_error_put_back(&kept);
        }
    }
    clean_up(&m);
    return status;
}
