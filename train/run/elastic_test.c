/* Tests how long a worker waits for another one that takes part and says nothing, as a stopped process does: at the
 * end, and if it joins again and again. */
#include "pserver/server/test_server.h"
#include "base/clock.h"
#include "run/elastic.h"
#include "checks.h"

#include <string.h>

static char notes[512];
static bool stop;

static void note(const char *text, void *user)
{
    (void)user;
    snprintf(notes, sizeof notes, "%s", text);
    stop = true;
}

static bool may_stop(void *user)
{
    (void)user;
    return stop;
}

static void put_number(gw_ps_client *client, uint64_t number, uint64_t steps)
{
    const char *const key = "exchange/hash of rank 1";
    const gw_ps_key_options options = {.struct_bytes = sizeof options,
                                       .type = GW_PS_INT64,
                                       .shape = {.n_dims = 1, .dims = {1}}};
    ok(gw_ps_init(client, key, &options));
    ok(gw_ps_put(client, key, steps, &number, sizeof number));
}

TEST(a_silent_worker_is_not_waited_for_without_end)
{
    static const struct {
        gw_ps_mode mode;
        bool has_ended; /* the other worker, which leaves its number, and the user wishes to stop: both end well */
        bool stops;     /* the user ends the wait after the note */
        gw_status status;
        const char *notes;
    } cases[] = {{GW_PS_SYNC, false, false, GW_OK, "rank 1 takes part, and has not ended"},
                 {GW_PS_SYNC, true, true, GW_OK, ""},
                 {GW_PS_ASYNC, true, true, GW_OK, ""},
                 {GW_PS_ASYNC, false, true, GW_ERR_CLOSED, "after rank 0, which waits for it"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_server s;
        const gw_ps_server_options options = {.n_workers = 2, .mode = cases[i].mode};
        test_server_begin(&s, &options);
        gw_ps_client *silent = test_client(gw_ps_server_address(s.server), 1, true, 5000);
        uint64_t round;
        ok(gw_ps_join(silent, &round));

        const struct gw_train_callbacks callbacks = {.note = note, .stop = cases[i].stops ? may_stop : NULL};
        struct gw_train_options train = {.workers = 2, .timeout_s = 1};
        struct gw_team team = {.options = &train, .callbacks = &callbacks, .steps = 7};
        struct gw_worker w = {.team = &team, .hash = 99};
        w.elastic.options =
            (gw_ps_client_options){.struct_bytes = sizeof w.elastic.options, .servers = gw_ps_server_address(s.server)};
        bool identical;
        *notes = 0, stop = cases[i].has_ended;
        if (cases[i].has_ended)
            put_number(silent, w.hash, team.steps);
        CHECK(gw_elastic_compare(&w, &identical) == cases[i].status, "case %zu: %s", i, gw_last_error());
        CHECK(cases[i].status != GW_OK || identical, "case %zu", i);
        CHECK(cases[i].status == GW_OK || strstr(gw_last_error(), "stopped, as asked"), "%s", gw_last_error());
        CHECK(strstr(notes, cases[i].notes) && !*notes == !*cases[i].notes, "case %zu: \"%s\"", i, notes);
        gw_ps_client_destroy(silent);
        test_server_end(&s);
    }
}

/* A worker has joined again for step 5. In mode stale:S it did so at once, so that is no reason to go on: another
 * worker may be gone for good. To have made step 5 is one. */
TEST(only_a_step_is_progress_where_nobody_lets_in)
{
    static const gw_ps_mode modes[] = {GW_PS_SYNC, GW_PS_STALE};
    for (size_t i = 0; i < 2; i++) {
        struct test_server s;
        const gw_ps_server_options options = {.n_workers = 2, .mode = modes[i], .staleness = 1};
        test_server_begin(&s, &options);
        const struct gw_train_callbacks callbacks = {.note = note};
        struct gw_train_options train = {.workers = 2, .timeout_s = 1};
        struct gw_team team = {.options = &train, .callbacks = &callbacks, .steps = 7, .begin = 5};
        struct gw_worker w = {.team = &team, .steps_done = 5};
        w.elastic = (struct gw_elastic){.client = test_client(gw_ps_server_address(s.server), 0, true, 5000),
                                        .last_step = gw_clock_seconds() - 10,
                                        .n_joins = 1};
        ok(gw_elastic_admit(&w, 5));
        CHECK(gw_elastic_goes_on(&w, GW_ERR_TIMEOUT) == (modes[i] == GW_PS_SYNC), "mode %d", modes[i]);
        ok(gw_elastic_admit(&w, 6));
        CHECK(gw_elastic_goes_on(&w, GW_ERR_TIMEOUT), "mode %d", modes[i]);
        gw_ps_client_destroy(w.elastic.client);
        test_server_end(&s);
    }
}

RUN_TESTS("elastic", NULL, NULL)
