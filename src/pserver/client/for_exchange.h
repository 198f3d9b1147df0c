/* Functions of the client that an exchange through servers needs, besides those of gradwire/pserver.h. */
#ifndef GW_PSERVER_CLIENT_CLIENT_H
#define GW_PSERVER_CLIENT_CLIENT_H

#include "pserver/protocol/message.h"

#include <stdio.h>

/* A request about a key. */
static inline struct gw_ps_request gw_ps_request_of(enum gw_ps_operation operation, const char *key)
{
    struct gw_ps_request request = {.operation = operation};
    snprintf(request.key, sizeof request.key, "%s", key);
    return request;
}

/* Begins a request of the exchange, to server number `server`, on which the key lives. tag: gw_ps_client_answered gives
 * it back. gw_ps_wait and gw_ps_cancel take the request, and what gw_ps_begin says of requests is true here. A VERDICT
 * is about the pushes with the same number as the last push to its key. The worker must have pushed or refused as often
 * to each key of the exchange on that server. If a pull fails with GW_ERR_NONFINITE, gw_ps_refusal is the least refusal
 * of all workers in that round. */
gw_status gw_ps_client_begin(gw_ps_client *client, uint32_t server, const struct gw_ps_request *head, const void *body,
                             size_t n_bytes, void *tag, uint64_t *request);
uint64_t gw_ps_refusal(const gw_ps_client *client);

/* The same, and waits for the answer. An INIT makes a key on this server, whatever its name and size. The body of an
 * AGREE are lines "name = value". GW_ERR_ARGUMENT: another worker said otherwise, and both values are in the sentence.
 * GW_ERR_TIMEOUT: the server does not know in time whether the run before is over. */
gw_status gw_ps_client_do(gw_ps_client *client, uint32_t server, const struct gw_ps_request *head, const void *body,
                          size_t n_bytes);

/* Takes in the answers that have come. If there are none, it waits for one until `deadline` (gw_clock_seconds), or
 * until `fd` can be read. */
gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline);

/* A request for which gw_ps_wait would return at once, and its tag. The one that was answered first comes first. 0:
 * there is none. */
uint64_t gw_ps_client_answered(const gw_ps_client *client, void **tag);

/* Gives up a request. Its bytes may then be freed. The server may still do what it asks for. */
void gw_ps_client_drop(gw_ps_client *client, uint64_t request);

gw_status gw_ps_client_ready(const gw_ps_client *client); /* GW_ERR_ORDER: of another process, or it has not met yet */

struct gw_ps_client_facts {
    uint32_t rank, n_servers;
    bool backup; /* a server has backup workers: its rounds do not wait for all */
};
struct gw_ps_client_facts gw_ps_client_facts(const gw_ps_client *client);

/* The address HOST:PORT of server number `server`, from 0. */
const char *gw_ps_client_place(const gw_ps_client *client, uint32_t server);

#endif
