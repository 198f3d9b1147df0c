/* Tests connections between two members that are reset while both members live on. All members hear of it, with the
 * same cause. A member that only passes the news on is not named as the one that failed. Each member is a process. */
#include "link/tcp/test_world.h"

#include <gradwire/exchange.h>
#include <signal.h>
#include <sys/wait.h>

#define N 3u
#define DONE 17

/* Ends a connection as a machine between the two would: both sides see a reset. */
static void reset_connection_from(gw_link *link, uint32_t rank)
{
    const struct gw_tcp_endpoint *me = link->self;
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    if (connect(me->peers[rank].c.fd, &nowhere, sizeof nowhere) != 0)
        _exit(3);
}

/* What a member must hear of the connection between ranks 0 and 1, from either of its ends. */
static bool is_the_cause(const char *sentence)
{
    const char *of_1 = strstr(sentence, "rank 1 (127.0.0.1:"), *of_0 = strstr(sentence, "rank 0 (127.0.0.1:");
    return !strstr(sentence, "rank 2") && !strstr(sentence, "failed") && !strstr(sentence, "left the link") &&
           ((of_1 && strstr(of_1, "lost its connection to rank 0")) ||
            (of_0 && strstr(of_0, "lost its connection to rank 1")));
}

static void check_cause(const gw_link *link, gw_status status)
{
    if (status == GW_ERR_PEER && is_the_cause(gw_last_error()))
        return;
    fprintf(stderr, "rank %u: %d, %s\n", link->rank, status, gw_last_error());
    _exit(4);
}

/* One step over all members' zeros. */
static gw_status step(gw_exchange *exchange, uint32_t number)
{
    static float gradient[1000];
    GW_TRY(gw_exchange_begin(exchange, number));
    GW_TRY(gw_exchange_submit(exchange, 0, gradient));
    return gw_exchange_wait(exchange, NULL);
}

static void in_step(gw_link *link, uint32_t nth)
{
    gw_codec *codec;
    gw_exchange *exchange;
    const gw_tensor tensor = {.name = "a", .id = 0, .n_elems = 1000};
    if (gw_codec_parse(NULL, "ternary", &codec) < 0)
        _exit(5);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .link = *link,
                                         .codec = codec,
                                         .tensors = &tensor,
                                         .n_tensors = 1,
                                         .timeout_ms = 20000};
    gw_status status = gw_exchange_create(NULL, &options, &exchange);
    for (uint32_t t = 0; status == GW_OK; t++) {
        if (link->rank == 1 && t == nth)
            reset_connection_from(link, 0);
        status = step(exchange, t);
    }
    check_cause(link, status);
    gw_exchange_destroy(exchange);
    gw_codec_destroy(codec);
}

/* A member to its end. It ends only when all have heard: a member that ends tells the others something too. */
static void be(uint32_t rank, const char *place, void (*live)(gw_link *link), int heard, int all_heard)
{
    const struct gw_link_request options = {.rank = rank, .size = N, .rendezvous = place, .timeout_ms = LINK_LONG_MS};
    gw_link link;
    char byte;
    if (gw_tcp_open(NULL, &options, 1, &link) < 0)
        _exit(2);
    live(&link);
    if (write(heard, "", 1) != 1)
        _exit(7);
    close(heard); /* if one of them ends before, nobody waits for its byte */
    if (read(all_heard, &byte, 1) != 0)
        _exit(8);
    gw_link_destroy(&link);
    _exit(DONE);
}

static void reset_under(void (*live)(gw_link *link))
{
    char place[32], byte;
    int heard[2], all_heard[2], how;
    pid_t children[N];
    world_free_place(place);
    assert_true(pipe(heard) == 0 && pipe(all_heard) == 0);
    fflush(NULL);
    for (uint32_t r = 0; r < N; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) {
            close(all_heard[1]);
            close(heard[0]);
            be(r, place, live, heard[1], all_heard[0]);
        }
    }
    close(heard[1]);
    close(all_heard[0]);
    uint32_t n_heard = 0;
    while (n_heard < N && read(heard[0], &byte, 1) == 1)
        n_heard++;
    close(all_heard[1]);
    close(heard[0]);
    for (uint32_t r = 0; r < N; r++)
        assert_int_equal(waitpid(children[r], &how, 0), children[r]);
    assert_int_equal(n_heard, N);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == DONE);
}

static void in_the_first_step(gw_link *link)
{
    in_step(link, 0);
}

static void in_the_second_step(gw_link *link)
{
    in_step(link, 1);
}

TEST(reset_under_steps)
{
    reset_under(in_the_first_step);
    reset_under(in_the_second_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reset_under_steps),
    };
    return cmocka_run_group_tests_name("tcp reset", tests, NULL, NULL);
}
