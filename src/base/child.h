/* Processes that end with the one that started them. */
#ifndef GW_BASE_CHILD_H
#define GW_BASE_CHILD_H

#include <sys/types.h>

/* Called in the child, between fork and exec. The child gets the signal `number` when its parent ends, and is ended
 * now if the parent has ended already. parent: getpid() before the fork. The program that exec starts inherits this,
 * with the signal's default action. */
void gw_child_end_with(pid_t parent, int number);

#endif
