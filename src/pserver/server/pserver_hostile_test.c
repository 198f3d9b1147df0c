/* Tests a running server against clients that do things that our client never does. After each of them a good client is
 * served at once. When all have gone, nothing of theirs is left. */
#define _GNU_SOURCE /* nftw */
#include "folders.h"
#include "log_shape.h"
#include "pserver/client/test_begin.h"
#include "pserver/protocol/test_talk.h"
#include "pserver/server/state.h"

#include <fcntl.h>
#include <gradwire/pserver.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>

enum { LONG_MS = 60000, MAX_KEY_BYTES = 1 << 16, MAX_BYTES = 1 << 20, MAX_CLIENTS = 40 };
enum { MOST_UNREAD = 4096 + 100 }; /* answers that may wait for a client, and those that may come at once */

/* ---- memory ------------------------------------------------------------------------------------------------ */

static atomic_long live, live_bytes, most_bytes, live_values;

static void *counted_alloc(size_t bytes, void *user)
{
    (void)user;
    size_t *memory = malloc(bytes + 16);
    assert_non_null(memory);
    *memory = bytes;
    live++;
    live_values += bytes >= MAX_KEY_BYTES;
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
    live_values -= *start >= MAX_KEY_BYTES;
    live_bytes -= (long)*start;
    memset(memory, 0xDD, *start); /* so that code that reads it later fails */
    free(start);
}

/* ---- the server, and one good client ------------------------------------------------------------------------- */

struct scene {
    gw_context *context;
    gw_ps_server *server;
    pthread_t thread;
    long values_before; /* blocks as large as the longest value, which the server itself has */
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

/* snapshot: a folder, or NULL. */
static void begin_with(struct scene *scene, uint32_t n_workers, const char *snapshot)
{
    const gw_allocator allocator = {counted_alloc, counted_free, NULL};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    memset(scene, 0, sizeof *scene);
    live = live_bytes = most_bytes = live_values = 0;
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
    scene->values_before = live_values;
    assert_int_equal(pthread_create(&scene->thread, NULL, run, scene->server), 0);
}

static void begin(struct scene *scene, uint32_t n_workers)
{
    begin_with(scene, n_workers, NULL);
}

static void end(struct scene *scene)
{
    void *status;
    gw_ps_server_stop(scene->server);
    pthread_join(scene->thread, &status);
    assert_int_equal((intptr_t)status, GW_OK);
    gw_ps_server_destroy(scene->server);
    gw_context_destroy(scene->context);
    CHECK(live == 0 && live_bytes == 0, "%ld blocks of %ld bytes are lost", atomic_load(&live),
          atomic_load(&live_bytes));
}

static int set_up(void **n_workers)
{
    struct scene *scene = malloc(sizeof *scene);
    begin(scene, (uint32_t)(uintptr_t)*n_workers);
    *n_workers = scene;
    return 0;
}

static int tear_down(void **state)
{
    end(*state);
    free(*state);
    return 0;
}

/* A test whose state is a server for one worker, or for two. */
#define FOR_ONE(test) cmocka_unit_test_prestate_setup_teardown(test, set_up, tear_down, (void *)1)
#define FOR_TWO(test) cmocka_unit_test_prestate_setup_teardown(test, set_up, tear_down, (void *)2)

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
    CHECK(test_init(client, key, GW_PS_FLOAT32, &one, NULL, NULL) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(gw_ps_push(client, key, &x, sizeof x) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(gw_ps_pull(client, key, GW_PS_LATEST, NULL, &value) == GW_OK, "after %s: %s", after, gw_last_error());
    CHECK(*(const float *)value.bytes == x, "after %s", after);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(client);
}

/* Waits until the server has memory for so many values of full length. */
static void wait_for_values(const struct scene *scene, long n)
{
    for (int i = 0; live_values - scene->values_before != n; i++) {
        CHECK(i < 6000, "there are %ld values, and not %ld", live_values - scene->values_before, n);
        usleep(10000);
    }
}

/* ---- by hand ------------------------------------------------------------------------------------------------ */

static int come(const struct scene *scene)
{
    return peer_connect(gw_ps_server_address(scene->server));
}

static void send_request(int fd, const struct gw_ps_request *request, const void *value, size_t n_bytes)
{
    assert_true(talk_send(fd, request, value, n_bytes));
}

static struct gw_ps_answer hear(int fd)
{
    struct gw_ps_answer answer;
    assert_true(talk_hear(fd, &answer));
    return answer;
}

#define PUSH(number, name)                                                                                             \
    &(struct gw_ps_request)                                                                                            \
    {                                                                                                                  \
        .operation = GW_PS_PUSH, .nth = number, .key = name, .timeout_ms = 10 * LONG_MS                                \
    }
#define PULL(how, name)                                                                                                \
    &(struct gw_ps_request)                                                                                            \
    {                                                                                                                  \
        .operation = GW_PS_PULL, .method = how, .key = name, .timeout_ms = 10 * LONG_MS                                \
    }

static void expect(int fd, gw_status status, const char *words)
{
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == status && strstr(answer.sentence, words), "%d \"%s\" and not %d \"%s\"", answer.status,
          answer.sentence, status, words);
}

static void ask(int fd, const struct gw_ps_request *request, const void *value, size_t n_bytes, gw_status status,
                const char *words)
{
    send_request(fd, request, value, n_bytes);
    expect(fd, status, words);
}

/* The server ends the connection, and says no more. */
static void expect_end(int fd)
{
    struct gw_ps_answer answer;
    CHECK(!talk_hear(fd, &answer), "the connection goes on: %d \"%s\"", answer.status, answer.sentence);
    close(fd);
}

static bool hello_as(int fd, uint64_t rank, uint64_t incarnation)
{
    return talk_send(fd,
                     &(struct gw_ps_request){.operation = GW_PS_HELLO, .hello_rank = rank, .incarnation = incarnation},
                     NULL, 0);
}

static bool hello(int fd, uint64_t rank)
{
    static uint64_t incarnation = 100;
    return hello_as(fd, rank, ++incarnation);
}

static void leave(int fd)
{
    send_request(fd, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
    expect_end(fd);
}

/* Connects, and says HELLO until the server accepts it. The server may not have noticed yet that earlier clients have
 * closed their sockets. One of them may still have this rank, or they may be as many clients as the server takes. */
static int joined(const struct scene *scene, uint64_t rank)
{
    struct gw_ps_answer answer = {.status = GW_ERR_PEER};
    for (int tries = 0; tries < 500; tries++) {
        const int fd = come(scene);
        if (hello(fd, rank) && talk_hear(fd, &answer) && answer.status == GW_OK)
            return fd;
        close(fd);
        usleep(20000);
    }
    fail_msg("%d: %s", answer.status, answer.sentence);
    return -1;
}

static void init_key(int fd, const char *name, gw_ps_type type, uint64_t n)
{
    struct gw_ps_request init = {.operation = GW_PS_INIT, .type = (uint8_t)type, .shape = {.n_dims = 1, .dims = {n}}};
    snprintf(init.key, sizeof init.key, "%s", name);
    ask(fd, &init, NULL, 0, GW_OK, "");
}

/* ---- nonsense ------------------------------------------------------------------------------------------------ */

/* What is a message, but none of ours, is answered if a member has sent it. A newcomer hears why not, and is out. */
static void garbage_is_answered_and_forgotten(void **state)
{
    struct scene *const scene = *state;
    uint8_t head[GW_PS_HEAD_BYTES] = {0};
    struct numbers numbers = numbers_from(1);
    const int member = joined(scene, GW_PS_READER);
    for (int i = 0; i < 3000; i++) {
        const size_t n = numbers_below(&numbers, 200) | 1; /* a BYE is not that long */
        const int fd = i % 30 ? member : come(scene);
        for (size_t b = 0; b < n; b++)
            head[b] = (uint8_t)numbers_word(&numbers);
        const uint16_t kind = i % 5 ? GW_PS_MESSAGE : (uint16_t)numbers_word(&numbers);
        if (i % 3 == 0 && n > 8) {
            memcpy(head, "GWPQ", 4);
            head[4] = GW_PS_VERSION, head[5] = (uint8_t)(2 + i % GW_PS_OPERATIONS), head[7] = 0;
        }
        assert_true(peer_send(fd, kind, head, n, head, i % 7 ? 0 : n));
        assert_true(hear(fd).status < 0);
        if (fd != member)
            expect_end(fd);
    }
    serves(scene, "garbage");
    const size_t n = gw_ps_request_write(head, &(struct gw_ps_request){.operation = GW_PS_BYE});
    for (int known = 0; known < 2; known++) {
        const struct {
            uint8_t version;
            const char *magic;
            size_t n_bytes;
            uint16_t kind;
            gw_status status;
            const char *words;
        } cases[] = {{99, "GWPQ", n, GW_PS_MESSAGE, GW_ERR_FRAME_VERSION, "version 99"},
                     {GW_PS_VERSION, "GWPA", sizeof head, GW_PS_MESSAGE, GW_ERR_FRAME_MAGIC, "no message"},
                     {GW_PS_VERSION, "GWPQ", n, GW_PS_MESSAGE + 1, GW_ERR_FRAME_MAGIC, "kind 17"},
                     {GW_PS_VERSION, "GWPQ", n - 1, GW_PS_MESSAGE, GW_ERR_FRAME_CUT, "its head takes"},
                     {GW_PS_VERSION, "", 0, GW_PS_MESSAGE, GW_ERR_FRAME_CUT, "0 bytes"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const int fd = known ? member : come(scene);
            memcpy(head, cases[i].magic, strlen(cases[i].magic));
            head[4] = cases[i].version;
            assert_true(peer_send(fd, cases[i].kind, head, cases[i].n_bytes, NULL, 0));
            const struct gw_ps_answer answer = hear(fd);
            CHECK(answer.operation == GW_PS_WHO && answer.status == cases[i].status &&
                      strstr(answer.sentence, cases[i].words),
                  "case %zu: %d %s", i, answer.status, answer.sentence);
            if (!known)
                expect_end(fd);
        }
    }
    serves(scene, "more garbage");
    close(member);
    CHECK(scene->n_lines < 5000, "%u lines are in the log", atomic_load(&scene->n_lines));
}

/* Bytes that begin no message end the connection, of a member, too. A newcomer may not send a long message either. */
static void what_is_no_message_ends_the_connection(void **state)
{
    static const struct {
        uint64_t n_bytes;
        uint16_t n_header;
        const char *magic;
        bool from_members; /* a member may send that */
    } cases[] = {{0, 0, "GWN2", false},
                 {2000, GW_PS_HEAD_BYTES + 1, "GWN1", false},
                 {27, 28, "GWN1", false},
                 {0, UINT16_MAX, "GWN1", false},
                 {UINT64_MAX, UINT16_MAX, "GWN1", false},
                 {GW_NET_SMALL + 1, 28, "GWN1", true},
                 {UINT64_MAX, 0, "GWN1", true}};
    struct scene *const scene = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int known = 0; known < (cases[i].from_members ? 1 : 2); known++) {
            uint8_t head[GW_NET_HEAD];
            const int fd = known ? joined(scene, 0) : come(scene);
            peer_head(head, GW_PS_MESSAGE, 0, cases[i].n_bytes);
            gw_put16(head + 10, cases[i].n_header);
            memcpy(head + 12, cases[i].magic, 4);
            assert_true(peer_pour(fd, head, sizeof head));
            expect_end(fd);
            serves(scene, "what is no message");
        }
}

static void say_verdict(int fd, uint64_t number, uint64_t refusal, gw_status status, const char *words)
{
    ask(fd,
        &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = number, .refusal = refusal, .timeout_ms = LONG_MS},
        NULL, 0, status, words);
}

/* Worker 1 of 2, alone. Verdicts before, twice, for other steps; pushes after; and one that waits behind its push. */
static void verdicts_over_the_wire(const struct scene *scene, int fd)
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
    say_verdict(fd, 1, counts, GW_ERR_ORDER, "no key with an optimizer");
    ask(fd, &push, values, sizeof values, GW_ERR_ARGUMENT, "must begin with \"exchange/\"");
    ask(fd, &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = 1}, values, sizeof values, GW_ERR_FRAME_FIELD,
        "with a value");
    ask(fd, &init, NULL, 0, GW_OK, "");
    snprintf(init.key, sizeof init.key, "exchange/b");
    ask(fd, &init, NULL, 0, GW_OK, "");
    say_verdict(fd, 1, counts, GW_ERR_ORDER, "its last one is number 0");
    say_verdict(fd, 0, counts, GW_ERR_ORDER, "its last one is number 0");
    say_verdict(fd, UINT64_MAX, 0, GW_ERR_ORDER, "its last one is number 0");

    /* Its push waits for parameters, and so it does. */
    snprintf(push.key, sizeof push.key, "exchange/a");
    send_request(fd, &push, values, sizeof values);
    snprintf(push.key, sizeof push.key, "exchange/b");
    send_request(fd, &push, values, sizeof values);
    send_request(
        fd, &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = 1, .refusal = counts, .timeout_ms = LONG_MS},
        NULL, 0);
    const int reader = come(scene);
    hello(reader, GW_PS_READER);
    expect(reader, GW_OK, "");
    for (const char *key = "exchange/b"; key; key = strcmp(key, "exchange/a") ? "exchange/a" : NULL) {
        struct gw_ps_request put = {.operation = GW_PS_PUT};
        snprintf(put.key, sizeof put.key, "%s", key);
        ask(reader, &put, values, sizeof values, GW_OK, "");
    }
    for (int i = 0; i < 3; i++) {
        const struct gw_ps_answer answer = hear(fd);
        assert_true(answer.status == GW_OK && answer.number == 1);
        assert_int_equal(answer.operation, i < 2 ? GW_PS_PUSH : GW_PS_VERDICT);
    }
    say_verdict(reader, 1, counts, GW_ERR_ARGUMENT, "reader");
    close(reader);

    say_verdict(fd, 1, counts, GW_OK, "");
    say_verdict(fd, 1, 5, GW_OK, ""); /* the first one stands */
    say_verdict(fd, 2, counts, GW_ERR_ORDER, "its last one is number 1");
    send_request(fd, &push, values, sizeof values); /* again, after its verdict */
    expect(fd, GW_OK, "");
    push.number = 3;
    ask(fd, &push, values, sizeof values, GW_ERR_ORDER, "comes after its number 1");
    push.number = 1, push.code = 77;
    ask(fd, &push, values, sizeof values, GW_ERR_FRAME_FIELD, "one is invalid");
}

static void requests_out_of_place(void **state)
{
    struct scene *const scene = *state;
    static const uint8_t bytes[MAX_KEY_BYTES];
    for (int operation = GW_PS_INIT; operation < GW_PS_OPERATIONS; operation++)
        if (operation != GW_PS_WHO && operation != GW_PS_ASK) { /* nobody has said HELLO */
            const int newcomer = come(scene);
            send_request(newcomer,
                         &(struct gw_ps_request){.operation = (enum gw_ps_operation)operation, .id = 7, .key = "x"},
                         bytes, 4);
            struct gw_ps_answer answer = hear(newcomer);
            assert_true(answer.status == GW_ERR_ORDER && answer.id == 7 && strstr(answer.sentence, "HELLO"));
            expect_end(newcomer);
        }
    static const uint64_t ranks[] = {2, 1ull << 32, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        const int newcomer = come(scene);
        hello(newcomer, ranks[i]);
        expect(newcomer, GW_ERR_ARGUMENT, "ranks 0 to 1");
        expect_end(newcomer);
    }
    const int fd = joined(scene, 1);
    for (uint64_t rank = 0; rank < 2; rank++) {
        hello(fd, rank);
        expect(fd, GW_ERR_ORDER, "HELLO before");
    }
    init_key(fd, "x", GW_PS_FLOAT32, 2);
    const struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .key = "x", .timeout_ms = LONG_MS},
                               pull = {.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x", .timeout_ms = LONG_MS};
    ask(fd, &pull, NULL, 0, GW_ERR_ORDER, "before it has pushed");
    ask(fd, &push, NULL, 0, GW_ERR_FRAME_CUT, "without a value");
    ask(fd, &pull, bytes, 8, GW_ERR_FRAME_FIELD, "with a value");
    ask(fd, &(struct gw_ps_request){.operation = GW_PS_PUSH, .push_kind = 1, .nth = 1, .key = "x"}, bytes, 8,
        GW_ERR_FRAME_FIELD, "with a value");
    for (size_t n = 1; n < 20; n++)
        if (n != 8) {
            ask(fd, &push, bytes, n, GW_ERR_ARGUMENT, "takes 8");
        }
    ask(fd, &push, bytes, sizeof bytes, GW_ERR_ARGUMENT, "takes 8");
    struct gw_ps_request other = push;
    other.number = 0;
    ask(fd, &other, bytes, 8, GW_ERR_ORDER, "has not initialised");
    other.number = UINT64_MAX;
    ask(fd, &other, bytes, 8, GW_ERR_ORDER, "comes after its number 0");
    for (uint32_t code = 0; code < 256; code += code < 9 ? 1 : 50) {
        struct gw_ps_request init = {.operation = GW_PS_INIT,
                                     .type = (uint8_t)code,
                                     .key = "claims",
                                     .shape = {.n_dims = 8}};
        for (int d = 0; d < 8; d++)
            init.shape.dims[d] = UINT64_MAX >> code % 8 * 7;
        ask(fd, &init, NULL, 0, GW_ERR_ARGUMENT, "claims");
        struct gw_ps_request odd = pull;
        odd.code = (uint8_t)code;
        if (!gw_ps_method_name((gw_ps_method)code)) {
            ask(fd, &odd, NULL, 0, GW_ERR_ARGUMENT, "a method of that number");
        }
    }
    serves(scene, "requests out of place");
    verdicts_over_the_wire(scene, fd);
    serves(scene, "verdicts out of place");
    close(fd);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* A value that is longer than any may be is read and dropped, even one that never ends. It takes no memory, and what
 * comes after it is understood. Others are served all the while. */
static void values_that_are_too_long(void **state)
{
    enum { MORE = GW_PS_HEAD_BYTES + 1 };
    static const uint8_t bytes[4 * MAX_KEY_BYTES];
    static const size_t sizes[] = {MAX_KEY_BYTES + MORE, 2 * MAX_KEY_BYTES, sizeof bytes};
    const struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .id = 5, .key = "no such key"};
    struct scene *const scene = *state;
    uint8_t head[GW_NET_HEAD + GW_PS_HEAD_BYTES];
    const int fd = joined(scene, GW_PS_READER);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ask(fd, &push, bytes, sizes[i], GW_ERR_CAPACITY, "--max-key-bytes");
        ask(fd, &push, bytes, MAX_KEY_BYTES, GW_ERR_ARGUMENT, "no key");
    }
    const size_t n = talk_write(head + GW_NET_HEAD, &push);
    peer_head(head, GW_PS_MESSAGE, n, UINT64_MAX - n);
    assert_true(peer_pour(fd, head, GW_NET_HEAD + n));
    most_bytes = live_bytes;
    const long before = most_bytes;
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 20; k++)
            assert_true(peer_pour(fd, bytes, sizeof bytes));
        serves(scene, "a value that never ends");
    }
    CHECK(most_bytes < before + 40000, "%ld bytes more were taken", most_bytes - before);
    close(fd);
}

/* Messages come a byte at a time, or many at once. */
static void bytes_that_drip(void **state)
{
    static const size_t sizes[] = {1, GW_NET_SMALL - 40, GW_NET_SMALL, 6000};
    struct scene *const scene = *state;
    static uint8_t value[6000];
    uint8_t head[GW_NET_HEAD + GW_PS_HEAD_BYTES];
    const int fd = joined(scene, 1);
    init_key(fd, "x", GW_PS_UINT8, sizeof value);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const bool fits = sizes[i] == sizeof value;
        const size_t n = talk_write(head + GW_NET_HEAD, PUSH(1, "x"));
        peer_head(head, GW_PS_MESSAGE, n, sizes[i]);
        for (size_t b = 0; b < GW_NET_HEAD + n; b++)
            assert_true(peer_pour(fd, head + b, 1));
        for (size_t b = 0; b < sizes[i]; b++)
            assert_true(peer_pour(fd, value + b, 1));
        expect(fd, fits ? GW_OK : GW_ERR_ARGUMENT, fits ? "" : "takes 6000");
    }
    close(fd);
}

/* A client goes in the middle of a message, at every stage of it: in order, or with a reset, or because it comes again
 * on another connection, or because the server ends. What has come of its value is given back. */
static void half_a_message(void **state)
{
    (void)state;
    enum { CLOSED, RESET, REPLACED, SERVER_ENDS, WAYS, VALUE = MAX_KEY_BYTES };
    static uint8_t whole[GW_NET_HEAD + GW_PS_HEAD_BYTES + VALUE];
    const size_t n = talk_write(whole + GW_NET_HEAD, PUSH(1, "x"));
    const size_t value_at = GW_NET_HEAD + n;
    peer_head(whole, GW_PS_MESSAGE, n, VALUE);
    const size_t stages[] = {1,
                             GW_NET_HEAD - 1,
                             GW_NET_HEAD,
                             GW_NET_HEAD + 1,
                             value_at - 1,
                             value_at,
                             value_at + 1,
                             GW_NET_AHEAD,
                             GW_NET_AHEAD + 1,
                             VALUE / 2,
                             value_at + VALUE - 1};
    enum { STAGES = sizeof stages / sizeof *stages };
    const struct linger at_once = {.l_onoff = 1};
    struct scene scene;
    begin(&scene, 2);
    for (int way = CLOSED; way < WAYS; way++)
        for (int i = 0; i < STAGES; i++) { /* without giving back, the server's room would be full before the end */
            const uint64_t incarnation = 9000 + (uint64_t)(way * STAGES + i);
            const int fd = come(&scene);
            hello_as(fd, way == REPLACED ? 1 : GW_PS_READER, incarnation);
            expect(fd, GW_OK, "");
            wait_for_values(&scene, 0);
            assert_true(peer_pour(fd, whole, stages[i]));
            if (stages[i] >= value_at) /* the server has come as far */
                wait_for_values(&scene, 1);
            if (way == SERVER_ENDS) {
                end(&scene);
                begin(&scene, 2);
            } else if (way == REPLACED) {
                const int again = come(&scene);
                hello_as(again, 1, incarnation);
                expect(again, GW_OK, "");
                expect_end(fd);
                leave(again);
                continue;
            } else if (way == RESET) {
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            }
            close(fd);
            serves(&scene, "half a message");
        }
    const int fd = joined(&scene, 1);
    init_key(fd, "x", GW_PS_UINT8, VALUE);
    assert_true(peer_pour(fd, whole, value_at + VALUE));
    expect(fd, GW_OK, "");
    close(fd);
    end(&scene);
}

/* More values are under way at once than the server may hold. Those that find no room are dropped, and refused when
 * they are over. Small ones still find room. */
static void many_values_at_once(void **state)
{
    enum { N = 24, ROOM = MAX_BYTES / MAX_KEY_BYTES };
    static uint8_t whole[GW_NET_HEAD + GW_PS_HEAD_BYTES + MAX_KEY_BYTES];
    const size_t n = talk_write(whole + GW_NET_HEAD, PUSH(1, "no such key"));
    const size_t half = GW_NET_HEAD + n + MAX_KEY_BYTES / 2;
    struct scene *const scene = *state;
    int fds[N];
    peer_head(whole, GW_PS_MESSAGE, n, MAX_KEY_BYTES);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < N; i++)
            fds[i] = joined(scene, GW_PS_READER);
        for (int i = 0; i < N; i++) {
            assert_true(peer_pour(fds[i], whole, half));
            if (i < ROOM)
                wait_for_values(scene, i + 1);
        }
        serves(scene, "half a value of many clients");
        for (int i = N - 1; i >= 0; i--) {
            assert_true(peer_pour(fds[i], whole + half, GW_NET_HEAD + n + MAX_KEY_BYTES - half));
            expect(fds[i], i < ROOM ? GW_ERR_ARGUMENT : GW_ERR_CAPACITY, i < ROOM ? "no key" : "--max-bytes");
            close(fds[i]);
        }
        serves(scene, "values of many clients");
    }
    CHECK(most_bytes < MAX_BYTES * 3 / 2, "%ld bytes were taken", atomic_load(&most_bytes));
}

/* ---- who does not belong -------------------------------------------------------------------------------------- */

static void connections_that_are_no_clients(void **state)
{
    struct scene *const scene = *state;
    uint8_t noise[4096], first[GW_NET_HEAD + GW_PS_HEAD_BYTES];
    int fds[64], n = 0;
    struct numbers numbers = numbers_from(2);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)numbers_word(&numbers);
    const size_t n_first =
        talk_write(first + GW_NET_HEAD, &(struct gw_ps_request){.operation = GW_PS_HELLO, .incarnation = 5});
    peer_head(first, GW_PS_MESSAGE, n_first, 0);
    fds[n++] = come(scene); /* says nothing */
    for (size_t half = 1; half < GW_NET_HEAD + n_first; half += 9) {
        fds[n] = come(scene);
        assert_true(peer_pour(fds[n++], first, half));
    }
    for (int i = 0; i < 20; i++) {
        fds[n] = come(scene);
        if (i % 2)
            peer_pour(fds[n], first, GW_NET_HEAD);
        peer_pour(fds[n++], noise + 100 * i, 1000);
    }
    serves(scene, "connections that are no clients");
    for (int i = 0; i < n; i++)
        close(fds[i]);
    serves(scene, "connections that were no clients");
}

/* They say HELLO and are gone before it is read; none of them is kept for a client that is here. */
static void clients_that_do_not_wait(void **state)
{
    struct scene *const scene = *state;
    const int busy = joined(scene, GW_PS_READER); /* it keeps the server busy, which looks at the others late */
    for (int i = 0; i < 300; i++) {
        for (int j = 0; j < 100; j++)
            assert_true(peer_send(busy, GW_PS_MESSAGE, "nonsense", 8, NULL, 0));
        const int fd = come(scene);
        hello(fd, i % 3 ? GW_PS_READER : 1);
        close(fd);
        for (int j = 0; j < 100; j++)
            hear(busy);
    }
    close(busy);
    close(joined(scene, 1)); /* the last of them may be known for a moment */
    serves(scene, "clients that did not wait");
}

/* Some connections come and go without a word. Others say HELLO first. The server uses the descriptors of those that
 * have gone again, for those that come later. Rank 1 waits all the while. The server must not take it for one of them.
 */
static void a_storm_of_connections(void **state)
{
    struct scene *const scene = *state;
    const float x = 3;
    /* The server's descriptor for `gone` is free later. That for `early` is free now, so rank 1 can get it. */
    const int gone = joined(scene, GW_PS_READER), early = joined(scene, GW_PS_READER);
    leave(early);
    const int waiting = joined(scene, 1);
    init_key(waiting, "x", GW_PS_FLOAT32, 1);
    ask(waiting, PUSH(1, "x"), &x, 4, GW_OK, "");
    send_request(waiting, PULL(GW_PS_SUM, "x"), NULL, 0);
    close(gone);
    for (int i = 0; i < 600; i++) {
        const int fd = i % 3 == 1 ? joined(scene, GW_PS_READER) : come(scene);
        if (i % 3 == 2) { /* gone before it is known */
            hello(fd, i % 2 ? 0 : GW_PS_READER);
            if (i % 6 < 3)
                usleep(1000);
        }
        close(fd);
    }
    serves(scene, "a storm of connections");
    const int other = joined(scene, 0);
    ask(other, PUSH(1, "x"), &x, 4, GW_OK, "");
    struct gw_ps_answer answer = hear(waiting);
    assert_true(answer.operation == GW_PS_PULL && answer.status == GW_OK && answer.n_pushes == 2);
    close(other);
    close(waiting);
}

static void one_client_too_many(void **state)
{
    struct scene *const scene = *state;
    int fds[MAX_CLIENTS];
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < MAX_CLIENTS; i++)
            fds[i] = joined(scene, GW_PS_READER);
        int more = come(scene);
        hello(more, 0);
        expect(more, GW_ERR_CAPACITY, "--max-clients");
        expect_end(more);
        /* One leaves in good order, and there is room at once; the others just go. */
        leave(fds[0]);
        more = come(scene);
        hello(more, 0);
        expect(more, GW_OK, "");
        close(more);
        for (int i = 1; i < MAX_CLIENTS; i++)
            close(fds[i]);
        close(joined(scene, 0)); /* the server knows that they are gone */
        serves(scene, "as many as there may be");
    }
}

/* ---- who asks for too much ------------------------------------------------------------------------------------ */

static void pushes_that_wait_are_counted(void **state)
{
    struct scene *const scene = *state;
    static const uint8_t bytes[MAX_KEY_BYTES];
    enum { PUSHES = 1100 };
    int fd = joined(scene, 1);
    init_key(fd, "x", GW_PS_UINT8, MAX_KEY_BYTES);
    int refused = 0;
    for (uint64_t nth = 1; nth <= 200; nth++) /* 200 times 64 KiB, of 1 MiB */
        send_request(fd, PUSH(nth, "x"), bytes, sizeof bytes);
    expect(fd, GW_OK, "");
    for (; refused < 180; refused++)
        expect(fd, GW_ERR_CAPACITY, "--max-bytes");
    close(fd);
    wait_for_values(scene, 1); /* they go with their client */
    /* Small ones: more than may wait. */
    fd = joined(scene, 1);
    init_key(fd, "y", GW_PS_UINT8, 1);
    for (uint64_t nth = 1; nth <= PUSHES; nth++)
        send_request(fd, PUSH(nth, "y"), bytes, 1);
    expect(fd, GW_OK, "");
    for (int i = 1 + 1024; i < PUSHES; i++)
        expect(fd, GW_ERR_CAPACITY, "1024 requests of this client wait");
    const int other = joined(scene, 0);
    for (uint64_t nth = 1; nth <= 1025; nth++) {
        ask(other, PUSH(nth, "y"), bytes, 1, GW_OK, "");
        if (nth < 1025)
            expect(fd, GW_OK, "");
    }
    close(other);
    close(fd);
    CHECK(most_bytes < 2 * MAX_BYTES + 1100 * 2048, "%ld bytes were taken", atomic_load(&most_bytes));
}

/* A client whose kernel keeps little of what it does not read. */
static int come_slow(const struct scene *scene, uint8_t hello_flags)
{
    const int fd = peer_connect_slow(gw_ps_server_address(scene->server), 4096);
    ask(fd, &(struct gw_ps_request){.operation = GW_PS_HELLO, .hello_flags = hello_flags, .incarnation = 99}, NULL, 0,
        GW_OK, "");
    return fd;
}

/* Waits until the server has dropped rank 0. Others are answered all the while. */
static void wait_until_dropped(const struct scene *scene)
{
    struct gw_ps_answer answer = {.status = GW_ERR_PEER};
    const int reader = joined(scene, GW_PS_READER);
    for (int tries = 0; answer.status != GW_OK; tries++) {
        const int probe = come(scene);
        CHECK(tries < 1000, "a client that reads nothing is still there");
        hello(probe, 0);
        answer = hear(probe);
        if (answer.status == GW_OK)
            leave(probe);
        else
            close(probe);
        ask(reader, &(struct gw_ps_request){.operation = GW_PS_INIT, .id = 1}, NULL, 0, GW_ERR_ARGUMENT,
            "a key's name");
        usleep(20000);
    }
    close(reader);
}

/* Results wait for a client that does not read them. The server must not wait for it, and must not take more memory
 * than it may. In the end it drops that client. */
static void answers_that_nobody_reads(void **state)
{
    struct scene *const scene = *state;
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    const int fd = come_slow(scene, 0);
    init_key(fd, "x", GW_PS_UINT8, sizeof bytes);
    for (uint64_t nth = 1; nth <= 6000; nth++)
        if (!talk_send(fd, PUSH(nth, "x"), bytes, sizeof bytes) || !talk_send(fd, PULL(GW_PS_SUM, "x"), NULL, 0))
            break; /* it is dropped */
    wait_until_dropped(scene);
    CHECK(scene->n_dropped == 1, "%u were dropped", scene->n_dropped); /* and not only when its connection broke */
    close(fd);
    serves(scene, "one that reads nothing");
    CHECK(most_bytes < 2 * MAX_BYTES + MOST_UNREAD * 512l, "%ld bytes were taken", atomic_load(&most_bytes));
}

/* A reader pulls and reads nothing, until what waits for it takes all the bytes that the server may hold. The server
 * drops it, and refuses nobody else. */
static void unread_values_refuse_no_push(void **state)
{
    struct scene *const scene = *state;
    enum { N = MAX_KEY_BYTES / 8, PUSHES = 6000 };
    static uint8_t bytes[N];
    const int good = joined(scene, 0), slow = peer_connect_slow(gw_ps_server_address(scene->server), 4096);
    init_key(good, "x", GW_PS_UINT8, N);
    hello(slow, GW_PS_READER);
    for (uint64_t nth = 1; nth <= PUSHES; nth++) {
        ask(good, PUSH(nth, "x"), bytes, N, GW_OK, "");
        talk_send(slow, PULL(GW_PS_LATEST, "x"), NULL, 0);
    }
    for (int i = 0; i < 1000 && scene->n_dropped == 0; i++)
        usleep(10000);
    CHECK(scene->n_dropped == 1, "%u were dropped", scene->n_dropped);
    close(slow), close(good);
    serves(scene, "one that reads no values");
}

/* A client sends JOIN after JOIN and reads no answer. At last the answer to a JOIN is one too many, so the server drops
 * the client. The rest of that JOIN must not use the client any more. */
static void joins_whose_answers_nobody_reads(void **state)
{
    struct scene *const scene = *state;
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    const int fd = come_slow(scene, GW_PS_HELLO_JOINS);
    init_key(fd, "x", GW_PS_UINT8, sizeof bytes);
    ask(fd, &(struct gw_ps_request){.operation = GW_PS_JOIN, .id = 1, .round = 1, .timeout_ms = LONG_MS}, NULL, 0,
        GW_OK, "");
    ask(fd, PUSH(1, "x"), bytes, sizeof bytes, GW_OK, "");
    for (uint64_t id = 2; id <= 40000; id++) /* most answers are short, and some fill what lies between */
        if (!talk_send(
                fd,
                id % 16
                    ? &(struct gw_ps_request){.operation = GW_PS_JOIN, .id = id, .round = 1, .timeout_ms = LONG_MS}
                    : &(struct gw_ps_request){.operation = GW_PS_PULL, .method = GW_PS_LATEST, .id = id, .key = "x"},
                NULL, 0))
            break;
    wait_until_dropped(scene);
    close(fd);
    serves(scene, "one that joins and reads nothing");
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
        const bool agrees = operations[i] == GW_PS_AGREE;
        struct scene scene;
        begin(&scene, 1);
        const int before = joined(&scene, 0);
        ask(before, &(struct gw_ps_request){.operation = GW_PS_AGREE}, "a = 1\n", 6, GW_OK, "");
        init_key(before, "exchange/x", GW_PS_FLOAT32, 1);
        init_key(before, "large", GW_PS_UINT8, sizeof bytes);
        ask(before, PUSH(1, "large"), bytes, sizeof bytes, GW_OK, "");
        leave(before);
        const int fd = come_slow(&scene, !agrees);
        for (int k = 0; k < 1000; k++)
            send_request(fd,
                         &(struct gw_ps_request){
                             .operation = GW_PS_GET, .version = 1, .key = "exchange/x", .timeout_ms = 10 * LONG_MS},
                         NULL, 0);
        for (int k = 0; k < 3900; k++)
            send_request(fd, PULL(GW_PS_LATEST, "large"), NULL, 0);
        send_request(fd,
                     &(struct gw_ps_request){.operation = operations[i], .id = 7, .number = 1, .timeout_ms = LONG_MS},
                     agrees ? "a = 2\n" : NULL, agrees ? 6 : 0);
        wait_until_dropped(&scene);
        close(fd);
        serves(&scene, "one that reads nothing and asks for much");
        end(&scene);
    }
}

/* A pull that waits for its scale key is answered over its own round, though the same client's next push came
 * meanwhile. */
static void a_pull_keeps_its_place(void **state)
{
    struct scene *const scene = *state;
    const uint8_t plus = 0x02, minus = 0x00;
    const float scale = 10;
    const int fds[2] = {joined(scene, 0), joined(scene, 1)};
    init_key(fds[0], "codes", GW_PS_UINT8, 1);
    init_key(fds[0], "scale", GW_PS_FLOAT32, 1);
    struct gw_ps_request codes = {.operation = GW_PS_PUSH, .nth = 1, .key = "codes", .timeout_ms = LONG_MS},
                         scales = codes;
    snprintf(scales.key, sizeof scales.key, "scale");
    for (int r = 0; r < 2; r++) {
        ask(fds[r], &codes, &plus, 1, GW_OK, "");
    }
    ask(fds[0], &scales, &scale, 4, GW_OK, "");
    send_request(fds[0],
                 &(struct gw_ps_request){.operation = GW_PS_PULL,
                                         .method = GW_PS_DECODE_SUM,
                                         .id = 5,
                                         .key = "codes",
                                         .scale_key = "scale",
                                         .timeout_ms = LONG_MS},
                 NULL, 0);
    codes.number = 2;
    codes.id = 6;
    send_request(fds[0], &codes, &minus, 1);
    init_key(fds[1], "codes", GW_PS_UINT8, 1); /* the server has taken in what came before, or soon will */
    ask(fds[1], &scales, &scale, 4, GW_OK, "");
    struct gw_ps_answer answer = hear(fds[0]);
    CHECK(answer.id == 5 && answer.status == GW_OK && answer.number == 1, "id %d, status %d, round %d: %s",
          (int)answer.id, answer.status, (int)answer.number, answer.sentence);
    answer = hear(fds[0]);
    CHECK(answer.id == 6 && answer.status == GW_OK, "id %d, status %d: %s", (int)answer.id, answer.status,
          answer.sentence);
    for (int r = 0; r < 2; r++)
        close(fds[r]);
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
static bool push_is_kept(int fd, uint64_t *nth)
{
    static const char value[1000];
    send_request(fd, &(struct gw_ps_request){.operation = GW_PS_PUSH, .nth = ++*nth, .key = "x", .timeout_ms = LONG_MS},
                 value, sizeof value);
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == GW_OK && (answer.flags == 0 || answer.flags == GW_PS_IN_MEMORY), "%d, flags %u: %s",
          answer.status, answer.flags, answer.sentence);
    return answer.flags == 0;
}

/* If a push is only in memory, its client is told; once files can grow it is kept, and a server after this one has it.
 */
static void answers_say_what_is_not_kept(void **state)
{
    struct scene scene;
    char folder[] = "/tmp/gradwire-hostile-XXXXXX";
    uint64_t nth = 0;
    (void)state;
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(folder));
    begin_with(&scene, 1, folder);
    int fd = joined(&scene, 0);
    init_key(fd, "x", GW_PS_UINT8, 1000);
    assert_true(push_is_kept(fd, &nth));
    most_file_bytes(3000);
    for (int i = 0; push_is_kept(fd, &nth); i++)
        CHECK(i < 10, "more than fits is kept");
    assert_false(push_is_kept(fd, &nth));
    most_file_bytes(RLIM_INFINITY);
    for (int i = 0; !push_is_kept(fd, &nth); i++) {
        CHECK(i < 6000, "never kept again");
        usleep(10000);
    }
    close(fd);
    end(&scene);
    begin_with(&scene, 1, folder);
    fd = joined(&scene, 0);
    send_request(fd,
                 &(struct gw_ps_request){
                     .operation = GW_PS_INIT, .type = GW_PS_UINT8, .key = "x", .shape = {.n_dims = 1, .dims = {1000}}},
                 NULL, 0);
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == GW_OK && answer.number == nth && answer.flags == 0, "%d pushes of %d", (int)answer.number,
          (int)nth);
    close(fd);
    end(&scene);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_ONE(garbage_is_answered_and_forgotten),
        FOR_ONE(what_is_no_message_ends_the_connection),
        FOR_TWO(requests_out_of_place),
        FOR_ONE(values_that_are_too_long),
        FOR_TWO(bytes_that_drip),
        cmocka_unit_test(half_a_message),
        FOR_ONE(many_values_at_once),
        FOR_ONE(connections_that_are_no_clients),
        FOR_TWO(a_storm_of_connections),
        FOR_ONE(one_client_too_many),
        FOR_TWO(pushes_that_wait_are_counted),
        FOR_ONE(answers_that_nobody_reads),
        FOR_ONE(unread_values_refuse_no_push),
        FOR_ONE(joins_whose_answers_nobody_reads),
        cmocka_unit_test(too_many_answers_in_the_midst),
        FOR_TWO(a_pull_keeps_its_place),
        cmocka_unit_test(answers_say_what_is_not_kept),
        FOR_TWO(clients_that_do_not_wait),
    };
    return cmocka_run_group_tests_name("pserver_hostile", tests, NULL, NULL);
}
