/* Puts requests that must wait into the queues of keys, and refuses them. requests.c tries them again. */
#include "pserver/server/state.h"
#include "base/append.h"
#include "base/clock.h"
#include "base/memory.h"
#include "pserver/store/parameters.h"

#define MOST_WAITING 1024 /* the most waiting requests of one client */

static void enqueue(struct gw_ps_key *queue, struct gw_ps_waiting *waiting)
{
    struct gw_ps_waiting *before = NULL;
    for (struct gw_ps_waiting *p = LIST_FIRST(&queue->waiting); p && p->nth < waiting->nth; p = LIST_NEXT(p, link))
        before = p;
    waiting->queue = queue;
    if (before)
        LIST_INSERT_AFTER(before, waiting, link);
    else
        LIST_INSERT_HEAD(&queue->waiting, waiting, link);
}

gw_status gw_ps_waiting_add(struct gw_ps_server *server, struct gw_ps_member *member,
                            const struct gw_ps_request *request, struct gw_ps_blob *value, struct gw_ps_key *key,
                            struct gw_ps_key *waits_for)
{
    if (member->n_waiting >= MOST_WAITING)
        return gw_fail(GW_ERR_CAPACITY,
                       "%d requests of this client wait for other workers already; it must wait for some of them",
                       MOST_WAITING);
    struct gw_ps_waiting *waiting = gw_alloc(server->context, 1, sizeof *waiting);
    if (!waiting)
        return GW_ERR_MEMORY;
    *waiting = (struct gw_ps_waiting){.member = member,
                                      .key = key,
                                      .nth = server->n_ever_waited++,
                                      .request = *request,
                                      .value = value ? gw_ps_blob_hold(value) : NULL,
                                      .deadline = gw_clock_seconds() + request->timeout_ms / 1000.0};
    enqueue(waits_for, waiting);
    LIST_INSERT_HEAD(&member->waiting, waiting, of_member);
    member->n_waiting++;
    server->n_waiting++;
    return GW_OK;
}

void gw_ps_waiting_move(struct gw_ps_waiting *waiting, struct gw_ps_key *queue)
{
    LIST_REMOVE(waiting, link);
    enqueue(queue, waiting);
}

void gw_ps_waiting_remove(struct gw_ps_server *server, struct gw_ps_waiting *waiting)
{
    LIST_REMOVE(waiting, link);
    LIST_REMOVE(waiting, of_member);
    waiting->member->n_waiting--;
    if (waiting->key != waiting->queue) /* later requests of this client may wait in the queue of `key` */
        gw_ps_waiting_wake(server, waiting->key);
    server->n_waiting--;
    gw_ps_blob_give(waiting->value);
    gw_free(server->context, waiting);
}

void gw_ps_waiting_wake(void *user, struct gw_ps_key *key)
{
    struct gw_ps_server *server = user;
    if (LIST_EMPTY(&key->waiting) || key->is_woken)
        return;
    LIST_INSERT_HEAD(&server->woken, key, woken);
    key->is_woken = true;
}

struct gw_ps_worker_names gw_ps_name_workers(const struct gw_ps_server *server, gw_ps_is_named *is_named,
                                             const void *user)
{
    enum { MOST = 8 };
    struct gw_ps_worker_names names = {""};
    uint32_t n = 0;
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (is_named(server, r, user) && n++ < MOST)
            gw_append(names.text, sizeof names.text, "%srank %u%s", n > 1 ? ", " : "", r,
                      server->workers[r].member ? "" : " (not connected)");
    if (n > MOST)
        gw_append(names.text, sizeof names.text, " and %u more", n - MOST);
    return names;
}

/* True if that waiting request waits for the worker. */
static bool is_awaited(const struct gw_ps_server *server, uint32_t rank, const void *user)
{
    const struct gw_ps_waiting *waiting = user;
    return gw_ps_key_misses(server->store, waiting->queue, waiting->member->rank, rank);
}

/* Returns GW_ERR_TIMEOUT, with a sentence that says for whom the request has waited too long. */
static gw_status timed_out(const struct gw_ps_server *server, const struct gw_ps_waiting *waiting)
{
    const struct gw_ps_request *request = &waiting->request;
    const struct gw_ps_key *key = waiting->queue;
    const char *name = waiting->key->name;
    const char *what = request->operation == GW_PS_PUSH      ? "push"
                       : request->operation == GW_PS_VERDICT ? "verdict"
                                                             : "pull";
    if (request->operation == GW_PS_GET)
        return gw_fail(GW_ERR_TIMEOUT,
                       "the get of \"%s\" has waited %u ms for somebody to put a value of version %llu or higher", name,
                       request->timeout_ms, (unsigned long long)request->version);
    if (gw_ps_is_unset(key))
        return gw_fail(GW_ERR_TIMEOUT,
                       "the %s of \"%s\" has waited %u ms for anybody to put the first parameters of \"%s\"", what,
                       name, request->timeout_ms, key->name);
    const struct gw_ps_worker_names missing = gw_ps_name_workers(server, is_awaited, waiting);
    return gw_fail(GW_ERR_TIMEOUT, "the %s of \"%s\" has waited %u ms for pushes of %s to \"%s\"", what, name,
                   request->timeout_ms, missing.text[0] ? missing.text : "other workers", key->name);
}

/* Answers a waiting request with the last error. Requests that waited only behind it may be done now. */
static void refuse(struct gw_ps_server *server, struct gw_ps_waiting *waiting, gw_status status)
{
    struct gw_ps_key *queue = waiting->queue;
    gw_ps_answer_error(server, waiting->member, &waiting->request, status, 0);
    gw_ps_waiting_remove(server, waiting);
    gw_ps_waiting_wake(server, queue);
}

void gw_ps_waiting_expire(struct gw_ps_server *server)
{
    const double now = gw_clock_seconds();
    for (struct gw_ps_member *m = LIST_FIRST(&server->members); m; m = LIST_NEXT(m, link))
        for (struct gw_ps_waiting *p = LIST_FIRST(&m->waiting), *next; p; p = next) {
            next = LIST_NEXT(p, of_member);
            if (p->deadline <= now)
                refuse(server, p, timed_out(server, p));
        }
}

void gw_ps_waiting_refuse(struct gw_ps_server *server, gw_status status)
{
    for (struct gw_ps_member *m = LIST_FIRST(&server->members); m; m = LIST_NEXT(m, link))
        for (struct gw_ps_waiting *p = LIST_FIRST(&m->waiting), *next; p; p = next) {
            next = LIST_NEXT(p, of_member);
            if (gw_ps_is_of_exchange(p->queue->name) || gw_ps_is_of_exchange(p->key->name))
                refuse(server, p, status);
        }
}

void gw_ps_waiting_refuse_for(struct gw_ps_server *server, uint32_t rank, gw_status status)
{
    for (struct gw_ps_member *m = LIST_FIRST(&server->members); m; m = LIST_NEXT(m, link))
        for (struct gw_ps_waiting *p = LIST_FIRST(&m->waiting), *next; p; p = next) {
            next = LIST_NEXT(p, of_member);
            if (is_awaited(server, rank, p))
                refuse(server, p, status);
        }
}
