/* Tells whether an object belongs to this process. A fork copies an object's memory. It copies no threads, and a lock
 * may be taken for ever in the copy. Connections and descriptors are then shared by two processes. So an object that
 * has any of these works only in the process that made it. In another one its calls fail, and its end does nothing. */
#ifndef GW_BASE_PROCESS_H
#define GW_BASE_PROCESS_H

#include <gradwire/status.h>

#include <stdbool.h>

/* A process, among those that come from one another by fork. No process has the number 0. */
typedef unsigned gw_process;

/* The process that calls. */
gw_process gw_process_now(void);

/* True if the object was made in this process. Any thread, and signal handlers. */
bool gw_process_is(gw_process made_in);

/* GW_OK, or GW_ERR_ORDER with a sentence if the object was made in another process. what: "the exchange". */
gw_status gw_process_check(gw_process made_in, const char *what);

#endif
