/* Tests what is remembered of connections: from where the last ones came, and which have ended. And the lines about
 * strangers, which are not told for ever. */
#include "zmq/events.h"
#include "net/log.h"

#include "checks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define MOST 40 /* connections: more than the ring has places */
_Static_assert(MOST > GW_ZMQ_CALLERS, "the ring goes round");

/* A connection from 127.0.0.(nth + 1); the listener's end is returned. */
static int connection_from(int listener, int nth, int *other_end)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)nth)}, to;
    socklen_t n_bytes = sizeof to;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &n_bytes), 0);
    *other_end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*other_end >= 0 && bind(*other_end, (struct sockaddr *)&from, sizeof from) == 0);
    assert_int_equal(connect(*other_end, (struct sockaddr *)&to, sizeof to), 0);
    const int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    return fd;
}

static void check_caller(const struct gw_zmq_callers *callers, int fd, int nth)
{
    char want[32] = "";
    if (nth >= 0)
        snprintf(want, sizeof want, "127.0.0.%d", nth + 1);
    CHECK(strcmp(gw_zmq_caller(callers, fd), want) == 0, "connection %d is told of as \"%s\"", nth,
          gw_zmq_caller(callers, fd));
}

/* As many as the ring has places are all known. One more takes the place of the first. */
static void the_last_callers_are_known(void **state)
{
    (void)state;
    static struct gw_zmq_callers callers;
    int fds[MOST], others[MOST];
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && bind(listener, (const struct sockaddr *)&any, sizeof any) == 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_string_equal(gw_zmq_caller(&callers, 0), ""); /* nobody has come */
    for (int n = 0; n < MOST; n++) {
        fds[n] = connection_from(listener, n, &others[n]);
        check_caller(&callers, fds[n], -1);
        gw_zmq_caller_note(&callers, fds[n]);
        for (int i = 0; i <= n; i++)
            check_caller(&callers, fds[i], i > n - GW_ZMQ_CALLERS ? i : -1);
    }
    /* The last one with a number is meant. */
    close(fds[MOST - 1]);
    close(others[MOST - 1]);
    const int again = connection_from(listener, 100, &others[MOST - 1]);
    assert_int_equal(again, fds[MOST - 1]);
    gw_zmq_caller_note(&callers, again);
    check_caller(&callers, again, 100);
    /* One that went before it could be asked for. */
    close(again);
    gw_zmq_caller_note(&callers, again);
    check_caller(&callers, again, -1);
    check_caller(&callers, fds[MOST - 2], MOST - 2);
    for (int n = 0; n < MOST; n++) {
        if (n < MOST - 1)
            close(fds[n]);
        close(others[n]);
    }
    close(listener);
}

static void note(struct gw_zmq_ended *ended, uint16_t what, uint32_t fd)
{
    gw_zmq_ended_note(ended, NULL, &(struct gw_zmq_event){.what = what, .value = fd});
}

/* Numbers below and above the room there is, noted while there is more or less of it: none is forgotten. */
static void ends_are_known(void **state)
{
    (void)state;
    struct gw_zmq_ended ended = {.of = NULL};
    static const int fds[] = {7, 64, 77, 78, 0, 300, 1000, 5, 999};
    enum { N = sizeof fds / sizeof *fds };
    assert_false(gw_zmq_has_ended(&ended, 7));
    note(&ended, ZMQ_EVENT_ACCEPTED, 7);
    for (int n = 0; n < N; n++) {
        assert_false(gw_zmq_has_ended(&ended, fds[n]));
        note(&ended, ZMQ_EVENT_DISCONNECTED, (uint32_t)fds[n]);
        for (int i = 0; i < N; i++)
            CHECK(gw_zmq_has_ended(&ended, fds[i]) == (i <= n), "%d, after %d", fds[i], fds[n]);
    }
    assert_false(gw_zmq_has_ended(&ended, -1));
    assert_false(gw_zmq_has_ended(&ended, (int)ended.n));
    note(&ended, ZMQ_EVENT_ACCEPTED, 77); /* another has the number now */
    note(&ended, ZMQ_EVENT_ACCEPTED, 0);
    note(&ended, ZMQ_EVENT_LISTENING, 78);
    assert_false(gw_zmq_has_ended(&ended, 77) || gw_zmq_has_ended(&ended, 0));
    assert_true(gw_zmq_has_ended(&ended, 78) && gw_zmq_has_ended(&ended, 300));
    const size_t n = ended.n;
    note(&ended, ZMQ_EVENT_DISCONNECTED, UINT32_MAX); /* no descriptor, and no memory is taken for it */
    assert_int_equal(ended.n, n);
    gw_zmq_ended_free(&ended, NULL);
    assert_false(gw_zmq_has_ended(&ended, 300));
}

struct told {
    int n;
    char last[600];
};

static void count_line(const char *line, void *user)
{
    struct told *told = user;
    told->n++;
    snprintf(told->last, sizeof told->last, "%s", line);
}

/* 199 lines, and one that says that there will be no more. */
static void lines_come_to_an_end(void **state)
{
    (void)state;
    struct told told = {0};
    struct gw_net_log log = {count_line, &told, 0}, nobody = {.line = NULL};
    char text[16];
    for (int i = 1; i <= 199; i++) {
        gw_net_log(&log, "line %d", i);
        snprintf(text, sizeof text, "line %d", i);
        assert_int_equal(told.n, i);
        assert_string_equal(told.last, text);
    }
    for (int i = 0; i < 50; i++) {
        gw_net_log(&log, "one more");
        assert_int_equal(told.n, 200);
        assert_non_null(strstr(told.last, "nothing of the kind is told"));
    }
    gw_net_log(&nobody, "heard by %s", "nobody");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_callers_are_known),
        cmocka_unit_test(ends_are_known),
        cmocka_unit_test(lines_come_to_an_end),
    };
    return cmocka_run_group_tests_name("zmq events", tests, NULL, NULL);
}
