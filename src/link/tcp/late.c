/* Answers those who come to the rendezvous when the job is running. The thread that receives at rank 0 does that. */
#include "base/error.h"
#include "base/quote.h"
#include "link/tcp/state.h"

#include <stdio.h>

void gw_tcp_turn_out(struct gw_tcp_group *group, struct gw_net_newcomer *newcomer, const struct gw_net_message *message,
                     const char *what)
{
    gw_net_log(&group->log, "dropped address=%s bytes=%zu reason=\"%s\"", gw_net_name_peer(&newcomer->c).text,
               message->n_bytes, what);
    gw_net_turn_out(newcomer);
}

void gw_tcp_answer_late(struct gw_tcp_group *group)
{
    struct gw_net_newcomer *newcomer;
    struct gw_net_message message;
    struct gw_tcp_join join;
    uint8_t body[GW_TCP_MOST_TEXT];
    char refused[GW_TCP_TEXT_BYTES];
    if (pthread_mutex_trylock(&group->lock) != 0)
        return; /* another endpoint answers */
    for (int i = 0; i < GW_NET_MOST_AT_ONCE; i++) {
        if (!(newcomer = gw_net_listener_next(&group->listener, &message)))
            break;
        if (message.kind != GW_TCP_JOIN || !gw_tcp_join_read(message.bytes, message.n_bytes, &join)) {
            gw_tcp_turn_out(group, newcomer, &message, GW_TCP_NO_MESSAGE);
            continue;
        }
        snprintf(
            refused, sizeof refused,
            "the job at %s is already running, with %u %s, since %s; rank %u (%s) came too late; wait until that job "
            "has ended, or give this one another port",
            group->place, group->size, group->size == 1 ? "worker" : "workers", group->since, join.rank,
            gw_net_name_peer(&newcomer->c).text);
        gw_net_log(&group->log_of_late, "refused reason=\"%s\"", gw_quote(refused).text);
        gw_net_refuse(&group->listener, newcomer, GW_TCP_REFUSE, NULL, 0, body,
                      gw_tcp_text_write(body, 4, (uint32_t)-GW_ERR_PEER, refused));
    }
    pthread_mutex_unlock(&group->lock);
}
