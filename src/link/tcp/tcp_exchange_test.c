/* Tests exchanges of floats over the tcp link: the gradients are sent from where they stand, and the averages are
 * received there. */
#include "exchange_world.h"
#include "link/tcp/state.h"
#include "net/test_place.h"
#include "outcome.h"
#include "wire/hash.h"

#include <sys/socket.h>

/* Slices of this many elements are lent. Some tensors have none, and some have several for each owner. */
#define CUT (uint64_t)(GW_LOAN_LEAST / sizeof(float))
static const uint64_t sizes[] = {CUT * 9 + 5, 7, 0, CUT * 2, CUT - 1, CUT * 4 + 1000};
#define N_TENSORS (sizeof sizes / sizeof *sizes)
static const uint32_t together[N_TENSORS] = {0}, two_groups[N_TENSORS] = {0, 1, 0, 1, 1, 0};

/* ---- the link ---------------------------------------------------------------------------------------------- */

struct coming {
    pthread_t thread;
    gw_context *context;
    char address[100];
    gw_link *link;
};

static void *come(void *argument)
{
    const struct coming *one = argument;
    if (gw_link_open(one->context, one->address, NULL, 1, one->link) < 0)
        print_error("%s: %s\n", one->address, gw_last_error());
    return NULL;
}

static void meet(gw_context *context, uint32_t n, gw_link *links)
{
    char place[PLACE_BYTES];
    struct coming all[8];
    find_place(place);
    for (uint32_t r = 0; r < n; r++) {
        all[r] = (struct coming){.context = context, .link = &links[r]};
        snprintf(all[r].address, sizeof all[r].address, "tcp://%s?rank=%u&size=%u", place, r, n);
        assert_int_equal(pthread_create(&all[r].thread, NULL, come, &all[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        pthread_join(all[r].thread, NULL);
        assert_non_null(gw_link_loans_of(&links[r]));
    }
}

static struct world a_world(const char *spec, uint32_t n)
{
    return (struct world){.spec = spec,
                          .n = n,
                          .sizes = sizes,
                          .n_tensors = N_TENSORS,
                          .n_steps = 3,
                          .group_of = two_groups,
                          .seed = 5,
                          .shuffle = true,
                          .slice_max = CUT,
                          .meet = meet};
}

/* ---- averages ------------------------------------------------------------------------------------------------ */

TEST(averages_are_the_codecs_own)
{
    /* bf16 and momentum send other bytes than the gradient's. The last tensor is left in float. */
    static const char *const some[] = {"none", "bf16", "ternary:skip=last",
                                       "ternary:residual=on,momentum=0.9,output=velocity,skip=last"};
    for (size_t s = 0; s < sizeof some / sizeof *some; s++) {
        for (uint32_t n = 1; n <= 4; n++) {
            struct world world = a_world(some[s], n);
            world.group_of = n == 2 ? NULL : n == 3 ? together : two_groups;
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            world_end(&world);
        }
    }
}

/* The other members get the averages through one of their machine, which hands them on. */
TEST(averages_of_machines)
{
    static const uint32_t machines[][5] = {{0, 0, 2, 2, 4}, {0, 1, 0, 1, 0}};
    for (size_t i = 0; i < 2; i++) {
        struct world world = a_world("none", 5);
        world.machine_of = machines[i];
        world_run(&world);
        world_check_ok(&world);
        world_check_averages(&world);
        world_end(&world);
    }
}

/* Only whole frames can be counted. What the members count is the same as without. */
TEST(counts_are_the_same)
{
    gw_step_result results[2][3];
    for (int account = 0; account < 2; account++) {
        struct world world = a_world("none", 3);
        world.account = account;
        world_run(&world);
        world_check_ok(&world);
        world_check_averages(&world);
        for (uint32_t r = 0; r < 3; r++)
            results[account][r] = world.members[r].results[2];
        world_end(&world);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(results[0][r].bytes_down, results[1][r].bytes_down);
        assert_true(results[0][r].bytes_up > 0 && results[0][r].bytes_up == results[1][r].bytes_up);
    }
}

/* ---- members that do not the same ----------------------------------------------------------------------------- */

enum { N_DOERS = 3, N_VALUES = 9 * (int)CUT + 5, N_ROUNDS = 5, BAD_ROUND = 2 };

struct doer {
    pthread_t thread;
    gw_link link;
    gw_exchange *ex; /* NULL: each round is one call */
    pthread_barrier_t *all;
    uint32_t n_wrong;
};

/* The members' averages of one round are 1, 2, 3 and so on. Of BAD_ROUND there is none. */
static void make_round(struct doer *d, uint32_t round)
{
    float *values = malloc(N_VALUES * sizeof *values);
    gw_status status;
    for (uint32_t i = 0; i < N_VALUES; i++)
        values[i] = (float)(d->link.rank + round + i % 8);
    if (round == BAD_ROUND && d->link.rank == 1)
        values[N_VALUES - 1] = NAN;
    if (d->ex) {
        status = gw_exchange_set(d->ex, GW_EXCHANGE_ACCOUNT, (round + d->link.rank) % 2);
        if (status == GW_OK)
            status = gw_exchange_begin(d->ex, round);
        if (status == GW_OK)
            status = gw_exchange_submit(d->ex, 0, values);
        if (status == GW_OK)
            status = gw_exchange_wait(d->ex, NULL);
    } else {
        status = gw_average_once(NULL, "none", &d->link, 1, values, N_VALUES, NULL);
    }
    d->n_wrong += status != (round == BAD_ROUND ? GW_ERR_NONFINITE : GW_OK);
    for (uint32_t i = 0; i < N_VALUES && round != BAD_ROUND; i++)
        d->n_wrong += values[i] != (float)(1 + round + i % 8);
    free(values);
}

static void *make_rounds(void *doer)
{
    struct doer *d = doer;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        make_round(d, round);
        if (!d->ex)
            pthread_barrier_wait(d->all); /* a call may begin when all have ended the one before */
    }
    return NULL;
}

/* All members make their rounds: calls one after the other on the same links, or steps of an exchange. In these every
 * member counts in every second step, and not all in the same one. Who counts gets and sends copies. */
static void do_rounds(bool of_exchange)
{
    struct doer doers[N_DOERS] = {0};
    gw_link links[N_DOERS];
    gw_tensor tensor = {.n_elems = N_VALUES};
    gw_codec *codec;
    pthread_barrier_t all;
    ok(gw_codec_parse(NULL, "none", &codec));
    meet(NULL, N_DOERS, links);
    pthread_barrier_init(&all, NULL, N_DOERS);
    for (uint32_t r = 0; r < N_DOERS; r++) {
        doers[r].link = links[r];
        doers[r].all = &all;
        gw_exchange_options options = {
            .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[r]};
        if (of_exchange)
            ok(gw_exchange_create_as(NULL, &options, CUT, false, &doers[r].ex));
        assert_int_equal(pthread_create(&doers[r].thread, NULL, make_rounds, &doers[r]), 0);
    }
    for (uint32_t r = 0; r < N_DOERS; r++)
        pthread_join(doers[r].thread, NULL);
    for (uint32_t r = 0; r < N_DOERS; r++) {
        gw_exchange_destroy(doers[r].ex);
        gw_link_destroy(&doers[r].link);
    }
    for (uint32_t r = 0; r < N_DOERS; r++)
        assert_int_equal(doers[r].n_wrong, 0);
    pthread_barrier_destroy(&all);
    gw_codec_destroy(codec);
}

TEST(calls_one_after_the_other)
{
    do_rounds(false);
}

TEST(some_count_and_others_lend)
{
    do_rounds(true);
}

/* ---- steps without averages --------------------------------------------------------------------------------- */

TEST(a_gradient_that_is_not_finite_drops_the_step)
{
    const struct poison poisons[] = {{.step = 1, .rank = 1, .tensor = 0, .index = CUT * 7},
                                     {.step = 2, .rank = 2, .tensor = 5, .index = 3}};
    struct world world = a_world("none", 3);
    world.n_steps = 5;
    world.poisons = poisons;
    world.n_poisons = 2;
    world_run(&world);
    for (uint32_t r = 0; r < 3; r++) {
        if (world.members[r].status < 0)
            fail_msg("rank %u: %s", r, world.members[r].sentence);
        for (uint32_t step = 0; step < 5; step++)
            assert_int_equal(world.members[r].results[step].committed, step != 1 && step != 2);
    }
    world_check_averages(&world);
    world_end(&world);
}

/* A member goes in the midst of a step. The others free their gradients as soon as they hear of it. */
TEST(who_goes_leaves_no_loans)
{
    for (uint32_t after = 0; after < N_TENSORS; after++) {
        struct world world = a_world("none", 3);
        world.group_of = NULL;
        world.quitter = after % 3;
        world.quits_step = 1;
        world.quits_after = after;
        world.quits = QUIT_DESTROY;
        world_run(&world);
        for (uint32_t r = 0; r < 3; r++)
            if (r != world.quitter) {
                assert_int_equal(world.members[r].status, GW_ERR_PEER);
                assert_int_equal(world.members[r].again, GW_ERR_PEER);
            }
        world_end(&world);
    }
}

TEST(every_allocation_may_fail)
{
    static const uint64_t two[] = {CUT * 2, 300};
    bool survived = false;
    for (long k = 1; !survived; k++) {
        struct world world = a_world("none", 2);
        world.sizes = two;
        world.n_tensors = 2;
        world.group_of = NULL;
        world.n_steps = 1;
        world.victim = 1;
        world.fails_at = k;
        world_run(&world);
        survived = atomic_load(&world.members[1].failing.left) > 0;
        if (survived)
            world_check_ok(&world);
        world_end(&world);
        assert_true(k < 2000);
    }
}

/* ---- owners that lie ------------------------------------------------------------------------------------------ */

/* Rank 0 is an exchange of one tensor. Rank 1, which owns its second half, is this test. */
struct lie {
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex;
    float *gradient;
    uint64_t n_elems;
    uint32_t n_runs; /* of each owner */
};

static void send_bytes(struct lie *l, const void *bytes, size_t n_bytes)
{
    void *copy = gw_message_alloc(NULL, n_bytes);
    memcpy(copy, bytes, n_bytes);
    ok(l->links[1].ops->send(l->links[1].self, 0, copy, n_bytes, 1000));
}

static struct lie *lie_begin(uint64_t n_elems, uint32_t n_runs)
{
    struct lie *l = calloc(1, sizeof *l);
    gw_message hello;
    gw_tensor tensor = {.n_elems = n_elems};
    ok(gw_codec_parse(NULL, "none", &l->codec));
    meet(NULL, 2, l->links);
    l->n_elems = n_elems;
    l->n_runs = n_runs;
    l->gradient = malloc(n_elems * sizeof(float));
    for (uint64_t i = 0; i < n_elems; i++)
        l->gradient[i] = (float)(i % 1000);
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = l->codec, .tensors = &tensor, .n_tensors = 1, .link = l->links[0]};
    ok(gw_exchange_create(NULL, &options, &l->ex));
    ok(gw_link_recv(&l->links[1], 60000, &hello));
    send_bytes(l, hello.bytes, hello.n_bytes); /* it says the same */
    gw_message_free(hello.bytes);
    ok(gw_exchange_begin(l->ex, 0));
    ok(gw_exchange_submit(l->ex, 0, l->gradient));
    return l;
}

/* What rank 1 answers for its nth run, as it should. The caller frees it. */
static uint8_t *lie_answer(const struct lie *l, uint32_t nth, size_t *n_bytes)
{
    const uint64_t half = l->n_elems / 2, at = nth * (uint64_t)GW_SLICE_MAX;
    const uint64_t count = half - at < GW_SLICE_MAX ? half - at : GW_SLICE_MAX;
    struct gw_frame frame = {.codec = GW_WIRE_NONE,
                             .flags = GW_FLAG_AVERAGE,
                             .workers = 2,
                             .begin = half + at,
                             .count = count,
                             .payload_bytes = count * sizeof(float)};
    uint8_t *bytes = calloc(MESSAGE_HEADER + GW_HEADER_BYTES + frame.payload_bytes, 1);
    message_header_write(bytes, &(struct message_header){.type = MESSAGE_PULL, .nth_step = 1, .run = l->n_runs + nth});
    gw_frame_seal(bytes + MESSAGE_HEADER, &frame);
    *n_bytes = MESSAGE_HEADER + frame.frame_bytes;
    return bytes;
}

/* From here on nobody may look at the gradient. */
static void lie_free_gradient(struct lie *l)
{
    memset(l->gradient, 0xEE, l->n_elems * sizeof(float));
    free(l->gradient);
}

static void lie_free(struct lie *l)
{
    gw_link_destroy(&l->links[0]);
    gw_link_destroy(&l->links[1]);
    gw_codec_destroy(l->codec);
    free(l);
}

static void lie_end(struct lie *l, gw_status status, const char *words)
{
    gw_message message;
    refused(gw_exchange_wait(l->ex, NULL), status, words);
    lie_free_gradient(l);
    while (gw_link_recv(&l->links[1], 300, &message) == GW_OK)
        gw_message_free(message.bytes);
    gw_exchange_destroy(l->ex);
    lie_free(l);
}

static void *destroy_link(void *link)
{
    gw_link_destroy(link);
    return NULL;
}

/* Waits until so many messages to rank 1 have been sent that the kernel has not taken. */
static void await_waiting(const struct lie *l, uint32_t n)
{
    struct gw_tcp_endpoint *me = l->links[0].self;
    uint32_t n_waiting = 0;
    for (int i = 0; i < 6000 && n_waiting < n; i++) {
        world_pause(10000);
        pthread_mutex_lock(&me->lock);
        n_waiting = me->peers[1].c.n_waiting;
        pthread_mutex_unlock(&me->lock);
    }
    if (n_waiting < n)
        fail_msg("%u messages wait, and not %u", n_waiting, n);
}

/* Rank 0 gives up while the kernel has not taken all that it lent. Its gradient may go. Rank 1 gets what stood there.
 */
TEST(who_gives_up_leaves_whole_messages)
{
    enum { N_RUNS = 8, N_WAITING = 5 };
    struct lie *l = lie_begin((uint64_t)2 * N_RUNS * GW_SLICE_MAX, N_RUNS);
    gw_message message;
    gw_frame_info info;
    pthread_t thread;
    await_waiting(l, N_WAITING);
    gw_exchange_destroy(l->ex);
    lie_free_gradient(l);
    assert_int_equal(pthread_create(&thread, NULL, destroy_link, &l->links[0]), 0); /* it sends the rest */
    int n = 0;
    while (gw_link_recv(&l->links[1], 60000, &message) == GW_OK) {
        ok(gw_frame_parse(message_body(message.bytes), message.n_bytes - MESSAGE_HEADER, &info));
        gw_message_free(message.bytes);
        n++;
    }
    assert_in_range(n, N_WAITING, N_RUNS);
    pthread_join(thread, NULL);
    lie_free(l);
}

/* Rank 1 reads nothing, so the kernel does not take all pushes. It answers the last one, which is short. */
TEST(averages_before_the_push_has_left_are_refused)
{
    enum { N_RUNS = 16 };
    struct lie *l = lie_begin(2 * ((N_RUNS - 1) * (uint64_t)GW_SLICE_MAX + CUT), N_RUNS);
    size_t n_bytes;
    uint8_t *answer = lie_answer(l, N_RUNS - 1, &n_bytes);
    await_waiting(l, N_RUNS - 3); /* the last ones are among them, because the kernel does not take three of 4 MiB */
    send_bytes(l, answer, n_bytes);
    free(answer);
    lie_end(l, GW_ERR_FRAME_FIELD, "rank 1 sent averages of run 31 of group 0 out of turn");
}

TEST(averages_that_are_none_are_refused)
{
    const struct {
        size_t at; /* of the frame; SIZE_MAX: its last byte */
        uint8_t byte;
        bool reseals;
        gw_status status;
        const char *words;
    } cases[] = {
        {SIZE_MAX, 1, false, GW_ERR_FRAME_CHECKSUM, "rank 1's average of tensor 0: the frame was altered"},
        {0, 'x', false, GW_ERR_FRAME_MAGIC, "rank 1's average of tensor 0: not a Gradwire frame"},
        {3, GW_WIRE_TERNARY, true, GW_ERR_FRAME_FIELD, "the frame is of codec number 4, and must be of floats (1)"},
        {4, 1, true, GW_ERR_FRAME_FIELD, "the frame has code 1"},
        {5, 0, true, GW_ERR_FRAME_FIELD, "it always holds one"},
        {6, 3, true, GW_ERR_FRAME_MISMATCH, "the frame averages 3 workers, and not 2"},
        {12, 1, true, GW_ERR_FRAME_MISMATCH, "the frame holds tensor 1"},
        {16, 1, true, GW_ERR_FRAME_MISMATCH, "the frame is of step 1"},
        {20, 1, true, GW_ERR_FRAME_FIELD, "bucket 1"},
        {33, 7, true, GW_ERR_FRAME_PAYLOAD, "a float frame of"},
        {42, 0, true, GW_ERR_FRAME_PAYLOAD, "a float frame of"},
        {40, 4, true, GW_ERR_FRAME_CUT, "the frame is cut"},
        {46, 4, true, GW_ERR_FRAME_CUT, "the frame is cut"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct lie *l = lie_begin(2 * CUT, 1);
        gw_message push;
        ok(gw_link_recv(&l->links[1], 60000, &push));
        size_t n_bytes;
        uint8_t *answer = lie_answer(l, 0, &n_bytes), *frame = answer + MESSAGE_HEADER;
        frame[cases[c].at == SIZE_MAX ? n_bytes - MESSAGE_HEADER - 1 : cases[c].at] = cases[c].byte;
        if (cases[c].reseals)
            gw_frame_reseal(frame, n_bytes - MESSAGE_HEADER);
        send_bytes(l, answer, n_bytes);
        free(answer);
        gw_message_free(push.bytes);
        lie_end(l, cases[c].status, cases[c].words);
    }
}

/* Appends what the tcp link makes of a message of rank 1. Returns the end. */
static uint8_t *put_message(uint8_t *at, const void *message, size_t n_bytes)
{
    gw_put64(at, n_bytes);
    gw_put16(at + 8, GW_TCP_DATA);
    gw_put16(at + 10, n_bytes > GW_NET_SMALL ? GW_LOAN_HEAD : 0);
    memcpy(at + 12, "GWN1", 4);
    memcpy(at + GW_NET_HEAD, message, n_bytes);
    return at + GW_NET_HEAD + n_bytes;
}

static void send_raw(const struct lie *l, const void *bytes, size_t n_bytes)
{
    const struct gw_tcp_endpoint *me = l->links[1].self;
    assert_int_equal(send(me->peers[0].c.fd, bytes, n_bytes, MSG_NOSIGNAL), n_bytes);
}

/* Rank 1 drops the step, and sends averages all the same. Half of them are there when the step ends. From then on the
 * gradient is the caller's. */
TEST(averages_behind_a_verdict_stay_out)
{
    struct lie *l = lie_begin(2 * CUT, 1);
    gw_message message;
    size_t n_bytes;
    uint8_t push[MESSAGE_BAD_BYTES] = {0}, pull[MESSAGE_BAD_BYTES] = {0};
    ok(gw_link_recv(&l->links[1], 60000, &message));
    gw_message_free(message.bytes);
    message_header_write(push, &(struct message_header){.type = MESSAGE_PUSH, .flags = 1, .nth_step = 1});
    message_header_write(pull, &(struct message_header){.type = MESSAGE_PULL, .flags = 1, .nth_step = 1, .run = 1});
    uint8_t *answer = lie_answer(l, 0, &n_bytes), *all = malloc(n_bytes + 1000), *end;
    memset(answer + GW_LOAN_HEAD, 0x55, n_bytes - GW_LOAN_HEAD);
    end = put_message(put_message(put_message(all, push, sizeof push), pull, sizeof pull), answer, n_bytes);
    const size_t n_first = (size_t)(end - all) - n_bytes / 2;
    send_raw(l, all, n_first);
    refused(gw_exchange_wait(l->ex, NULL), GW_ERR_NONFINITE, "on rank 0 holds a NaN");
    memset(l->gradient, 0xEE, l->n_elems * sizeof(float));
    send_raw(l, all + n_first, n_bytes / 2);
    world_pause(100000);
    for (size_t i = 0; i < l->n_elems * sizeof(float); i++)
        assert_int_equal(((const uint8_t *)l->gradient)[i], 0xEE);
    gw_exchange_destroy(l->ex);
    lie_free_gradient(l);
    free(answer);
    free(all);
    lie_free(l);
}

RUN_TESTS("exchanges of floats over tcp", NULL, NULL)
