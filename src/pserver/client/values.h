/* Values made of what several servers answered. */
#ifndef GW_PSERVER_CLIENT_VALUES_H
#define GW_PSERVER_CLIENT_VALUES_H

#include "pserver/client/state.h"

/* The value of a ticket whose parts have all come. */
gw_status gw_ps_take_value(struct gw_ps_client *client, struct ticket *ticket, gw_ps_value *out);

/* Multiplies what came by the scale that comes by the ticket's other one; the same bits as a server's that has both. */
gw_status gw_ps_scale_value(struct gw_ps_client *client, const struct ticket *ticket, gw_ps_value *out);

#endif
