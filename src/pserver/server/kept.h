/* What the server keeps beyond its store, so that one that is started again goes on. */
#ifndef GW_PSERVER_SERVER_KEPT_H
#define GW_PSERVER_SERVER_KEPT_H

#include "pserver/server/state.h"

/* Makes the new server what its folder holds, if it has one. Errors: those of gw_ps_keep_open. */
gw_status gw_ps_server_keep(struct gw_ps_server *server);

/* After a change of first_round or of what is agreed on; of what is known of a worker beside its connection. */
void gw_ps_note_run(struct gw_ps_server *server);
void gw_ps_note_worker(struct gw_ps_server *server, uint32_t rank);

#endif
