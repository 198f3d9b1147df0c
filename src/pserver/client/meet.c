/* Waits until all servers have said welcome, and checks that they belong together. */
#include "base/clock.h"
#include "base/error.h"
#include "pserver/client/connect.h"
#include "pserver/client/for_exchange.h"

/* Makes the error: why the server has not said welcome. */
static gw_status not_met(const struct gw_ps_client *client, const struct server *server)
{
    if (server->first_refused != 0)
        return gw_fail(GW_ERR_PEER, "the server at %s refused this client: %s", gw_ps_place(server), server->why);
    return gw_fail(GW_ERR_TIMEOUT, "the server at %s did not answer within %u ms: %s", gw_ps_place(server),
                   client->timeout_ms,
                   server->is_reached ? "it took the connection and said nothing" : "no connection to it came about");
}

/* Checks that all servers have the same mode and the same number of workers. */
static gw_status are_alike(const struct gw_ps_client *client)
{
    const struct server *first = &client->servers[0];
    for (uint32_t s = 1; s < client->n_servers; s++) {
        const struct server *other = &client->servers[s];
        if (other->mode != first->mode || other->staleness != first->staleness)
            return gw_fail(GW_ERR_PEER, "the servers at %s and at %s have not the same --mode", gw_ps_place(first),
                           gw_ps_place(other));
    }
    for (uint32_t s = 1; s < client->n_servers; s++)
        if (client->servers[s].n_workers != first->n_workers)
            return gw_fail(GW_ERR_PEER, "the server at %s is for %u workers, and that at %s for %u", gw_ps_place(first),
                           first->n_workers, gw_ps_place(&client->servers[s]), client->servers[s].n_workers);
    return GW_OK;
}

gw_status gw_ps_client_meet(gw_ps_client *client, uint32_t ms)
{
    GW_TRY(gw_ps_client_check(client, "gw_ps_client_meet"));
    const double until = gw_clock_seconds() + ms / 1000.0;
    for (uint32_t s = 0; s < client->n_servers && !client->has_met; s++)
        while (!client->servers[s].welcome) {
            if (gw_clock_seconds() >= client->meet_by)
                return not_met(client, &client->servers[s]);
            if (gw_clock_seconds() >= until)
                return GW_NOT_YET;
            GW_TRY(gw_ps_client_pump(client, -1, until < client->meet_by ? until : client->meet_by));
        }
    if (!client->has_met)
        GW_TRY(are_alike(client));
    client->has_met = true;
    return GW_OK;
}
