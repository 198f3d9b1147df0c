/* Runs a function over chunk numbers on the threads of a context. Each thread takes the next free chunk. If chunks
 * fail, the one with the lowest number gives the error of the whole. */
#include "base/threads.h"
#include "base/context.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gw_pool {
    pthread_mutex_t busy; /* held by the caller whose loop the pool runs */
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work, done;
    uint64_t round;   /* counts loops; a thread joins each loop once */
    uint32_t running; /* how many pool threads are still in this round */
    bool stop;
    void (*run)(uint64_t, uint32_t, void *);
    void *user;
    uint64_t n;
    atomic_uint_fast64_t next;
    uint32_t n_threads; /* with the calling thread */
    struct member {
        struct gw_pool *pool;
        uint32_t slot;
        pthread_t thread;
    } members[];
};

static void take_chunks(struct gw_pool *pool, uint32_t slot)
{
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->n)
            return;
        pool->run(i, slot, pool->user);
    }
}

static void *member_main(void *arg)
{
    struct member *self = arg;
    struct gw_pool *pool = self->pool;
    uint64_t seen = 0;
    gw_float_enter(); /* a new thread has the modes of the thread that started it, which is the host's */
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->round == seen && !pool->stop)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->round;
        pthread_mutex_unlock(&pool->lock);
        take_chunks(pool, self->slot);
        pthread_mutex_lock(&pool->lock);
        if (--pool->running == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int gw_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    static const int comes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof comes / sizeof comes[0]; i++)
        sigdelset(&blocked, comes[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

gw_status gw_pool_create(gw_context *context, uint32_t n_threads, struct gw_pool **out)
{
    struct gw_pool *pool = gw_calloc(context, 1, sizeof *pool + n_threads * sizeof pool->members[0]);
    if (!pool)
        return GW_ERR_MEMORY;
    pthread_mutex_init(&pool->busy, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (pool->n_threads = 1; pool->n_threads < n_threads; pool->n_threads++) {
        const uint32_t slot = pool->n_threads;
        struct member *member = &pool->members[slot];
        member->pool = pool;
        member->slot = slot;
        int error = gw_thread_start(&member->thread, member_main, member);
        if (error) {
            gw_pool_destroy(context, pool);
            return gw_fail(GW_ERR_SYSTEM, "codec thread %u of %u could not be started (error %d)", slot, n_threads,
                           error);
        }
    }
    *out = pool;
    return GW_OK;
}

void gw_pool_destroy(gw_context *context, struct gw_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t slot = 1; slot < pool->n_threads; slot++)
        pthread_join(pool->members[slot].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->busy);
    gw_free(context, pool);
}

uint32_t gw_thread_count(const gw_context *context)
{
    return context && context->pool ? context->pool->n_threads : 1;
}

void gw_parallel_for(gw_context *context, uint64_t n, void (*run)(uint64_t i, uint32_t slot, void *user), void *user)
{
    struct gw_pool *pool = context ? context->pool : NULL;
    if (!pool || n < 2 || !gw_process_is(context->made_in) || pthread_mutex_trylock(&pool->busy) != 0) {
        for (uint64_t i = 0; i < n; i++)
            run(i, 0, user);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->run = run;
    pool->user = user;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->running = pool->n_threads - 1;
    pool->round++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    take_chunks(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->running)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->busy);
}

struct attempt {
    gw_status (*run)(uint64_t, uint32_t, void *);
    void *user;
    atomic_uint_fast64_t failed; /* the least i that failed so far; UINT64_MAX: none */
    pthread_mutex_t lock;        /* guards the rest */
    gw_status status;
    struct gw_kept_error error;
};

static void attempt_one(uint64_t i, uint32_t slot, void *user)
{
    struct attempt *attempt = user;
    if (i > atomic_load_explicit(&attempt->failed, memory_order_relaxed))
        return;
    gw_status status = attempt->run(i, slot, attempt->user);
    if (status >= 0)
        return;
    pthread_mutex_lock(&attempt->lock);
    if (i < atomic_load_explicit(&attempt->failed, memory_order_relaxed)) {
        atomic_store_explicit(&attempt->failed, i, memory_order_relaxed);
        attempt->status = status;
        attempt->error = gw_error_keep();
    }
    pthread_mutex_unlock(&attempt->lock);
}

gw_status gw_parallel_try(gw_context *context, uint64_t n, gw_status (*run)(uint64_t i, uint32_t slot, void *user),
                          void *user)
{
    struct attempt attempt = {.run = run, .user = user, .failed = UINT64_MAX, .lock = PTHREAD_MUTEX_INITIALIZER};
    gw_parallel_for(context, n, attempt_one, &attempt);
    pthread_mutex_destroy(&attempt.lock);
    return attempt.status < 0 ? gw_fail(attempt.status, "%s", attempt.error.sentence) : GW_OK;
}
