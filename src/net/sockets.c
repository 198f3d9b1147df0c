/* Keeps the numbers of this process's sockets, and closes them in a forked child. */
#include "net/sockets.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define N_WORDS 16384u /* numbers below 2^20. A child keeps a socket with a higher one */

/* A fork waits until no thread is between its close() and its note of that: the number may be another file's soon. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t owned[N_WORDS];
static unsigned n_used; /* words from here on are 0 */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (unsigned w = 0; w < n_used; w++)
        for (uint64_t word = owned[w]; word; word &= word - 1)
            close((int)(64 * w) + __builtin_ctzll(word));
    memset(owned, 0, n_used * sizeof *owned);
    pthread_mutex_unlock(&lock);
}

static void begin(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void gw_net_own(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned w = (unsigned)fd / 64;
    pthread_once(&once, begin);
    if (w >= N_WORDS)
        return;
    pthread_mutex_lock(&lock);
    owned[w] |= UINT64_C(1) << fd % 64;
    if (w >= n_used)
        n_used = w + 1;
    pthread_mutex_unlock(&lock);
}

void gw_net_drop(int fd)
{
    pthread_mutex_lock(&lock);
    if ((unsigned)fd / 64 < N_WORDS)
        owned[fd / 64] &= ~(UINT64_C(1) << fd % 64);
    close(fd);
    pthread_mutex_unlock(&lock);
}
