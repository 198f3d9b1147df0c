/* Tests that the watch closes a stranger that sends too much, even if the watch slept while the application read the
 * event of its coming. */
#include "checks.h"
#include "flood.h"
#include "zmq/net.h"

#include <stdatomic.h>

static atomic_bool is_inside, may_leave;

/* Runs in the watch's thread and keeps it there until it may leave. Then the socket has no events. */
static bool hold(void *socket)
{
    int events;
    size_t n_bytes = sizeof events;
    atomic_store(&is_inside, true);
    while (!atomic_load(&may_leave))
        usleep(1000);
    zmq_getsockopt(socket, ZMQ_EVENTS, &events, &n_bytes);
    return false;
}

static void *open_door(struct gw_zmq_net *net, const char *name, struct gw_zmq_door **door, char endpoint[80])
{
    const struct gw_zmq_limits limits = {.most_strangers = 8, .silent_s = 600, .stranger_bytes = 4096};
    size_t n_bytes = 80;
    void *socket = zmq_socket(net->zmq, ZMQ_ROUTER);
    assert_non_null(socket);
    assert_int_equal(gw_zmq_net_door(net, socket, name, 0, &limits, door), GW_OK);
    assert_int_equal(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &n_bytes), 0);
    return socket;
}

static void the_application_reads_first(void **state)
{
    (void)state;
    struct gw_zmq_net net = {.timeout_ms = 60000};
    struct gw_zmq_door *other, *door;
    struct gw_zmq_event event;
    char endpoint[80];
    assert_int_equal(gw_zmq_net_open(&net), GW_OK);
    /* The watch looks at the door that was opened last before it serves the other. */
    void *served = open_door(&net, "served", &other, endpoint), *socket = open_door(&net, "door", &door, endpoint);
    usleep(50000);
    gw_zmq_door_serve(other, hold, served);
    while (!atomic_load(&is_inside))
        usleep(1000);
    void *stranger = flood_socket(net.zmq, endpoint, NULL, NULL, NULL);
    do {
        while (!gw_zmq_door_event(door, &event))
            usleep(1000);
    } while (event.what != ZMQ_EVENT_ACCEPTED);
    for (int i = 0; i < 50; i++) { /* until ZeroMQ's descriptor is no longer readable */
        while (gw_zmq_door_event(door, &event))
            ;
        usleep(1000);
    }
    atomic_store(&may_leave, true);
    usleep(50000);
    CHECK(flood_parts(net.zmq, stranger, 1024, 256), "the watch slept on while a stranger sent 256 KiB");
    zmq_close(stranger);
    gw_zmq_door_close(&socket, &door);
    gw_zmq_door_close(&served, &other);
    gw_zmq_net_close(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_application_reads_first)};
    return cmocka_run_group_tests_name("zmq watch", tests, NULL, NULL);
}
