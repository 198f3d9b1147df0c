/* Counts forks. The number is cheaper to compare than the system's number of a process, which is a system call. And it
 * stays right if the system uses the number of a process again, or if a fork begins a new space of numbers. */
#include "base/process.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint now = 1;

static void forked(void)
{
    atomic_fetch_add_explicit(&now, 1, memory_order_relaxed);
}

static void begin_to_count(void)
{
    pthread_atfork(NULL, NULL, forked);
}

gw_process gw_process_now(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_to_count);
    return atomic_load_explicit(&now, memory_order_relaxed);
}

bool gw_process_is(gw_process made_in)
{
    return made_in == atomic_load_explicit(&now, memory_order_relaxed);
}

gw_status gw_process_check(gw_process made_in, const char *what)
{
    if (gw_process_is(made_in))
        return GW_OK;
    return gw_fail(GW_ERR_ORDER,
                   "%s belongs to the process that forked this one, and works only there; make another here", what);
}
