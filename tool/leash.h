/* How a worker on another machine learns that its launcher is gone, or wants it to end. A remote shell hands on neither
 * signals nor the news that it died itself; but it hands on standard input, and that input's end. */
#ifndef GW_TOOL_LEASH_H
#define GW_TOOL_LEASH_H

/* launch sets this variable for a worker whose standard input it holds, and sends the byte first. */
#define GW_LEASH_VARIABLE "GRADWIRE_STOP_AT_EOF"
#define GW_LEASH_BYTE '\n'

/* If that variable is set: from now on the end of standard input counts as SIGTERM. If the byte never comes, nobody
 * holds this input (it may be /dev/null), and nothing happens. A process that has not ended a minute later is killed:
 * nobody is left who could do it. */
void gw_leash_wear(void);

#endif
