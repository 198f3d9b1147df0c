/* Threads, and codec threads: a pool that runs a function over chunk numbers. One pool belongs to one context. */
#ifndef GW_BASE_THREADS_H
#define GW_BASE_THREADS_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <pthread.h>

/* pthread_create for a thread that takes no signals of the program: their handlers run in the program's own threads.
 * oneDNN's kernels use memory as their stack for a while, so a handler in a thread that computes would write over it.
 * Faults and the signals of profilers come as ever. */
int gw_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Calls run(i, slot, user) for every i in [0, n), on the context's threads and the calling one, in any order, and
 * returns when all are done. `slot` < gw_thread_count() tells threads apart, so that each can have scratch memory of
 * its own. If the pool is busy with another caller, the calling thread does all of the work. */
void gw_parallel_for(gw_context *context, uint64_t n, void (*run)(uint64_t i, uint32_t slot, void *user), void *user);

/* The same for functions that may fail. It returns the status of the least i that failed, and sets its sentence in the
 * calling thread. Calls after a failure may be left out. */
gw_status gw_parallel_try(gw_context *context, uint64_t n, gw_status (*run)(uint64_t i, uint32_t slot, void *user),
                          void *user);

/* How many threads gw_parallel_for may use, the calling one included. */
uint32_t gw_thread_count(const gw_context *context);

#endif
