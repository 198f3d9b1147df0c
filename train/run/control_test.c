/* Tests how workers begin a run together: rank 0 waits for all of them, and all get the same numbers of machines; one
 * with other options is refused. Also tests who is named when one is silent, or has failed. */
#include "checks.h"
#include "run/control.h"

#include <gradwire/link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 4, LONG_MS = 60000 };

struct worker {
    struct gw_control control;
    struct gw_resume resume;
    struct gw_start start;
    uint32_t machine_of[WORKERS];
    gw_status status;
    char sentence[200];
    pthread_t thread;
};

static void *await_start(void *user)
{
    struct worker *w = user;
    w->status = gw_control_await_start(&w->control, &w->resume, &w->start);
    snprintf(w->sentence, sizeof w->sentence, "%s", w->status < 0 ? gw_last_error() : "");
    return NULL;
}

/* Ranks before `first` are in the process of rank 0. */
static void begin_run(struct worker *workers, gw_link *links, uint32_t first, const uint64_t *machines,
                      const char *options_of_last)
{
    assert_int_equal(gw_link_local_create(NULL, WORKERS, links), GW_OK);
    memset(workers, 0, WORKERS * sizeof *workers);
    for (uint32_t r = 0; r < WORKERS; r++) {
        struct worker *w = &workers[r];
        assert_int_equal(gw_control_init(&w->control, NULL, links[r], LONG_MS, 0), GW_OK);
        w->start = (struct gw_start){.options = r == WORKERS - 1 ? options_of_last : "seed 1\n",
                                     .steps = 9,
                                     .machine = machines[r],
                                     .threads = 2 + r,
                                     .machine_of = w->machine_of};
    }
    for (uint32_t r = first; r < WORKERS; r++)
        assert_int_equal(pthread_create(&workers[r].thread, NULL, await_start, &workers[r]), 0);
    assert_int_equal(gw_control_send_start(&workers[0].control, first, &workers[0].resume, &workers[0].start), GW_OK);
    for (uint32_t r = first; r < WORKERS; r++)
        pthread_join(workers[r].thread, NULL);
}

static void end_run(struct worker *workers, gw_link *links)
{
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_control_fini(&workers[r].control);
        gw_link_destroy(&links[r]);
    }
}

TEST(machines_are_numbered_by_rank)
{
    static struct worker workers[WORKERS];
    static const struct {
        uint32_t first;
        uint64_t machines[WORKERS];
        uint32_t machine_of[WORKERS];
    } cases[] = {{1, {7, 9, 7, 5}, {0, 1, 0, 2}},
                 {1, {7, 7, 7, 7}, {0, 0, 0, 0}},
                 {1, {9, 8, 7, 6}, {0, 1, 2, 3}},
                 {2, {7, 7, 5, 5}, {0, 0, 1, 1}},
                 {3, {7, 7, 7, 0}, {0, 0, 0, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_link links[WORKERS];
        begin_run(workers, links, cases[i].first, cases[i].machines, "seed 1\n");
        for (uint32_t r = 0; r < WORKERS; r += r ? 1 : cases[i].first) {
            CHECK(workers[r].status == GW_OK, "case %zu, rank %u: %s", i, r, workers[r].sentence);
            CHECK(memcmp(workers[r].machine_of, cases[i].machine_of, sizeof workers[r].machine_of) == 0,
                  "case %zu, rank %u: machines %u, %u, %u, %u", i, r, workers[r].machine_of[0],
                  workers[r].machine_of[1], workers[r].machine_of[2], workers[r].machine_of[3]);
            CHECK(workers[r].start.threads == 2, "case %zu, rank %u: %u threads", i, r, workers[r].start.threads);
        }
        end_run(workers, links);
    }
}

TEST(other_options_are_refused)
{
    static struct worker workers[WORKERS];
    static const uint64_t machines[WORKERS] = {0};
    gw_link links[WORKERS];
    begin_run(workers, links, 1, machines, "seed 2\n");
    for (uint32_t r = 0; r < WORKERS - 1; r++)
        assert_int_equal(workers[r].status, GW_OK);
    assert_int_equal(workers[WORKERS - 1].status, GW_ERR_ARGUMENT);
    assert_string_equal(workers[WORKERS - 1].sentence, "--seed is 2, and rank 0 has 1: all workers must have the same");
    end_run(workers, links);
}

/* A resumed run: every process gets rank 0's arrays, and its numbers up to their limits. It gets the codec's states of
 * all workers of the earlier run; if that had as many workers, only its own. */
TEST(a_resumed_run_goes_on_everywhere)
{
    enum { N = 3 };
    static struct worker workers[WORKERS];
    for (unsigned there = 0; there < 1u << GW_ARRAYS; there++) { /* which of the arrays the run has */
        float arrays[GW_ARRAYS][N];
        gw_link links[WORKERS];
        memset(workers, 0, sizeof workers);
        assert_int_equal(gw_link_local_create(NULL, WORKERS, links), GW_OK);
        for (int a = 0; a < GW_ARRAYS; a++)
            for (int i = 0; i < N; i++)
                arrays[a][i] = (float)(10 * a + i);
        for (uint32_t r = 0; r < WORKERS; r++) {
            assert_int_equal(gw_control_init(&workers[r].control, NULL, links[r], LONG_MS, 0), GW_OK);
            workers[r].start = (struct gw_start){.options = "seed 1\n",
                                                 .steps = 9,
                                                 .n_floats = N,
                                                 .threads = r ? 1 : 256,
                                                 .machine_of = workers[r].machine_of};
        }
        struct gw_checkpoint *c = &workers[0].resume.checkpoint;
        for (int a = 0; a < GW_ARRAYS; a++)
            c->arrays[a] = there >> a & 1 ? arrays[a] : NULL;
        c->step = 5;
        char kept[WORKERS + 1][4] = {"abc", "def", "ghi", "jkl", "mno"};
        struct gw_rank_state states[WORKERS + 1];
        for (uint32_t i = 0; i <= WORKERS; i++)
            states[i] = (struct gw_rank_state){.state = kept[i], .state_bytes = sizeof kept[i]};
        const uint32_t n_states = there % 3 == 0 ? 0 : WORKERS + there % 3 - 1;
        workers[0].resume.states = n_states ? states : NULL, c->n_state_files = n_states;
        for (uint32_t r = 1; r < WORKERS; r++)
            assert_int_equal(pthread_create(&workers[r].thread, NULL, await_start, &workers[r]), 0);
        assert_int_equal(gw_control_send_start(&workers[0].control, 1, &workers[0].resume, &workers[0].start), GW_OK);
        for (uint32_t r = 1; r < WORKERS; r++) {
            pthread_join(workers[r].thread, NULL);
            CHECK(workers[r].status == GW_OK, "arrays %x, rank %u: %s", there, r, workers[r].sentence);
            assert_int_equal(workers[r].start.threads, 256);
            c = &workers[r].resume.checkpoint;
            assert_int_equal(c->step, 5);
            for (int a = 0; a < GW_ARRAYS; a++) {
                if (there >> a & 1)
                    assert_memory_equal(c->arrays[a], arrays[a], sizeof arrays[a]);
                else
                    assert_null(c->arrays[a]);
            }
            assert_int_equal(c->n_state_files, n_states);
            for (uint32_t i = 0; i < n_states; i++) {
                const struct gw_rank_state *s = &workers[r].resume.states[i];
                const bool is_there = n_states != WORKERS || i == r;
                CHECK((s->state != NULL) == is_there, "%u states, rank %u, state %u", n_states, r, i);
                if (is_there)
                    assert_memory_equal(s->state, kept[i], s->state_bytes);
            }
            gw_resume_free(&workers[r].resume);
        }
        end_run(workers, links);
    }
}

/* Takes the next message of a link, changes words of its body, and sends it on over another link to rank `to`. */
static void pass_on(gw_link from, gw_link to_link, uint32_t to, const uint64_t (*changes)[2], int n_changes)
{
    gw_message message;
    assert_int_equal(from.ops->recv(from.self, LONG_MS, &message), GW_OK);
    for (int i = 0; i < n_changes; i++) /* a head of 16 bytes, and then words of 8 bytes */
        memcpy((char *)message.bytes + 16 + 8 * changes[i][0], &changes[i][1], 8);
    assert_int_equal(to_link.ops->send(to_link.self, to, message.bytes, message.n_bytes, LONG_MS), GW_OK);
}

/* A START whose numbers cannot be is refused, also if its length fits them. Somebody between rank 0 and rank 1 changes
 * them. */
TEST(a_start_that_cannot_be_is_refused)
{
    enum { OPTIONS, STEPS, THREADS, FLOATS = 5, ARRAYS = 7, N_STATES, STATE_BYTES, N = 3 };
    static const struct {
        int n_changes; /* 0: all is well */
        uint64_t changes[2][2];
    } cases[] = {
        {0, {{0}}},
        {1, {{THREADS, 256}}},
        {1, {{THREADS, 257}}},
        {1, {{ARRAYS, 0x1E}}}, /* as many, but one that there is not */
        {1, {{ARRAYS, 0x7}}},
        {1, {{OPTIONS, UINT64_MAX}}},
        {1, {{OPTIONS, 8}}},
        {1, {{FLOATS, UINT64_MAX / 4}}},
        {1, {{FLOATS, N + 1}}},
        {1, {{N_STATES, GW_MAX_WORKERS + 1}}},
        {2, {{N_STATES, 2}, {STATE_BYTES, (uint64_t)1 << 63}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct worker workers[2];
        gw_link to_leader[2], to_follower[2];
        float floats[N] = {1, 2, 3};
        memset(workers, 0, sizeof workers);
        assert_int_equal(gw_link_local_create(NULL, 2, to_leader), GW_OK);
        assert_int_equal(gw_link_local_create(NULL, 2, to_follower), GW_OK);
        assert_int_equal(gw_control_init(&workers[0].control, NULL, to_leader[0], LONG_MS, 0), GW_OK);
        assert_int_equal(gw_control_init(&workers[1].control, NULL, to_follower[1], LONG_MS, 0), GW_OK);
        for (int r = 0; r < 2; r++)
            workers[r].start = (struct gw_start){
                .options = "seed 1\n", .steps = 9, .n_floats = N, .threads = 2, .machine_of = workers[r].machine_of};
        for (int a = 0; a < GW_ARRAYS; a++)
            workers[0].resume.checkpoint.arrays[a] = floats;
        assert_int_equal(pthread_create(&workers[1].thread, NULL, await_start, &workers[1]), 0);
        pass_on(to_follower[0], to_leader[1], 0, NULL, 0);
        assert_int_equal(gw_control_send_start(&workers[0].control, 1, &workers[0].resume, &workers[0].start), GW_OK);
        pass_on(to_leader[1], to_follower[0], 1, NULL, 0); /* a sign of life */
        pass_on(to_leader[1], to_follower[0], 1, cases[i].changes, cases[i].n_changes);
        pthread_join(workers[1].thread, NULL);
        CHECK((workers[1].status == GW_OK) == (i < 2), "case %zu: %d, %s", i, workers[1].status, workers[1].sentence);
        gw_resume_free(&workers[1].resume);
        for (int r = 0; r < 2; r++) {
            gw_control_fini(&workers[r].control);
            gw_link_destroy(&to_leader[r]);
            gw_link_destroy(&to_follower[r]);
        }
    }
}

/* Rank 0 tells the others that a worker died, and is gone. Rank 1 makes a step meanwhile, or waits for something else.
 * What it says in the end is why, and not that rank 0 is gone. */
TEST(a_failure_stays_the_cause)
{
    for (int sends = 0; sends < 2; sends++) {
        gw_link links[2];
        struct gw_control c;
        double lr;
        uint64_t stop_at;
        assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
        assert_int_equal(gw_control_init(&c, NULL, links[1], LONG_MS, 2), GW_OK);
        gw_fail(GW_ERR_TIMEOUT, "nothing came");
        assert_int_equal(gw_control_cause(&c, GW_ERR_TIMEOUT), GW_ERR_TIMEOUT);
        assert_string_equal(gw_last_error(), "nothing came");
        gw_link_fail(&links[0], GW_ERR_PEER, "rank 2 died");
        links[0].ops->close(links[0].self);
        assert_int_equal(gw_control_follow(&c, 0, &lr, &stop_at), GW_OK);
        assert_int_equal(sends ? gw_control_report(&c, 0, &(struct gw_step_record){.lr = 1}, false)
                               : gw_control_cause(&c, GW_ERR_TIMEOUT),
                         GW_ERR_PEER);
        assert_string_equal(gw_last_error(), "rank 2 died");
        gw_control_fini(&c);
        for (uint32_t r = 0; r < 2; r++)
            gw_link_destroy(&links[r]);
    }
}

static void *follow(void *user)
{
    struct worker *w = user;
    double lr;
    uint64_t stop_at;
    w->status = gw_control_follow(&w->control, 2, &lr, &stop_at);
    snprintf(w->sentence, sizeof w->sentence, "%s", gw_last_error());
    return NULL;
}

/* Without rounds, rank 2 is silent. Rank 1 is two steps ahead and waits for rank 0. Soon after, rank 0 waits for
 * rank 2. Rank 1 must not take rank 0 for silent. */
TEST(who_waits_for_another_is_not_named)
{
    enum { N = 3, SOON_MS = 4000, LATER_MS = 900 };
    gw_link links[N];
    struct worker workers[2] = {{.status = GW_OK}, {.status = GW_OK}};
    const struct gw_step_record *records;
    assert_int_equal(gw_link_local_create(NULL, N, links), GW_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(gw_control_init(&workers[r].control, NULL, links[r], SOON_MS, 2), GW_OK);
    assert_int_equal(gw_control_report(&workers[1].control, 0, &(struct gw_step_record){.lr = 1}, false), GW_OK);
    assert_int_equal(pthread_create(&workers[1].thread, NULL, follow, &workers[1]), 0);
    nanosleep(&(struct timespec){.tv_nsec = LATER_MS * 1000000L}, NULL);
    assert_int_equal(gw_control_report(&workers[0].control, 0, &(struct gw_step_record){.lr = 1}, false), GW_OK);
    assert_int_equal(gw_control_collect(&workers[0].control, 0, &records), GW_ERR_TIMEOUT);
    assert_string_equal(gw_last_error(), "no report came from rank 2 within 4000 ms (step 0)");
    gw_link_fail(&links[0], GW_ERR_TIMEOUT, gw_last_error());
    pthread_join(workers[1].thread, NULL);
    assert_int_equal(workers[1].status, GW_ERR_PEER);
    assert_non_null(strstr(workers[1].sentence, "rank 0 gave up: no report came from rank 2"));
    for (uint32_t r = 0; r < N; r++) {
        if (r < 2)
            gw_control_fini(&workers[r].control);
        gw_link_destroy(&links[r]);
    }
}

/* At the beginning, rank 2 is silent. Rank 1 has joined long before rank 0 begins to wait. */
TEST(who_waits_for_a_joiner_is_not_named)
{
    enum { N = 3, SOON_MS = 4000, LATER_MS = 900 };
    gw_link links[N];
    struct worker workers[2] = {{.status = GW_OK}, {.status = GW_OK}};
    assert_int_equal(gw_link_local_create(NULL, N, links), GW_OK);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(gw_control_init(&workers[r].control, NULL, links[r], SOON_MS, 0), GW_OK);
        workers[r].start = (struct gw_start){.options = "seed 1\n", .steps = 9, .machine_of = workers[r].machine_of};
    }
    assert_int_equal(pthread_create(&workers[1].thread, NULL, await_start, &workers[1]), 0);
    nanosleep(&(struct timespec){.tv_nsec = LATER_MS * 1000000L}, NULL);
    assert_int_equal(gw_control_send_start(&workers[0].control, 1, &workers[0].resume, &workers[0].start),
                     GW_ERR_TIMEOUT);
    assert_string_equal(gw_last_error(), "no word that it joins came from rank 2 within 4000 ms (step 0)");
    gw_link_fail(&links[0], GW_ERR_TIMEOUT, gw_last_error());
    pthread_join(workers[1].thread, NULL);
    CHECK(strstr(workers[1].sentence, "rank 0 gave up: no word that it joins came from rank 2"), "%s",
          workers[1].sentence);
    for (uint32_t r = 0; r < N; r++) {
        if (r < 2)
            gw_control_fini(&workers[r].control);
        gw_link_destroy(&links[r]);
    }
}

/* Over a slow network a large beginning takes long. Rank 2 must not take rank 0 for silent while rank 1 gets its own.
 */
TEST(a_long_beginning_has_signs_of_life)
{
    enum { N = 3, JOIN = 1, WORD_BYTES = 24 };
    gw_link links[N];
    struct worker w = {.status = GW_OK};
    gw_message message;
    assert_int_equal(gw_link_local_create(NULL, N, links), GW_OK);
    assert_int_equal(gw_control_init(&w.control, NULL, links[0], LONG_MS, 0), GW_OK);
    w.start = (struct gw_start){.options = "seed 1\n", .steps = 9, .machine_of = w.machine_of};
    for (uint32_t r = 1; r < N; r++) {
        uint64_t *join = gw_message_alloc(NULL, WORD_BYTES);
        join[0] = JOIN, join[1] = 0, join[2] = 7;
        assert_int_equal(links[r].ops->send(links[r].self, 0, join, WORD_BYTES, LONG_MS), GW_OK);
    }
    assert_int_equal(gw_control_send_start(&w.control, 1, &w.resume, &w.start), GW_OK);
    for (uint32_t i = 0; i < N; i++) { /* a sign before each worker's beginning, and then its own */
        assert_int_equal(gw_link_recv(&links[2], LONG_MS, &message), GW_OK);
        assert_int_equal(message.n_bytes == WORD_BYTES, i < N - 1);
        gw_message_free(message.bytes);
    }
    gw_control_fini(&w.control);
    for (uint32_t r = 0; r < N; r++)
        gw_link_destroy(&links[r]);
}

/* Rank 1 has ended and is gone. Rank 0 goes on waiting for rank 2, and names that one. */
TEST(who_has_ended_is_not_named)
{
    enum { N = 3, SOON_MS = 400 };
    gw_link links[N];
    struct gw_control c[2];
    const struct gw_step_record *records;
    bool identical;
    assert_int_equal(gw_link_local_create(NULL, N, links), GW_OK);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(gw_control_init(&c[r], NULL, links[r], SOON_MS, 2), GW_OK);
        assert_int_equal(gw_control_report(&c[r], 0, &(struct gw_step_record){.lr = 1}, false), GW_OK);
    }
    assert_int_equal(gw_control_end(&c[1], 0, &identical), GW_OK);
    gw_control_fini(&c[1]);
    gw_link_destroy(&links[1]);
    assert_int_equal(gw_control_collect(&c[0], 0, &records), GW_ERR_TIMEOUT);
    assert_string_equal(gw_last_error(), "no report came from rank 2 within 400 ms (step 0)");
    gw_control_fini(&c[0]);
    gw_link_destroy(&links[0]);
    gw_link_destroy(&links[2]);
}

/* Rank 0 still waits for another worker's state. Meanwhile rank 1 sends its state of the next step, too. */
TEST(states_of_two_steps_are_kept)
{
    gw_link links[2];
    struct gw_control c[2];
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(gw_control_init(&c[r], NULL, links[r], LONG_MS, 0), GW_OK);
    for (uint64_t step = 1; step <= 2; step++) {
        uint8_t *sent = gw_control_state_new(&c[1], 1);
        assert_non_null(sent);
        *sent = (uint8_t)step;
        assert_int_equal(gw_control_send_state(&c[1], step, sent, 1), GW_OK);
    }
    for (uint64_t step = 2; step >= 1; step--) {
        const void *got;
        size_t n_bytes;
        const gw_status status = gw_control_await_state(&c[0], step, 1, &got, &n_bytes);
        CHECK(status == GW_OK && n_bytes == 1 && *(const uint8_t *)got == step, "step %d: %s", (int)step,
              gw_last_error());
        gw_control_free_state(&c[0], step, 1);
    }
    for (uint32_t r = 0; r < 2; r++) {
        gw_control_fini(&c[r]);
        gw_link_destroy(&links[r]);
    }
}

RUN_TESTS("control", NULL, NULL)
