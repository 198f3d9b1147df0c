/* What the server keeps beside its store, so that it can go on after a restart. */
#ifndef GW_PSERVER_SERVER_KEPT_H
#define GW_PSERVER_SERVER_KEPT_H

#include "pserver/server/state.h"

/* Fills a new server with what its folder holds, if it has a folder. Errors: those of gw_ps_keep_open. */
gw_status gw_ps_server_keep(struct gw_ps_server *server);

/* Call it after a change of what the server knows beside its store: first_round, the agreed lines, or what it knows of
 * a worker without its connection. */
void gw_ps_note(struct gw_ps_server *server);

/* Brings changes to disk, and then sends the answers that tell of them. */
void gw_ps_server_commit(struct gw_ps_server *server);

#endif
