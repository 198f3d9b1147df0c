/* The status page of `gradwire server --metrics`: an HTTP server with threads of its own, beside the parameter server.
 * It reads copies of the parameter server's numbers, and nothing else. */
#ifndef GRADWIRE_TOOL_STATUS_H
#define GRADWIRE_TOOL_STATUS_H

#include "pserver/server/numbers.h"

#include <stdio.h>

struct tool_status;

/* Listens at "HOST:PORT"; a port alone is one of 127.0.0.1. Port 0: any free one. Call it before gw_ps_server_run. */
int tool_status_open(gw_ps_server *server, const char *listen, bool insecure, struct tool_status **out);

/* "http://HOST:PORT/". */
const char *tool_status_url(const struct tool_status *status);

/* Ends the status page. Call it before the parameter server is destroyed. NULL is allowed. */
void tool_status_close(struct tool_status *status);

/* ---- what is shown: metrics.c, json.c. Text that the caller frees; NULL: no memory ---- */

/* Prometheus' text format, version 0.0.4. */
char *tool_status_metrics(const struct gw_ps_numbers *numbers);

/* The metrics process_... in this format, which Prometheus' clients tell of every process (process.c). What the system
 * does not tell is left out. */
void tool_status_process(FILE *out);

/* The numbers as JSON for the page's script. It is safe in any place of the page, because it holds no markup. */
char *tool_status_json(const struct gw_ps_numbers *numbers);

/* An operation's name, such as "push"; "invalid": messages that were no request. NULL: none has that number. */
const char *tool_status_operation(int number);

#endif
