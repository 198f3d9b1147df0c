/* The meeting as rank 0 sees it: a guest for every rank, and whoever else knocks.
 *
 * Nothing that comes to the door ends the meeting. Who is no member of this job is told so, and logged; a guest whose connection goes is
 * no guest any more, and may come again. Only the deadline ends it, and whoever asked for the stop. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/events.h"
#include "link/tcp/keys.h"
#include "link/tcp/meeting.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define ID_BYTES 16 /* ZeroMQ's own ids have 5; whoever sets a longer one is no member */
#define N_CALLERS 32
#define NUMERIC_BYTES 64 /* room for an address in numbers, with its interface */

struct guest {
    bool here, went; /* went: was here once, and its connection broke */
    int fd;          /* of its connection */
    uint8_t id_bytes, id[ID_BYTES];
    size_t contact_bytes;
    uint8_t *contact;
};

/* A connection that was accepted, and from where. */
struct caller {
    int fd;
    char address[NUMERIC_BYTES];
};

struct host {
    struct gw_tcp_group *group;
    void *socket, *events;
    const char *place;
    uint32_t n_here;
    size_t contact_bound;
    struct guest *guests;
    uint8_t *contacts, *table;
    char refused[GW_TCP_TEXT_BYTES];  /* the last refusal; "": none */
    struct caller callers[N_CALLERS]; /* the last of them */
    uint32_t n_callers;
    struct gw_tcp_ended ended;
    bool handshake_failed;               /* of the connection whose end is the next event */
    char last_speechless[NUMERIC_BYTES]; /* whose handshake failed last, so that each is logged once */
};

static bool guest_is_here(const void *all, uint32_t rank)
{
    return ((const struct guest *)all)[rank].here;
}

/* The first address of a contact, which has been checked, for sentences. */
static void first_endpoint(struct gw_tcp_reader contact, bool keyed, char endpoint[GW_TCP_ENDPOINT_BYTES])
{
    char key[GW_TCP_KEY_CHARS + 1];
    snprintf(endpoint, GW_TCP_ENDPOINT_BYTES, "tcp://?");
    if (keyed)
        gw_tcp_read_key(&contact, key);
    gw_tcp_read_endpoint(&contact, endpoint);
}

static void guest_endpoint(const struct host *host, uint32_t rank, char endpoint[GW_TCP_ENDPOINT_BYTES])
{
    const struct guest *guest = &host->guests[rank];
    first_endpoint((struct gw_tcp_reader){guest->contact, guest->contact + guest->contact_bytes},
                   host->group->keys != NULL, endpoint);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void tell(const struct host *host, const void *id, size_t id_bytes, const void *bytes, size_t n_bytes)
{
    /* One that is gone again is nobody's loss. */
    if (zmq_send(host->socket, id, id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(host->socket, bytes, n_bytes, ZMQ_DONTWAIT);
}

static void tell_everybody(const struct host *host, const void *bytes, size_t n_bytes)
{
    for (uint32_t r = 1; r < host->group->size; r++)
        if (host->guests[r].here)
            tell(host, host->guests[r].id, host->guests[r].id_bytes, bytes, n_bytes);
}

/* The meeting fails with the last error, and everybody is told. */
static gw_status call_off(const struct host *host, gw_status status)
{
    uint8_t refusal[GW_TCP_TEXT_MESSAGE_BYTES];
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    tell_everybody(host, refusal, gw_tcp_refuse_write(refusal, status, sentence));
    gw_tcp_set_int(host->socket, ZMQ_LINGER, 1000);
    return gw_fail(status, "%s", sentence);
}

/* Who knocked is told the last error, and is no member. */
static void refuse(struct host *host, zmq_msg_t *id)
{
    uint8_t refusal[GW_TCP_TEXT_MESSAGE_BYTES];
    snprintf(host->refused, sizeof host->refused, "%s", gw_last_error());
    gw_tcp_log(host->group, "refused a member at the rendezvous: %s", host->refused);
    tell(host, zmq_msg_data(id), zmq_msg_size(id), refusal, gw_tcp_refuse_write(refusal, GW_ERR_PEER, host->refused));
}

/* Whether a JOIN is of this job, and of a rank that is not here. */
static gw_status check_join(const struct host *host, const struct gw_tcp_join *join)
{
    struct gw_tcp_group *group = host->group;
    char endpoint[GW_TCP_ENDPOINT_BYTES], other[GW_TCP_ENDPOINT_BYTES];
    first_endpoint(join->contact, join->keyed, endpoint);
    if (join->size != group->size)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) was told that there are %u ranks, and rank 0 that there are %u",
                       join->rank, gw_tcp_place(endpoint), join->size, group->size);
    if (join->n_links != group->n_links)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) wants %u links, and rank 0 wants %u", join->rank,
                       gw_tcp_place(endpoint), join->n_links, group->n_links);
    if (join->rank >= group->size)
        return gw_fail(GW_ERR_PEER, "a member (%s) says that it is rank %u; ranks are 0 to %u", gw_tcp_place(endpoint),
                       join->rank, group->size - 1);
    const struct guest *guest = &host->guests[join->rank];
    size_t n_bytes = (size_t)(join->contact.end - join->contact.at);
    if (!guest->here || (guest->contact_bytes == n_bytes && memcmp(guest->contact, join->contact.at, n_bytes) == 0))
        return GW_OK;
    guest_endpoint(host, join->rank, other);
    return gw_fail(GW_ERR_PEER, "two members say that they are rank %u: %s and %s", join->rank, gw_tcp_place(other),
                   gw_tcp_place(endpoint));
}

static void welcome(struct host *host, const struct gw_tcp_join *join, zmq_msg_t *id, zmq_msg_t *body)
{
    struct guest *guest = &host->guests[join->rank];
    if (!guest->here) {
        guest->here = true;
        guest->contact_bytes = (size_t)(join->contact.end - join->contact.at);
        memcpy(guest->contact, join->contact.at, guest->contact_bytes);
        host->n_here++;
    }
    guest->fd = zmq_msg_get(body, ZMQ_SRCFD);
    guest->id_bytes = (uint8_t)zmq_msg_size(id);
    memcpy(guest->id, zmq_msg_data(id), guest->id_bytes);
    uint8_t wait[GW_TCP_TEXT_MESSAGE_BYTES];
    if (host->n_here < host->group->size)
        tell(host, guest->id, guest->id_bytes, wait,
             gw_tcp_wait_write(wait, gw_tcp_missing_ranks(host->group->size, guest_is_here, host->guests).text));
}

/* One message at the door. */
static void answer_door(struct host *host, zmq_msg_t *id, zmq_msg_t *body, bool whole)
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
                join.keyed == (group->keys != NULL);
    /* With keys, nobody may speak for another's key. */
    if (good && join.keyed) {
        const char *key = zmq_msg_gets(body, "User-Id");
        good = key && strlen(key) == GW_TCP_KEY_CHARS && memcmp(key, join.contact.at, GW_TCP_KEY_CHARS) == 0;
    }
    if (!good)
        gw_tcp_log(group, "dropped %zu bytes from %s at the rendezvous: not a member's", n_bytes,
                   from ? from : "an unknown address");
    else if (check_join(host, &join) < 0)
        refuse(host, id);
    else if (!gw_tcp_has_ended(&host->ended, zmq_msg_get(body, ZMQ_SRCFD))) /* else it is gone, and may come again */
        welcome(host, &join, id, body);
}

/* ---- connections --------------------------------------------------------------------------------- */

/* Must be asked for at once: the connection may be gone soon. */
static void note_caller(struct host *host, int fd)
{
    struct caller *caller = &host->callers[host->n_callers++ % N_CALLERS];
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    caller->fd = fd;
    if (getpeername(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, caller->address, sizeof caller->address, NULL, 0,
                    NI_NUMERICHOST) != 0)
        caller->address[0] = 0;
}

/* ZeroMQ refused a connection: with keys whoever has none, without keys whoever has some. Such a member knocks again, so a connection
 * that went before it could be asked for its address is passed over. */
static void log_speechless(struct host *host, int fd)
{
    const struct caller *caller = NULL;
    for (uint32_t i = 0; i < N_CALLERS && i < host->n_callers && !caller; i++)
        if (host->callers[(host->n_callers - 1 - i) % N_CALLERS].fd == fd)
            caller = &host->callers[(host->n_callers - 1 - i) % N_CALLERS];
    if (!caller || !caller->address[0] || strcmp(caller->address, host->last_speechless) == 0)
        return;
    snprintf(host->last_speechless, sizeof host->last_speechless, "%s", caller->address);
    gw_tcp_log(host->group,
               "refused a connection from %s: it does not speak as this job's members do; this job has %skeys, and one "
               "that has "
               "%s would look like this",
               caller->address, host->group->keys ? "" : "no ",
               host->group->keys ? "none, or takes rank 0 for another," : "some");
}

static void guest_went(struct host *host, uint32_t rank)
{
    char endpoint[GW_TCP_ENDPOINT_BYTES];
    host->guests[rank].here = false;
    host->guests[rank].went = true;
    host->n_here--;
    guest_endpoint(host, rank, endpoint);
    gw_tcp_log(host->group, "rank %u (%s) lost its connection to the rendezvous; it may come again", rank,
               gw_tcp_place(endpoint));
}

static void read_events(struct host *host)
{
    struct gw_tcp_event event;
    while (gw_tcp_next_event(host->events, &event)) {
        int fd = (int)event.value;
        gw_tcp_ended_note(&host->ended, host->group->context, &event);
        if (event.what == ZMQ_EVENT_ACCEPTED) {
            note_caller(host, fd);
        } else if (event.what != ZMQ_EVENT_DISCONNECTED) {
            host->handshake_failed = true;
        } else {
            for (uint32_t r = 1; r < host->group->size; r++)
                if (host->guests[r].here && host->guests[r].fd == fd)
                    guest_went(host, r);
            if (host->handshake_failed)
                log_speechless(host, fd);
            host->handshake_failed = false;
        }
    }
}

/* ---- the meeting --------------------------------------------------------------------------------- */

static gw_status too_late(const struct host *host)
{
    const struct gw_tcp_group *group = host->group;
    char went[GW_TCP_ENDPOINT_BYTES + 80] = "", endpoint[GW_TCP_ENDPOINT_BYTES];
    for (uint32_t r = 1; r < group->size && !went[0]; r++)
        if (!host->guests[r].here && host->guests[r].went) {
            guest_endpoint(host, r, endpoint);
            snprintf(went, sizeof went, "; rank %u (%s) had come, and lost its connection", r, gw_tcp_place(endpoint));
        }
    return gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms%s%s%s",
                   gw_tcp_missing_ranks(group->size, guest_is_here, host->guests).text, host->place, group->timeout_ms,
                   went, host->refused[0] ? "; refused: " : "", host->refused);
}

static gw_status gather(struct host *host, double deadline)
{
    struct gw_tcp_group *group = host->group;
    while (host->n_here < group->size) {
        if (gw_tcp_go_on(group) < 0)
            return call_off(host, GW_ERR_CLOSED);
        if (gw_clock_seconds() >= deadline) {
            too_late(host);
            return call_off(host, GW_ERR_TIMEOUT);
        }
        gw_tcp_meeting_sleep(host->socket, host->events, deadline);
        zmq_msg_t parts[2];
        bool whole = false;
        bool got = gw_tcp_take_parts(host->socket, parts, 2, &whole);
        /* A message's connection may have the number of one that went before, so what is known of that comes first. */
        read_events(host);
        if (got)
            answer_door(host, &parts[0], &parts[1], whole);
        zmq_msg_close(&parts[0]);
        zmq_msg_close(&parts[1]);
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

static gw_status hand_out_table(struct host *host)
{
    struct gw_tcp_group *group = host->group;
    struct gw_tcp_table table = {.keyed = group->keys != NULL, .size = group->size, .n_links = group->n_links};
    GW_TRY(draw_session(&table.session));
    uint8_t *at = gw_tcp_table_write(host->table, &table);
    table.contacts.at = at;
    for (uint32_t r = 0; r < group->size; r++) {
        memcpy(at, host->guests[r].contact, host->guests[r].contact_bytes);
        at += host->guests[r].contact_bytes;
    }
    table.contacts.end = at;
    gw_tcp_adopt(group, &table);
    tell_everybody(host, host->table, (size_t)(at - host->table));
    gw_tcp_set_int(host->socket, ZMQ_LINGER, 1000);
    return GW_OK;
}

/* "localhost" is 127.0.0.1 to one member and ::1 to another: rank 0 listens at both, where this machine has both and nobody else is
 * there. */
static void listen_at_other_loopback(struct host *host, const struct gw_tcp_address *rendezvous)
{
    const char *port = strrchr(rendezvous->endpoint, ':');
    bool v6 = rendezvous->socket.ss_family == AF_INET6;
    const char *here = v6 ? "tcp://[::1]" : "tcp://127.0.0.1", *there = v6 ? "tcp://127.0.0.1" : "tcp://[::1]";
    struct gw_tcp_address other = {.socket.ss_family = v6 ? AF_INET : AF_INET6};
    char place[GW_TCP_ENDPOINT_BYTES];
    size_t n = (size_t)(port - rendezvous->endpoint);
    if (n != strlen(here) || memcmp(rendezvous->endpoint, here, n) != 0)
        return;
    snprintf(other.endpoint, sizeof other.endpoint, "%s%s", there, port);
    gw_tcp_bind(host->socket, &other, place);
}

static gw_status open_door(struct host *host, const struct gw_tcp_address *rendezvous)
{
    const int64_t longest = (int64_t)(GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(GW_TCP_MAX_LINKS, true));
    const int news = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    char place[GW_TCP_ENDPOINT_BYTES];
    host->socket = gw_tcp_socket_new(host->group, ZMQ_ROUTER, true);
    if (!host->socket)
        return GW_ERR_SYSTEM;
    zmq_setsockopt(host->socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
    GW_TRY(gw_tcp_watch(host->group, host->socket, "door", news, &host->events));
    GW_TRY(gw_tcp_bind(host->socket, rendezvous, place));
    listen_at_other_loopback(host, rendezvous);
    return GW_OK;
}

gw_status gw_tcp_receive_guests(struct gw_tcp_group *group, const struct gw_tcp_address *rendezvous,
                                char (*endpoints)[GW_TCP_ENDPOINT_BYTES], double deadline)
{
    struct host host = {.group = group, .place = gw_tcp_place(rendezvous->endpoint), .n_here = 1};
    host.contact_bound = gw_tcp_contact_bound(group->n_links, group->keys != NULL);
    host.guests = gw_calloc(group->context, group->size, sizeof host.guests[0]);
    host.contacts = host.guests ? gw_alloc(group->context, group->size, host.contact_bound) : NULL;
    host.table =
        host.contacts ? gw_alloc(group->context, GW_TCP_TABLE_HEAD + group->size * host.contact_bound, 1) : NULL;
    gw_status status = host.table ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t r = 0; r < group->size && status == GW_OK; r++)
        host.guests[r].contact = host.contacts + r * host.contact_bound;
    if (status == GW_OK) {
        host.guests[0].here = true;
        host.guests[0].contact_bytes = (size_t)(gw_tcp_write_contact(group, host.contacts, endpoints) - host.contacts);
        status = open_door(&host, rendezvous);
    }
    if (status == GW_OK)
        status = gather(&host, deadline);
    if (status == GW_OK)
        status = hand_out_table(&host);
    gw_tcp_close_watched(&host.socket, &host.events);
    gw_tcp_ended_free(&host.ended, group->context);
    gw_free(group->context, host.table);
    gw_free(group->context, host.contacts);
    gw_free(group->context, host.guests);
    return status;
}
