/* How a worker on another machine learns that its launcher is gone, or wants it to end. A remote shell
 * passes on no signals, and does not tell its own death. But it passes on standard input, and the end of that input. */
#ifndef GW_TOOL_LAUNCHER_H
#define GW_TOOL_LAUNCHER_H

/* launch sets this variable for a worker whose standard input it holds, and sends the byte first. */
#define GW_LAUNCHER_VARIABLE "GRADWIRE_STOP_AT_EOF"
#define GW_LAUNCHER_BYTE '\n'

/* If that variable is set, the end of standard input counts as SIGTERM from now on, and a minute later as SIGKILL:
 * nobody else is left to do it. If the byte never comes, no launcher holds this input, and nothing happens. */
void gw_exit_with_launcher(void);

#endif
