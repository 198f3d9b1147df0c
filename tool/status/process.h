/* What Prometheus' clients tell of every process. */
#ifndef GRADWIRE_TOOL_PROCESS_H
#define GRADWIRE_TOOL_PROCESS_H

#include <stdio.h>

/* Writes the metrics process_... of this process in Prometheus' text format. What the system does not tell is left out.
 */
void tool_status_process(FILE *out);

#endif
