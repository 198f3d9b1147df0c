/* Sends answers: at once, or after the commit of what they tell. */
#include "pserver/server/state.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>

#define MOST_UNREAD 4096 /* the most answers that a client has not taken yet; with more, the client is dropped */

static void give_blob(void *blob)
{
    gw_ps_blob_give(blob);
}

/* Marks a client that does not take its answers. It gets none from here on, and is removed at the next sweep. */
static void lose(struct gw_ps_server *server, struct gw_ps_member *member)
{
    server->n_lost += !member->lost;
    member->lost = true;
}

bool gw_ps_make_room(struct gw_ps_server *server, const struct gw_ps_member *asker)
{
    struct gw_ps_member *most = NULL;
    uint64_t n_most = server->options.max_bytes / 2 / server->n_members;
    for (struct gw_ps_member *m = LIST_FIRST(&server->members); m; m = LIST_NEXT(m, link)) {
        uint64_t n_bytes = 0; /* of values that wait until the client takes them */
        for (const struct gw_net_parcel *parcel = m->c.first; parcel; parcel = parcel->next)
            n_bytes += parcel->n_bytes;
        if (m != asker && !m->lost && n_bytes > n_most) {
            n_most = n_bytes;
            most = m;
        }
    }
    if (most) {
        lose(server, most);
        gw_net_close(&most->c);
    }
    return most;
}

static void send_answer(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_answer *answer,
                        struct gw_ps_blob *value)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    if (member->lost)
        return;
    const size_t n_bytes = gw_ps_answer_write(head, answer);
    server->counts.bytes_out += GW_NET_HEAD + n_bytes + (value ? value->n_bytes : 0);
    const gw_status status = value ? gw_net_send_with(&member->c, GW_PS_MESSAGE, head, n_bytes, value->bytes,
                                                      value->n_bytes, give_blob, gw_ps_blob_hold(value))
                                   : gw_net_send_with(&member->c, GW_PS_MESSAGE, head, n_bytes, NULL, 0, NULL, NULL);
    if (status == GW_ERR_MEMORY || member->c.n_waiting > MOST_UNREAD) /* if it is gone, reading says so */
        lose(server, member);
    if (!member->c.gathers)
        gw_net_watch(&member->c, server->epoll, (epoll_data_t){.ptr = member});
}

void gw_ps_answer_send(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_answer *answer,
                       struct gw_ps_blob *value)
{
    if (STAILQ_EMPTY(&server->held) && !gw_ps_folder_is_due(server->folder)) {
        send_answer(server, member, answer, value);
        return;
    }
    struct gw_ps_held *held = gw_alloc(server->context, 1, sizeof *held);
    if (!held) {
        lose(server, member);
        return;
    }
    *held = (struct gw_ps_held){{NULL}, member, *answer, value ? gw_ps_blob_hold(value) : NULL};
    STAILQ_INSERT_TAIL(&server->held, held, link);
}

void gw_ps_server_commit(struct gw_ps_server *server)
{
    gw_ps_folder_commit(server->folder);
    const bool is_durable = !gw_ps_folder_is_due(server->folder);
    for (struct gw_ps_held *held = STAILQ_FIRST(&server->held); held; held = STAILQ_NEXT(held, link)) {
        if (is_durable)
            held->answer.flags &= (uint8_t)~GW_PS_IN_MEMORY;
        held->member->c.gathers = true;
        send_answer(server, held->member, &held->answer, held->value);
    }
    for (struct gw_ps_held *held; (held = STAILQ_FIRST(&server->held));) {
        STAILQ_REMOVE_HEAD(&server->held, link);
        held->member->c.gathers = false;
        gw_ignore(gw_net_flush(&held->member->c));
        gw_net_watch(&held->member->c, server->epoll, (epoll_data_t){.ptr = held->member});
        gw_ps_blob_give(held->value);
        gw_free(server->context, held);
    }
}

static struct gw_ps_answer error_answer(struct gw_ps_server *server, const struct gw_ps_request *request,
                                        gw_status status, uint64_t number)
{
    struct gw_ps_answer answer = {.operation = request->operation,
                                  .id = request->id,
                                  .number = number,
                                  .status = status};
    snprintf(answer.sentence, sizeof answer.sentence, "%s", gw_last_error());
    server->counts.refused++;
    return answer;
}

void gw_ps_answer_error(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                        gw_status status, uint64_t number)
{
    const struct gw_ps_answer answer = error_answer(server, request, status, number);
    gw_ps_answer_send(server, member, &answer, NULL);
}

void gw_ps_refuse(struct gw_ps_server *server, struct gw_net_newcomer *newcomer, const struct gw_ps_request *request,
                  gw_status status)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    const struct gw_ps_answer answer = error_answer(server, request, status, 0);
    const size_t n_bytes = gw_ps_answer_write(head, &answer);
    server->counts.bytes_out += GW_NET_HEAD + n_bytes;
    gw_net_refuse(&server->listener, newcomer, GW_PS_MESSAGE, head, n_bytes, NULL, 0);
}
