/* What tests of forks share: a function that runs in a forked process. */
#ifndef GW_TESTS_FORKS_H
#define GW_TESTS_FORKS_H

#include <gradwire/status.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORK_SECONDS 60 /* if the process hangs, a signal ends it after this time */
/* ThreadSanitizer ends a forked process that starts a thread. AddressSanitizer's allocator (gcc 12) has locks that a
 * thread of the other process may have held at the fork: nobody unlocks them in the new one. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
#define FORK_STARTS_THREADS false
#else
#define FORK_STARTS_THREADS true
#endif

/* Fails the test unless run(argument) returns true in a forked process, and that process ends. */
static inline void expect_in_a_fork(bool (*run)(void *argument), void *argument)
{
    int status = 0;
    fflush(NULL);
    const pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        alarm(FORK_SECONDS);
        _exit(run(argument) ? 0 : 1);
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    if (status != 0)
        fail_msg("the forked process ended with %d of signal %d", WEXITSTATUS(status), WTERMSIG(status));
}

/* True if a call was refused because its object belongs to another process. */
static inline bool is_of_another_process(gw_status status, const char *object)
{
    const char *sentence = gw_last_error();
    if (status == GW_ERR_ORDER && strstr(sentence, object) && strstr(sentence, "process that forked this one"))
        return true;
    fprintf(stderr, "%s: %d: %s\n", object, status, sentence);
    return false;
}

#endif
