/* Makes values of the answers of several servers. */
#ifndef GW_PSERVER_CLIENT_VALUES_H
#define GW_PSERVER_CLIENT_VALUES_H

#include "pserver/client/state.h"

/* Makes the value of a ticket whose parts have all been answered. The ticket has it no longer. */
void gw_ps_take_value(struct gw_ps_client *client, struct ticket *ticket, gw_ps_value *out);

/* Multiplies a value by the scale, which came with the ticket's second ticket. The bits are the same as if one server
 * had both keys. Errors: GW_ERR_ORDER (the scale is of another round). */
gw_status gw_ps_scale_value(struct gw_ps_client *client, const struct ticket *ticket, const gw_ps_value *scale,
                            gw_ps_value *out);

#endif
