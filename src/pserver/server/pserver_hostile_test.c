/* Tests a running server against clients that do things that our client never does. After each of them a good client is
 * served at once. When all have gone, nothing of theirs is left. */
#define _GNU_SOURCE /* nftw */
#include "base/clock.h"
#include "folders.h"
#include "log_shape.h"
#include "pserver/protocol/message.h"
#include "pserver/server/state.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gradwire/pserver.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

enum { LONG_MS = 60000, MAX_KEY_BYTES = 1 << 16, MAX_BYTES = 1 << 20, MAX_CLIENTS = 40 };

/* ---- memory ------------------------------------------------------------------------------------------------ */

static atomic_long live, live_bytes, most_bytes;

static void *counted_alloc(size_t bytes, void *user)
{
    (void)user;
    size_t *memory = malloc(bytes + 16);
    assert_non_null(memory);
    *memory = bytes;
    live++;
    long now = atomic_fetch_add(&live_bytes, (long)bytes) + (long)bytes;
    if (now > most_bytes) /* the server's thread is nearly the only one here */
        most_bytes = now;
    return memory + 2;
}

static void counted_free(void *memory, void *user)
{
    (void)user;
    if (!memory)
        return;
    size_t *start = (size_t *)memory - 2;
    live--;
    live_bytes -= (long)*start;
    memset(memory, 0xDD, *start); /* so that code that reads it later fails */
    free(start);
}

/* ---- the server, and one good client ------------------------------------------------------------------------- */

struct scene {
    gw_context *context;
    gw_ps_server *server;
    pthread_t thread;
    void *zmq;
    atomic_uint n_lines, n_dropped;
};

static void log_line(const char *line, void *user)
{
    struct scene *scene = user;
    check_log_line(line);
    scene->n_lines++;
    scene->n_dropped += strstr(line, "it does not take its answers") != NULL;
    if (getenv("GW_TEST_LOG"))
        fprintf(stderr, "%s\n", line);
}

static void *run(void *server)
{
    return (void *)(intptr_t)gw_ps_server_run(server);
}

/* snapshot: a folder, or NULL. n_buckets: in how many lists the server keeps its clients, a power of two. */
static void begin_with(struct scene *scene, uint32_t n_workers, const char *snapshot, uint32_t n_buckets)
{
    const gw_allocator allocator = {counted_alloc, counted_free, NULL};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    memset(scene, 0, sizeof *scene);
    live = live_bytes = most_bytes = 0;
    assert_int_equal(gw_context_create(&options, &scene->context), GW_OK);
    const gw_ps_server_options o = {.struct_bytes = sizeof o,
                                    .listen = "127.0.0.1:0",
                                    .n_workers = n_workers,
                                    .max_keys = 50,
                                    .max_key_bytes = MAX_KEY_BYTES,
                                    .max_bytes = MAX_BYTES,
                                    .max_clients = MAX_CLIENTS,
                                    .timeout_ms = LONG_MS,
                                    .snapshot = snapshot,
                                    .log = log_line,
                                    .log_user = scene};
    assert_int_equal(gw_ps_server_create(scene->context, &o, &scene->server), GW_OK);
    assert_true(n_buckets <= scene->server->n_buckets);
    scene->server->n_buckets = n_buckets;
    assert_int_equal(pthread_create(&scene->thread, NULL, run, scene->server), 0);
    scene->zmq = zmq_ctx_new();
    zmq_ctx_set(scene->zmq, ZMQ_MAX_SOCKETS, 4000);
}

static void begin(struct scene *scene, uint32_t n_workers)
{
    begin_with(scene, n_workers, NULL, 1024);
}

static void end(struct scene *scene)
{
    void *status;
    zmq_ctx_term(scene->zmq);
    gw_ps_server_stop(scene->server);
    pthread_join(scene->thread, &status);
    assert_int_equal((intptr_t)status, GW_OK);
    gw_ps_server_destroy(scene->server);
    gw_context_destroy(scene->context);
    CHECK(live == 0 && live_bytes == 0, "%ld blocks of %ld bytes are lost", atomic_load(&live),
          atomic_load(&live_bytes));
}

/* Somebody decent comes, is served, and goes. */
static void serves(const struct scene *scene, const char *after)
{
    const gw_ps_client_options options = {.struct_bytes = sizeof options,
                                          .servers = gw_ps_server_address(scene->server),
                                          .rank = 0,
                                          .timeout_ms = LONG_MS};
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    gw_ps_client *client;
    gw_ps_value value;
    static float x;
    char key[32];
    snprintf(key, sizeof key, "good %g", (double)++x);
    CHECK(gw_ps_client_create(NULL, &options, &client) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(gw_ps_init_parameter(client, key, GW_PS_FLOAT32, &one) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(gw_ps_push_parameter(client, key, &x, sizeof x) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(gw_ps_pull_parameter(client, key, GW_PS_LATEST, NULL, &value) == GW_OK, "after %s: %s", after,
          gw_last_error());
    CHECK(*(const float *)value.bytes == x, "after %s", after);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(client);
}

/* ---- by hand ------------------------------------------------------------------------------------------------ */

static void *connect_slow(const struct scene *scene, const char *name, int most_unread)
{
    char endpoint[80];
    const int linger = 0, forever = LONG_MS, unlimited = 0;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", gw_ps_server_address(scene->server));
    void *socket = zmq_socket(scene->zmq, ZMQ_DEALER);
    assert_non_null(socket);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &forever, sizeof forever);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &most_unread, sizeof most_unread);
    if (name)
        assert_int_equal(zmq_setsockopt(socket, ZMQ_ROUTING_ID, name, strlen(name)), 0);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

static void *connect_raw(const struct scene *scene, const char *name)
{
    return connect_slow(scene, name, 0);
}

static void send_part(void *socket, const void *bytes, size_t n_bytes, bool more)
{
    assert_int_equal(zmq_send(socket, bytes, n_bytes, more ? ZMQ_SNDMORE : 0), n_bytes);
}

static void send_request(void *socket, const struct gw_ps_request *request, const void *value, size_t n_bytes)
{
    struct gw_ps_request whole = *request; /* of the one server that there is */
    whole.n_servers = whole.n_servers ? whole.n_servers : 1;
    whole.n_parts = whole.n_parts ? whole.n_parts : 1;
    uint8_t head[GW_PS_HEAD_BYTES];
    send_part(socket, head, gw_ps_request_write(head, &whole), value != NULL);
    if (value)
        send_part(socket, value, n_bytes, false);
}

/* The next answer; its value is dropped. */
static struct gw_ps_reply answer(void *socket)
{
    struct gw_ps_reply reply;
    uint8_t head[GW_PS_HEAD_BYTES];
    int n = zmq_recv(socket, head, sizeof head, 0), more;
    CHECK(n > 0 && n <= GW_PS_HEAD_BYTES, "no answer: %s", zmq_strerror(zmq_errno()));
    assert_int_equal(gw_ps_reply_read(head, (size_t)n, &reply), GW_OK);
    size_t size = sizeof more;
    while (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) == 0 && more)
        assert_true(zmq_recv(socket, head, sizeof head, 0) >= 0);
    return reply;
}

static void expect(void *socket, gw_status status, const char *words)
{
    struct gw_ps_reply reply = answer(socket);
    CHECK(reply.status == status && strstr(reply.sentence, words), "%d \"%s\" and not %d \"%s\"", reply.status,
          reply.sentence, status, words);
}

static void hello(void *socket, uint64_t rank)
{
    static uint64_t incarnation = 100;
    send_request(socket,
                 &(struct gw_ps_request){.operation = GW_PS_HELLO, .hello_rank = rank, .incarnation = ++incarnation},
                 NULL, 0);
}

/* Connects, and says HELLO until the server accepts it. The server may not have noticed yet that earlier clients have
 * closed their sockets. One of them may still have this rank, or they may be as many clients as the server takes. */
static void *joined(const struct scene *scene, uint64_t rank)
{
    void *socket = connect_raw(scene, NULL);
    struct gw_ps_reply reply;
    int tries = 0;
    do {
        if (tries)
            usleep(20000);
        hello(socket, rank);
        reply = answer(socket);
    } while ((reply.status == GW_ERR_PEER || reply.status == GW_ERR_CAPACITY) && ++tries < 500);
    CHECK(reply.operation == GW_PS_HELLO && reply.status == GW_OK, "%d: %s", reply.status, reply.sentence);
    return socket;
}

static void init_key(void *socket, const char *name, gw_ps_type type, uint64_t n)
{
    struct gw_ps_request init = {.operation = GW_PS_INIT, .type = (uint8_t)type, .shape = {.n_dims = 1, .dims = {n}}};
    snprintf(init.key, sizeof init.key, "%s", name);
    send_request(socket, &init, NULL, 0);
    expect(socket, GW_OK, "");
}

/* ---- nonsense ------------------------------------------------------------------------------------------------ */

static void garbage_is_answered_and_forgotten(void **state)
{
    (void)state;
    struct scene scene;
    uint8_t head[GW_PS_HEAD_BYTES], large[5000];
    struct numbers numbers = numbers_from(1);
    begin(&scene, 1);
    for (int known = 0; known < 2; known++) {
        void *socket = known ? joined(&scene, GW_PS_READER) : connect_raw(&scene, NULL);
        for (int i = 0; i < 3000; i++) {
            size_t n = numbers_below(&numbers, 200);
            for (size_t b = 0; b < n; b++)
                large[b] = (uint8_t)numbers_word(&numbers);
            if (i % 3 == 0 && n > 8)
                memcpy(large, "GWPQ\4", 5), large[5] = (uint8_t)(1 + i % GW_PS_OPERATIONS), large[7] = 0;
            send_part(socket, large, n, false);
            for (int a = 0; i % 300 == 299 && a < 300; a++) /* more at once ends the connection of a stranger */
                answer(socket);
        }
        send_part(socket, large, sizeof large, false);
        answer(socket);
        serves(&scene, "garbage");
        size_t n = gw_ps_request_write(head, &(struct gw_ps_request){.operation = GW_PS_BYE});
        head[4] = 99;
        send_part(socket, head, n, false);
        expect(socket, GW_ERR_FRAME_VERSION, "version 99");
        memcpy(head, "GWPA", 4);
        send_part(socket, head, n, false);
        expect(socket, GW_ERR_FRAME_MAGIC, "no message");
        /* Without a byte, and in many parts that are no pieces of a value. */
        send_part(socket, NULL, 0, false);
        expect(socket, GW_ERR_FRAME_CUT, "");
        for (int parts = 3; parts <= 1000; parts += 997)
            for (int p = 0; p < parts; p++)
                send_part(socket, head, n, p + 1 < parts);
        expect(socket, GW_ERR_FRAME_MAGIC, "no message");
        expect(socket, GW_ERR_FRAME_MAGIC, "no message");
        serves(&scene, "many parts");
        zmq_close(socket);
    }
    CHECK(scene.n_lines < 5000, "%u lines are in the log", atomic_load(&scene.n_lines));
    end(&scene);
}

static void say_verdict(void *socket, uint64_t number, uint64_t refusal, gw_status status, const char *words)
{
    send_request(
        socket,
        &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = number, .refusal = refusal, .timeout_ms = LONG_MS},
        NULL, 0);
    expect(socket, status, words);
}

/* Worker 1 of 2, alone. Verdicts before, twice, for other steps; pushes after; and one that waits behind its push. */
static void verdicts_over_the_wire(const struct scene *scene, void *socket)
{
    static const float values[] = {1, 2};
    const uint64_t counts = UINT64_MAX;
    struct gw_ps_request init = {.operation = GW_PS_INIT,
                                 .type = GW_PS_FLOAT32,
                                 .key = "exchange/a",
                                 .optimizer = "sgd:lr=1",
                                 .shape = {.n_dims = 1, .dims = {2}}},
                         push = {.operation = GW_PS_PUSH,
                                 .push_kind = GW_PS_PUSH_PENDING,
                                 .nth = 1,
                                 .key = "x",
                                 .timeout_ms = LONG_MS};
    say_verdict(socket, 1, counts, GW_ERR_ORDER, "no key with an optimizer");
    send_request(socket, &push, values, sizeof values);
    expect(socket, GW_ERR_ARGUMENT, "must begin with \"exchange/\"");
    send_request(socket, &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = 1}, values, sizeof values);
    expect(socket, GW_ERR_FRAME_FIELD, "with a value");
    send_request(socket, &init, NULL, 0);
    expect(socket, GW_OK, "");
    snprintf(init.key, sizeof init.key, "exchange/b");
    send_request(socket, &init, NULL, 0);
    expect(socket, GW_OK, "");
    say_verdict(socket, 1, counts, GW_ERR_ORDER, "its last one is number 0");
    say_verdict(socket, 0, counts, GW_ERR_ORDER, "its last one is number 0");
    say_verdict(socket, UINT64_MAX, 0, GW_ERR_ORDER, "its last one is number 0");

    /* Its push waits for parameters, and so it does. */
    snprintf(push.key, sizeof push.key, "exchange/a");
    send_request(socket, &push, values, sizeof values);
    snprintf(push.key, sizeof push.key, "exchange/b");
    send_request(socket, &push, values, sizeof values);
    send_request(
        socket, &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = 1, .refusal = counts, .timeout_ms = LONG_MS},
        NULL, 0);
    void *reader = connect_raw(scene, NULL);
    hello(reader, GW_PS_READER);
    expect(reader, GW_OK, "");
    for (const char *key = "exchange/b"; key; key = strcmp(key, "exchange/a") ? "exchange/a" : NULL) {
        struct gw_ps_request put = {.operation = GW_PS_BRING};
        snprintf(put.key, sizeof put.key, "%s", key);
        send_request(reader, &put, values, sizeof values);
        expect(reader, GW_OK, "");
    }
    for (int i = 0; i < 3; i++) {
        const struct gw_ps_reply reply = answer(socket);
        assert_true(reply.status == GW_OK && reply.number == 1);
        assert_int_equal(reply.operation, i < 2 ? GW_PS_PUSH : GW_PS_VERDICT);
    }
    say_verdict(reader, 1, counts, GW_ERR_ARGUMENT, "reader");
    zmq_close(reader);

    say_verdict(socket, 1, counts, GW_OK, "");
    say_verdict(socket, 1, 5, GW_OK, ""); /* the first one stands */
    say_verdict(socket, 2, counts, GW_ERR_ORDER, "its last one is number 1");
    send_request(socket, &push, values, sizeof values); /* again, after its verdict */
    expect(socket, GW_OK, "");
    push.number = 3;
    send_request(socket, &push, values, sizeof values);
    expect(socket, GW_ERR_ORDER, "comes after its number 1");
    push.number = 1, push.code = 77;
    send_request(socket, &push, values, sizeof values);
    expect(socket, GW_ERR_FRAME_FIELD, "one cannot be");
}

static void requests_out_of_place(void **state)
{
    (void)state;
    struct scene scene;
    static const uint8_t bytes[MAX_KEY_BYTES];
    begin(&scene, 2);
    void *socket = connect_raw(&scene, NULL);
    for (int operation = GW_PS_INIT; operation < GW_PS_OPERATIONS; operation++)
        if (operation != GW_PS_WHO && operation != GW_PS_ASK) { /* nobody has said HELLO */
            send_request(socket,
                         &(struct gw_ps_request){.operation = (enum gw_ps_operation)operation, .id = 7, .key = "x"},
                         bytes, 4);
            struct gw_ps_reply reply = answer(socket);
            assert_true(reply.operation == GW_PS_WHO && reply.id == 7);
        }
    hello(socket, 2);
    expect(socket, GW_ERR_ARGUMENT, "ranks 0 to 1");
    hello(socket, 1ull << 32);
    expect(socket, GW_ERR_ARGUMENT, "ranks 0 to 1");
    hello(socket, UINT64_MAX);
    expect(socket, GW_ERR_ARGUMENT, "ranks 0 to 1");
    hello(socket, 1);
    expect(socket, GW_OK, "");
    hello(socket, 1);
    expect(socket, GW_ERR_ORDER, "HELLO before");
    hello(socket, 0);
    expect(socket, GW_ERR_ORDER, "HELLO before");
    init_key(socket, "x", GW_PS_FLOAT32, 2);
    const struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .key = "x", .timeout_ms = LONG_MS},
                               pull = {.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x", .timeout_ms = LONG_MS};
    send_request(socket, &pull, NULL, 0);
    expect(socket, GW_ERR_ORDER, "before it has pushed");
    send_request(socket, &push, NULL, 0);
    expect(socket, GW_ERR_FRAME_CUT, "without a value");
    send_request(socket, &pull, bytes, 8);
    expect(socket, GW_ERR_FRAME_FIELD, "with a value");
    send_request(socket, &(struct gw_ps_request){.operation = GW_PS_PUSH, .push_kind = 1, .nth = 1, .key = "x"}, bytes,
                 8);
    expect(socket, GW_ERR_FRAME_FIELD, "with a value");
    for (size_t n = 0; n < 20; n++)
        if (n != 8) {
            send_request(socket, &push, bytes, n);
            expect(socket, GW_ERR_ARGUMENT, "takes 8");
        }
    send_request(socket, &push, bytes, sizeof bytes);
    expect(socket, GW_ERR_ARGUMENT, "takes 8");
    struct gw_ps_request other = push;
    other.number = 0;
    send_request(socket, &other, bytes, 8);
    expect(socket, GW_ERR_ORDER, "has not initialised");
    other.number = UINT64_MAX;
    send_request(socket, &other, bytes, 8);
    expect(socket, GW_ERR_ORDER, "comes after its number 0");
    for (uint32_t code = 0; code < 256; code += code < 9 ? 1 : 50) {
        struct gw_ps_request init = {.operation = GW_PS_INIT,
                                     .type = (uint8_t)code,
                                     .key = "claims",
                                     .shape = {.n_dims = 8}};
        for (int d = 0; d < 8; d++)
            init.shape.dims[d] = UINT64_MAX >> code % 8 * 7;
        send_request(socket, &init, NULL, 0);
        expect(socket, GW_ERR_ARGUMENT, "claims");
        struct gw_ps_request odd = pull;
        odd.code = (uint8_t)code;
        if (!gw_ps_method_name((gw_ps_method)code)) {
            send_request(socket, &odd, NULL, 0);
            expect(socket, GW_ERR_ARGUMENT, "a method of that number");
        }
    }
    serves(&scene, "requests out of place");
    verdicts_over_the_wire(&scene, socket);
    serves(&scene, "verdicts out of place");
    /* Longer than any value: that connection ends, no other. */
    static const uint8_t too_long[2 * MAX_KEY_BYTES];
    send_request(socket, &push, too_long, sizeof too_long);
    serves(&scene, "a message that is too long");
    zmq_close(socket);
    end(&scene);
}

/* ---- who does not belong -------------------------------------------------------------------------------------- */

/* Values in pieces that cannot be, and larger than any may be: refused, and the next request is understood. */
static void values_that_cannot_be(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, 1);
    void *socket = joined(&scene, GW_PS_READER);
    uint8_t *bytes = calloc(1, 2 * MAX_KEY_BYTES), head[GW_PS_HEAD_BYTES];
    struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .id = 5, .key = "no such key"};
    send_request(socket, &push, bytes, 2 * MAX_KEY_BYTES);
    expect(socket, GW_ERR_CAPACITY, "more than");
    for (int parts = 2; parts < 5; parts++) {
        send_part(socket, head, gw_ps_request_write(head, &push), true);
        for (int p = 0; p < parts; p++)
            send_part(socket, bytes, 10, p + 1 < parts);
        expect(socket, GW_ERR_CAPACITY, "pieces that cannot be");
    }
    send_request(socket, &push, bytes, 10);
    expect(socket, GW_ERR_ARGUMENT, "no key");
    serves(&scene, "pieces");
    free(bytes);
    zmq_close(socket);
    end(&scene);
}

static void names_of_their_own(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, 1);
    const char *names[] = {"a", "abcde", "12345678901234567890"};
    for (int i = 0; i < 3; i++) {
        void *socket = connect_raw(&scene, names[i]);
        hello(socket, 0);
        zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
        serves(&scene, "a client that names itself");
        assert_int_equal(zmq_poll(&item, 1, 0), 0);
        zmq_close(socket);
    }
    end(&scene);
}

/* ZMTP 3.1 without keys: the greeting and the handshake of a DEALER. */
static const uint8_t greeting[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L'};
static const char ready[] = "\4\51\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0";

static int raw_tcp(const struct scene *scene)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    address.sin_port = htons((uint16_t)atoi(strrchr(gw_ps_server_address(scene->server), ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void connections_that_are_no_clients(void **state)
{
    (void)state;
    struct scene scene;
    uint8_t noise[4096];
    int fds[64], n = 0;
    struct numbers numbers = numbers_from(2);
    begin(&scene, 1);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)numbers_word(&numbers);
    fds[n++] = raw_tcp(&scene); /* says nothing */
    for (size_t half = 1; half <= 64; half += 9) {
        fds[n] = raw_tcp(&scene);
        assert_int_equal(send(fds[n++], greeting, half, MSG_NOSIGNAL), half);
    }
    for (int i = 0; i < 20; i++) {
        fds[n] = raw_tcp(&scene);
        if (i % 2)
            send(fds[n], greeting, sizeof greeting, MSG_NOSIGNAL);
        send(fds[n++], noise + 100 * i, 1000, MSG_NOSIGNAL);
    }
    serves(&scene, "connections that are no clients");
    for (int i = 0; i < n; i++)
        close(fds[i]);
    serves(&scene, "connections that were no clients");
    end(&scene);
}

/* They say HELLO and are gone before it is read; none of them is kept for a client that is here. */
static void clients_that_do_not_wait(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, 2);
    void *busy = connect_raw(&scene, NULL); /* it keeps the server busy, so that the server looks at the others late */
    for (uint64_t i = 0; i < 300; i++) {
        for (int j = 0; j < 100; j++)
            send_part(busy, "nonsense", 8, false);
        uint8_t bytes[512];
        int fd = raw_tcp(&scene);
        assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
        assert_int_equal(send(fd, ready, sizeof ready, MSG_NOSIGNAL), sizeof ready);
        for (ssize_t there = 0, got; there < (ssize_t)(sizeof greeting + sizeof ready);
             there += got) { /* the server's of both are as long */
            got = recv(fd, bytes, sizeof bytes, 0);
            assert_true(got > 0);
        }
        bytes[0] = 0;
        bytes[1] =
            (uint8_t)gw_ps_request_write(bytes + 2, &(struct gw_ps_request){.operation = GW_PS_HELLO,
                                                                            .hello_rank = i % 3 ? GW_PS_READER : 1,
                                                                            .incarnation = 5000 + i});
        assert_int_equal(send(fd, bytes, 2u + bytes[1], MSG_NOSIGNAL), 2 + bytes[1]);
        close(fd);
    }
    zmq_close(busy);
    for (bool taken = true; taken; usleep(10000)) { /* the last of them may be known for a moment */
        void *socket = connect_raw(&scene, NULL);
        hello(socket, 1);
        taken = answer(socket).status < 0;
        zmq_close(socket);
    }
    serves(&scene, "clients that did not wait");
    end(&scene);
}

/* Some connections come and go without a word. Others say HELLO first. The server uses the descriptors of those that
 * have gone again, for those that come later. Rank 1 waits all the while. The server must not take it for one of them.
 */
static void a_storm_of_connections(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, 2);
    /* The server's descriptor for `gone` is free later. That for `early` is free now, so rank 1 can get it. */
    void *gone = joined(&scene, GW_PS_READER), *early = connect_raw(&scene, NULL);
    send_request(early, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
    assert_int_equal(answer(early).operation, GW_PS_WHO);
    zmq_close(early);
    void *waiting = joined(&scene, 1);
    init_key(waiting, "x", GW_PS_FLOAT32, 1);
    const float x = 3;
    send_request(waiting, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, &x, 4);
    expect(waiting, GW_OK, "");
    send_request(
        waiting,
        &(struct gw_ps_request){.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x", .timeout_ms = 10 * LONG_MS},
        NULL, 0);
    zmq_close(gone);
    for (int i = 0; i < 600; i++) {
        if (i % 3 == 0) {
            close(raw_tcp(&scene));
            continue;
        }
        void *socket = i % 3 == 1 ? joined(&scene, GW_PS_READER) : connect_raw(&scene, NULL);
        if (i % 3 == 2) { /* gone before it is known */
            hello(socket, i % 2 ? 0 : GW_PS_READER);
            if (i % 6 < 3)
                usleep(1000);
        }
        zmq_close(socket);
    }
    serves(&scene, "a storm of connections");
    void *other = joined(&scene, 0);
    send_request(other, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, &x, 4);
    expect(other, GW_OK, "");
    struct gw_ps_reply reply = answer(waiting);
    assert_true(reply.operation == GW_PS_PULL && reply.status == GW_OK && reply.n_pushes == 2);
    zmq_close(other);
    zmq_close(waiting);
    end(&scene);
}

static void one_client_too_many(void **state)
{
    (void)state;
    struct scene scene;
    void *sockets[MAX_CLIENTS];
    begin(&scene, 1);
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < MAX_CLIENTS; i++)
            sockets[i] = joined(&scene, GW_PS_READER);
        void *more = connect_raw(&scene, NULL);
        hello(more, 0);
        expect(more, GW_ERR_CAPACITY, "--max-clients");
        /* One leaves in good order, and there is room at once; the others just go. */
        send_request(sockets[0], &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
        assert_int_equal(answer(sockets[0]).operation, GW_PS_BYE);
        hello(more, 0);
        expect(more, GW_OK, "");
        zmq_close(more);
        for (int i = 0; i < MAX_CLIENTS; i++)
            zmq_close(sockets[i]);
        for (bool there = true; there;) { /* until the server knows that they are gone */
            void *probe = connect_raw(&scene, NULL);
            hello(probe, 0);
            there = answer(probe).status < 0;
            zmq_close(probe);
        }
        serves(&scene, "as many as there may be");
    }
    end(&scene);
}

/* ---- who asks for too much ------------------------------------------------------------------------------------ */

static void pushes_that_wait_are_counted(void **state)
{
    (void)state;
    struct scene scene;
    static const uint8_t bytes[MAX_KEY_BYTES];
    enum { PUSHES = 1100 };
    begin(&scene, 2);
    void *socket = joined(&scene, 1);
    init_key(socket, "x", GW_PS_UINT8, MAX_KEY_BYTES);
    int refused = 0;
    for (uint64_t nth = 1; nth <= 200; nth++) /* 200 times 64 KiB, of 1 MiB */
        send_request(
            socket,
            &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = nth, .key = "x", .timeout_ms = 10 * LONG_MS}, bytes,
            sizeof bytes);
    expect(socket, GW_OK, "");
    for (; refused < 180; refused++)
        expect(socket, GW_ERR_CAPACITY, "--max-bytes");
    zmq_close(socket);
    while (live_bytes > 100000) /* they go with their client */
        usleep(10000);
    /* Small ones: more than may wait. */
    socket = joined(&scene, 1);
    init_key(socket, "y", GW_PS_UINT8, 1);
    for (uint64_t nth = 1; nth <= PUSHES; nth++)
        send_request(
            socket,
            &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = nth, .key = "y", .timeout_ms = 10 * LONG_MS}, bytes,
            1);
    expect(socket, GW_OK, "");
    for (int i = 1 + 1024; i < PUSHES; i++)
        expect(socket, GW_ERR_CAPACITY, "1024 requests of this client wait");
    void *other = joined(&scene, 0);
    for (uint64_t nth = 1; nth <= 1025; nth++) {
        send_request(other,
                     &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = nth, .key = "y", .timeout_ms = LONG_MS},
                     bytes, 1);
        expect(other, GW_OK, "");
        if (nth < 1025)
            expect(socket, GW_OK, "");
    }
    zmq_close(other);
    zmq_close(socket);
    CHECK(most_bytes < 2 * MAX_BYTES + 1100 * 2048, "%ld bytes were taken", atomic_load(&most_bytes));
    end(&scene);
}

/* Results wait for a client that does not read them. The server must not wait for it, and must not take more memory
 * than it may. In the end it drops that client. */
static void answers_that_nobody_reads(void **state)
{
    (void)state;
    struct scene scene;
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    begin_with(&scene, 1, NULL, 1); /* nobody is forgotten in the first list */
    void *socket = connect_slow(&scene, NULL, 4), *reader = joined(&scene, GW_PS_READER);
    hello(socket, 0);
    assert_int_equal(answer(socket).status, GW_OK);
    init_key(socket, "x", GW_PS_UINT8, sizeof bytes);
    for (uint64_t nth = 1; nth <= 6000; nth++) {
        send_request(socket, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = nth, .key = "x"}, bytes,
                     sizeof bytes);
        send_request(socket, &(struct gw_ps_request){.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x"}, NULL,
                     0);
    }
    for (bool gone = false; !gone; usleep(20000)) { /* rank 0 is free again: the server has dropped it */
        void *probe = connect_raw(&scene, NULL);
        hello(probe, 0);
        gone = answer(probe).status == GW_OK;
        send_request(probe, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
        answer(probe);
        zmq_close(probe);
        send_request(reader, &(struct gw_ps_request){.operation = GW_PS_INIT, .id = 1}, NULL, 0);
        expect(reader, GW_ERR_ARGUMENT, "a key's name"); /* others are answered all the while */
    }
    CHECK(scene.n_dropped == 1, "%u were dropped", scene.n_dropped); /* and not only when its connection broke */
    zmq_close(socket);
    zmq_close(reader);
    while (live_bytes > MAX_BYTES / 2)
        usleep(10000);
    serves(&scene, "one that reads nothing");
    CHECK(most_bytes < 2 * MAX_BYTES, "%ld bytes were taken", atomic_load(&most_bytes));
    end(&scene);
}

/* A client sends JOIN after JOIN and reads no answer. At last the answer to a JOIN is one too many, so the server drops
 * the client. The rest of that JOIN must not use the client any more. */
static void joins_whose_answers_nobody_reads(void **state)
{
    (void)state;
    struct scene scene;
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    begin(&scene, 1);
    void *socket = connect_slow(&scene, NULL, 4);
    send_request(socket, &(struct gw_ps_request){.operation = GW_PS_HELLO, .hello_flags = 1, .incarnation = 99}, NULL,
                 0);
    assert_int_equal(answer(socket).status, GW_OK);
    init_key(socket, "x", GW_PS_UINT8, sizeof bytes);
    send_request(socket, &(struct gw_ps_request){.operation = GW_PS_JOIN, .id = 1, .round = 1, .timeout_ms = LONG_MS},
                 NULL, 0);
    assert_int_equal(answer(socket).status, GW_OK);
    send_request(socket, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, bytes, sizeof bytes);
    assert_int_equal(answer(socket).status, GW_OK);
    for (uint64_t id = 2; id <= 40000; id++) /* most answers are short, and some fill what lies between */
        send_request(
            socket,
            id % 16 ? &(struct gw_ps_request){.operation = GW_PS_JOIN, .id = id, .round = 1, .timeout_ms = LONG_MS}
                    : &(struct gw_ps_request){.operation = GW_PS_PULL, .method = GW_PS_LATEST, .id = id, .key = "x"},
            NULL, 0);
    for (bool gone = false; !gone; usleep(20000)) { /* rank 0 is free again: the server has dropped it */
        void *probe = connect_raw(&scene, NULL);
        hello(probe, 0);
        gone = answer(probe).status == GW_OK;
        send_request(probe, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
        answer(probe);
        zmq_close(probe);
    }
    zmq_close(socket);
    serves(&scene, "one that joins and reads nothing");
    end(&scene);
}

/* A client reads nothing, and many answers wait for it. Then it sends AGREE, JOIN or ADMIT. Each of these ends the run
 * before, and refuses the requests that wait for that run, this client's among them. So one answer is too many while
 * the server still handles the client's own request. */
static void too_many_answers_in_the_midst(void **state)
{
    (void)state;
    static const enum gw_ps_operation operations[] = {GW_PS_AGREE, GW_PS_JOIN, GW_PS_ADMIT};
    static const uint8_t bytes[MAX_KEY_BYTES];
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        struct scene scene;
        begin(&scene, 1);
        void *before = joined(&scene, 0);
        send_request(before, &(struct gw_ps_request){.operation = GW_PS_AGREE}, "a = 1\n", 6);
        assert_int_equal(answer(before).status, GW_OK);
        init_key(before, "exchange/x", GW_PS_FLOAT32, 1);
        init_key(before, "large", GW_PS_UINT8, sizeof bytes);
        send_request(before, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = 1, .key = "large"}, bytes,
                     sizeof bytes);
        assert_int_equal(answer(before).status, GW_OK);
        send_request(before, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
        assert_int_equal(answer(before).status, GW_OK);
        zmq_close(before);
        void *socket = connect_slow(&scene, NULL, 4);
        send_request(socket,
                     &(struct gw_ps_request){.operation = GW_PS_HELLO,
                                             .hello_flags = operations[i] != GW_PS_AGREE,
                                             .incarnation = 99},
                     NULL, 0);
        assert_int_equal(answer(socket).status, GW_OK);
        for (int k = 0; k < 1000; k++)
            send_request(socket,
                         &(struct gw_ps_request){
                             .operation = GW_PS_FETCH, .version = 1, .key = "exchange/x", .timeout_ms = 10 * LONG_MS},
                         NULL, 0);
        for (int k = 0; k < 3900; k++)
            send_request(socket,
                         &(struct gw_ps_request){.operation = GW_PS_PULL, .method = GW_PS_LATEST, .key = "large"}, NULL,
                         0);
        send_request(socket,
                     &(struct gw_ps_request){.operation = operations[i], .id = 7, .number = 1, .timeout_ms = LONG_MS},
                     operations[i] == GW_PS_AGREE ? "a = 2\n" : NULL, 6);
        for (bool gone = false; !gone; usleep(20000)) { /* rank 0 is free again: the server has dropped it */
            void *probe = connect_raw(&scene, NULL);
            hello(probe, 0);
            gone = answer(probe).status == GW_OK;
            send_request(probe, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
            answer(probe);
            zmq_close(probe);
        }
        zmq_close(socket);
        serves(&scene, "one that reads nothing and asks for much");
        end(&scene);
    }
}

/* A pull that waits for its scale key is answered over its own round, though the same client's next push came
 * meanwhile. */
static void a_pull_keeps_its_place(void **state)
{
    (void)state;
    struct scene scene;
    const uint8_t plus = 0x02, minus = 0x00;
    const float scale = 10;
    begin(&scene, 2);
    void *sockets[2] = {joined(&scene, 0), joined(&scene, 1)};
    init_key(sockets[0], "codes", GW_PS_UINT8, 1);
    init_key(sockets[0], "scale", GW_PS_FLOAT32, 1);
    struct gw_ps_request codes = {.operation = GW_PS_PUSH, .nth = 1, .key = "codes", .timeout_ms = LONG_MS},
                         scales = codes;
    snprintf(scales.key, sizeof scales.key, "scale");
    for (int r = 0; r < 2; r++) {
        send_request(sockets[r], &codes, &plus, 1);
        expect(sockets[r], GW_OK, "");
    }
    send_request(sockets[0], &scales, &scale, 4);
    expect(sockets[0], GW_OK, "");
    send_request(sockets[0],
                 &(struct gw_ps_request){.operation = GW_PS_PULL,
                                         .method = GW_PS_DECODE_SUM,
                                         .id = 5,
                                         .key = "codes",
                                         .scale_key = "scale",
                                         .timeout_ms = LONG_MS},
                 NULL, 0);
    codes.number = 2;
    codes.id = 6;
    send_request(sockets[0], &codes, &minus, 1);
    init_key(sockets[1], "codes", GW_PS_UINT8, 1); /* the server has taken in what came before, or soon will */
    send_request(sockets[1], &scales, &scale, 4);
    expect(sockets[1], GW_OK, "");
    struct gw_ps_reply reply = answer(sockets[0]);
    CHECK(reply.id == 5 && reply.status == GW_OK && reply.number == 1, "id %d, status %d, round %d: %s", (int)reply.id,
          reply.status, (int)reply.number, reply.sentence);
    reply = answer(sockets[0]);
    CHECK(reply.id == 6 && reply.status == GW_OK, "id %d, status %d: %s", (int)reply.id, reply.status, reply.sentence);
    for (int r = 0; r < 2; r++)
        zmq_close(sockets[r]);
    end(&scene);
}

/* ---- a server whose files cannot grow ------------------------------------------------------------------------ */

static void most_file_bytes(rlim_t n)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Pushes the next value, and tells whether it is kept. */
static bool push_is_kept(void *socket, uint64_t *nth)
{
    static const char value[1000];
    send_request(socket,
                 &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = ++*nth, .key = "x", .timeout_ms = LONG_MS},
                 value, sizeof value);
    struct gw_ps_reply reply = answer(socket);
    CHECK(reply.status == GW_OK && (reply.flags == 0 || reply.flags == GW_PS_IN_MEMORY), "%d, flags %u: %s",
          reply.status, reply.flags, reply.sentence);
    return reply.flags == 0;
}

/* If a push is only in memory, its client is told; once files can grow it is kept, and a server after this one has it.
 */
static void answers_say_what_is_not_kept(void **state)
{
    struct scene scene;
    char folder[] = "/tmp/gradwire-hostile-XXXXXX";
    uint64_t nth = 0;
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(folder));
    begin_with(&scene, 1, folder, 1024);
    void *socket = joined(&scene, 0);
    init_key(socket, "x", GW_PS_UINT8, 1000);
    assert_true(push_is_kept(socket, &nth));
    most_file_bytes(3000);
    for (int i = 0; push_is_kept(socket, &nth); i++)
        CHECK(i < 10, "more than fits is kept");
    assert_false(push_is_kept(socket, &nth));
    most_file_bytes(RLIM_INFINITY);
    for (int i = 0; !push_is_kept(socket, &nth); i++) {
        CHECK(i < 6000, "never kept again");
        usleep(10000);
    }
    zmq_close(socket);
    end(&scene);
    begin_with(&scene, 1, folder, 1024);
    socket = joined(&scene, 0);
    send_request(socket,
                 &(struct gw_ps_request){
                     .operation = GW_PS_INIT, .type = GW_PS_UINT8, .key = "x", .shape = {.n_dims = 1, .dims = {1000}}},
                 NULL, 0);
    struct gw_ps_reply reply = answer(socket);
    CHECK(reply.status == GW_OK && reply.number == nth && reply.flags == 0, "%d pushes of %d", (int)reply.number,
          (int)nth);
    zmq_close(socket);
    end(&scene);
    remove_folder(folder);
}

/* ---- a folder that no server has written ---------------------------------------------------------------------- */

/* A journal has the lines on which workers agreed. First they are as long as a server takes. Then they are a byte
 * longer: when the server writes them again, there is no room for them. So it must refuse that journal. */
static void an_agreement_too_long(void **state)
{
    static const char about[] = "workers=1 mode=sync min_workers=0 backup=0";
    static uint8_t run_head[13 + GW_PS_MOST_AGREED + 1];
    char folder[] = "/tmp/gradwire-hostile-XXXXXX", path[64];
    struct gw_ps_records records;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/journal-00000000.gwj", folder);
    run_head[12] = 1; /* something is agreed on */
    memset(run_head + 13, 'x', sizeof run_head - 13);
    for (size_t more = 0; more < 2; more++) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(gw_ps_records_begin(&records, fd, GW_PS_JOURNAL, 0, 0), GW_OK);
        assert_int_equal(gw_ps_records_append(&records, 64, about, sizeof about - 1, NULL, 0), GW_OK);
        assert_int_equal(gw_ps_records_append(&records, GW_PS_KEEP_OWN, run_head, sizeof run_head - 1 + more, NULL, 0),
                         GW_OK);
        close(fd);
        const gw_ps_server_options options = {.struct_bytes = sizeof options,
                                              .listen = "127.0.0.1:0",
                                              .n_workers = 1,
                                              .snapshot = folder};
        gw_ps_server *server = NULL;
        gw_status status = gw_ps_server_create(NULL, &options, &server);
        CHECK(more ? status == GW_ERR_FRAME_FIELD : status == GW_OK, "%zu more: %d %s", more, status, gw_last_error());
        gw_ps_server_destroy(server);
    }
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_answered_and_forgotten),
        cmocka_unit_test(requests_out_of_place),
        cmocka_unit_test(values_that_cannot_be),
        cmocka_unit_test(names_of_their_own),
        cmocka_unit_test(connections_that_are_no_clients),
        cmocka_unit_test(a_storm_of_connections),
        cmocka_unit_test(one_client_too_many),
        cmocka_unit_test(pushes_that_wait_are_counted),
        cmocka_unit_test(answers_that_nobody_reads),
        cmocka_unit_test(joins_whose_answers_nobody_reads),
        cmocka_unit_test(too_many_answers_in_the_midst),
        cmocka_unit_test(a_pull_keeps_its_place),
        cmocka_unit_test(answers_say_what_is_not_kept),
        cmocka_unit_test(clients_that_do_not_wait),
        cmocka_unit_test(an_agreement_too_long),
    };
    return cmocka_run_group_tests_name("pserver_hostile", tests, NULL, NULL);
}
