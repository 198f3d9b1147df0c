/* Tests workers that come, go, die and come back, and what the other workers do meanwhile. */
#include "base/clock.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/test_calls.h"
#include "pserver/protocol/test_talk.h"

/* A worker that speaks to the server without the library. When it goes, it says nothing: its connection just ends. */
struct ghost {
    int fd;
};

/* The place of the server that the next ghost comes to, in the list of all servers, and the length of that list. */
static uint32_t place_in_list = 0, servers_in_list = 1;

static void list_as(uint32_t place, uint32_t n_servers)
{
    place_in_list = place, servers_in_list = n_servers;
}

static void ghost_sends(const struct ghost *g, const struct gw_ps_request *request, const void *body, size_t n_bytes)
{
    struct gw_ps_request whole = *request;
    whole.place = place_in_list, whole.n_servers = servers_in_list;
    assert_true(talk_send(g->fd, &whole, body, n_bytes));
}

static struct gw_ps_answer ghost_hears(const struct ghost *g)
{
    struct gw_ps_answer answer;
    assert_true(talk_hear(g->fd, &answer));
    return answer;
}

/* Sends a request, and returns the status of the answer. */
static gw_status ghost_asks(const struct ghost *g, const struct gw_ps_request *request, const void *body,
                            size_t n_bytes)
{
    ghost_sends(g, request, body, n_bytes);
    return ghost_hears(g).status;
}

static void ghost_says(const struct ghost *g, const struct gw_ps_request *request, const void *body, size_t n_bytes)
{
    assert_int_equal(ghost_asks(g, request, body, n_bytes), GW_OK);
}

static struct ghost ghost_comes_as(const struct test_server *s, uint32_t rank, uint8_t joins, uint64_t incarnation)
{
    const struct ghost g = {peer_connect(gw_ps_server_address(s->server))};
    ghost_says(&g,
               &(struct gw_ps_request){
                   .operation = GW_PS_HELLO, .hello_flags = joins, .hello_rank = rank, .incarnation = incarnation},
               NULL, 0);
    return g;
}

static struct ghost ghost_comes(const struct test_server *s, uint32_t rank, uint8_t joins)
{
    static uint64_t incarnation = 77; /* each is another */
    return ghost_comes_as(s, rank, joins, incarnation++);
}

static struct ghost ghost_joins(const struct test_server *s, uint32_t rank)
{
    struct ghost g = ghost_comes(s, rank, 1);
    ghost_says(&g, &(struct gw_ps_request){.operation = GW_PS_JOIN, .id = 7, .round = 1, .timeout_ms = LONG_MS}, NULL,
               0);
    return g;
}

static void ghost_pushes(const struct ghost *g, const char *key, uint64_t nth, float x)
{
    struct gw_ps_request request = {.operation = GW_PS_PUSH, .nth = nth, .id = nth};
    snprintf(request.key, sizeof request.key, "%s", key);
    ghost_says(g, &request, &x, sizeof x);
}

static void ghost_goes(const struct ghost *g)
{
    close(g->fd);
}

/* It leaves in good order. */
static void ghost_leaves(const struct ghost *g)
{
    ghost_sends(g, &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
    assert_true(peer_is_out(g->fd));
    ghost_goes(g);
}

static void wait_until(gw_ps_client *client, uint32_t rank, gw_ps_presence what)
{
    gw_ps_presence presence[4] = {GW_PS_ABSENT};
    do
        expect_ok(gw_ps_members(client, presence, 4, NULL));
    while (presence[rank] != what);
}

/* ---- without a worker --------------------------------------------------------------------------------------- */

/* A worker dies in a round, after it has pushed to key x and before it pushes to y. The round of x counts that push.
 * The round of y goes on without the worker, and so do later rounds. */
static void the_rest_continues(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1);
    struct ghost c = ghost_comes(s, 2, 0);
    init(a, "x"), init(a, "y"), init(b, "x"), init(b, "y");
    ghost_pushes(&c, "x", 1, 4);
    ghost_goes(&c);
    push(a, "x", 1), push(b, "x", 2), push(a, "y", 1), push(b, "y", 2);
    expect_sum(a, "x", 7, 3), expect_sum(b, "x", 7, 3);
    expect_sum(a, "y", 3, 2), expect_sum(b, "y", 3, 2);
    push(a, "x", 5), push(b, "x", 6);
    expect_sum(a, "x", 11, 2);

    /* The worker comes back, and takes part from the open rounds on. */
    gw_ps_client *again = come_to(s, 2);
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
    uint64_t id;
    request.push_kind = value ? GW_PS_PUSH_PENDING : 0;
    request.refusal = refusal;
    expect_ok(gw_ps_client_begin(client, 0, &request, value, value ? sizeof *value : 0, NULL, &id));
    expect_ok(gw_ps_wait(client, id, GW_PS_NO_LIMIT, NULL));
}

static void expect_parameter(gw_ps_client *client, const char *key, float w)
{
    gw_ps_value value;
    expect_ok(gw_ps_pull(client, key, GW_PS_PARAMETERS, NULL, &value));
    assert_true(*(float *)value.bytes == w);
    gw_ps_value_free(&value);
}

/* A worker dies between its push and its verdict. Its push must not count, and the other goes on without it. */
static void one_dies_before_its_verdict(void **state)
{
    const struct test_server *s = *state;
    const char *const key = "exchange/w";
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    const float w = 100, g = 8, h = 2;
    gw_ps_client *a = come_to(s, 0);
    struct ghost b = ghost_comes(s, 1, 0);
    expect_ok(test_init(a, key, GW_PS_FLOAT32, &one, "sgd:lr=1", &w));
    for (uint64_t t = 1; t <= 2; t++) {
        struct gw_ps_request push = {.operation = GW_PS_PUSH, .push_kind = GW_PS_PUSH_PENDING, .nth = t};
        snprintf(push.key, sizeof push.key, "%s", key);
        ghost_says(&b, &push, &h, sizeof h);
        push_pending(a, key, &g, 0);
        push_pending(a, key, NULL, GW_PS_NO_REFUSAL);
        if (t == 1)
            ghost_says(&b, &(struct gw_ps_request){.operation = GW_PS_VERDICT, .nth = t, .refusal = UINT64_MAX}, NULL,
                       0);
        else
            ghost_goes(&b);
        expect_parameter(a, key, t == 1 ? 95 : 87);
    }
    push_pending(a, key, &g, 0);
    push_pending(a, key, NULL, 5);
    gw_ps_value value;
    assert_int_equal(gw_ps_pull(a, key, GW_PS_PARAMETERS, NULL, &value), GW_ERR_NONFINITE);
    assert_int_equal(gw_ps_refusal(a), 5);
    gw_ps_client_destroy(a);
}

/* The server leaves out a worker after it acknowledged its push. The worker is back before the others have pushed. Its
 * push must count. */
static void an_acknowledged_push_stays(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1);
    struct ghost c = ghost_comes(s, 2, 0);
    init(a, "x"), init(b, "x");
    ghost_pushes(&c, "x", 1, 4);
    push(a, "x", 1), push(b, "x", 2);
    expect_sum(a, "x", 7, 3);
    ghost_pushes(&c, "x", 2, 40);
    ghost_goes(&c);
    wait_until(a, 2, GW_PS_ABSENT);
    struct ghost back = ghost_comes(s, 2, 0);
    push(a, "x", 10), push(b, "x", 20);
    expect_sum(a, "x", 70, 3);
    ghost_pushes(&back, "x", 2, 40); /* sent again: it counts once */
    ghost_pushes(&back, "x", 3, 4);
    push(a, "x", 1), push(b, "x", 2);
    expect_sum(b, "x", 7, 3);
    ghost_goes(&back);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A worker was left out, and sends pushes with the numbers of rounds that went on without it. The server must refuse
 * them, and not act as if it had taken them. */
static void what_comes_too_late_is_refused(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0);
    struct ghost b = ghost_comes(s, 1, 0);
    init(a, "x");
    ghost_pushes(&b, "x", 1, 1);
    push(a, "x", 1);
    expect_sum(a, "x", 2, 2);
    ghost_goes(&b);
    for (uint32_t i = 0; i < 3; i++)
        push(a, "x", 5), expect_sum(a, "x", 5, 1);
    struct ghost back = ghost_comes(s, 1, 0);
    const float x = 1;
    for (uint64_t nth = 1; nth <= 5;
         nth++) { /* round 1 has its push, rounds 2 to 4 went on without it, round 5 is open */
        const struct gw_ps_request again = {.operation = GW_PS_PUSH, .nth = nth, .id = nth, .key = "x"};
        assert_int_equal(ghost_asks(&back, &again, &x, sizeof x), nth == 1 || nth == 5 ? GW_OK : GW_ERR_PEER);
    }
    push(a, "x", 2);
    expect_sum(a, "x", 3, 2);
    ghost_goes(&back);
    gw_ps_client_destroy(a);
}

/* A worker is back, and pulls before it has pushed again. The answer must not be a round that went on without it. */
static void a_round_without_it_is_not_its_own(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0);
    struct ghost b = ghost_comes(s, 1, 0);
    const struct gw_ps_request pull = {
        .operation = GW_PS_PULL, .method = GW_PS_SUM, .id = 9, .timeout_ms = LONG_MS, .key = "x"};
    init(a, "x");
    ghost_pushes(&b, "x", 1, 1);
    push(a, "x", 1);
    expect_sum(a, "x", 2, 2);
    ghost_goes(&b);
    for (uint32_t i = 0; i < 3; i++)
        push(a, "x", 5), expect_sum(a, "x", 5, 1);
    struct ghost back = ghost_comes(s, 1, 0);
    assert_int_equal(ghost_asks(&back, &pull, NULL, 0), GW_ERR_PEER); /* it asks for the round to which it had pushed */
    ghost_pushes(&back, "x", 5, 7);
    push(a, "x", 2);
    ghost_says(&back, &pull, NULL, 0);
    ghost_goes(&back);
    gw_ps_client_destroy(a);
}

static void the_rest_stops(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0);
    struct ghost b = ghost_comes(s, 1, 0);
    init(a, "x");
    push(a, "x", 1);
    ghost_goes(&b);
    gw_ps_value value;
    assert_int_equal(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value), GW_ERR_CLOSED);
    assert_non_null(strstr(gw_last_error(), "rank 1 is gone"));
    gw_ps_client_destroy(a);
}

/* Two of four workers begin. A third comes later, and takes part at once. */
static void some_begin(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0);
    init(a, "x");
    push(a, "x", 1);
    uint64_t early;
    expect_ok(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = "x", .method = GW_PS_SUM},
                         &early)); /* it waits, because one worker alone does not begin */
    gw_ps_client *b = come_to(s, 3);
    init(b, "x");
    push(b, "x", 2);
    gw_ps_value value;
    expect_ok(gw_ps_wait(a, early, GW_PS_NO_LIMIT, &value));
    assert_int_equal(value.n_pushes, 2);
    gw_ps_value_free(&value);
    gw_ps_client *c = come_to(s, 1);
    init(c, "x");
    push(a, "x", 1), push(b, "x", 2), push(c, "x", 3);
    expect_sum(c, "x", 6, 3);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b), gw_ps_client_destroy(c);
}

/* A round does not wait for the slowest worker. What that worker pushes later is dropped. It can still pull the result
 * of the others. */
static void backup_workers(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *w[3];
    for (uint32_t r = 0; r < 3; r++)
        w[r] = come_to(s, r), init(w[r], "x");
    push(w[0], "x", 1), push(w[1], "x", 2);
    expect_sum(w[0], "x", 3, 2), expect_sum(w[1], "x", 3, 2);
    push(w[0], "x", 10), push(w[1], "x", 20); /* this round stays open, or else rank 2 would be two rounds late */
    uint64_t id;
    gw_ps_value value;
    expect_ok(test_begin(w[0], (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = "x", .method = GW_PS_SUM}, &id));
    push(w[2], "x", 4);
    expect_sum(w[2], "x", 3, 2);
    expect_ok(gw_ps_wait(w[0], id, GW_PS_NO_LIMIT, &value));
    assert_true(value.n_pushes == 2 && value.round == 2 && *(float *)value.bytes == 30);
    gw_ps_value_free(&value);
    push(w[2], "x", 40); /* late again */
    expect_sum(w[2], "x", 30, 2);
    push(w[2], "x", 400), push(w[1], "x", 200);
    expect_sum(w[2], "x", 600, 2);
    for (uint32_t r = 0; r < 3; r++)
        gw_ps_client_destroy(w[r]);
}

/* A worker that takes part by a JOIN was left out. It comes back, and asks again for the result of its last round. The
 * server must refuse that, and not answer with a later round. */
static void who_was_left_out_is_told(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0);
    struct ghost b = ghost_comes(s, 1, 1);
    ghost_says(&b, &(struct gw_ps_request){.operation = GW_PS_JOIN, .round = 1, .timeout_ms = LONG_MS}, NULL, 0);
    init(a, "x");
    ghost_pushes(&b, "x", 1, 1);
    ghost_goes(&b);
    for (uint32_t i = 0; i < 3; i++)
        push(a, "x", 5), expect_sum(a, "x", i ? 5 : 6, i ? 1 : 2);
    struct ghost back = ghost_comes(s, 1, 1);
    const float x = 1;
    const struct gw_ps_request pull = {.operation = GW_PS_PULL,
                                       .method = GW_PS_SUM,
                                       .id = 9,
                                       .timeout_ms = LONG_MS,
                                       .key = "x"},
                               next = {.operation = GW_PS_PUSH, .nth = 2, .id = 10, .key = "x"};
    assert_int_equal(ghost_asks(&back, &pull, NULL, 0), GW_ERR_PEER);
    assert_int_equal(ghost_asks(&back, &next, &x, sizeof x), GW_ERR_PEER);
    ghost_goes(&back);
    gw_ps_client_destroy(a);
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

static uint64_t join_at_once(gw_ps_client *client)
{
    uint64_t round = 0;
    expect_ok(gw_ps_join(client, &round));
    init(client, KEY);
    return round;
}

static void one_joins_while_others_train(void **state)
{
    const struct pair *p = *state;
    for (int run_number = 0; run_number < 2; run_number++) { /* the second run must find nothing of the first */
        gw_ps_client *w[3];
        for (uint32_t r = 0; r < 3; r++) {
            w[r] = test_client(p->places, r, true, LONG_MS);
            assert_int_equal(join_at_once(w[r]), 1);
        }
        one_round(w, 3);
        gw_ps_client_destroy(w[2]);
        for (uint32_t i = 0; i < 4; i++)
            one_round(w, 2);
        struct joiner j = {.client = test_client(p->places, 2, true, LONG_MS)};
        assert_int_equal(pthread_create(&j.thread, NULL, join, &j), 0);
        uint64_t round = 6;
        while (!gw_ps_take_notice(w[0], GW_PS_NOTICE_JOIN)) {
            one_round(w, 2), round++;
            assert_false(gw_ps_take_notice(w[1], GW_PS_NOTICE_JOIN));
            expect_ok(gw_ps_members(w[0], NULL, 0, NULL)); /* a call that takes in what the first server has said */
        }
        gw_ps_presence presence[3];
        expect_ok(gw_ps_members(w[1], presence, sizeof presence / sizeof *presence, NULL));
        assert_true(presence[0] == GW_PS_PRESENT && presence[1] == GW_PS_PRESENT && presence[2] == GW_PS_JOINING);
        gw_ps_client *side = test_client(p->places, GW_PS_READER, false, LONG_MS);
        expect_ok(gw_ps_admit(side, 2, round));
        gw_ps_client_destroy(side);
        pthread_join(j.thread, NULL);
        assert_int_equal(j.status, GW_OK);
        assert_int_equal(j.round, round);
        w[2] = j.client;
        init(w[2], KEY);
        one_round(w, 3), one_round(w, 3);
        for (uint32_t r = 0; r < 3; r++)
            gw_ps_client_destroy(w[r]);
    }
}

/* Nobody admits a newcomer. It is told so at its deadline. The others train on meanwhile. */
static void nobody_admits(void **state)
{
    const struct pair *p = *state;
    gw_ps_client *a = test_client(p->places, 0, true, LONG_MS), *b = test_client(p->places, 1, true, LONG_MS);
    join_at_once(a), join_at_once(b);
    one_round((gw_ps_client *[]){a, b}, 2);
    gw_ps_client_destroy(b);
    uint64_t round;
    gw_ps_client *c = test_client(p->places, 1, true, 300);
    assert_int_equal(gw_ps_join(c, &round), GW_ERR_TIMEOUT);
    one_round(&a, 1);
    assert_int_equal(gw_ps_admit(c, 0, 1), GW_ERR_ORDER); /* that round is over */
    gw_ps_client_destroy(c);
    assert_int_equal(gw_ps_admit(a, 1, 7), GW_ERR_PEER); /* no such worker is there */
    gw_ps_client_destroy(a);
}

/* The answer to an ADMIT was lost, so the ADMIT is sent again. What the newcomer pushed meanwhile must stay. */
static void admitted_twice(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = test_client(gw_ps_server_address(s->server), 0, true, LONG_MS), *side = come_to(s, GW_PS_READER);
    join_at_once(a);
    one_round(&a, 1);
    struct joiner j = {.client = test_client(gw_ps_server_address(s->server), 1, true, LONG_MS)};
    assert_int_equal(pthread_create(&j.thread, NULL, join, &j), 0);
    wait_until(side, 1, GW_PS_JOINING);
    expect_ok(gw_ps_admit(side, 1, 2));
    pthread_join(j.thread, NULL);
    expect_ok(j.status);
    init(j.client, KEY);
    push(j.client, KEY, 4);
    expect_ok(gw_ps_admit(side, 1, 2));
    push(a, KEY, 1);
    expect_sum(j.client, KEY, 5, 2), expect_sum(a, KEY, 5, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(j.client), gw_ps_client_destroy(side);
}

static void ghost_agrees(const struct ghost *g, const char *lines)
{
    ghost_says(g, &(struct gw_ps_request){.operation = GW_PS_AGREE, .id = 8}, lines, strlen(lines));
}

/* The first worker of a run is started, ended, and started again with other options, before the other worker has come.
 * The server must take the new options, because nobody else has agreed to the old ones. */
static void one_begins_otherwise(void **state)
{
    (void)state;
    for (gw_ps_missing missing = GW_PS_MISSING_WAIT; missing <= GW_PS_MISSING_STOP; missing++) {
        struct test_server s;
        test_server_begin(&s, &(gw_ps_server_options){.n_workers = 2, .missing = missing});
        struct ghost a = ghost_joins(&s, 0);
        ghost_agrees(&a, "net = lenet\n");
        ghost_leaves(&a);
        a = ghost_joins(&s, 0);
        ghost_agrees(&a, "net = mlp\n");
        ghost_goes(&a);
        test_server_end(&s);
    }
}

/* A reader's pull waits for a scale that does not come. When the run ends, the server must answer the pull. One of the
 * two keys belongs to the run: in the first turn it is the scale, in the second the codes. */
static void a_wait_for_a_scale_ends_with_the_run(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct gw_ps_request pull = {.operation = GW_PS_PULL,
                                     .method = GW_PS_DECODE_SUM,
                                     .id = 5,
                                     .timeout_ms = LONG_MS};
        const char *codes = i ? KEY : "codes", *scale = i ? "scale" : KEY;
        const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
        const uint8_t code = 1;
        struct test_server s;
        snprintf(pull.key, sizeof pull.key, "%s", codes);
        snprintf(pull.scale_key, sizeof pull.scale_key, "%s", scale);
        test_server_begin(&s, &(gw_ps_server_options){.n_workers = 1});
        gw_ps_client *side = come_to(&s, GW_PS_READER);
        expect_ok(test_init(side, codes, GW_PS_UINT8, &one, NULL, NULL));
        init(side, scale);
        struct ghost a = ghost_joins(&s, 0), reader = ghost_comes(&s, GW_PS_READER, 0);
        ghost_agrees(&a, "net = lenet\n");
        struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .id = 1};
        snprintf(push.key, sizeof push.key, "%s", codes);
        ghost_says(&a, &push, &code, sizeof code);
        ghost_sends(&reader, &pull, NULL, 0);
        ghost_says(&reader, &(struct gw_ps_request){.operation = GW_PS_MEMBERS, .id = 6}, NULL, 0); /* the pull waits */
        ghost_leaves(&a);
        a = ghost_joins(&s, 0);
        ghost_agrees(&a, "net = mlp\n");
        const struct gw_ps_answer answer = ghost_hears(&reader);
        assert_true(answer.id == 5 && answer.status == GW_ERR_PEER);
        assert_non_null(strstr(answer.sentence, "the run that this server served is over"));
        ghost_goes(&a), ghost_goes(&reader);
        gw_ps_client_destroy(side);
        test_server_end(&s);
    }
}

static gw_status ghost_would_agree(const struct ghost *g, const char *lines)
{
    return ghost_asks(g, &(struct gw_ps_request){.operation = GW_PS_AGREE, .id = 9}, lines, strlen(lines));
}

/* The connection of a run's first worker breaks before the second worker has come. When the first is back, the run goes
 * on, with all that was acknowledged. The run is over only if the worker left, or if another client has its rank. */
static void the_first_is_back_in_a_moment(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *reader = come_to(s, GW_PS_READER);
    init(reader, KEY);
    struct ghost a = ghost_comes_as(s, 0, 0, 7), b = ghost_comes(s, 1, 0);
    ghost_agrees(&a, "net = lenet\n");
    ghost_pushes(&a, KEY, 1, 1);
    ghost_goes(&a);
    wait_until(reader, 0, GW_PS_AWAY);
    assert_int_equal(ghost_would_agree(&b, "net = lenet\n"), GW_ERR_ORDER);
    a = ghost_comes_as(s, 0, 0, 7);
    ghost_agrees(&b, "net = lenet\n");
    ghost_pushes(&b, KEY, 1, 2);
    expect_sum(reader, KEY, 3, 2);

    ghost_goes(&a), ghost_goes(&b);
    wait_until(reader, 0, GW_PS_AWAY), wait_until(reader, 1, GW_PS_AWAY);
    struct ghost c = ghost_comes(s, 0, 0);
    assert_int_equal(ghost_would_agree(&c, "net = mlp\n"), GW_ERR_ORDER);
    struct ghost d = ghost_comes(s, 1, 0);
    ghost_agrees(&d, "net = mlp\n");
    ghost_agrees(&c, "net = mlp\n");
    gw_ps_client_destroy(reader);
    ghost_goes(&c), ghost_goes(&d);
}

/* All workers of a run end, and come again. The run must begin anew. */
static void all_come_again(void **state)
{
    const struct pair *p = *state;
    gw_ps_client *w[2] = {test_client(p->places, 0, true, LONG_MS), test_client(p->places, 1, true, LONG_MS)};
    join_at_once(w[0]), join_at_once(w[1]);
    one_round(w, 2);
    gw_ps_client_destroy(w[0]), gw_ps_client_destroy(w[1]);
    w[0] = test_client(p->places, 0, true, LONG_MS), w[1] = test_client(p->places, 1, true, LONG_MS);
    assert_int_equal(join_at_once(w[1]), 1);
    assert_int_equal(join_at_once(w[0]), 1);
    one_round(w, 2);
    gw_ps_client_destroy(w[0]), gw_ps_client_destroy(w[1]);
}

/* All connections end at once, as if the server's network had failed. Nobody must be left out, even if one worker is
 * back before the others. */
static void all_are_away_at_once(void **state)
{
    const struct test_server *s = *state;
    struct ghost a = ghost_comes(s, 0, 0), b = ghost_comes(s, 1, 0);
    gw_ps_client *reader = come_to(s, GW_PS_READER);
    init(reader, "x");
    ghost_pushes(&a, "x", 1, 1), ghost_pushes(&b, "x", 1, 2);
    ghost_goes(&a), ghost_goes(&b);
    gw_ps_presence presence[2] = {0};
    for (const double end = gw_clock_seconds() + 1; gw_clock_seconds() < end;)
        expect_ok(gw_ps_members(reader, presence, sizeof presence / sizeof *presence, NULL));
    assert_true(presence[0] == GW_PS_AWAY && presence[1] == GW_PS_AWAY);
    a = ghost_comes(s, 0, 0);
    expect_ok(gw_ps_members(reader, presence, sizeof presence / sizeof *presence, NULL));
    assert_true(presence[0] == GW_PS_PRESENT && presence[1] == GW_PS_AWAY);
    ghost_pushes(&a, "x", 2, 1);
    wait_until(reader, 1, GW_PS_ABSENT); /* rank 0 goes on, so the server now leaves out rank 1 */
    ghost_goes(&a);
    gw_ps_client_destroy(reader);
}

/* The parameters of a run are on the servers. The next workers must go on where the last ones stopped. */
static void parameters_outlive_their_workers(void **state)
{
    const struct pair *p = *state;
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    const float w = 10, gradient = 1;
    gw_ps_value value;
    for (uint64_t begin = 1; begin < 10; begin += 3) {
        uint64_t round;
        gw_ps_client *a = test_client(p->places, 0, true, LONG_MS);
        expect_ok(gw_ps_join(a, &round));
        assert_int_equal(round, begin);
        expect_ok(test_init(a, KEY, GW_PS_FLOAT32, &shape, "sgd:lr=1", &w));
        for (uint64_t i = 0; i < 3; i++) {
            expect_ok(gw_ps_push(a, KEY, &gradient, sizeof gradient));
            expect_ok(gw_ps_pull(a, KEY, GW_PS_PARAMETERS, NULL, &value));
            assert_true(value.round == begin + i && *(float *)value.bytes == 10 - (float)(begin + i));
            gw_ps_value_free(&value);
        }
        gw_ps_client_destroy(a);
    }
}

/* Both workers of a run on two servers die, and come again before a server has left them out. The run must begin anew
 * on both servers. */
static void all_die_and_come_again(void **state)
{
    const struct pair *p = *state;
    for (uint32_t i = 0; i < 2; i++) {
        struct ghost ghosts[2][2];
        for (uint32_t s = 0; s < 2; s++)
            for (uint32_t r = 0; r < 2; r++)
                list_as((uint32_t)s, 2), ghosts[s][r] = ghost_joins(&p->servers[s], r);
        gw_ps_client *reader = test_client(p->places, GW_PS_READER, false, LONG_MS);
        init(reader, KEY);
        gw_ps_client_destroy(reader);
        for (uint32_t s = 0; s < 2; s++) /* the key is on one of the servers only */
            for (uint32_t r = 0; r < 2; r++) {
                const float x = 1;
                struct gw_ps_request push = {.operation = GW_PS_PUSH, .nth = 1, .id = 8, .key = KEY};
                ghost_asks(&ghosts[s][r], &push, &x, sizeof x);
            }
        for (uint32_t s = 0; s < 2; s++)
            for (uint32_t r = 0; r < 2; r++)
                ghost_goes(&ghosts[s][r]);
        gw_ps_client *w[2];
        struct joiner j[2];
        for (uint32_t r = 0; r < 2; r++) {
            j[r] = (struct joiner){.client = w[r] = test_client(p->places, r, true, LONG_MS)};
            assert_int_equal(pthread_create(&j[r].thread, NULL, join, &j[r]), 0);
        }
        for (uint32_t r = 0; r < 2; r++) {
            pthread_join(j[r].thread, NULL);
            expect_ok(j[r].status);
            assert_int_equal(j[r].round, 1);
            init(w[r], KEY);
        }
        one_round(w, 2);
        gw_ps_client_destroy(w[0]), gw_ps_client_destroy(w[1]);
    }
    list_as(0, 1);
}

/* A worker finds that a run has begun on the second server, and waits until somebody admits it. But that run is over.
 * When another run begins there, the worker must take part without being admitted. */
static void what_had_begun_elsewhere_is_over(void **state)
{
    const struct pair *p = *state;
    gw_ps_client *first = test_client(p->places, GW_PS_READER, false, LONG_MS);
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    struct gw_ps_request make = gw_ps_request_of(GW_PS_INIT, KEY);
    make.type = GW_PS_FLOAT32, make.shape = one;
    expect_ok(gw_ps_client_init(first, 1, &make));
    struct ghost before[2];
    for (uint32_t r = 0; r < 2; r++)
        list_as(1, 2), before[r] = ghost_joins(&p->servers[1], r);
    for (uint32_t r = 0; r < 2; r++)
        ghost_pushes(&before[r], KEY, 1, 1);
    for (uint32_t r = 0; r < 2; r++)
        ghost_goes(&before[r]);
    list_as(0, 2);
    struct ghost a = ghost_joins(&p->servers[0], 0);
    struct joiner j = {.client = test_client(p->places, 1, true, LONG_MS)};
    assert_int_equal(pthread_create(&j.thread, NULL, join, &j), 0);
    gw_ps_presence presence[2];
    wait_until(first, 1, GW_PS_JOINING);
    list_as(1, 2);
    struct ghost b = ghost_joins(&p->servers[1], 0);
    list_as(0, 1);
    pthread_join(j.thread, NULL);
    assert_int_equal(j.status, GW_OK);
    assert_int_equal(j.round, 1);
    expect_ok(gw_ps_members(first, presence, sizeof presence / sizeof *presence, NULL));
    assert_true(presence[0] == GW_PS_PRESENT && presence[1] == GW_PS_PRESENT);
    ghost_goes(&a), ghost_goes(&b);
    gw_ps_client_destroy(first), gw_ps_client_destroy(j.client);
    list_as(0, 1);
}

/* A worker waits for another one to admit it, and that one dies. Once the server has left out the dead one, the worker
 * that waits must begin. If the server keeps the parameters, it begins with the next round, else with a new run. */
static void who_waits_for_one_left_out_begins(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        struct test_server s;
        test_server_begin(&s, &(gw_ps_server_options){
                                  .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 1, .away_ms = 50});
        gw_ps_client *side = come_to(&s, GW_PS_READER);
        struct ghost a = ghost_joins(&s, 0);
        const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
        const float w = 10;
        if (kept)
            expect_ok(test_init(side, KEY, GW_PS_FLOAT32, &one, "sgd:lr=1", &w));
        else
            init(side, KEY);
        ghost_pushes(&a, KEY, 1, 1);
        struct joiner j = {.client = test_client(gw_ps_server_address(s.server), 1, true, LONG_MS)};
        assert_int_equal(pthread_create(&j.thread, NULL, join, &j), 0);
        gw_ps_presence presence[2];
        wait_until(side, 1, GW_PS_JOINING);
        expect_ok(gw_ps_members(side, presence, 2, NULL));
        assert_int_equal(presence[0], GW_PS_PRESENT);
        ghost_goes(&a);
        pthread_join(j.thread, NULL);
        expect_ok(j.status);
        assert_int_equal(j.round, kept ? 2 : 1);
        expect_ok(gw_ps_members(side, presence, sizeof presence / sizeof *presence, NULL));
        assert_true(presence[0] == GW_PS_ABSENT && presence[1] == GW_PS_PRESENT);
        gw_ps_client_destroy(j.client), gw_ps_client_destroy(side);
        test_server_end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(the_rest_continues, .n_workers = 3, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(what_comes_too_late_is_refused, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(who_was_left_out_is_told, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(one_dies_before_its_verdict, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(an_acknowledged_push_stays, .n_workers = 3, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(the_rest_stops, .n_workers = 2, .missing = GW_PS_MISSING_STOP, .away_ms = 50),
        ON_SERVER(some_begin, .n_workers = 4, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 2),
        ON_SERVER(a_round_without_it_is_not_its_own, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50),
        ON_SERVER(admitted_twice, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 1, .away_ms = 50),
        cmocka_unit_test(one_begins_otherwise),
        cmocka_unit_test(a_wait_for_a_scale_ends_with_the_run),
        ON_SERVER(backup_workers, .n_workers = 3, .backup = 1),
        ON_TWO(one_joins_while_others_train, .n_workers = 3, .missing = GW_PS_MISSING_CONTINUE),
        ON_TWO(nobody_admits, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE),
        cmocka_unit_test(who_waits_for_one_left_out_begins),
        ON_SERVER(the_first_is_back_in_a_moment, .n_workers = 2, .away_ms = 1000000),
        ON_TWO(all_come_again, .n_workers = 2, .missing = GW_PS_MISSING_WAIT),
        ON_TWO(all_die_and_come_again, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE),
        ON_TWO(what_had_begun_elsewhere_is_over, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE),
        ON_SERVER(all_are_away_at_once, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 300),
        ON_TWO(parameters_outlive_their_workers, .n_workers = 1, .missing = GW_PS_MISSING_CONTINUE),
    };
    return cmocka_run_group_tests_name("pserver members", tests, NULL, NULL);
}
