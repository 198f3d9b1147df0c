/* Tests a running server against clients that do things that our client never does. After each of them a good client is
 * served at once. When all have gone, nothing of theirs is left. */
#define _GNU_SOURCE /* nftw */
#include "folders.h"
#include "pserver/protocol/test_talk.h"
#include "pserver/server/state.h"
#include "pserver/server/test_server.h"

#include <stdatomic.h>

enum { MAX_KEY_BYTES = 1 << 16, MAX_BYTES = 1 << 20, MAX_CLIENTS = 40 };
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

static struct {
    gw_context *context;
    struct test_server server;
    long values_before; /* blocks as large as the longest value, which the server itself has */
    atomic_uint n_lines, n_dropped;
} scene;

static void log_line(const char *line, void *user)
{
    test_server_log(line, user);
    scene.n_lines++;
    scene.n_dropped += strstr(line, "it does not take its answers") != NULL;
}

/* snapshot: a folder, or NULL. */
static void begin(uint32_t n_workers, const char *snapshot)
{
    const gw_allocator allocator = {counted_alloc, counted_free, NULL};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    memset(&scene, 0, sizeof scene);
    live = live_bytes = most_bytes = live_values = 0;
    ok(gw_context_create(&options, &scene.context));
    test_server_begin_in(scene.context, &scene.server,
                         &(gw_ps_server_options){.n_workers = n_workers,
                                                 .max_keys = 50,
                                                 .max_key_bytes = MAX_KEY_BYTES,
                                                 .max_bytes = MAX_BYTES,
                                                 .max_clients = MAX_CLIENTS,
                                                 .timeout_ms = LONG_MS,
                                                 .snapshot = snapshot,
                                                 .log = log_line});
    scene.values_before = live_values;
}

static void end(void)
{
    test_server_end(&scene.server);
    gw_context_destroy(scene.context);
    CHECK(live == 0 && live_bytes == 0, "%ld blocks of %ld bytes are lost", atomic_load(&live),
          atomic_load(&live_bytes));
}

static int set_up(void **n_workers)
{
    begin((uint32_t)(uintptr_t)*n_workers, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end();
    return 0;
}

/* A test with a server for one worker, or for two. */
#define FOR(test, n) TEST_AS(test, cmocka_unit_test_prestate_setup_teardown(test, set_up, tear_down, (void *)n))

/* Somebody decent comes, is served, and goes. */
static void serves(void)
{
    gw_ps_client *client = test_client(gw_ps_server_address(scene.server.server), 0, false, LONG_MS);
    gw_ps_value value;
    static float x;
    char key[32];
    snprintf(key, sizeof key, "good %g", (double)++x);
    ok(test_init(client, key, GW_PS_FLOAT32, 1, NULL, NULL));
    ok(gw_ps_push(client, key, &x, sizeof x));
    ok(gw_ps_pull(client, key, GW_PS_LATEST, NULL, &value));
    assert_true(*(const float *)value.bytes == x);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(client);
}

/* Waits until the server has memory for so many values of full length. */
static void wait_for_values(long n)
{
    for (int i = 0; live_values - scene.values_before != n; i++) {
        CHECK(i < 6000, "there are %ld values, and not %ld", live_values - scene.values_before, n);
        usleep(10000);
    }
}

/* ---- by hand ------------------------------------------------------------------------------------------------ */

static int come(void)
{
    return peer_connect(gw_ps_server_address(scene.server.server));
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

/* Connects, and says HELLO until the server accepts it. The server may not have noticed yet that earlier clients have
 * closed their sockets. One of them may still have this rank, or they may be as many clients as the server takes. */
static int joined(uint64_t rank)
{
    struct gw_ps_answer answer = {.status = GW_ERR_PEER};
    for (int tries = 0; tries < 500; tries++) {
        const int fd = come();
        if (hello(fd, rank) && talk_hear(fd, &answer) && answer.status == GW_OK)
            return fd;
        close(fd);
        usleep(20000);
    }
    fail_msg("%d: %s", answer.status, answer.sentence);
    return -1;
}

/* ---- nonsense ------------------------------------------------------------------------------------------------ */

/* What is a message, but none of ours, is answered if a member has sent it. A newcomer hears why not, and is out. */
FOR(garbage_is_answered_and_forgotten, 1)
{
    uint8_t head[GW_PS_HEAD_BYTES] = {0};
    struct numbers numbers = numbers_from(1);
    const int member = joined(GW_PS_READER);
    for (int i = 0; i < 3000; i++) {
        const size_t n = numbers_below(&numbers, 200) | 1; /* a BYE is not that long */
        const int fd = i % 30 ? member : come();
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
    serves();
    const size_t n = gw_ps_request_write(head, &(struct gw_ps_request){.operation = GW_PS_BYE});
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
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) { /* of a newcomer, and of a member */
        const int fd = i % 2 ? member : come();
        memcpy(head, cases[i / 2].magic, strlen(cases[i / 2].magic));
        head[4] = cases[i / 2].version;
        assert_true(peer_send(fd, cases[i / 2].kind, head, cases[i / 2].n_bytes, NULL, 0));
        const struct gw_ps_answer answer = hear(fd);
        CHECK(answer.operation == GW_PS_WHO && answer.status == cases[i / 2].status &&
                  strstr(answer.sentence, cases[i / 2].words),
              "case %zu: %d %s", i / 2, answer.status, answer.sentence);
        if (fd != member)
            expect_end(fd);
    }
    serves();
    close(member);
    CHECK(scene.n_lines < 5000, "%u lines are in the log", atomic_load(&scene.n_lines));
}

/* Bytes that begin no message end the connection, of a member, too. A newcomer may not send a long message either. */
FOR(what_is_no_message_ends_the_connection, 1)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int known = 0; known < (cases[i].from_members ? 1 : 2); known++) {
            uint8_t head[GW_NET_HEAD];
            const int fd = known ? joined(0) : come();
            peer_head(head, GW_PS_MESSAGE, 0, cases[i].n_bytes);
            gw_put16(head + 10, cases[i].n_header);
            memcpy(head + 12, cases[i].magic, 4);
            assert_true(peer_pour(fd, head, sizeof head));
            expect_end(fd);
            serves();
        }
}

/* The counts are those that a look at the network gives, of a newcomer that is refused, too. */
FOR(every_byte_is_counted, 1)
{
    struct gw_ps_request asked[] = {{.operation = GW_PS_MEMBERS},
                                    {.operation = GW_PS_HELLO, .hello_rank = GW_PS_READER},
                                    init_of("x", GW_PS_FLOAT32, 3),
                                    {.operation = GW_PS_PUT, .put_kind = GW_PS_PUT_VERSION, .key = "x"},
                                    {.operation = GW_PS_GET, .key = "x"},
                                    {.operation = GW_PS_PUT, .put_kind = 9, .key = "x"}};
    static const float value[3];
    uint64_t in = 0, out = 0;
    int fd = come();
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const size_t n_value = asked[i].operation == GW_PS_PUT ? sizeof value : 0;
        uint8_t head[GW_NET_HEAD + GW_PS_HEAD_BYTES];
        struct peer_message answer;
        in += talk_head(head, &asked[i], n_value) + n_value;
        send_request(fd, asked[i], value, n_value);
        assert_true(peer_hear(fd, &answer));
        out += GW_NET_HEAD + answer.n_header + answer.n_bytes;
        if (i == 0) {
            expect_end(fd);
            fd = come();
        }
    }
    const struct gw_ps_counts *counts = &scene.server.server->counts;
    CHECK(counts->bytes_in == in && counts->bytes_out == out, "%llu and %llu bytes, and not %llu and %llu",
          (unsigned long long)counts->bytes_in, (unsigned long long)counts->bytes_out, (unsigned long long)in,
          (unsigned long long)out);
    leave(fd);
}

/* Everything that is refused is answered, and the client may go on. */
FOR(requests_out_of_place, 2)
{
    static const uint8_t bytes[MAX_KEY_BYTES];
    for (int operation = GW_PS_INIT; operation < GW_PS_OPERATIONS; operation++)
        if (operation != GW_PS_WHO && operation != GW_PS_ASK) { /* nobody has said HELLO */
            const int newcomer = come();
            send_request(newcomer,
                         (struct gw_ps_request){.operation = (enum gw_ps_operation)operation, .id = 7, .key = "x"},
                         bytes, 4);
            struct gw_ps_answer answer = hear(newcomer);
            assert_true(answer.status == GW_ERR_ORDER && answer.id == 7 && strstr(answer.sentence, "HELLO"));
            expect_end(newcomer);
        }
    static const uint64_t ranks[] = {2, 1ull << 32, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        const int newcomer = come();
        hello(newcomer, ranks[i]);
        expect(newcomer, GW_ERR_ARGUMENT, "ranks 0 to 1");
        expect_end(newcomer);
    }
    const int fd = joined(1);
    for (uint64_t rank = 0; rank < 2; rank++)
        hello(fd, rank), expect(fd, GW_ERR_ORDER, "HELLO before");
    ask(fd, init_of("x", GW_PS_FLOAT32, 2), NULL, 0, GW_OK, "");
    static const struct {
        struct gw_ps_request request;
        size_t n_bytes;
        gw_status status;
        const char *words;
    } rows[] = {
        {{.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x"}, 0, GW_ERR_ORDER, "before it has pushed"},
        {{.operation = GW_PS_PULL, .method = GW_PS_SUM, .key = "x"}, 8, GW_ERR_FRAME_FIELD, "with a value"},
        {{.operation = GW_PS_PULL, .method = 0, .key = "x"}, 0, GW_ERR_ARGUMENT, "a method of that number"},
        {{.operation = GW_PS_PULL, .method = 255, .key = "x"}, 0, GW_ERR_ARGUMENT, "a method of that number"},
        {{.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, 0, GW_ERR_FRAME_CUT, "without a value"},
        {{.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, 1, GW_ERR_ARGUMENT, "takes 8"},
        {{.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, 7, GW_ERR_ARGUMENT, "takes 8"},
        {{.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, 9, GW_ERR_ARGUMENT, "takes 8"},
        {{.operation = GW_PS_PUSH, .nth = 1, .key = "x"}, sizeof bytes, GW_ERR_ARGUMENT, "takes 8"},
        {{.operation = GW_PS_PUSH, .nth = 0, .key = "x"}, 8, GW_ERR_ORDER, "has not initialised"},
        {{.operation = GW_PS_PUSH, .nth = UINT64_MAX, .key = "x"}, 8, GW_ERR_ORDER, "comes after its number 0"},
        {{.operation = GW_PS_PUSH, .push_kind = GW_PS_PUSH_REFUSED, .key = "x"}, 8, GW_ERR_FRAME_FIELD, "with a value"},
        {{.operation = GW_PS_PUSH, .push_kind = GW_PS_PUSH_PENDING, .key = "x"},
         8,
         GW_ERR_ARGUMENT,
         "wait for a verdict"},
        {{.operation = GW_PS_PUSH, .push_kind = 77, .key = "x"}, 8, GW_ERR_FRAME_FIELD, "one is invalid"},
        {{.operation = GW_PS_VERDICT, .nth = 1}, 8, GW_ERR_FRAME_FIELD, "with a value"},
        {{.operation = GW_PS_VERDICT, .nth = 1}, 0, GW_ERR_ORDER, "no key with an optimizer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ask(fd, rows[i].request, bytes, rows[i].n_bytes, rows[i].status, rows[i].words);
    struct gw_ps_request skips = init_of("skips", GW_PS_FLOAT32, 2);
    skips.skipped = GW_PS_MOST_ROUNDS + 1;
    ask(fd, skips, NULL, 0, GW_ERR_FRAME_FIELD, "one is invalid");
    for (uint32_t code = 0; code < 256; code += code < 9 ? 1 : 50) {
        struct gw_ps_request init = init_of("claims", (gw_ps_type)code, 0);
        init.shape.n_dims = 8;
        for (int d = 0; d < 8; d++)
            init.shape.dims[d] = UINT64_MAX >> code % 8 * 7;
        ask(fd, init, NULL, 0, GW_ERR_ARGUMENT, "claims");
    }
    serves();
    close(fd);
}

/* Worker 1 of 2, alone. Its pushes wait for parameters, and the verdict on them waits behind them. */
FOR(verdicts_over_the_wire, 2)
{
    static const float values[] = {1, 2};
    static const char *const keys[] = {"exchange/a", "exchange/b"};
    struct gw_ps_request verdict = {.operation = GW_PS_VERDICT, .nth = 1, .refusal = UINT64_MAX, .timeout_ms = LONG_MS};
    const int fd = joined(1), reader = joined(GW_PS_READER);
    for (int k = 0; k < 2; k++) {
        struct gw_ps_request init = init_of(keys[k], GW_PS_FLOAT32, 2);
        snprintf(init.optimizer, sizeof init.optimizer, "sgd:lr=1");
        ask(fd, init, NULL, 0, GW_OK, "");
    }
    ask(fd, verdict, NULL, 0, GW_ERR_ORDER, "its last one is number 0");
    for (int k = 0; k < 2; k++) {
        struct gw_ps_request push = push_of(keys[k], 1);
        push.push_kind = GW_PS_PUSH_PENDING;
        send_request(fd, push, values, sizeof values);
    }
    send_request(fd, verdict, NULL, 0);
    for (int k = 2; k-- > 0;)
        ask(reader, gw_ps_request_of(GW_PS_PUT, keys[k]), values, sizeof values, GW_OK, "");
    for (int i = 0; i < 3; i++) {
        const struct gw_ps_answer answer = hear(fd);
        assert_true(answer.status == GW_OK && answer.number == 1);
        assert_int_equal(answer.operation, i < 2 ? GW_PS_PUSH : GW_PS_VERDICT);
    }
    ask(reader, verdict, NULL, 0, GW_ERR_ARGUMENT, "reader");
    ask(fd, verdict, NULL, 0, GW_OK, "");
    verdict.refusal = 5; /* the first one stands */
    ask(fd, verdict, NULL, 0, GW_OK, "");
    verdict.nth = 2;
    ask(fd, verdict, NULL, 0, GW_ERR_ORDER, "its last one is number 1");
    struct gw_ps_request push = push_of(keys[0], 1); /* again, after its verdict */
    push.push_kind = GW_PS_PUSH_PENDING;
    ask(fd, push, values, sizeof values, GW_OK, "");
    push.nth = 3;
    ask(fd, push, values, sizeof values, GW_ERR_ORDER, "comes after its number 1");
    serves();
    close(reader), close(fd);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* A value that is longer than any may be is read and dropped, and what comes after it is understood. */
FOR(values_that_are_too_long, 1)
{
    enum { MORE = GW_PS_HEAD_BYTES + 1 };
    static const uint8_t bytes[4 * MAX_KEY_BYTES];
    static const size_t sizes[] = {MAX_KEY_BYTES + MORE, 2 * MAX_KEY_BYTES, sizeof bytes};
    const int fd = joined(GW_PS_READER);
    const long before = atomic_load(&live_bytes);
    most_bytes = before;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ask(fd, push_of("no such key", 1), bytes, sizes[i], GW_ERR_CAPACITY, "--max-key-bytes");
    CHECK(most_bytes < before + 40000, "%ld bytes more were taken", most_bytes - before);
    ask(fd, push_of("no such key", 1), bytes, MAX_KEY_BYTES, GW_ERR_ARGUMENT, "no key");
    close(fd);
}

/* Messages come a byte at a time, or many at once. */
FOR(bytes_that_drip, 2)
{
    static const size_t sizes[] = {1, GW_NET_SMALL - 40, GW_NET_SMALL, 6000};
    static uint8_t value[6000];
    uint8_t head[GW_NET_HEAD + GW_PS_HEAD_BYTES];
    const int fd = joined(1);
    ask(fd, init_of("x", GW_PS_UINT8, sizeof value), NULL, 0, GW_OK, "");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const bool fits = sizes[i] == sizeof value;
        const struct gw_ps_request push = push_of("x", 1);
        const size_t n = talk_head(head, &push, sizes[i]);
        for (size_t b = 0; b < n; b++)
            assert_true(peer_pour(fd, head + b, 1));
        for (size_t b = 0; b < sizes[i]; b++)
            assert_true(peer_pour(fd, value + b, 1));
        expect(fd, fits ? GW_OK : GW_ERR_ARGUMENT, fits ? "" : "takes 6000");
    }
    close(fd);
}

/* A client goes in the middle of a message, at every stage of it: in order, or with a reset, or because it comes again
 * on another connection, or because the server ends. What has come of its value is given back. */
FOR(half_a_message, 2)
{
    enum { CLOSED, RESET, REPLACED, SERVER_ENDS, WAYS, VALUE = MAX_KEY_BYTES, STAGES = 11 };
    static uint8_t whole[GW_NET_HEAD + GW_PS_HEAD_BYTES + VALUE];
    const struct gw_ps_request push = push_of("x", 1);
    const struct linger at_once = {.l_onoff = 1};
    const size_t h = GW_NET_HEAD, v = talk_head(whole, &push, VALUE), n = GW_NET_AHEAD; /* where the value begins: v */
    const size_t stages[STAGES] = {1, h - 1, h, h + 1, v - 1, v, v + 1, n, n + 1, VALUE / 2, v + VALUE - 1};
    for (int i = 0; i < WAYS * STAGES; i++) { /* without giving back, the server's room would be full before the end */
        const int way = i / STAGES;
        const size_t stage = stages[i % STAGES];
        const int fd = come();
        hello_as(fd, way == REPLACED ? 1 : GW_PS_READER, 9000 + (uint64_t)i);
        expect(fd, GW_OK, "");
        wait_for_values(0);
        assert_true(peer_pour(fd, whole, stage));
        if (stage >= v) /* the server has come as far */
            wait_for_values(1);
        if (way == SERVER_ENDS) {
            end(), begin(2, NULL);
        } else if (way == REPLACED) {
            const int again = come();
            hello_as(again, 1, 9000 + (uint64_t)i);
            expect(again, GW_OK, "");
            expect_end(fd);
            leave(again);
            continue;
        } else if (way == RESET) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        }
        close(fd);
        serves();
    }
    const int fd = joined(1);
    ask(fd, init_of("x", GW_PS_UINT8, VALUE), NULL, 0, GW_OK, "");
    assert_true(peer_pour(fd, whole, v + VALUE));
    expect(fd, GW_OK, "");
    close(fd);
}

/* More values are under way at once than the server may hold. Those that find no room are dropped, and refused when
 * they are over. Small ones still find room. */
FOR(many_values_at_once, 1)
{
    enum { N = 24, ROOM = MAX_BYTES / MAX_KEY_BYTES };
    static uint8_t whole[GW_NET_HEAD + GW_PS_HEAD_BYTES + MAX_KEY_BYTES];
    const struct gw_ps_request push = push_of("no such key", 1);
    const size_t n = talk_head(whole, &push, MAX_KEY_BYTES), half = n + MAX_KEY_BYTES / 2;
    const long before = atomic_load(&live_bytes);
    int fds[N];
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < N; i++)
            fds[i] = joined(GW_PS_READER);
        for (int i = 0; i < N; i++) {
            assert_true(peer_pour(fds[i], whole, half));
            if (i < ROOM)
                wait_for_values(i + 1);
        }
        serves();
        for (int i = N - 1; i >= 0; i--) {
            assert_true(peer_pour(fds[i], whole + half, n + MAX_KEY_BYTES - half));
            expect(fds[i], i < ROOM ? GW_ERR_ARGUMENT : GW_ERR_CAPACITY, i < ROOM ? "no key" : "--max-bytes");
            close(fds[i]);
        }
        serves();
    }
    CHECK(most_bytes < before + MAX_BYTES * 4 / 3, "%ld bytes more were taken", most_bytes - before);
}

/* ---- who does not belong -------------------------------------------------------------------------------------- */

/* They say HELLO and are gone before it is read; none of them is kept for a client that is here. */
FOR(clients_that_do_not_wait, 2)
{
    const int busy = joined(GW_PS_READER); /* it keeps the server busy, which looks at the others late */
    for (int i = 0; i < 300; i++) {
        for (int j = 0; j < 100; j++)
            assert_true(peer_send(busy, GW_PS_MESSAGE, "nonsense", 8, NULL, 0));
        const int fd = come();
        hello(fd, i % 3 ? GW_PS_READER : 1);
        close(fd);
        for (int j = 0; j < 100; j++)
            hear(busy);
    }
    close(busy);
    close(joined(1)); /* the last of them may be known for a moment */
    serves();
}

/* Some connections come and go without a word. Others say HELLO first. The server uses the descriptors of those that
 * have gone again, for those that come later. Rank 1 waits all the while. The server must not take it for one of them.
 */
FOR(a_storm_of_connections, 2)
{
    const float x = 3;
    /* The server's descriptor for `gone` is free later. That for `early` is free now, so rank 1 can get it. */
    const int gone = joined(GW_PS_READER), early = joined(GW_PS_READER);
    leave(early);
    const int waiting = joined(1);
    ask(waiting, init_of("x", GW_PS_FLOAT32, 1), NULL, 0, GW_OK, "");
    ask(waiting, push_of("x", 1), &x, 4, GW_OK, "");
    send_request(waiting, pull_of("x", GW_PS_SUM), NULL, 0);
    close(gone);
    for (int i = 0; i < 600; i++) {
        const int fd = i % 3 == 1 ? joined(GW_PS_READER) : come();
        if (i % 3 == 2) { /* gone before it is known */
            hello(fd, i % 2 ? 0 : GW_PS_READER);
            if (i % 6 < 3)
                usleep(1000);
        }
        close(fd);
    }
    serves();
    const int other = joined(0);
    ask(other, push_of("x", 1), &x, 4, GW_OK, "");
    struct gw_ps_answer answer = hear(waiting);
    assert_true(answer.operation == GW_PS_PULL && answer.status == GW_OK && answer.n_pushes == 2);
    close(other), close(waiting);
}

FOR(one_client_too_many, 1)
{
    int fds[MAX_CLIENTS];
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < MAX_CLIENTS; i++)
            fds[i] = joined(GW_PS_READER);
        int more = come();
        hello(more, 0);
        expect(more, GW_ERR_CAPACITY, "--max-clients");
        expect_end(more);
        /* One leaves in good order, and there is room at once; the others just go. */
        leave(fds[0]);
        more = come();
        hello(more, 0);
        expect(more, GW_OK, "");
        close(more);
        for (int i = 1; i < MAX_CLIENTS; i++)
            close(fds[i]);
        close(joined(0)); /* the server knows that they are gone */
        serves();
    }
}

/* ---- who asks for too much ------------------------------------------------------------------------------------ */

FOR(pushes_that_wait_are_counted, 2)
{
    static const uint8_t bytes[MAX_KEY_BYTES];
    enum { PUSHES = 1100, MAY_WAIT = 1024 };
    int fd = joined(1);
    ask(fd, init_of("x", GW_PS_UINT8, MAX_KEY_BYTES), NULL, 0, GW_OK, "");
    for (uint64_t nth = 1; nth <= 200; nth++) /* 200 times 64 KiB, of 1 MiB */
        send_request(fd, push_of("x", nth), bytes, sizeof bytes);
    expect(fd, GW_OK, "");
    for (int refused = 0; refused < 180; refused++)
        expect(fd, GW_ERR_CAPACITY, "--max-bytes");
    close(fd);
    wait_for_values(1); /* they go with their client */
    /* Small ones: more than may wait. */
    fd = joined(1);
    ask(fd, init_of("y", GW_PS_UINT8, 1), NULL, 0, GW_OK, "");
    for (uint64_t nth = 1; nth <= PUSHES; nth++)
        send_request(fd, push_of("y", nth), bytes, 1);
    expect(fd, GW_OK, "");
    for (int i = 1 + MAY_WAIT; i < PUSHES; i++)
        expect(fd, GW_ERR_CAPACITY, "1024 requests of this client wait");
    const int other = joined(0);
    for (uint64_t nth = 1; nth <= MAY_WAIT + 1; nth++) {
        ask(other, push_of("y", nth), bytes, 1, GW_OK, "");
        if (nth <= MAY_WAIT)
            expect(fd, GW_OK, "");
    }
    close(other), close(fd);
    CHECK(most_bytes < 2 * MAX_BYTES + 1100 * 2048, "%ld bytes were taken", atomic_load(&most_bytes));
}

/* A client that will read none of its later answers. */
static int come_deaf(uint64_t rank, uint8_t hello_flags)
{
    const int fd = come();
    ask(fd,
        (struct gw_ps_request){
            .operation = GW_PS_HELLO, .hello_flags = hello_flags, .hello_rank = rank, .incarnation = 99},
        NULL, 0, GW_OK, "");
    return fd;
}

/* Waits until the server has dropped rank 0. Others are answered all the while. */
static void wait_until_dropped(void)
{
    struct gw_ps_answer answer = {.status = GW_ERR_PEER};
    const int reader = joined(GW_PS_READER);
    for (int tries = 0; answer.status != GW_OK; tries++) {
        const int probe = come();
        CHECK(tries < 1000, "a client that reads nothing is still there");
        hello(probe, 0);
        answer = hear(probe);
        if (answer.status == GW_OK)
            leave(probe);
        else
            close(probe);
        ask(reader, (struct gw_ps_request){.operation = GW_PS_INIT, .id = 1}, NULL, 0, GW_ERR_ARGUMENT, "a key's name");
        usleep(20000);
    }
    close(reader);
}

/* Results wait for a client that does not read them. The server must not wait for it, and must not take more memory
 * than it may. In the end it drops that client. */
FOR(answers_that_nobody_reads, 1)
{
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    const struct gw_ps_request pull = pull_of("x", GW_PS_SUM);
    const int fd = come_deaf(0, 0);
    ask(fd, init_of("x", GW_PS_UINT8, sizeof bytes), NULL, 0, GW_OK, "");
    for (uint64_t nth = 1; nth <= 6000; nth++) {
        const struct gw_ps_request push = push_of("x", nth);
        if (!talk_send(fd, &push, bytes, sizeof bytes) || !talk_send(fd, &pull, NULL, 0))
            break; /* it is dropped */
    }
    wait_until_dropped();
    CHECK(scene.n_dropped == 1, "%u were dropped", scene.n_dropped); /* and not only when its connection broke */
    close(fd);
    serves();
    CHECK(most_bytes < 2 * MAX_BYTES + MOST_UNREAD * 512l, "%ld bytes were taken", atomic_load(&most_bytes));
}

/* A reader pulls and reads nothing, until what waits for it takes all the bytes that the server may hold. The server
 * drops it, and refuses nobody else. */
FOR(unread_values_refuse_no_push, 1)
{
    enum { N = MAX_KEY_BYTES / 8, PUSHES = 6000 };
    static uint8_t bytes[N];
    const struct gw_ps_request pull = pull_of("x", GW_PS_LATEST);
    const int good = joined(0), slow = come_deaf(GW_PS_READER, 0);
    ask(good, init_of("x", GW_PS_UINT8, N), NULL, 0, GW_OK, "");
    for (uint64_t nth = 1; nth <= PUSHES; nth++) {
        ask(good, push_of("x", nth), bytes, N, GW_OK, "");
        talk_send(slow, &pull, NULL, 0);
    }
    for (int i = 0; i < 1000 && scene.n_dropped == 0; i++)
        usleep(10000);
    CHECK(scene.n_dropped == 1, "%u were dropped", scene.n_dropped);
    close(slow), close(good);
    serves();
}

/* A client sends JOIN after JOIN and reads no answer. At last the answer to a JOIN is one too many, so the server drops
 * the client. The rest of that JOIN must not use the client any more. */
FOR(joins_whose_answers_nobody_reads, 1)
{
    static const uint8_t bytes[MAX_KEY_BYTES / 8];
    const struct gw_ps_request join = {.operation = GW_PS_JOIN, .id = 1, .round = 1, .timeout_ms = LONG_MS},
                               pull = pull_of("x", GW_PS_LATEST);
    const int fd = come_deaf(0, GW_PS_HELLO_JOINS);
    ask(fd, init_of("x", GW_PS_UINT8, sizeof bytes), NULL, 0, GW_OK, "");
    ask(fd, join, NULL, 0, GW_OK, "");
    ask(fd, push_of("x", 1), bytes, sizeof bytes, GW_OK, "");
    for (int i = 2; i <= 40000; i++) /* most answers are short, and some fill what lies between */
        if (!talk_send(fd, i % 16 ? &join : &pull, NULL, 0))
            break;
    wait_until_dropped();
    close(fd);
    serves();
}

/* A client reads nothing, and many answers wait for it. Then it sends AGREE, JOIN or ADMIT. Each of these ends the run
 * before, and refuses the requests that wait for that run, this client's among them. So one answer is too many while
 * the server still handles the client's own request. */
TEST(too_many_answers_in_the_midst)
{
    static const enum gw_ps_operation operations[] = {GW_PS_AGREE, GW_PS_JOIN, GW_PS_ADMIT};
    static const uint8_t bytes[MAX_KEY_BYTES];
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const bool agrees = operations[i] == GW_PS_AGREE;
        begin(1, NULL);
        const int before = joined(0);
        ask(before, (struct gw_ps_request){.operation = GW_PS_AGREE}, "a = 1\n", 6, GW_OK, "");
        ask(before, init_of("exchange/x", GW_PS_FLOAT32, 1), NULL, 0, GW_OK, "");
        ask(before, init_of("large", GW_PS_UINT8, sizeof bytes), NULL, 0, GW_OK, "");
        ask(before, push_of("large", 1), bytes, sizeof bytes, GW_OK, "");
        leave(before);
        const int fd = come_deaf(0, !agrees);
        struct gw_ps_request get = gw_ps_request_of(GW_PS_GET, "exchange/x");
        get.version = 1, get.timeout_ms = 10 * LONG_MS;
        for (int k = 0; k < 1000; k++)
            send_request(fd, get, NULL, 0);
        for (int k = 0; k < 3900; k++)
            send_request(fd, pull_of("large", GW_PS_LATEST), NULL, 0);
        send_request(fd,
                     (struct gw_ps_request){.operation = operations[i], .id = 7, .number = 1, .timeout_ms = LONG_MS},
                     "a = 2\n", agrees ? 6 : 0);
        wait_until_dropped();
        close(fd);
        serves();
        end();
    }
}

/* A pull that waits for its scale key is answered over its own round, though the same client's next push came
 * meanwhile. */
FOR(a_pull_keeps_its_place, 2)
{
    const uint8_t plus = 0x02, minus = 0x00;
    const float scale = 10;
    const int fds[2] = {joined(0), joined(1)};
    struct gw_ps_request pull = pull_of("codes", GW_PS_DECODE_SUM), next = push_of("codes", 2);
    snprintf(pull.scale_key, sizeof pull.scale_key, "scale");
    pull.id = 5, next.id = 6;
    ask(fds[0], init_of("codes", GW_PS_UINT8, 1), NULL, 0, GW_OK, "");
    ask(fds[0], init_of("scale", GW_PS_FLOAT32, 1), NULL, 0, GW_OK, "");
    for (int r = 0; r < 2; r++)
        ask(fds[r], push_of("codes", 1), &plus, 1, GW_OK, "");
    ask(fds[0], push_of("scale", 1), &scale, 4, GW_OK, "");
    send_request(fds[0], pull, NULL, 0);
    send_request(fds[0], next, &minus, 1);
    /* the server has taken in what came before, or soon will */
    ask(fds[1], init_of("codes", GW_PS_UINT8, 1), NULL, 0, GW_OK, "");
    ask(fds[1], push_of("scale", 1), &scale, 4, GW_OK, "");
    for (uint64_t id = 5; id <= 6; id++) {
        const struct gw_ps_answer answer = hear(fds[0]);
        CHECK(answer.id == id && answer.status == GW_OK && (id == 6 || answer.number == 1), "id %d, round %d: %d %s",
              (int)answer.id, (int)answer.number, answer.status, answer.sentence);
    }
    close(fds[0]), close(fds[1]);
}

/* ---- a server whose files cannot grow ------------------------------------------------------------------------ */

/* Pushes the next value, and tells whether it is kept. */
static bool push_is_kept(int fd, uint64_t *nth)
{
    static const char value[1000];
    send_request(fd, push_of("x", ++*nth), value, sizeof value);
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == GW_OK && (answer.flags == 0 || answer.flags == GW_PS_IN_MEMORY), "%d, flags %u: %s",
          answer.status, answer.flags, answer.sentence);
    return answer.flags == 0;
}

/* If a push is only in memory, its client is told; once files can grow it is kept, and a server after this one has it.
 */
TEST(answers_say_what_is_not_kept)
{
    char folder[] = "/tmp/gradwire-hostile-XXXXXX";
    uint64_t nth = 0;
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    assert_non_null(mkdtemp(folder));
    begin(1, folder);
    int fd = joined(0);
    ask(fd, init_of("x", GW_PS_UINT8, 1000), NULL, 0, GW_OK, "");
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
    end();
    begin(1, folder);
    fd = joined(0);
    send_request(fd, init_of("x", GW_PS_UINT8, 1000), NULL, 0);
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == GW_OK && answer.number == nth && answer.flags == GW_PS_IS_PAST, "%d pushes of %d",
          (int)answer.number, (int)nth);
    close(fd);
    end();
    remove_folder(folder);
}

RUN_TESTS("pserver_hostile", NULL, NULL)
