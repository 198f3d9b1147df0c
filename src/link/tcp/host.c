/* The meeting as rank 0 sees it. Each rank is a guest. Strangers may come as well.
 *
 * No message that comes to the door ends the meeting. If somebody is no member of this job, rank 0 tells it so and
 * writes a line into the log. If a guest's connection ends, it is no guest any more, and may come again. Only the
 * deadline ends the meeting, or the program's `stop`.
 *
 * When all have met, the door stays open as long as the group exists. The watch's thread answers there. Whoever comes
 * then hears that the job is already running. */
#include "link/tcp/host.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/quote.h"
#include "base/memory.h"
#include "link/tcp/meeting.h"
#include "link/tcp/missing.h"
#include "zmq/events.h"
#include "zmq/socket.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#define ID_BYTES 16                         /* ZeroMQ's own ids have 5 bytes; a peer with a longer one is no member */
#define STRANGER_BYTES ((uint64_t)64 << 10) /* of JOINs that are not answered yet */
#define MOST_UNREAD 64                      /* answers that wait for one peer that does not read them */
#define MOST_AT_ONCE 64                     /* messages that are answered in one go; then the watch looks again */
#define MOST_TABLES 8                       /* tables that are sent to one member that asks again */
#define LATE_SECONDS 5.0                    /* between two lines of the log about processes that come late */

struct guest {
    bool here, went; /* went: it was here once, and its connection broke */
    int fd;          /* descriptor of its connection */
    uint8_t id_bytes, id[ID_BYTES];
    size_t contact_bytes;
    uint8_t *contact;
    uint8_t n_tables; /* how many tables it got in addition */
};

struct gw_tcp_host {
    struct gw_tcp_group *group;
    void *socket;
    struct gw_zmq_door *door;
    char place[GW_ZMQ_ENDPOINT_BYTES];
    char since[32]; /* the time at which all had met; "": they are still meeting */
    double late_at; /* when the last line about a process that came late was written */
    uint32_t n_untold, n_here;
    size_t contact_bound;
    struct guest *guests;
    uint8_t *contacts, *table;
    size_t table_bytes;
    char refused[GW_TCP_TEXT_BYTES]; /* the last refusal; "": none */
    struct gw_zmq_callers callers;
    struct gw_zmq_ended ended;
    bool handshake_failed; /* the next event is the end of a connection; its handshake failed */
    /* the address whose handshake failed last, so that each is logged once */
    char last_speechless[GW_ZMQ_NUMERIC_BYTES];
};

static bool guest_is_here(const void *all, uint32_t rank)
{
    return ((const struct guest *)all)[rank].here;
}

/* The first address of a contact, which has been checked, for sentences. */
static void first_endpoint(struct gw_tcp_reader contact, bool keyed, char endpoint[GW_ZMQ_ENDPOINT_BYTES])
{
    char key[GW_ZMQ_KEY_CHARS + 1];
    snprintf(endpoint, GW_ZMQ_ENDPOINT_BYTES, "tcp://?");
    if (keyed)
        gw_tcp_read_key(&contact, key);
    gw_tcp_read_endpoint(&contact, endpoint);
}

static void guest_endpoint(const struct gw_tcp_host *host, uint32_t rank, char endpoint[GW_ZMQ_ENDPOINT_BYTES])
{
    const struct guest *guest = &host->guests[rank];
    first_endpoint((struct gw_tcp_reader){guest->contact, guest->contact + guest->contact_bytes},
                   host->group->net.keys != NULL, endpoint);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void tell(const struct gw_tcp_host *host, const void *id, size_t id_bytes, const void *bytes, size_t n_bytes)
{
    /* If the receiver is gone, that does not matter. */
    if (zmq_send(host->socket, id, id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(host->socket, bytes, n_bytes, ZMQ_DONTWAIT);
}

static void tell_everybody(const struct gw_tcp_host *host, const void *bytes, size_t n_bytes)
{
    for (uint32_t r = 1; r < host->group->size; r++)
        if (host->guests[r].here)
            tell(host, host->guests[r].id, host->guests[r].id_bytes, bytes, n_bytes);
}

/* Ends the meeting with the last error, and tells all guests. */
static gw_status call_off(const struct gw_tcp_host *host, gw_status status)
{
    uint8_t refusal[GW_TCP_TEXT_MESSAGE_BYTES];
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    tell_everybody(host, refusal, gw_tcp_refuse_write(refusal, status, sentence));
    gw_zmq_set_int(host->socket, ZMQ_LINGER, 1000);
    return gw_fail(status, "%s", sentence);
}

/* Sends host->refused to the peer `id`. */
static void tell_refusal(const struct gw_tcp_host *host, zmq_msg_t *id)
{
    uint8_t refusal[GW_TCP_TEXT_MESSAGE_BYTES];
    tell(host, zmq_msg_data(id), zmq_msg_size(id), refusal, gw_tcp_refuse_write(refusal, GW_ERR_PEER, host->refused));
}

/* Sends the last error to the peer `id`, which is no member. */
static void refuse(struct gw_tcp_host *host, zmq_msg_t *id)
{
    snprintf(host->refused, sizeof host->refused, "%s", gw_last_error());
    gw_zmq_log(&host->group->net.log, "refused reason=\"%s\"", gw_quote(host->refused).text);
    tell_refusal(host, id);
}

static bool has_contact(const struct guest *guest, const struct gw_tcp_join *join)
{
    const size_t n_bytes = (size_t)(join->contact.end - join->contact.at);
    return guest->contact_bytes == n_bytes && memcmp(guest->contact, join->contact.at, n_bytes) == 0;
}

/* Checks that a JOIN belongs to this job, and that its rank is not here yet. */
static gw_status check_join(const struct gw_tcp_host *host, const struct gw_tcp_join *join)
{
    struct gw_tcp_group *group = host->group;
    char endpoint[GW_ZMQ_ENDPOINT_BYTES], other[GW_ZMQ_ENDPOINT_BYTES];
    first_endpoint(join->contact, join->keyed, endpoint);
    if (join->size != group->size)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) was told that there are %u ranks, and rank 0 that there are %u",
                       join->rank, gw_zmq_place(endpoint), join->size, group->size);
    if (join->n_links != group->n_links)
        return gw_fail(GW_ERR_PEER,
                       "rank %u (%s) wants %u links, and rank 0 wants %u: all members must be started with the "
                       "same options",
                       join->rank, gw_zmq_place(endpoint), join->n_links, group->n_links);
    if (join->rank >= group->size)
        return gw_fail(GW_ERR_PEER, "a member (%s) says that it is rank %u; ranks are 0 to %u", gw_zmq_place(endpoint),
                       join->rank, group->size - 1);
    const struct guest *guest = &host->guests[join->rank];
    if (!guest->here || has_contact(guest, join))
        return GW_OK;
    guest_endpoint(host, join->rank, other);
    return gw_fail(GW_ERR_PEER, "two members say that they are rank %u: %s and %s", join->rank, gw_zmq_place(other),
                   gw_zmq_place(endpoint));
}

static void welcome(struct gw_tcp_host *host, const struct gw_tcp_join *join, zmq_msg_t *id, zmq_msg_t *body)
{
    struct guest *guest = &host->guests[join->rank];
    if (!guest->here) {
        guest->here = true;
        guest->contact_bytes = (size_t)(join->contact.end - join->contact.at);
        memcpy(guest->contact, join->contact.at, guest->contact_bytes);
        host->n_here++;
    }
    guest->fd = zmq_msg_get(body, ZMQ_SRCFD);
    gw_zmq_door_admit(host->door, guest->fd);
    guest->id_bytes = (uint8_t)zmq_msg_size(id);
    memcpy(guest->id, zmq_msg_data(id), guest->id_bytes);
    uint8_t wait[GW_TCP_TEXT_MESSAGE_BYTES];
    if (host->n_here < host->group->size)
        tell(host, guest->id, guest->id_bytes, wait,
             gw_tcp_wait_write(wait, gw_tcp_missing_ranks(host->group->size, guest_is_here, host->guests).text));
}

/* Logs host->refused, unless such a line was written a moment ago. */
static void log_late(struct gw_tcp_host *host)
{
    const double now = gw_clock_seconds();
    char more[40] = "";
    if (host->late_at != 0 && now < host->late_at + LATE_SECONDS) {
        host->n_untold++;
        return;
    }
    if (host->n_untold)
        snprintf(more, sizeof more, " untold=%u", host->n_untold);
    gw_zmq_log(&host->group->net.log, "refused reason=\"%s\"%s", gw_quote(host->refused).text, more);
    host->late_at = now;
    host->n_untold = 0;
}

/* Answers a JOIN that comes when all have met. It is from a member that has not got the table, or from somebody else.
 */
static void answer_late(struct gw_tcp_host *host, const struct gw_tcp_join *join, zmq_msg_t *id)
{
    const uint32_t size = host->group->size;
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
    struct guest *guest = join->rank < size ? &host->guests[join->rank] : NULL;
    if (guest && join->size == size && has_contact(guest, join)) {
        if (guest->n_tables < MOST_TABLES) {
            tell(host, zmq_msg_data(id), zmq_msg_size(id), host->table, host->table_bytes);
            guest->n_tables++;
        }
        return;
    }
    first_endpoint(join->contact, join->keyed, endpoint);
    snprintf(host->refused, sizeof host->refused,
             "the job at %s is already running, with %u %s, since %s; rank %u (%s) came too late; wait until that job "
             "has ended, or give this one another port",
             host->place, size, size == 1 ? "worker" : "workers", host->since, join->rank, gw_zmq_place(endpoint));
    log_late(host);
    tell_refusal(host, id);
}

/* Answers one message at the door. */
static void answer_door(struct gw_tcp_host *host, zmq_msg_t *id, zmq_msg_t *body, bool whole)
{
    struct gw_tcp_group *group = host->group;
    const char *from = zmq_msg_gets(body, "Peer-Address");
    const size_t n_bytes = zmq_msg_size(body);
    uint16_t version = 0;
    struct gw_tcp_join join;
    enum gw_tcp_kind kind = GW_TCP_STRANGE;
    if (whole && zmq_msg_size(id) <= ID_BYTES)
        kind = gw_tcp_kind_of(zmq_msg_data(body), n_bytes, &version);
    if (kind == GW_TCP_JOIN && version != GW_TCP_VERSION) {
        gw_fail(GW_ERR_PEER, "a member at %s speaks version %u of the tcp link, and rank 0 speaks version %u",
                from ? from : "an unknown address", version, GW_TCP_VERSION);
        refuse(host, id);
        return;
    }
    bool good = kind == GW_TCP_JOIN && gw_tcp_join_read(zmq_msg_data(body), n_bytes, &join) &&
                join.keyed == (group->net.keys != NULL);
    /* With keys, the key in a JOIN must be the one with which the connection was encrypted. */
    if (good && join.keyed) {
        const char *key = zmq_msg_gets(body, "User-Id");
        good = key && strlen(key) == GW_ZMQ_KEY_CHARS && memcmp(key, join.contact.at, GW_ZMQ_KEY_CHARS) == 0;
    }
    if (!good)
        gw_zmq_log(&group->net.log, "dropped address=%s bytes=%zu reason=\"this is no message of a member\"",
                   from ? from : "?", n_bytes);
    else if (host->since[0])
        answer_late(host, &join, id);
    else if (check_join(host, &join) < 0)
        refuse(host, id);
    /* else its connection has ended, and it may come again */
    else if (!gw_zmq_has_ended(&host->ended, zmq_msg_get(body, ZMQ_SRCFD)))
        welcome(host, &join, id, body);
}

/* ---- connections --------------------------------------------------------------------------------- */

/* ZeroMQ refused a connection, because one side has keys and the other has none. Logs that. If the connection ended
 * before its address could be asked for, nothing is logged: such a member comes again. */
static void log_speechless(struct gw_tcp_host *host, int fd)
{
    const char *caller = gw_zmq_caller(&host->callers, fd);
    if (!caller[0] || strcmp(caller, host->last_speechless) == 0)
        return;
    snprintf(host->last_speechless, sizeof host->last_speechless, "%s", caller);
    gw_zmq_log(&host->group->net.log,
               "refused address=%s reason=\"it does not speak as this job's members do; this job has %skeys, and one "
               "that has "
               "%s would look like this\"",
               caller, host->group->net.keys ? "" : "no ",
               host->group->net.keys ? "none, or takes rank 0 for another," : "some");
}

static void guest_went(struct gw_tcp_host *host, uint32_t rank)
{
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
    host->guests[rank].here = false;
    host->guests[rank].went = true;
    host->n_here--;
    guest_endpoint(host, rank, endpoint);
    gw_zmq_log(&host->group->net.log,
               "lost rank=%u address=%s reason=\"its connection to the rendezvous has ended; it may come again\"", rank,
               gw_zmq_place(endpoint));
}

static void read_events(struct gw_tcp_host *host)
{
    struct gw_zmq_event event;
    while (gw_zmq_door_event(host->door, &event)) {
        int fd = (int)event.value;
        if (!host->since[0])
            gw_zmq_ended_note(&host->ended, host->group->context, &event);
        if (event.what == ZMQ_EVENT_ACCEPTED) {
            gw_zmq_caller_note(&host->callers, fd);
        } else if (event.what != ZMQ_EVENT_DISCONNECTED) {
            host->handshake_failed = true;
        } else {
            for (uint32_t r = 1; r < host->group->size && !host->since[0]; r++)
                if (host->guests[r].here && host->guests[r].fd == fd)
                    guest_went(host, r);
            if (host->handshake_failed)
                log_speechless(host, fd);
            host->handshake_failed = false;
        }
    }
}

/* ---- the meeting --------------------------------------------------------------------------------- */

static gw_status too_late(const struct gw_tcp_host *host)
{
    const struct gw_tcp_group *group = host->group;
    char went[GW_ZMQ_ENDPOINT_BYTES + 80] = "", endpoint[GW_ZMQ_ENDPOINT_BYTES];
    for (uint32_t r = 1; r < group->size && !went[0]; r++)
        if (!host->guests[r].here && host->guests[r].went) {
            guest_endpoint(host, r, endpoint);
            snprintf(went, sizeof went, "; rank %u (%s) had come, and lost its connection", r, gw_zmq_place(endpoint));
        }
    return gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms%s%s%s",
                   gw_tcp_missing_ranks(group->size, guest_is_here, host->guests).text, host->place, group->timeout_ms,
                   went, host->refused[0] ? "; refused: " : "", host->refused);
}

/* Answers one message. false: there was no message. */
static bool attend(struct gw_tcp_host *host)
{
    zmq_msg_t parts[2];
    bool whole = false;
    const bool got = gw_tcp_take_parts(host->socket, parts, 2, &whole);
    /* The connection of this message may have the descriptor of an earlier one. So first read the events, which say
     * that the earlier one ended. */
    read_events(host);
    if (got) {
        gw_zmq_door_took(host->door, zmq_msg_get(&parts[1], ZMQ_SRCFD), zmq_msg_size(&parts[1]), 1);
        answer_door(host, &parts[0], &parts[1], whole);
    } else {
        gw_zmq_door_empty(host->door);
    }
    zmq_msg_close(&parts[0]);
    zmq_msg_close(&parts[1]);
    return got;
}

static gw_status gather(struct gw_tcp_host *host, double deadline)
{
    struct gw_tcp_group *group = host->group;
    while (host->n_here < group->size) {
        if (gw_tcp_go_on(group) < 0)
            return call_off(host, GW_ERR_CLOSED);
        if (gw_clock_seconds() >= deadline) {
            too_late(host);
            return call_off(host, GW_ERR_TIMEOUT);
        }
        gw_tcp_meeting_sleep(host->socket, NULL, gw_zmq_door_fd(host->door), deadline);
        attend(host);
    }
    return GW_OK;
}

static gw_status draw_session(uint64_t *session)
{
    do {
        if (getrandom(session, sizeof *session, 0) != sizeof *session)
            return gw_fail(GW_ERR_SYSTEM, "no random number for the session");
    } while (*session == 0);
    return GW_OK;
}

static gw_status hand_out_table(struct gw_tcp_host *host)
{
    struct gw_tcp_group *group = host->group;
    struct gw_tcp_table table = {.keyed = group->net.keys != NULL, .size = group->size, .n_links = group->n_links};
    GW_TRY(draw_session(&table.session));
    uint8_t *at = gw_tcp_table_write(host->table, &table);
    table.contacts.at = at;
    for (uint32_t r = 0; r < group->size; r++) {
        memcpy(at, host->guests[r].contact, host->guests[r].contact_bytes);
        at += host->guests[r].contact_bytes;
    }
    table.contacts.end = at;
    gw_tcp_adopt(group, &table);
    host->table_bytes = (size_t)(at - host->table);
    tell_everybody(host, host->table, host->table_bytes);
    return GW_OK;
}

/* ---- the job runs ---------------------------------------------------------------------------------- */

/* Runs on the watch's thread, so it takes no memory from the context. */
static bool serve(void *user)
{
    struct gw_tcp_host *host = user;
    for (int i = 0; i < MOST_AT_ONCE; i++)
        if (!attend(host))
            return false;
    return true;
}

/* From here on the watch's thread serves the door. */
static void stay(struct gw_tcp_host *host)
{
    const time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || !strftime(host->since, sizeof host->since, "%Y-%m-%d %H:%M:%S UTC", &utc))
        snprintf(host->since, sizeof host->since, "an unknown time");
    gw_zmq_door_serve(host->door, serve, host);
}

void gw_tcp_host_end(struct gw_tcp_host *host)
{
    if (!host)
        return;
    gw_context *context = host->group->context;
    gw_zmq_door_close(&host->socket, &host->door);
    gw_zmq_ended_free(&host->ended, context);
    gw_free(context, host->table);
    gw_free(context, host->contacts);
    gw_free(context, host->guests);
    gw_free(context, host);
}

/* ---- beginning -------------------------------------------------------------------------------------- */

/* "localhost" may be 127.0.0.1 for one member and ::1 for another. So rank 0 listens at both, if this machine has both
 * and nobody else listens there. */
static void listen_at_other_loopback(struct gw_tcp_host *host, const struct gw_zmq_address *rendezvous)
{
    const char *port = strrchr(rendezvous->endpoint, ':');
    bool v6 = rendezvous->socket.ss_family == AF_INET6;
    const char *here = v6 ? "tcp://[::1]" : "tcp://127.0.0.1", *there = v6 ? "tcp://127.0.0.1" : "tcp://[::1]";
    struct gw_zmq_address other = {.socket.ss_family = v6 ? AF_INET : AF_INET6};
    char place[GW_ZMQ_ENDPOINT_BYTES];
    size_t n = (size_t)(port - rendezvous->endpoint);
    if (n != strlen(here) || memcmp(rendezvous->endpoint, here, n) != 0)
        return;
    snprintf(other.endpoint, sizeof other.endpoint, "%s%s", there, port);
    gw_zmq_bind(host->socket, &other, place);
}

static gw_status open_door(struct gw_tcp_host *host, const struct gw_zmq_address *rendezvous)
{
    const int64_t longest = (int64_t)(GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(GW_TCP_MAX_LINKS, true));
    const int news = ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    char place[GW_ZMQ_ENDPOINT_BYTES];
    host->socket = gw_zmq_socket_new(&host->group->net, ZMQ_ROUTER, true);
    if (!host->socket)
        return GW_ERR_SYSTEM;
    zmq_setsockopt(host->socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
    GW_TRY(gw_zmq_set_int(host->socket, ZMQ_SNDHWM, MOST_UNREAD));
    const struct gw_zmq_limits limits = {.most_strangers = host->group->size + GW_ZMQ_SPARE_STRANGERS,
                                         .silent_s = GW_ZMQ_SILENT_SECONDS,
                                         .stranger_bytes = STRANGER_BYTES,
                                         .member_bytes = STRANGER_BYTES};
    GW_TRY(gw_zmq_net_door(&host->group->net, host->socket, "door", news, &limits, &host->door));
    gw_status status = gw_zmq_bind(host->socket, rendezvous, place);
    if (status < 0 && errno == EADDRINUSE)
        return gw_fail(status,
                       "this machine cannot listen at %s: a job is running at this rendezvous, or another program has "
                       "the port; wait until that has ended, or give this job another port",
                       host->place);
    GW_TRY(status);
    listen_at_other_loopback(host, rendezvous);
    return GW_OK;
}

static gw_status host_new(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous, struct gw_tcp_host **out)
{
    struct gw_tcp_host *host = *out = gw_calloc(group->context, 1, sizeof *host);
    if (!host)
        return GW_ERR_MEMORY;
    host->group = group;
    host->n_here = 1;
    snprintf(host->place, sizeof host->place, "%s", gw_zmq_place(rendezvous->endpoint));
    host->contact_bound = gw_tcp_contact_bound(group->n_links, group->net.keys != NULL);
    host->guests = gw_calloc(group->context, group->size, sizeof host->guests[0]);
    host->contacts = host->guests ? gw_alloc(group->context, group->size, host->contact_bound) : NULL;
    host->table =
        host->contacts ? gw_alloc(group->context, GW_TCP_TABLE_HEAD + group->size * host->contact_bound, 1) : NULL;
    if (!host->table)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < group->size; r++)
        host->guests[r].contact = host->contacts + r * host->contact_bound;
    return GW_OK;
}

gw_status gw_tcp_receive_guests(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous,
                                char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES], double deadline)
{
    gw_status status = host_new(group, rendezvous, &group->host);
    struct gw_tcp_host *host = group->host;
    if (status == GW_OK) {
        host->guests[0].here = true;
        host->guests[0].contact_bytes =
            (size_t)(gw_tcp_write_contact(group, host->contacts, endpoints) - host->contacts);
        status = open_door(host, rendezvous);
    }
    if (status == GW_OK)
        status = gather(host, deadline);
    if (status == GW_OK)
        status = hand_out_table(host);
    if (status == GW_OK) {
        stay(host);
        return GW_OK;
    }
    gw_tcp_host_end(host);
    group->host = NULL;
    return status;
}
