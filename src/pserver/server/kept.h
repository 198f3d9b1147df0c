/* What the server keeps beside its store, so that it can go on after a restart. */
#ifndef GW_PSERVER_SERVER_KEPT_H
#define GW_PSERVER_SERVER_KEPT_H

#include "pserver/server/state.h"

/* Fills a new server with what its folder holds, if it has a folder. Errors: those of gw_ps_keep_open. */
gw_status gw_ps_server_keep(struct gw_ps_server *server);

/* note_run keeps first_round and the agreed lines; call it after one of them has changed. note_worker keeps what the
 * server knows of a worker, without its connection; call it after a change of that. */
void gw_ps_note_run(struct gw_ps_server *server);
void gw_ps_note_worker(struct gw_ps_server *server, uint32_t rank);

#endif
