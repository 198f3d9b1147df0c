/* Catches or blocks the signals that ask a command to stop. */
#include "tool.h"

#include <signal.h>

const int tool_stops[TOOL_N_STOPS] = {SIGINT, SIGTERM, SIGHUP};

void tool_block_stops(sigset_t *before)
{
    sigset_t stops;
    sigemptyset(&stops);
    for (int i = 0; i < TOOL_N_STOPS; i++)
        sigaddset(&stops, tool_stops[i]);
    pthread_sigmask(SIG_BLOCK, &stops, before);
}

void tool_catch_stops(void (*handler)(int signal_number), int flags)
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    struct sigaction before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}
