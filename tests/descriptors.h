/* Takes all descriptors of the process for a test, and gives them back a moment later on another thread. */
#ifndef GW_TESTS_DESCRIPTORS_H
#define GW_TESTS_DESCRIPTORS_H

#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS_LIMIT 64

struct descriptors {
    struct rlimit before;
    int taken[DESCRIPTORS_LIMIT], n;
    pthread_t giver;
};

/* From now on nothing can be opened. */
static inline void descriptors_take(struct descriptors *d)
{
    d->n = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &d->before), 0);
    const struct rlimit few = {.rlim_cur = DESCRIPTORS_LIMIT, .rlim_max = d->before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd; d->n < DESCRIPTORS_LIMIT && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
        d->taken[d->n++] = fd;
    CHECK(d->n > 0 && errno == EMFILE, "%d descriptors were taken, errno is %d", d->n, errno);
}

static inline void *descriptors_give(void *argument)
{
    struct descriptors *d = argument;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    while (d->n > 0)
        close(d->taken[--d->n]);
    return NULL;
}

static inline void descriptors_give_soon(struct descriptors *d)
{
    assert_int_equal(pthread_create(&d->giver, NULL, descriptors_give, d), 0);
}

/* Comes after descriptors_give_soon(). Then all is as it was before. */
static inline void descriptors_end(struct descriptors *d)
{
    pthread_join(d->giver, NULL);
    setrlimit(RLIMIT_NOFILE, &d->before);
}

#endif
