/* Keeps the numbers of this process's own descriptors, and closes them in a forked child. */
#define _GNU_SOURCE /* accept4 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define N_WORDS 16384u /* numbers below 2^20. A child keeps a descriptor with a higher one */

/* A fork waits until no thread is between a call that makes or closes a descriptor and its note of that. Else the child
 * would keep the one, and close what file has the other's number soon. */
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

static void take_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
}

/* Notes a descriptor that was made since take_lock, and gives the lock back. */
static int note(int fd)
{
    const unsigned w = (unsigned)fd / 64;
    if (fd >= 0 && w < N_WORDS) {
        owned[w] |= UINT64_C(1) << fd % 64;
        n_used = w < n_used ? n_used : w + 1;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static void drop(int fd)
{
    const int error = errno;
    if ((unsigned)fd / 64 < N_WORDS)
        owned[fd / 64] &= ~(UINT64_C(1) << fd % 64);
    close(fd);
    errno = error;
}

int gw_fd_socket(int family)
{
    take_lock();
    return note(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int gw_fd_accept(int listening, struct sockaddr *from, socklen_t from_bytes)
{
    take_lock();
    return note(accept4(listening, from, &from_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int gw_fd_move(int fd)
{
    take_lock();
    const int lower = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    drop(fd);
    return note(lower);
}

void gw_fd_own(int fd)
{
    take_lock();
    note(fd);
}

void gw_fd_drop(int fd)
{
    take_lock();
    drop(fd);
    pthread_mutex_unlock(&lock);
}
