/* The status page of `gradwire server --metrics`: an HTTP server of its own threads beside the parameter server, which
 * reads copies of its numbers and touches nothing else. */
#ifndef GRADWIRE_TOOL_STATUS_H
#define GRADWIRE_TOOL_STATUS_H

#include "pserver/server/numbers.h"

struct tool_status;

/* Listens at "HOST:PORT", or at a port of 127.0.0.1 where only that is given; 0: any that is free. Before
 * gw_ps_server_run. Returns 0, or -1 with the message printed. */
int tool_status_open(gw_ps_server *server, const char *listen, bool insecure, struct tool_status **out);

/* "http://HOST:PORT/". */
const char *tool_status_url(const struct tool_status *status);

/* Before the server is destroyed. NULL is allowed. */
void tool_status_close(struct tool_status *status);

/* ---- what is shown: metrics.c, json.c. Text that the caller frees; NULL: no memory ---- */

/* Prometheus' text format, version 0.0.4. */
char *tool_status_metrics(const struct gw_ps_numbers *numbers);

/* For the page's script. Safe wherever it is put: nothing in it is markup. */
char *tool_status_json(const struct gw_ps_numbers *numbers);

/* "push" and the like; "invalid" for what was no request. NULL: no operation has that number. */
const char *tool_status_operation(int number);

#endif
