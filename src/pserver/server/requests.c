/* Does what clients ask for, or lets a request wait until it can be done. Waiting requests are tried again in order. */
#include "pserver/server/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/lines.h"
#include "base/memory.h"
#include "base/quote.h"

#include <string.h>

#define QUICK_ELEMS 1024 /* what larger keys need takes longer, so earlier answers do not wait for it */

/* ---- doing ------------------------------------------------------------------------------------------------- */

/* Answers that it is done. Returns GW_OK. */
static gw_status answer_done(struct gw_ps_server *server, struct gw_ps_member *member,
                             const struct gw_ps_request *request, uint64_t number, uint8_t flags)
{
    if (gw_ps_folder_is_due(server->folder))
        flags |= GW_PS_IN_MEMORY;
    gw_ps_answer_send(
        server, member,
        &(struct gw_ps_answer){.operation = request->operation, .flags = flags, .id = request->id, .number = number},
        NULL);
    return GW_OK;
}

/* If none of the workers is here that took part in the run of plain keys, a worker's first INIT begins another run.
 * GW_ERR_ORDER: one of the earlier workers may be back in a moment. */
static gw_status enter_run(struct gw_ps_server *server, struct gw_ps_member *member)
{
    if (member->rank == GW_PS_READER || member->joins)
        return GW_OK;
    bool is_over;
    GW_TRY(gw_ps_run_look(server, false, &is_over));
    for (uint32_t r = 0; is_over && r < server->options.n_workers; r++)
        server->workers[r].came_as = 0;
    server->workers[member->rank].came_as = member->incarnation;
    if (is_over)
        gw_ps_store_begin_anew(server->store);
    return GW_OK;
}

static gw_status init(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request)
{
    struct gw_ps_key *key;
    if (!gw_ps_is_of_exchange(request->key))
        GW_TRY(enter_run(server, member));
    const uint64_t before = server->store->names.n;
    GW_TRY(gw_ps_store_init(server->store, request->key, (gw_ps_type)request->type, &request->shape,
                            request->n_parts ? request->n_parts : 1, request->codec, request->optimizer));
    GW_TRY(gw_ps_store_find(server->store, request->key, &key));
    /* if there are very many keys, only the first are logged */
    if (server->store->names.n > before && before < 1000)
        gw_ps_log(server, "init key=\"%s\" type=%s shape=\"%s\" by=%s", gw_quote(request->key).text,
                  gw_ps_type_name((gw_ps_type)request->type), gw_ps_shape_text(&request->shape).text,
                  member->c.peer.host);
    if (key->n_parts > 1)
        gw_ps_store_skip(server->store, key, member->rank, request->skipped);
    return answer_done(server, member, request, gw_ps_store_pushed(server->store, key, member->rank),
                       gw_ps_store_is_past(server->store, key, member->rank) ? GW_PS_IS_PAST : 0);
}

/* Takes the lines of the first worker. Those of every other worker must be the same. If none of the clients that had
 * agreed before is here, their run is over, and a new client's AGREE begins another one. A worker that joins says so
 * itself. GW_ERR_ORDER: one of the earlier clients may be back in a moment. Then it is the same run. */
static gw_status agree(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                       const struct gw_ps_blob *value)
{
    if (member->rank == GW_PS_READER)
        return gw_fail(GW_ERR_ARGUMENT, "a reader has nothing to agree on with workers");
    if (value->n_bytes > GW_PS_MOST_AGREED || !gw_lines_are_good(value->bytes, value->n_bytes))
        return gw_fail(GW_ERR_FRAME_FIELD, "what workers are to agree on must be lines of text, %d bytes at most",
                       GW_PS_MOST_AGREED);
    if (server->agreed && !member->joins && server->workers[member->rank].agreed_as != member->incarnation) {
        bool is_over;
        GW_TRY(gw_ps_run_look(server, true, &is_over));
        if (is_over)
            gw_ps_run_end(server);
    }
    if (!server->agreed) {
        server->agreed = gw_alloc(server->context, value->n_bytes + 1, 1);
        if (!server->agreed)
            return GW_ERR_MEMORY;
        memcpy(server->agreed, value->bytes, value->n_bytes);
        server->agreed[value->n_bytes] = 0;
        server->agreed_by = member->rank;
    }
    struct gw_lines_difference difference;
    if (gw_lines_differ(server->agreed, strlen(server->agreed), value->bytes, value->n_bytes, &difference))
        return gw_fail(GW_ERR_ARGUMENT,
                       "rank %u has %s, and rank %u began this server's run with %s; all workers must have the same",
                       member->rank, difference.second, server->agreed_by, difference.first);
    server->workers[member->rank].agreed_as = member->incarnation;
    gw_ps_folder_note(server->folder);
    return answer_done(server, member, request, 0, 0);
}

static gw_status put(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                     struct gw_ps_blob *value)
{
    struct gw_ps_key *key;
    GW_TRY(gw_ps_store_find(server->store, request->key, &key));
    gw_status status;
    do
        status = request->put_kind == GW_PS_PUT_VERSION ? gw_ps_store_put(server->store, key, request->version, value)
                                                        : gw_ps_store_put_first(server->store, key, value);
    while (status == GW_ERR_CAPACITY && gw_ps_make_room(server, member));
    return status < 0 ? status : answer_done(server, member, request, 0, 0);
}

/* Gives a verdict, unless a push that it is about still waits. */
static gw_status give_verdict(struct gw_ps_server *server, struct gw_ps_member *member,
                              const struct gw_ps_request *request, struct gw_ps_key **waits_for)
{
    for (const struct gw_ps_waiting *p = LIST_FIRST(&member->waiting); p; p = LIST_NEXT(p, of_member))
        if (p->request.operation == GW_PS_PUSH && p->request.nth <= request->nth &&
            gw_ps_is_of_exchange(p->key->name)) {
            *waits_for = p->key;
            return GW_PS_WAIT;
        }
    return gw_ps_store_take_verdict(server->store, member->rank, request->nth, request->refusal);
}

/* Tries a push, a pull or a verdict, and answers it if it can be done now. GW_PS_WAIT: *waits_for is the key to wait
 * for. */
static gw_status try(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                     struct gw_ps_blob *value, struct gw_ps_key *key, struct gw_ps_key **waits_for)
{
    struct gw_ps_key *scale_key = NULL;
    struct gw_ps_pulled pulled = {.round = 0};
    gw_status status;
    *waits_for = key;
    if (request->operation == GW_PS_PUSH || request->operation == GW_PS_VERDICT) {
        const uint64_t refusal = request->push_kind == GW_PS_PUSH_REFUSED   ? request->refusal
                                 : request->push_kind == GW_PS_PUSH_PENDING ? GW_PS_PENDING
                                                                            : GW_PS_NOT_REFUSED;
        status = request->operation == GW_PS_VERDICT
                     ? give_verdict(server, member, request, waits_for)
                     : gw_ps_store_push(server->store, key, member->rank, request->nth, value, request->rate, refusal);
        return status == GW_OK ? answer_done(server, member, request, request->nth, 0) : status;
    }
    if (request->scale_key[0])
        GW_TRY(gw_ps_store_find(server->store, request->scale_key, &scale_key));
    const bool now = request->method == GW_PS_PARAMETERS && request->as_it_is == 1;
    do
        status = request->operation == GW_PS_GET
                     ? gw_ps_store_get(key, request->version, &pulled)
                     : gw_ps_store_pull(server->store, key, now ? GW_PS_READER : member->rank,
                                        (gw_ps_method)request->method, scale_key, &pulled, waits_for);
    while (status == GW_ERR_CAPACITY && gw_ps_make_room(server, member));
    if (status == GW_ERR_NONFINITE) {
        gw_ps_answer_error(server, member, request, status, pulled.round);
        return GW_OK;
    }
    if (status != GW_OK)
        return status;
    gw_ps_answer_send(server, member,
                      &(struct gw_ps_answer){.operation = request->operation,
                                             .type = (uint8_t)pulled.type,
                                             .id = request->id,
                                             .round = pulled.round,
                                             .shape = pulled.shape,
                                             .n_pushes = pulled.n_pushes},
                      pulled.value);
    gw_ps_blob_give(pulled.value);
    return GW_OK;
}

/* Notes how long a push or a pull took. A get waits for as long as its client likes, so its time says nothing. */
static void note_time(struct gw_ps_server *server, const struct gw_ps_request *request, double came)
{
    if (request->operation == GW_PS_PUSH || request->operation == GW_PS_PULL)
        gw_ps_times_note(request->operation == GW_PS_PUSH ? &server->counts.pushes : &server->counts.pulls,
                         gw_clock_seconds() - came);
}

/* True if an older request of the member for that key still waits. Older means that it came before the nth. */
static bool waits_before(const struct gw_ps_member *member, const struct gw_ps_key *key, uint64_t nth)
{
    for (const struct gw_ps_waiting *p = LIST_FIRST(&member->waiting); p; p = LIST_NEXT(p, of_member))
        if (p->key == key && p->nth < nth)
            return true;
    return false;
}

static gw_status push_or_pull(struct gw_ps_server *server, struct gw_ps_member *member,
                              const struct gw_ps_request *request, struct gw_ps_blob *value)
{
    struct gw_ps_key *key, *waits_for;
    const double came = gw_clock_seconds();
    GW_TRY(gw_ps_store_find(server->store, request->key, &key));
    if (key->n_elems > QUICK_ELEMS)
        gw_ignore(gw_net_flush(&member->c));
    if (request->operation != GW_PS_PUSH && request->n_parts != key->n_parts)
        return gw_fail(GW_ERR_ORDER,
                       "\"%s\" lies in %u parts on as many servers, and this client asks for a value in %u: "
                       "init_parameter with the key's type and shape must come before a pull or a get",
                       request->key, key->n_parts, request->n_parts);
    gw_status status;
    do
        status = value ? gw_ps_store_admit(server->store, key, member->rank, request->nth, value) : GW_OK;
    while (status == GW_ERR_CAPACITY && gw_ps_make_room(server, member));
    GW_TRY(status);
    waits_for = key;
    status = GW_PS_WAIT;
    if (!waits_before(member, key, UINT64_MAX))
        status = try(server, member, request, value, key, &waits_for);
    if (status == GW_OK)
        note_time(server, request, came);
    return status == GW_PS_WAIT ? gw_ps_waiting_add(server, member, request, value, key, waits_for) : status;
}

/* Handles a verdict. If one of the pushes that it is about waits, it waits behind that. */
static gw_status verdict(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request)
{
    struct gw_ps_key *waits_for = NULL;
    const gw_status status = try(server, member, request, NULL, NULL, &waits_for);
    return status == GW_PS_WAIT ? gw_ps_waiting_add(server, member, request, NULL, waits_for, waits_for) : status;
}

void gw_ps_request_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                      struct gw_ps_blob *value)
{
    const bool has_value = gw_ps_request_has_value(request);
    gw_status status;
    if (has_value != (value != NULL))
        status =
            gw_fail(has_value ? GW_ERR_FRAME_CUT : GW_ERR_FRAME_FIELD, "a request of operation %u for \"%s\" came %s",
                    request->operation, request->key, has_value ? "without a value" : "with a value, and has none");
    else if (request->operation == GW_PS_INIT)
        status = init(server, member, request);
    else if (request->operation == GW_PS_AGREE)
        status = agree(server, member, request, value);
    else if (request->operation == GW_PS_PUT)
        status = put(server, member, request, value);
    else if (request->operation == GW_PS_JOIN)
        status = gw_ps_join_do(server, member, request);
    else if (request->operation == GW_PS_ADMIT)
        status = gw_ps_admit_do(server, member, request);
    else if (request->operation == GW_PS_MEMBERS)
        status = gw_ps_members_do(server, member, request);
    else if (request->operation == GW_PS_VERDICT)
        status = verdict(server, member, request);
    else
        status = push_or_pull(server, member, request, value);
    if (status < 0)
        gw_ps_answer_error(server, member, request, status, 0);
    gw_ps_blob_give(value);
}

/* ---- going on ---------------------------------------------------------------------------------------------- */

/* Tries the requests in one key's queue again, in the order in which they came. A later request of a client never
 * overtakes an earlier one. */
static void ask_again(struct gw_ps_server *server, struct gw_ps_key *queue)
{
    for (struct gw_ps_waiting *p = LIST_FIRST(&queue->waiting), *next; p; p = next) {
        struct gw_ps_key *waits_for = queue;
        gw_status status = GW_PS_WAIT;
        next = LIST_NEXT(p, link);
        if (!waits_before(p->member, p->key, p->nth))
            status = try(server, p->member, &p->request, p->value, p->key, &waits_for);
        if (status == GW_OK)
            note_time(server, &p->request, p->deadline - p->request.timeout_ms / 1000.0);
        if (status < 0)
            gw_ps_answer_error(server, p->member, &p->request, status, 0);
        if (status != GW_PS_WAIT)
            gw_ps_waiting_remove(server, p);
        else if (waits_for != queue)
            gw_ps_waiting_move(p, waits_for);
    }
}

void gw_ps_requests_go_on(struct gw_ps_server *server)
{
    for (struct gw_ps_key *key; (key = LIST_FIRST(&server->woken));) {
        LIST_REMOVE(key, woken);
        key->is_woken = false;
        ask_again(server, key); /* this may wake further keys */
    }
}
