/* Tests the measurement of a link and codecs: all members get the same figures, and wrong or unequal calls are refused
 * on all of them. No time is asserted. */
#include "plan/advise.h"
#include "plan/profile.h"
#include <gradwire/probe.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

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

static void everybody_gets_the_same(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    run(&w, MEMBERS);
    for (int r = 0; r < MEMBERS; r++) {
        const struct member *m = &w.members[r];
        assert_string_equal(m->sentence, "");
        assert_memory_equal(&m->link, &w.members[0].link, sizeof m->link);
        assert_memory_equal(m->costs, w.members[0].costs, sizeof m->costs);
        assert_int_equal(m->link.members, MEMBERS);
        for (int k = 0; k < CODECS; k++) {
            assert_string_equal(m->costs[k].spec, gw_codec_traits_of(w.codecs[k]).canonical);
            assert_true(m->costs[k].bytes_per_element > 0);
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

static void unequal_members_are_refused(void **state)
{
    (void)state;
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
static void wrong_calls(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    gw_probe_options *o = &w.members[0].options, good = *o;
    gw_codec *global, *list[2] = {w.codecs[0], NULL};
    assert_int_equal(gw_codec_parse(NULL, "topk:scope=global,refresh=1", &global), GW_OK);
    assert_int_equal(gw_probe_measure(NULL, NULL, &w.members[0].link, w.members[0].costs), GW_ERR_ARGUMENT);
    assert_int_equal(gw_probe_measure(NULL, o, NULL, w.members[0].costs), GW_ERR_ARGUMENT);
    assert_int_equal(gw_probe_measure(NULL, o, &w.members[0].link, NULL), GW_ERR_ARGUMENT);
    o->struct_bytes--;
    refused(&w, "struct_bytes");
    *o = good;
    o->meeting = o->exchange;
    refused(&w, "two links");
    *o = good;
    o->meeting = w.meeting[1];
    refused(&w, "the same ranks");
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
    o->n_layers = 0;
    refused(&w, "layers");
    *o = good;
    o->runs = 1001;
    refused(&w, "1000 are the most");
    gw_codec_destroy(global);
    end(&w);
}

/* One member never comes. */
static void an_absent_member_is_noticed(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (int r = 0; r < MEMBERS; r++)
        w.members[r].options.timeout_ms = 200;
    run(&w, MEMBERS - 1);
    for (int r = 0; r < MEMBERS - 1; r++)
        assert_int_equal(w.members[r].status, GW_ERR_TIMEOUT);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_gets_the_same),
        cmocka_unit_test(unequal_members_are_refused),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(an_absent_member_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
