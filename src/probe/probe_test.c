/* Tests the measurement of a link and codecs: all members get the same figures, and wrong or unequal calls are refused
 * on all of them. No time is asserted, but that a part is no longer than the whole. */
#include "base/clock.h"
#include "checks.h"
#include "plan/advise.h"
#include "plan/profile.h"
#include "probe/probe.h"

#include <gradwire/probe.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MEMBERS = 3, LAYERS = 3, CODECS = 3 };

static const gw_profile_layer layers[LAYERS] = {{"a", 5000, 0}, {"b", 1, 0}, {"c", 70000, 0}};

struct member {
    gw_context *context; /* it keeps the codecs' working memory, which sanitizers are slow to take and to give back */
    gw_probe_options options;
    pthread_t thread;
    gw_status status;
    char sentence[256];
    gw_profile_link link;
    gw_profile_codec costs[CODECS];
};

struct world {
    gw_link exchange[MEMBERS], meeting[MEMBERS];
    gw_codec *codecs[CODECS];
    struct member members[MEMBERS];
};

static void *work(void *argument)
{
    struct member *m = argument;
    m->status = gw_probe_measure(m->context, &m->options, &m->link, m->costs);
    if (m->status < 0)
        strncat(m->sentence, gw_last_error(), sizeof m->sentence - 1);
    return NULL;
}

static void begin(struct world *w)
{
    static const char *const specs[CODECS] = {"none", "ternary", "topk:ratio=0.02"};
    *w = (struct world){0};
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, w->exchange), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, w->meeting), GW_OK);
    for (int k = 0; k < CODECS; k++)
        assert_int_equal(gw_codec_parse(NULL, specs[k], &w->codecs[k]), GW_OK);
    const gw_context_options one_thread = {.struct_bytes = sizeof one_thread, .n_threads = 1};
    for (int r = 0; r < MEMBERS; r++)
        assert_int_equal(gw_context_create(&one_thread, &w->members[r].context), GW_OK);
    for (int r = 0; r < MEMBERS; r++)
        w->members[r].options = (gw_probe_options){.struct_bytes = sizeof w->members[r].options,
                                                   .exchange = w->exchange[r],
                                                   .meeting = w->meeting[r],
                                                   .codecs = w->codecs,
                                                   .n_codecs = CODECS,
                                                   .layers = layers,
                                                   .n_layers = LAYERS,
                                                   .runs = 1,
                                                   .most_elements = 1 << 16,
                                                   .timeout_ms = 20000};
}

static void run(struct world *w, int n)
{
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&w->members[r].thread, NULL, work, &w->members[r]), 0);
    for (int r = 0; r < n; r++)
        pthread_join(w->members[r].thread, NULL);
}

static void end(struct world *w)
{
    for (int k = 0; k < CODECS; k++)
        gw_codec_destroy(w->codecs[k]);
    for (int r = 0; r < MEMBERS; r++) {
        gw_link_destroy(&w->exchange[r]);
        gw_link_destroy(&w->meeting[r]);
        gw_context_destroy(w->members[r].context);
    }
}

TEST(everybody_gets_the_same)
{
    struct world w;
    begin(&w);
    const double before = gw_clock_seconds();
    run(&w, MEMBERS);
    const double spent_ms = 1e3 * (gw_clock_seconds() - before);
    for (int r = 0; r < MEMBERS; r++) {
        const struct member *m = &w.members[r];
        assert_string_equal(m->sentence, "");
        assert_memory_equal(&m->link, &w.members[0].link, sizeof m->link);
        assert_memory_equal(m->costs, w.members[0].costs, sizeof m->costs);
        assert_int_equal(m->link.members, MEMBERS);
        for (int k = 0; k < CODECS; k++) {
            assert_string_equal(m->costs[k].spec, gw_codec_traits_of(w.codecs[k]).canonical);
            assert_true(m->costs[k].bytes_per_element > 0);
            /* A million elements were encoded: in some time, which was a part of all of it. */
            const double encode_ms =
                m->costs[k].compress_ms_fixed + m->costs[k].compress_ms_per_element * GW_PROBE_LARGE;
            CHECK(encode_ms > 1e-6 && encode_ms < spent_ms, "codec %d: %g of %g ms", k, encode_ms, spent_ms);
        }
        /* Floats go to two other owners and come back; the frames' headers weigh little. */
        assert_true(fabs(m->costs[0].bytes_per_element - 8.0 * 2 / 3) < 0.3);
        assert_true(m->costs[1].bytes_per_element < 1);

        gw_advice advice;
        const gw_profile profile = {.struct_bytes = sizeof profile,
                                    .layers = layers,
                                    .n_layers = LAYERS,
                                    .link = m->link,
                                    .codecs = m->costs,
                                    .n_codecs = CODECS};
        assert_int_equal(gw_profile_check(&profile), GW_OK);
        if (m->link.ms_per_byte > 0)
            assert_int_equal(gw_advise(NULL, &profile, GW_COMPRESS_BESIDE, &advice), GW_OK);
    }
    /* The links are free: the same once more. */
    run(&w, MEMBERS);
    for (int r = 0; r < MEMBERS; r++)
        assert_string_equal(w.members[r].sentence, "");
    end(&w);
}

/* One member is asked to stop, sooner or later. All end together, and the links are free again. */
static bool stop(void *asked)
{
    return (*(int *)asked)-- == 0;
}

TEST(a_stop_ends_it_for_all)
{
    for (int after = 0; after < 100; after += 50) {
        struct world w;
        int asked = after;
        begin(&w);
        gw_probe_options *o = &w.members[after % MEMBERS].options;
        o->stop = stop, o->stop_user = &asked;
        run(&w, MEMBERS);
        for (int r = 0; r < MEMBERS; r++) {
            assert_int_equal(w.members[r].status, GW_ERR_CLOSED);
            assert_string_equal(w.members[r].sentence, "the measurement was stopped, as asked");
            w.members[r].sentence[0] = 0;
            w.members[r].options.n_codecs = 1;
        }
        o->stop = NULL, o->stop_user = NULL;
        run(&w, MEMBERS);
        for (int r = 0; r < MEMBERS; r++)
            assert_string_equal(w.members[r].sentence, "");
        end(&w);
    }
}

TEST(unequal_members_are_refused)
{
    for (int what = 0; what < 4; what++) {
        struct world w;
        gw_codec *turned[CODECS];
        begin(&w);
        memcpy(turned, w.codecs, sizeof turned);
        turned[1] = w.codecs[2];
        turned[2] = w.codecs[1];
        gw_probe_options *odd = &w.members[2].options;
        if (what == 0)
            odd->codecs = turned;
        else if (what == 1)
            odd->n_layers = LAYERS - 1;
        else if (what == 2)
            odd->runs = 2;
        else
            odd->most_elements = 1 << 15;
        run(&w, MEMBERS);
        for (int r = 0; r < MEMBERS; r++) {
            assert_int_equal(w.members[r].status, GW_ERR_ARGUMENT);
            assert_non_null(strstr(w.members[r].sentence, "not about to measure the same"));
        }
        end(&w);
    }
}

static void refused(struct world *w, const char *says)
{
    struct member *m = &w->members[0];
    m->sentence[0] = 0;
    work(m);
    assert_int_equal(m->status, GW_ERR_ARGUMENT);
    if (!strstr(m->sentence, says))
        fail_msg("'%s' does not say '%s'", m->sentence, says);
}

/* Before anything is sent: the other members are not there. */
TEST(wrong_calls)
{
    struct world w;
    begin(&w);
    gw_probe_options *o = &w.members[0].options, good = *o;
    gw_codec *global, *list[2] = {w.codecs[0], NULL};
    assert_int_equal(gw_codec_parse(NULL, "topk:scope=global,refresh=1", &global), GW_OK);
    assert_int_equal(gw_probe_measure(NULL, NULL, &w.members[0].link, w.members[0].costs), GW_ERR_ARGUMENT);
    assert_int_equal(gw_probe_measure(NULL, o, NULL, w.members[0].costs), GW_ERR_ARGUMENT);
    assert_int_equal(gw_probe_measure(NULL, o, &w.members[0].link, NULL), GW_ERR_ARGUMENT);
    o->struct_bytes = 119;
    refused(&w, "struct_bytes");
    *o = good;
    o->meeting = o->exchange;
    refused(&w, "two links");
    *o = good;
    o->meeting = w.meeting[1];
    refused(&w, "the same ranks");
    *o = good;
    gw_link_ops lacks_recv = *good.meeting.ops;
    lacks_recv.recv = NULL;
    o->meeting.ops = &lacks_recv;
    refused(&w, "the link lacks a function");
    *o = good;
    o->n_codecs = 0;
    refused(&w, "0 codecs");
    o->n_codecs = GW_PLAN_MAX_CODECS + 1;
    refused(&w, "65 codecs");
    *o = good;
    o->codecs = list;
    o->n_codecs = 2;
    refused(&w, "codec 1 is NULL");
    list[1] = global;
    refused(&w, "all tensors at once");
    list[1] = w.codecs[0];
    refused(&w, "none"); /* twice */
    list[0] = w.codecs[1];
    refused(&w, "the first codec is ternary");
    *o = good;
    o->runs = 1001;
    refused(&w, "1000 are the most");
    o->runs = 1000, o->n_layers = 0;
    refused(&w, "layers");
    gw_codec_destroy(global);
    end(&w);
}

static void starts(struct world *w, int rank, uint32_t timeout_ms)
{
    w->members[rank].options.timeout_ms = timeout_ms;
    assert_int_equal(pthread_create(&w->members[rank].thread, NULL, work, &w->members[rank]), 0);
}

static void names(struct world *w, int rank, const char *says)
{
    pthread_join(w->members[rank].thread, NULL);
    CHECK(w->members[rank].status < 0 && strstr(w->members[rank].sentence, says), "rank %d, and not \"%s\": %s", rank,
          says, w->members[rank].sentence);
}

/* Rank 2 never comes. Rank 0 comes long after rank 1, which then waits for rank 0 longer than the deadline. */
TEST(an_absent_member_is_named)
{
    struct world w;
    begin(&w);
    starts(&w, 1, 4000);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    starts(&w, 0, 4000);
    names(&w, 0, "no report came from rank 2 within 6000 ms");
    names(&w, 1, "rank 0 gave up: no report came from rank 2");
    end(&w);
}

TEST(an_absent_rank_0_is_named)
{
    struct world w;
    begin(&w);
    for (int r = 1; r < MEMBERS; r++)
        starts(&w, r, 200);
    for (int r = 1; r < MEMBERS; r++)
        names(&w, r, "no report came from rank 0 within 200 ms");
    end(&w);
}

/* ---- a member that falls silent in the midst ---- */

static const gw_link_ops *local_ops;
static gw_link_ops mute_ops;
static atomic_int still_sends; /* so many messages */

static gw_status send_some(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    if (atomic_fetch_sub(&still_sends, 1) > 0)
        return local_ops->send(self, to, bytes, n_bytes, timeout_ms);
    gw_message_free(bytes);
    return GW_OK;
}

/* Rank 2 sends three reports. Then it sends its first message to rank 0, and none to rank 1. */
TEST(a_member_that_falls_silent_is_named)
{
    struct world w;
    begin(&w);
    local_ops = w.exchange[2].ops;
    mute_ops = *local_ops;
    mute_ops.send = send_some;
    mute_ops.send_all = NULL;
    still_sends = 4;
    w.members[2].options.exchange.ops = w.members[2].options.meeting.ops = &mute_ops;
    for (int r = 0; r < MEMBERS; r++)
        starts(&w, r, 2000);
    names(&w, 0, "rank 1 gave up: no message of the measurement came from rank 2 within 2000 ms");
    names(&w, 1, "no message of the measurement came from rank 2 within 2000 ms");
    names(&w, 2, "rank 1 gave up: ");
    end(&w);
}

RUN_TESTS("probe", NULL, NULL)
