/* Tests a fork beside a client and beside a server: the forked process can do them no harm, and makes a client of its
 * own. */
#include "pserver/client/test_calls.h"
#include "forks.h"

struct shared {
    gw_ps_client *client;
    uint64_t pushing; /* a request that was begun before the fork */
};

static void work_as_rank_1(void)
{
    gw_ps_client *own = come(1);
    init(own, "x");
    push(own, "x", 30);
    expect_sum(own, "x", 33, 2);
    gw_ps_client_destroy(own);
}

static bool client_forked(void *argument)
{
    const struct shared *shared = argument;
    gw_ps_client *client = shared->client;
    const float x = 7;
    uint64_t request, round;
    gw_ps_value value;
    const gw_status refused[] = {
        test_init(client, "y", GW_PS_FLOAT32, 1, NULL, NULL),
        test_init(client, "z", GW_PS_FLOAT32, 1, "sgd", &x),
        gw_ps_push(client, "x", &x, sizeof x),
        gw_ps_pull(client, "x", GW_PS_SUM, NULL, &value),
        gw_ps_put(client, "x", 1, &x, sizeof x),
        gw_ps_get(client, "x", 1, &value),
        test_begin(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x},
                   &request),
        gw_ps_wait(client, shared->pushing, GW_PS_NO_LIMIT, NULL),
        gw_ps_wait(client, shared->pushing, 1, NULL),
        gw_ps_client_meet(client, 1),
        gw_ps_join(client, &round),
        gw_ps_members(client, NULL, 0, NULL),
        gw_ps_admit(client, 1, 1),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] != GW_ERR_ORDER) {
            fprintf(stderr, "call %zu gave %d: %s\n", i, refused[i], gw_last_error());
            return false;
        }
    if (!is_of_another_process(gw_ps_admit(client, 1, 1), "this client of the parameter server"))
        return false;
    gw_ps_cancel(client, shared->pushing);
    gw_ps_client_destroy(client);
    /* The server belongs to the process that forked, too. Its eventfd is shared. */
    gw_ps_server_stop(served.all[0].server);
    if (!is_of_another_process(gw_ps_server_run(served.all[0].server), "this parameter server"))
        return false;
    gw_ps_server_destroy(served.all[0].server);
    if (FORK_STARTS_THREADS)
        work_as_rank_1();
    return true;
}

TEST(a_client_and_a_server_belong_to_their_process)
{
    struct shared shared;
    const float three = 3;
    serve(1, &(gw_ps_server_options){.n_workers = 2});
    shared.client = come(0);
    init(shared.client, "x");
    shared.pushing = begin_push(shared.client, "x", &three);
    expect_in_a_fork(client_forked, &shared);
    if (!FORK_STARTS_THREADS)
        work_as_rank_1();
    ok(wait_for(shared.client, shared.pushing));
    expect_sum(shared.client, "x", 33, 2);
    gw_ps_client_destroy(shared.client);
    end_serving();
}

RUN_TESTS("pserver fork", NULL, NULL)
