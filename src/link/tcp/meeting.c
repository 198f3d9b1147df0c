#include "link/tcp/meeting.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/endpoint.h"
#include "link/tcp/keys.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define AGAIN_SECONDS 0.5 /* between two JOINs of a member that has no answer */
#define ID_BYTES 16       /* ZeroMQ's own ids have 5; whoever sets a longer one is no member */
#define LISTED 8          /* ranks in a sentence */

struct gw_tcp_missing gw_tcp_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank), const void *all)
{
    struct gw_tcp_missing list = {""};
    size_t at = 0;
    uint32_t n = 0;
    for (uint32_t r = 0; r < size; r++)
        n += !is_there(all, r);
    at = (size_t)snprintf(list.text, sizeof list.text, n == 1 ? "rank" : "ranks");
    for (uint32_t r = 0, listed = 0; r < size && listed < LISTED; r++)
        if (!is_there(all, r))
            at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s %u", listed++ ? "," : "", r);
    if (n > LISTED)
        snprintf(list.text + at, sizeof list.text - at, " and %u more", n - LISTED);
    return list;
}

/* Writes where this rank can be reached. */
static uint8_t *write_contact(const struct gw_tcp_group *group, uint8_t *at, char (*endpoints)[GW_TCP_ENDPOINT_BYTES])
{
    if (group->keys)
        at = gw_tcp_write_key(at, group->keys->public_key);
    for (uint32_t l = 0; l < group->n_links; l++)
        at = gw_tcp_write_endpoint(at, endpoints[l]);
    return at;
}

/* Takes over the contacts of a table, which has been checked. */
static void adopt(struct gw_tcp_group *group, const struct gw_tcp_table *table)
{
    struct gw_tcp_reader reader = table->contacts;
    group->session = table->session;
    for (uint32_t r = 0; r < group->size; r++) {
        if (group->keys)
            gw_tcp_read_key(&reader, group->keys_of[r]);
        for (uint32_t l = 0; l < group->n_links; l++)
            gw_tcp_read_endpoint(&reader, group->endpoints[l]->peers[r].endpoint);
    }
}

/* Waits a little for a message; false where none has come, or the deadline has. */
static bool wait_for(void *socket, double deadline)
{
    double left = deadline - gw_clock_seconds();
    zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
    return zmq_poll(&item, 1, left <= 0 ? 0 : (long)((left < GW_TCP_ASK_SECONDS ? left : GW_TCP_ASK_SECONDS) * 1000) + 1) > 0;
}

/* Takes one message; *good: it has exactly n parts. The parts are to be closed in any case. false: there is none. */
static bool take_parts(void *socket, zmq_msg_t *parts, int n, bool *good)
{
    int i = 0, more = 1;
    for (int p = 0; p < n; p++)
        zmq_msg_init(&parts[p]);
    while (more) {
        zmq_msg_t scrap;
        zmq_msg_init(&scrap);
        zmq_msg_t *to = i < n ? &parts[i] : &scrap;
        if (zmq_msg_recv(to, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&scrap);
            return false;
        }
        more = zmq_msg_more(to);
        i++;
        zmq_msg_close(&scrap);
    }
    *good = i == n;
    return true;
}

/* ---- rank 0 -------------------------------------------------------------------------------------- */

struct guest {
    bool here;
    uint8_t id_bytes, id[ID_BYTES];
    size_t contact_bytes;
    uint8_t *contact;
};

struct host {
    struct gw_tcp_group *group;
    void *socket;
    const char *place;
    uint32_t n_here;
    size_t contact_bound;
    struct guest *guests;
    uint8_t *contacts, *table;
};

static bool guest_is_here(const void *all, uint32_t rank)
{
    return ((const struct guest *)all)[rank].here;
}

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

/* The meeting fails with the last error: everybody is told, and the one who caused it (NULL: none). */
static gw_status call_off(const struct host *host, gw_status status, zmq_msg_t *id)
{
    uint8_t refusal[GW_TCP_TEXT_MESSAGE_BYTES];
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    size_t n_bytes = gw_tcp_refuse_write(refusal, status, sentence);
    tell_everybody(host, refusal, n_bytes);
    if (id)
        tell(host, zmq_msg_data(id), zmq_msg_size(id), refusal, n_bytes);
    gw_tcp_set_int(host->socket, ZMQ_LINGER, 1000);
    return gw_fail(status, "%s", sentence);
}

/* Whether a JOIN is of this job, and of a rank that has not come yet. */
static gw_status check_join(const struct host *host, const struct gw_tcp_join *join)
{
    struct gw_tcp_group *group = host->group;
    char endpoint[GW_TCP_ENDPOINT_BYTES] = "tcp://?", other[GW_TCP_ENDPOINT_BYTES] = "tcp://?", key[GW_TCP_KEY_CHARS + 1];
    struct gw_tcp_reader reader = join->contact;
    if (join->keyed)
        gw_tcp_read_key(&reader, key);
    gw_tcp_read_endpoint(&reader, endpoint);
    if (join->size != group->size)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) was told that there are %u ranks, and rank 0 that there are %u", join->rank,
                       gw_tcp_place(endpoint), join->size, group->size);
    if (join->n_links != group->n_links)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) wants %u links, and rank 0 wants %u", join->rank, gw_tcp_place(endpoint),
                       join->n_links, group->n_links);
    if (join->rank >= group->size)
        return gw_fail(GW_ERR_PEER, "a member (%s) says that it is rank %u; ranks are 0 to %u", gw_tcp_place(endpoint), join->rank,
                       group->size - 1);
    const struct guest *guest = &host->guests[join->rank];
    size_t n_bytes = (size_t)(join->contact.end - join->contact.at);
    if (!guest->here || (guest->contact_bytes == n_bytes && memcmp(guest->contact, join->contact.at, n_bytes) == 0))
        return GW_OK;
    reader = (struct gw_tcp_reader){guest->contact, guest->contact + guest->contact_bytes};
    if (join->keyed)
        gw_tcp_read_key(&reader, key);
    gw_tcp_read_endpoint(&reader, other);
    return gw_fail(GW_ERR_PEER, "two members say that they are rank %u: %s and %s", join->rank, gw_tcp_place(other),
                   gw_tcp_place(endpoint));
}

/* One message at the door. Only members can make it fail; strangers are logged and sent away. */
static gw_status answer_door(struct host *host, zmq_msg_t *id, zmq_msg_t *body, bool whole)
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
        return call_off(host, GW_ERR_PEER, id);
    }
    bool good = kind == GW_TCP_JOIN && gw_tcp_join_read(zmq_msg_data(body), n_bytes, &join) && join.keyed == (group->keys != NULL);
    /* With keys, nobody may speak for another's key. */
    if (good && join.keyed) {
        const char *key = zmq_msg_gets(body, "User-Id");
        good = key && strlen(key) == GW_TCP_KEY_CHARS && memcmp(key, join.contact.at, GW_TCP_KEY_CHARS) == 0;
    }
    if (!good) {
        gw_tcp_log(group, "dropped %zu bytes from %s at the rendezvous: not a member's", n_bytes, from ? from : "an unknown address");
        return GW_OK;
    }
    if (check_join(host, &join) < 0)
        return call_off(host, GW_ERR_PEER, id);
    struct guest *guest = &host->guests[join.rank];
    if (!guest->here) {
        guest->here = true;
        guest->contact = host->contacts + join.rank * host->contact_bound;
        guest->contact_bytes = (size_t)(join.contact.end - join.contact.at);
        memcpy(guest->contact, join.contact.at, guest->contact_bytes);
        host->n_here++;
    }
    guest->id_bytes = (uint8_t)zmq_msg_size(id);
    memcpy(guest->id, zmq_msg_data(id), guest->id_bytes);
    uint8_t wait[GW_TCP_TEXT_MESSAGE_BYTES];
    if (host->n_here < group->size)
        tell(host, guest->id, guest->id_bytes, wait,
             gw_tcp_wait_write(wait, gw_tcp_missing_ranks(group->size, guest_is_here, host->guests).text));
    return GW_OK;
}

static gw_status gather(struct host *host, double deadline)
{
    struct gw_tcp_group *group = host->group;
    while (host->n_here < group->size) {
        if (gw_tcp_go_on(group) < 0)
            return call_off(host, GW_ERR_CLOSED, NULL);
        if (!wait_for(host->socket, deadline)) {
            if (gw_clock_seconds() < deadline)
                continue;
            struct gw_tcp_missing missing = gw_tcp_missing_ranks(group->size, guest_is_here, host->guests);
            gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms", missing.text, host->place,
                    group->timeout_ms);
            return call_off(host, GW_ERR_TIMEOUT, NULL);
        }
        zmq_msg_t parts[2];
        bool whole = false;
        gw_status status = GW_OK;
        if (take_parts(host->socket, parts, 2, &whole))
            status = answer_door(host, &parts[0], &parts[1], whole);
        zmq_msg_close(&parts[0]);
        zmq_msg_close(&parts[1]);
        GW_TRY(status);
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
    adopt(group, &table);
    tell_everybody(host, host->table, (size_t)(at - host->table));
    gw_tcp_set_int(host->socket, ZMQ_LINGER, 1000);
    return GW_OK;
}

static gw_status receive_guests(struct gw_tcp_group *group, const struct gw_tcp_address *rendezvous,
                                char (*endpoints)[GW_TCP_ENDPOINT_BYTES], double deadline)
{
    struct host host = {.group = group, .place = gw_tcp_place(rendezvous->endpoint), .n_here = 1};
    host.contact_bound = gw_tcp_contact_bound(group->n_links, group->keys != NULL);
    host.guests = gw_calloc(group->context, group->size, sizeof host.guests[0]);
    host.contacts = host.guests ? gw_alloc(group->context, group->size, host.contact_bound) : NULL;
    host.table = host.contacts ? gw_alloc(group->context, GW_TCP_TABLE_HEAD + group->size * host.contact_bound, 1) : NULL;
    gw_status status = host.table ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK) {
        host.guests[0] = (struct guest){.here = true, .contact = host.contacts};
        host.guests[0].contact_bytes = (size_t)(write_contact(group, host.contacts, endpoints) - host.contacts);
        host.socket = gw_tcp_socket_new(group, ZMQ_ROUTER, true);
        status = host.socket ? GW_OK : GW_ERR_SYSTEM;
    }
    char place[GW_TCP_ENDPOINT_BYTES];
    if (status == GW_OK) {
        const int64_t longest = (int64_t)(GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(GW_TCP_MAX_LINKS, true));
        zmq_setsockopt(host.socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
        status = gw_tcp_bind(host.socket, rendezvous, place);
    }
    if (status == GW_OK)
        status = gather(&host, deadline);
    if (status == GW_OK)
        status = hand_out_table(&host);
    if (host.socket)
        zmq_close(host.socket);
    gw_free(group->context, host.table);
    gw_free(group->context, host.contacts);
    gw_free(group->context, host.guests);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------------ */

struct visitor {
    struct gw_tcp_group *group;
    void *socket, *events;
    const char *place;
    uint8_t *join;
    size_t join_bytes;
    char waiting_for[GW_TCP_TEXT_BYTES]; /* what rank 0 said last; "": it has not answered */
};

/* What rank 0 says. *over: this was the table. */
static gw_status hear(struct visitor *visitor, const void *bytes, size_t n_bytes, bool *over)
{
    struct gw_tcp_group *group = visitor->group;
    uint16_t version;
    gw_status status;
    char text[GW_TCP_TEXT_BYTES];
    struct gw_tcp_table table;
    switch (gw_tcp_kind_of(bytes, n_bytes, &version)) {
    case GW_TCP_WAIT:
        gw_tcp_wait_read(bytes, n_bytes, visitor->waiting_for);
        return GW_OK;
    case GW_TCP_REFUSE:
        if (gw_tcp_refuse_read(bytes, n_bytes, &status, text))
            return gw_fail(status, "%s", text);
        break;
    case GW_TCP_TABLE:
        if (gw_tcp_table_read(bytes, n_bytes, &table) && table.size == group->size && table.n_links == group->n_links &&
            table.keyed == (group->keys != NULL)) {
            adopt(group, &table);
            *over = true;
            return GW_OK;
        }
        break;
    default:
        break;
    }
    gw_tcp_log(group, "dropped %zu bytes from %s: not what rank 0 would say", n_bytes, visitor->place);
    return GW_OK;
}

/* Whether rank 0 said that our key is not allowed. */
static bool turned_away(struct visitor *visitor)
{
    bool refused = false, good;
    zmq_msg_t parts[2];
    for (bool got = true; got;) {
        got = take_parts(visitor->events, parts, 2, &good);
        uint16_t what = 0;
        if (got && zmq_msg_size(&parts[0]) >= sizeof what)
            memcpy(&what, zmq_msg_data(&parts[0]), sizeof what);
        refused = refused || what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
        zmq_msg_close(&parts[0]);
        zmq_msg_close(&parts[1]);
    }
    return refused;
}

static gw_status too_late(const struct visitor *visitor)
{
    const struct gw_tcp_group *group = visitor->group;
    if (visitor->waiting_for[0])
        return gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms", visitor->waiting_for,
                       visitor->place, group->timeout_ms);
    return gw_fail(GW_ERR_TIMEOUT, "rank 0 did not answer at %s within %u ms%s%s%s", visitor->place, group->timeout_ms,
                   group->keys ? "; is it there, and its key that of " : "", group->keys ? group->keys->folder : "",
                   group->keys ? "/rendezvous.key?" : "");
}

static gw_status knock(struct visitor *visitor, double deadline)
{
    double again = 0;
    for (bool over = false; !over;) {
        double now = gw_clock_seconds();
        if (now >= deadline)
            return too_late(visitor);
        GW_TRY(gw_tcp_go_on(visitor->group));
        if (now >= again) { /* rank 0 may have been started anew; it knows one that comes twice by its contact */
            zmq_send(visitor->socket, visitor->join, visitor->join_bytes, ZMQ_DONTWAIT);
            again = now + AGAIN_SECONDS;
        }
        bool comes = wait_for(visitor->socket, again < deadline ? again : deadline);
        if (turned_away(visitor))
            return gw_fail(GW_ERR_PEER, "rank 0 (%s) refused this machine: its key %s is not among the allowed ones there",
                           visitor->place, visitor->group->keys ? visitor->group->keys->public_key : "");
        if (!comes)
            continue;
        zmq_msg_t part;
        bool whole = false;
        gw_status status = GW_OK;
        if (take_parts(visitor->socket, &part, 1, &whole) && whole)
            status = hear(visitor, zmq_msg_data(&part), zmq_msg_size(&part), &over);
        zmq_msg_close(&part);
        GW_TRY(status);
    }
    return GW_OK;
}

static gw_status open_visit(struct visitor *visitor, const struct gw_tcp_address *rendezvous)
{
    struct gw_tcp_group *group = visitor->group;
    visitor->socket = gw_tcp_socket_new(group, ZMQ_DEALER, false);
    visitor->events = visitor->socket ? zmq_socket(group->zmq, ZMQ_PAIR) : NULL;
    if (!visitor->socket)
        return GW_ERR_SYSTEM;
    if (!visitor->events || zmq_socket_monitor(visitor->socket, "inproc://visit", ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) != 0 ||
        zmq_connect(visitor->events, "inproc://visit") != 0)
        return gw_fail(GW_ERR_SYSTEM, "no news of connections: %s", zmq_strerror(zmq_errno()));
    GW_TRY(gw_tcp_set_int(visitor->events, ZMQ_LINGER, 0));
    GW_TRY(gw_tcp_set_int(visitor->socket, ZMQ_RECONNECT_IVL, 50));
    GW_TRY(gw_tcp_set_int(visitor->socket, ZMQ_RECONNECT_IVL_MAX, 1000));
    const int64_t longest = (int64_t)(GW_TCP_TABLE_HEAD + group->size * gw_tcp_contact_bound(group->n_links, true));
    const int64_t least = GW_TCP_TEXT_MESSAGE_BYTES;
    zmq_setsockopt(visitor->socket, ZMQ_MAXMSGSIZE, longest > least ? &longest : &least, sizeof longest);
    return gw_tcp_connect(visitor->socket, rendezvous->endpoint, group->keys ? group->keys->rendezvous : NULL);
}

static gw_status visit(struct gw_tcp_group *group, const struct gw_tcp_address *rendezvous,
                       char (*endpoints)[GW_TCP_ENDPOINT_BYTES], double deadline)
{
    const struct gw_tcp_join join = {
        .keyed = group->keys != NULL, .rank = group->rank, .size = group->size, .n_links = group->n_links};
    struct visitor visitor = {.group = group, .place = gw_tcp_place(rendezvous->endpoint)};
    visitor.join = gw_alloc(group->context, GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(group->n_links, join.keyed), 1);
    if (!visitor.join)
        return GW_ERR_MEMORY;
    visitor.join_bytes = (size_t)(write_contact(group, gw_tcp_join_write(visitor.join, &join), endpoints) - visitor.join);
    gw_status status = open_visit(&visitor, rendezvous);
    if (status == GW_OK)
        status = knock(&visitor, deadline);
    if (visitor.socket)
        zmq_close(visitor.socket);
    if (visitor.events)
        zmq_close(visitor.events);
    gw_free(group->context, visitor.join);
    return status;
}

gw_status gw_tcp_meet(struct gw_tcp_group *group, const struct gw_tcp_address *rendezvous,
                      char (*endpoints)[GW_TCP_ENDPOINT_BYTES], double deadline)
{
    return group->rank == 0 ? receive_guests(group, rendezvous, endpoints, deadline)
                            : visit(group, rendezvous, endpoints, deadline);
}
