/* Ties a process to the one that started it. */
#include "base/child.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

void gw_child_end_with(pid_t parent, int number)
{
    sigset_t set;
    /* The child has the parent's handlers and mask until exec. They could swallow the signal. */
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, number);
    if (getppid() != parent) /* it ended before prctl, and then no signal comes */
        kill(getpid(), number);
}
