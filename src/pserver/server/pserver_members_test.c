/* Tests workers that come, go, die and come back, and what the other workers do meanwhile. */
#include "base/clock.h"
#include "pserver/client/test_calls.h"
#include "pserver/protocol/test_talk.h"

/* ---- ghosts: workers that speak to a server without the library. They die when their connection just ends ----------
 */

static int ghost_as(uint32_t server, uint32_t rank, uint8_t joins, uint64_t incarnation)
{
    const int fd = peer_connect(place_of(server));
    ask(fd,
        (struct gw_ps_request){.operation = GW_PS_HELLO,
                               .hello_flags = joins,
                               .hello_rank = rank,
                               .incarnation = incarnation,
                               .place = server,
                               .n_servers = served.n},
        NULL, 0, GW_OK, "");
    return fd;
}

static int ghost(uint32_t rank, uint8_t joins)
{
    static uint64_t incarnation = 77; /* each is another */
    return ghost_as(0, rank, joins, incarnation++);
}

static const struct gw_ps_request join_1 = {.operation = GW_PS_JOIN, .id = 7, .round = 1, .timeout_ms = LONG_MS};

static int ghost_that_joins(uint32_t server, uint32_t rank)
{
    static uint64_t incarnation = 7700;
    const int fd = ghost_as(server, rank, 1, incarnation++);
    ask(fd, join_1, NULL, 0, GW_OK, "");
    return fd;
}

static void ghost_pushes(int fd, const char *key, uint64_t nth, float x, gw_status status)
{
    ask(fd, push_of(key, nth), &x, sizeof x, status, "");
}

static void ghost_agrees(int fd, const char *lines, gw_status status)
{
    ask(fd, (struct gw_ps_request){.operation = GW_PS_AGREE}, lines, strlen(lines), status, "");
}

/* ---- who is here ------------------------------------------------------------------------------------------------ */

static void wait_until(gw_ps_client *client, uint32_t rank, gw_ps_presence what)
{
    const double end = gw_clock_seconds() + LONG_MS / 1000;
    gw_ps_presence presence[4] = {GW_PS_ABSENT};
    do {
        CHECK(gw_clock_seconds() < end, "rank %u does not become %d", rank, what);
        ok(gw_ps_members(client, presence, 4, NULL));
    } while (presence[rank] != what);
}

/* A letter for each worker: (p)resent, (j)oining, away for a (m)oment, or (a)bsent. */
static void expect_members(gw_ps_client *client, const char *letters)
{
    static const char letter_of[] = {
        [GW_PS_PRESENT] = 'p', [GW_PS_JOINING] = 'j', [GW_PS_AWAY] = 'm', [GW_PS_ABSENT] = 'a'};
    gw_ps_presence presence[4];
    ok(gw_ps_members(client, presence, 4, NULL));
    for (size_t r = 0; r < strlen(letters); r++)
        CHECK(letter_of[presence[r]] == letters[r], "rank %zu is %c, and not %c", r, letter_of[presence[r]],
              letters[r]);
}

/* A server is number `place` of a client's list, counted from 0. */
TEST(a_list_without_the_server_is_refused)
{
    const struct gw_ps_request hello = {.operation = GW_PS_HELLO, .incarnation = 5, .place = 2, .n_servers = 2};
    const int fd = peer_connect(place_of(0));
    ask(fd, hello, NULL, 0, GW_ERR_ARGUMENT, "the server is number 3 of its 2");
    close(fd);
}

/* ---- without a worker --------------------------------------------------------------------------------------- */

/* A worker dies in a round, after it has pushed to key x and before it pushes to y. The round of x counts that push.
 * The round of y goes on without the worker, and so do later rounds. */
TEST(the_rest_continues)
{
    gw_ps_client *a = come(0), *b = come(1);
    const int c = ghost(2, 0);
    init(a, "x"), init(a, "y"), init(b, "x"), init(b, "y");
    ghost_pushes(c, "x", 1, 4, GW_OK), close(c);
    push(a, "x", 1), push(b, "x", 2), push(a, "y", 1), push(b, "y", 2);
    expect_sum(a, "x", 7, 3), expect_sum(b, "x", 7, 3);
    expect_sum(a, "y", 3, 2), expect_sum(b, "y", 3, 2);
    push(a, "x", 5), push(b, "x", 6);
    expect_sum(a, "x", 11, 2);

    /* The worker comes back, and takes part from the open rounds on. */
    gw_ps_client *again = come(2);
    init(again, "x"), init(again, "y");
    push(a, "x", 1), push(b, "x", 2), push(again, "x", 4);
    expect_sum(again, "x", 7, 3), expect_sum(a, "x", 7, 3);
    gw_ps_client_destroy(again); /* it says that it leaves, so nobody waits for it */
    push(a, "y", 1), push(b, "y", 1);
    expect_sum(a, "y", 2, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A push to an exchange's key that waits for a verdict (value NULL: the verdict itself), as an exchange makes it. */
static void push_pending(gw_ps_client *client, const char *key, const float *value, uint64_t refusal)
{
    struct gw_ps_request request = gw_ps_request_of(value ? GW_PS_PUSH : GW_PS_VERDICT, key);
    uint64_t id = 0;
    request.push_kind = value ? GW_PS_PUSH_PENDING : 0;
    request.refusal = refusal;
    ok(gw_ps_client_begin(client, 0, &request, value, value ? sizeof *value : 0, NULL, &id));
    ok(wait_for(client, id));
}

/* A worker dies between its push and its verdict. Its push must not count, and the other goes on without it. */
TEST(one_dies_before_its_verdict)
{
    const char *const key = "exchange/w";
    const float w = 100, g = 8, h = 2;
    gw_ps_value value;
    gw_ps_client *a = come(0);
    const int b = ghost(1, 0);
    ok(test_init(a, key, GW_PS_FLOAT32, 1, "sgd:lr=1", &w));
    for (uint64_t t = 1; t <= 2; t++) {
        struct gw_ps_request pending = push_of(key, t);
        pending.push_kind = GW_PS_PUSH_PENDING;
        ask(b, pending, &h, sizeof h, GW_OK, "");
        push_pending(a, key, &g, 0);
        push_pending(a, key, NULL, GW_PS_NOT_REFUSED);
        if (t == 1)
            ask(b, (struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = t, .refusal = UINT64_MAX}, NULL, 0, GW_OK,
                "");
        else
            close(b);
        ok(gw_ps_pull(a, key, GW_PS_PARAMETERS, NULL, &value));
        take_x(&value, t == 1 ? 95 : 87, t == 1 ? 2 : 1);
    }
    push_pending(a, key, &g, 0);
    push_pending(a, key, NULL, 5);
    refused(gw_ps_pull(a, key, GW_PS_PARAMETERS, NULL, &value), GW_ERR_NONFINITE, "");
    assert_int_equal(gw_ps_refusal(a), 5);
    gw_ps_client_destroy(a);
}

/* The server leaves out a worker after it acknowledged its push. The worker is back before the others have pushed. Its
 * push must count. */
TEST(an_acknowledged_push_stays)
{
    gw_ps_client *a = come(0), *b = come(1);
    int c = ghost(2, 0);
    init(a, "x"), init(b, "x");
    ghost_pushes(c, "x", 1, 4, GW_OK), push(a, "x", 1), push(b, "x", 2);
    expect_sum(a, "x", 7, 3);
    ghost_pushes(c, "x", 2, 40, GW_OK), close(c);
    wait_until(a, 2, GW_PS_ABSENT);
    c = ghost(2, 0);
    push(a, "x", 10), push(b, "x", 20);
    expect_sum(a, "x", 70, 3);
    ghost_pushes(c, "x", 2, 40, GW_OK); /* sent again: it counts once */
    ghost_pushes(c, "x", 3, 4, GW_OK), push(a, "x", 1), push(b, "x", 2);
    expect_sum(b, "x", 7, 3);
    close(c);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A worker pushed to round 1 and was left out. The others are in round 4 when it is back. Its pull must not give a
 * round that went on without it: to one that JOINs nothing at all. Its pushes to such rounds must be refused, and not
 * as if they were taken. */
TEST(who_was_left_out_is_told)
{
    for (uint8_t joins = 0; joins < 2; joins++) {
        serve(1, &(gw_ps_server_options){.n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50});
        gw_ps_client *a = come(0);
        int b = ghost(1, joins);
        if (joins)
            ask(b, join_1, NULL, 0, GW_OK, "");
        init(a, "x");
        ghost_pushes(b, "x", 1, 1, GW_OK), close(b);
        for (uint32_t i = 0; i < 3; i++)
            push(a, "x", 5), expect_sum(a, "x", i ? 5 : 6, i ? 1 : 2);
        b = ghost(1, joins);
        ask(b, pull_of("x", GW_PS_SUM), NULL, 0, GW_ERR_PEER, "");
        if (joins) {
            ghost_pushes(b, "x", 2, 1, GW_ERR_PEER);
        } else {
            ghost_pushes(b, "x", 1, 1, GW_OK); /* that round has its push */
            ghost_pushes(b, "x", 2, 1, GW_ERR_PEER), ghost_pushes(b, "x", 3, 1, GW_ERR_PEER);
            ghost_pushes(b, "x", 4, 1, GW_OK), push(a, "x", 2);
            expect_sum(a, "x", 3, 2);
            ask(b, pull_of("x", GW_PS_SUM), NULL, 0, GW_OK, "");
        }
        close(b);
        gw_ps_client_destroy(a);
        end_serving();
    }
}

TEST(the_rest_stops)
{
    gw_ps_client *a = come(0);
    gw_ps_value value;
    const int b = ghost(1, 0);
    init(a, "x"), push(a, "x", 1), close(b);
    refused(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value), GW_ERR_CLOSED, "rank 1 is gone");
    gw_ps_client_destroy(a);
}

/* Two of four workers begin. A third comes later, and takes part at once. */
TEST(some_begin)
{
    gw_ps_client *a = come(0);
    init(a, "x"), push(a, "x", 1);
    const uint64_t early = begin_sum(a, "x"); /* it waits, because one worker alone does not begin */
    gw_ps_client *b = come(3);
    init(b, "x"), push(b, "x", 2);
    gw_ps_value value;
    ok(gw_ps_wait(a, early, GW_PS_NO_LIMIT, &value));
    take_x(&value, 3, 2);
    gw_ps_client *c = come(1);
    init(c, "x");
    push(a, "x", 1), push(b, "x", 2), push(c, "x", 3);
    expect_sum(c, "x", 6, 3);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b), gw_ps_client_destroy(c);
}

/* ---- joining the exchange ------------------------------------------------------------------------------------ */

#define KEY GW_PS_EXCHANGE "x"

static void one_round(gw_ps_client *const *workers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        push(workers[i], KEY, 1);
    for (uint32_t i = 0; i < n; i++)
        expect_sum(workers[i], KEY, (float)n, n);
}

/* A client that joins on a thread of its own, because that takes others. */
struct joiner {
    gw_ps_client *client;
    uint64_t round;
    gw_status status;
    pthread_t thread;
};

static void *join(void *user)
{
    struct joiner *j = user;
    j->status = gw_ps_join(j->client, &j->round);
    return NULL;
}

static void begin_join(struct joiner *j, uint32_t rank)
{
    j->client = come_to_join(rank);
    assert_int_equal(pthread_create(&j->thread, NULL, join, j), 0);
}

/* It joins with this round. */
static gw_ps_client *end_join(struct joiner *j, uint64_t round)
{
    pthread_join(j->thread, NULL);
    ok(j->status);
    assert_int_equal(j->round, round);
    return j->client;
}

/* A client that begins with round 1. */
static gw_ps_client *joined(uint32_t rank)
{
    gw_ps_client *client = come_to_join(rank);
    uint64_t round = 0;
    ok(gw_ps_join(client, &round));
    assert_int_equal(round, 1);
    init(client, KEY);
    return client;
}

TEST(one_joins_while_others_train)
{
    for (int run_number = 0; run_number < 2; run_number++) { /* the second run must find nothing of the first */
        gw_ps_client *w[3] = {joined(0), joined(1), joined(2)}, *side = come(GW_PS_READER);
        one_round(w, 3);
        gw_ps_client_destroy(w[2]);
        for (uint32_t i = 0; i < 4; i++)
            one_round(w, 2);
        struct joiner j;
        begin_join(&j, 2);
        uint64_t round = 6;
        while (!gw_ps_take_notice(w[0], GW_PS_NOTICE_JOIN)) {
            one_round(w, 2), round++;
            assert_false(gw_ps_take_notice(w[1], GW_PS_NOTICE_JOIN));
            ok(gw_ps_members(w[0], NULL, 0, NULL)); /* a call that takes in what the first server has said */
        }
        expect_members(w[1], "ppj");
        ok(gw_ps_admit(side, 2, round));
        w[2] = end_join(&j, round);
        init(w[2], KEY);
        one_round(w, 3), one_round(w, 3);
        for (uint32_t r = 0; r < 3; r++)
            gw_ps_client_destroy(w[r]);
        gw_ps_client_destroy(side);
    }
}

/* A run of the exchange stopped, because a worker was gone, and then all ended. The next one takes part at once, and
 * waits for none of them. */
TEST(the_next_run_waits_for_nobody_of_a_stopped_one)
{
    gw_ps_client *reader = come(GW_PS_READER);
    init(reader, KEY);
    const int a = ghost_that_joins(0, 0), b = ghost_that_joins(0, 1);
    ghost_pushes(a, KEY, 1, 1, GW_OK), close(b);
    struct gw_ps_request pull = pull_of(KEY, GW_PS_SUM);
    ask(a, pull, NULL, 0, GW_ERR_CLOSED, "rank 1 is gone");
    close(a);
    wait_until(reader, 0, GW_PS_ABSENT);
    expect_members(reader, "aa");
    const int next = ghost_that_joins(0, 1);
    expect_members(reader, "ap");
    close(next);
    gw_ps_client_destroy(reader);
}

/* Nobody admits a newcomer. At its deadline it is told who should have. The others train on meanwhile. */
TEST(nobody_admits)
{
    gw_ps_client *w[] = {joined(0), joined(1)}, *c;
    uint64_t round;
    one_round(w, 2);
    gw_ps_client_destroy(w[1]);
    c = test_client(served.places, 1, true, 300);
    refused(gw_ps_join(c, &round), GW_ERR_TIMEOUT,
            "rank 1 has waited 300 ms to be let in by one of those that take part: rank 0");
    one_round(w, 1);
    refused(gw_ps_admit(c, 0, 1), GW_ERR_ORDER, ""); /* that round is over */
    gw_ps_client_destroy(c);
    refused(gw_ps_admit(w[0], 1, 7), GW_ERR_PEER, ""); /* no such worker is there */
    gw_ps_client_destroy(w[0]);
}

/* The answer to an ADMIT was lost, so the ADMIT is sent again. What the newcomer pushed meanwhile must stay. */
TEST(admitted_twice)
{
    gw_ps_client *a = joined(0), *side = come(GW_PS_READER), *b;
    struct joiner j;
    one_round(&a, 1);
    begin_join(&j, 1);
    wait_until(side, 1, GW_PS_JOINING);
    ok(gw_ps_admit(side, 1, 2));
    b = end_join(&j, 2);
    init(b, KEY), push(b, KEY, 4);
    ok(gw_ps_admit(side, 1, 2));
    push(a, KEY, 1);
    expect_sum(b, KEY, 5, 2), expect_sum(a, KEY, 5, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b), gw_ps_client_destroy(side);
}

/* The first worker of a run is started, ended, and started again with other options, before the other worker has come.
 * The server must take the new options, because nobody else has agreed to the old ones. */
TEST(one_begins_otherwise)
{
    for (gw_ps_missing missing = GW_PS_MISSING_WAIT; missing <= GW_PS_MISSING_STOP; missing++) {
        serve(1, &(gw_ps_server_options){.n_workers = 2, .missing = missing});
        int a = ghost_that_joins(0, 0);
        ghost_agrees(a, "net = lenet\n", GW_OK), leave(a);
        a = ghost_that_joins(0, 0);
        ghost_agrees(a, "net = mlp\n", GW_OK), close(a);
        end_serving();
    }
}

/* A reader's pull waits for a scale that does not come. When the run ends, the server must answer the pull. One of the
 * two keys belongs to the run: in the first turn it is the scale, in the second the codes. */
TEST(a_wait_for_a_scale_ends_with_the_run)
{
    for (int i = 0; i < 2; i++) {
        const char *codes = i ? KEY : "codes", *scale = i ? "scale" : KEY;
        const uint8_t code = 1;
        struct gw_ps_request pull = pull_of(codes, GW_PS_DECODE_SUM);
        pull.id = 5;
        snprintf(pull.scale_key, sizeof pull.scale_key, "%s", scale);
        serve(1, &(gw_ps_server_options){.n_workers = 1});
        gw_ps_client *side = come(GW_PS_READER);
        ok(test_init(side, codes, GW_PS_UINT8, 1, NULL, NULL));
        init(side, scale);
        int a = ghost_that_joins(0, 0);
        const int reader = ghost(GW_PS_READER, 0);
        ghost_agrees(a, "net = lenet\n", GW_OK);
        ask(a, push_of(codes, 1), &code, sizeof code, GW_OK, "");
        send_request(reader, pull, NULL, 0);
        ask(reader, (struct gw_ps_request){.operation = GW_PS_MEMBERS}, NULL, 0, GW_OK, ""); /* the pull waits */
        leave(a);
        a = ghost_that_joins(0, 0);
        ghost_agrees(a, "net = mlp\n", GW_OK);
        const struct gw_ps_answer answer = hear(reader);
        assert_true(answer.id == 5 && answer.status == GW_ERR_PEER);
        assert_non_null(strstr(answer.sentence, "the run that this server served is over"));
        close(a), close(reader);
        gw_ps_client_destroy(side);
        end_serving();
    }
}

/* The connection of a run's first worker breaks before the second worker has come. When the first is back, the run goes
 * on, with all that was acknowledged. The run is over only if the worker left, or if another client has its rank. */
TEST(the_first_is_back_in_a_moment)
{
    gw_ps_client *reader = come(GW_PS_READER);
    init(reader, KEY);
    int a = ghost_as(0, 0, 0, 7), b = ghost(1, 0);
    ghost_agrees(a, "net = lenet\n", GW_OK), ghost_pushes(a, KEY, 1, 1, GW_OK), close(a);
    wait_until(reader, 0, GW_PS_AWAY);
    ghost_agrees(b, "net = lenet\n", GW_ERR_ORDER);
    a = ghost_as(0, 0, 0, 7);
    ghost_agrees(b, "net = lenet\n", GW_OK), ghost_pushes(b, KEY, 1, 2, GW_OK);
    expect_sum(reader, KEY, 3, 2);

    close(a), close(b);
    wait_until(reader, 0, GW_PS_AWAY), wait_until(reader, 1, GW_PS_AWAY);
    a = ghost(0, 0);
    ghost_agrees(a, "net = mlp\n", GW_ERR_ORDER);
    b = ghost(1, 0);
    ghost_agrees(b, "net = mlp\n", GW_OK), ghost_agrees(a, "net = mlp\n", GW_OK);
    leave(a), leave(b);
    a = ghost(0, 0);
    ghost_agrees(a, "net = lenet\n", GW_OK);
    gw_ps_client_destroy(reader);
    close(a);
}

/* All workers of a run end, and come again. The run must begin anew. */
TEST(all_come_again)
{
    for (int again = 0; again < 2; again++) {
        gw_ps_client *w[2];
        w[again] = joined((uint32_t)again), w[!again] = joined(!again);
        one_round(w, 2);
        gw_ps_client_destroy(w[0]), gw_ps_client_destroy(w[1]);
    }
}

/* All connections end at once, as if the server's network had failed. Nobody must be left out, even if one worker is
 * back before the others. */
TEST(all_are_away_at_once)
{
    int a = ghost(0, 0), b = ghost(1, 0);
    gw_ps_client *reader = come(GW_PS_READER);
    init(reader, "x");
    ghost_pushes(a, "x", 1, 1, GW_OK), ghost_pushes(b, "x", 1, 2, GW_OK);
    close(a), close(b);
    for (const double end = gw_clock_seconds() + 1; gw_clock_seconds() < end;)
        ok(gw_ps_members(reader, NULL, 0, NULL));
    expect_members(reader, "mm");
    a = ghost(0, 0);
    expect_members(reader, "pm");
    ghost_pushes(a, "x", 2, 1, GW_OK);
    wait_until(reader, 1, GW_PS_ABSENT); /* rank 0 goes on, so the server now leaves out rank 1 */
    close(a);
    gw_ps_client_destroy(reader);
}

/* The parameters of a run are on the servers. The next workers must go on where the last ones stopped. */
TEST(parameters_outlive_their_workers)
{
    const float w = 10;
    for (uint64_t begin = 1; begin < 10; begin += 3) {
        uint64_t round;
        gw_ps_client *a = come_to_join(0);
        ok(gw_ps_join(a, &round));
        assert_int_equal(round, begin);
        ok(test_init(a, KEY, GW_PS_FLOAT32, 1, "sgd:lr=1", &w));
        for (; round < begin + 3; round++) {
            gw_ps_value value;
            push(a, KEY, 1);
            ok(gw_ps_pull(a, KEY, GW_PS_PARAMETERS, NULL, &value));
            assert_int_equal(value.round, round);
            take_x(&value, 10 - (float)round, 1);
        }
        gw_ps_client_destroy(a);
    }
}

/* Both workers of a run on two servers die, and come again before a server has left them out. The run must begin anew
 * on both servers. */
TEST(all_die_and_come_again)
{
    for (uint32_t i = 0; i < 2; i++) {
        const float x = 1;
        int ghosts[4];
        for (uint32_t g = 0; g < 4; g++)
            ghosts[g] = ghost_that_joins(g / 2, g % 2);
        gw_ps_client *reader = come(GW_PS_READER);
        init(reader, KEY);
        gw_ps_client_destroy(reader);
        for (uint32_t g = 0; g < 4; g++) { /* the key is on one of the servers only */
            send_request(ghosts[g], push_of(KEY, 1), &x, sizeof x);
            hear(ghosts[g]);
        }
        for (uint32_t g = 0; g < 4; g++)
            close(ghosts[g]);
        gw_ps_client *w[2];
        struct joiner j[2];
        begin_join(&j[0], 0), begin_join(&j[1], 1);
        for (uint32_t r = 0; r < 2; r++)
            w[r] = end_join(&j[r], 1), init(w[r], KEY);
        one_round(w, 2);
        gw_ps_client_destroy(w[0]), gw_ps_client_destroy(w[1]);
    }
}

/* A worker finds that a run has begun on the second server, and waits until somebody admits it. But that run is over.
 * When another run begins there, the worker must take part without being admitted. */
TEST(what_had_begun_elsewhere_is_over)
{
    gw_ps_client *first = come(GW_PS_READER);
    const struct gw_ps_request make = init_of(KEY, GW_PS_FLOAT32, 1);
    ok(gw_ps_client_do(first, 1, &make, NULL, 0));
    const int before[] = {ghost_that_joins(1, 0), ghost_that_joins(1, 1)};
    ghost_pushes(before[0], KEY, 1, 1, GW_OK), ghost_pushes(before[1], KEY, 1, 1, GW_OK);
    close(before[0]), close(before[1]);
    const int a = ghost_that_joins(0, 0);
    struct joiner j;
    begin_join(&j, 1);
    wait_until(first, 1, GW_PS_JOINING);
    const int b = ghost_that_joins(1, 0);
    gw_ps_client *c = end_join(&j, 1);
    expect_members(first, "pp");
    close(a), close(b);
    gw_ps_client_destroy(c);
    gw_ps_client_destroy(first);
}

/* A worker waits for another one to admit it, and that one dies. Once the server has left out the dead one, the worker
 * that waits must begin. If the server keeps the parameters, it begins with the next round, else with a new run. */
TEST(who_waits_for_one_left_out_begins)
{
    for (int kept = 0; kept < 2; kept++) {
        serve(1, &(gw_ps_server_options){
                     .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 1, .away_ms = 50});
        gw_ps_client *side = come(GW_PS_READER);
        const int a = ghost_that_joins(0, 0);
        ok(test_init(side, KEY, GW_PS_FLOAT32, 1, kept ? "sgd:lr=1" : NULL, kept ? &(float){10} : NULL));
        ghost_pushes(a, KEY, 1, 1, GW_OK);
        struct joiner j;
        begin_join(&j, 1);
        wait_until(side, 1, GW_PS_JOINING);
        expect_members(side, "pj");
        close(a);
        gw_ps_client *b = end_join(&j, kept ? 2 : 1);
        expect_members(side, "ap");
        gw_ps_client_destroy(b), gw_ps_client_destroy(side);
        end_serving();
    }
}

int main(void)
{
    const gw_ps_missing waits = GW_PS_MISSING_WAIT, continues = GW_PS_MISSING_CONTINUE, stops = GW_PS_MISSING_STOP;
    const struct CMUnitTest tests[] = {
        ON_SERVER(a_list_without_the_server_is_refused, .n_workers = 2),
        ON_SERVER(the_rest_continues, .n_workers = 3, .missing = continues, .away_ms = 50),
        cmocka_unit_test(who_was_left_out_is_told),
        ON_SERVER(one_dies_before_its_verdict, .n_workers = 2, .missing = continues, .away_ms = 50),
        ON_SERVER(an_acknowledged_push_stays, .n_workers = 3, .missing = continues, .away_ms = 50),
        ON_SERVER(the_rest_stops, .n_workers = 2, .missing = stops, .away_ms = 50),
        ON_SERVER(the_next_run_waits_for_nobody_of_a_stopped_one, .n_workers = 2, .missing = stops, .away_ms = 50),
        ON_SERVER(some_begin, .n_workers = 4, .missing = continues, .min_workers = 2),
        ON_SERVER(admitted_twice, .n_workers = 2, .missing = continues, .min_workers = 1, .away_ms = 50),
        cmocka_unit_test(one_begins_otherwise),
        cmocka_unit_test(a_wait_for_a_scale_ends_with_the_run),
        ON_TWO(one_joins_while_others_train, .n_workers = 3, .missing = continues, .away_ms = 50),
        ON_TWO(nobody_admits, .n_workers = 2, .missing = continues, .away_ms = 50),
        cmocka_unit_test(who_waits_for_one_left_out_begins),
        ON_SERVER(the_first_is_back_in_a_moment, .n_workers = 2, .away_ms = 1000000),
        ON_TWO(all_come_again, .n_workers = 2, .missing = waits, .away_ms = 50),
        ON_TWO(all_die_and_come_again, .n_workers = 2, .missing = continues, .away_ms = 50),
        ON_TWO(what_had_begun_elsewhere_is_over, .n_workers = 2, .missing = continues, .away_ms = 50),
        ON_SERVER(all_are_away_at_once, .n_workers = 2, .missing = continues, .away_ms = 300),
        ON_TWO(parameters_outlive_their_workers, .n_workers = 1, .missing = continues, .away_ms = 50),
    };
    return cmocka_run_group_tests_name("pserver members", tests, NULL, NULL);
}
