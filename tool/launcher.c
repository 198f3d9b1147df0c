/* A thread of a worker waits for the end of standard input, which its launcher holds open. */
#include "launcher.h"
#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAST_SECONDS = 60 }; /* more than `launch` itself waits */

static bool read_byte(char *byte)
{
    ssize_t n;
    do
        n = read(STDIN_FILENO, byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

static void *wait_for_end(void *unused)
{
    (void)unused;
    char byte;
    if (!read_byte(&byte) || byte != GW_LAUNCHER_BYTE)
        return NULL;
    while (read_byte(&byte))
        ;
    kill(getpid(), SIGTERM);
    sleep(LAST_SECONDS);
    kill(getpid(), SIGKILL);
    return NULL;
}

void gw_exit_with_launcher(void)
{
    pthread_t thread;
    if (!getenv(GW_LAUNCHER_VARIABLE))
        return;
    unsetenv(GW_LAUNCHER_VARIABLE);
    if (gw_thread_start(&thread, wait_for_end, NULL) == 0)
        pthread_detach(thread);
}
