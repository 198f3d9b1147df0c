/* Tests advice: the order of codecs, who pays, and from which link on. */
#include "plan/advise.h"
#include "checks.h"
#include "shortage.h"

#include <gradwire/gradwire.h>
#include <math.h>
#include <string.h>

/* There is one layer, so that a step can be worked out by hand: 10 ms of computing, then the link. */
static const gw_profile_layer layer = {"all", 1000000, 4};

static gw_profile profile_of(const gw_profile_codec *codecs, uint32_t n_codecs)
{
    return (gw_profile){.struct_bytes = sizeof(gw_profile),
                        .forward_ms = 6,
                        .layers = &layer,
                        .n_layers = 1,
                        .link = {.alpha_ms = 1, .ms_per_byte = 1e-6, .members = 4},
                        .codecs = codecs,
                        .n_codecs = n_codecs};
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

TEST(codecs_in_their_order)
{
    const gw_profile_codec codecs[] = {
        {.spec = "slow", .compress_ms_fixed = 20, .bytes_per_element = 0.25},
        {.spec = "none", .bytes_per_element = 6},
        {.spec = "quick", .compress_ms_fixed = 2, .bytes_per_element = 0.5},
        {.spec = "worse", .compress_ms_fixed = 1, .bytes_per_element = 7},
        {.spec = "free", .bytes_per_element = 5},
    };
    const gw_profile p = profile_of(codecs, 5);
    static gw_advice advice;
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_BESIDE, &advice), GW_OK);
    assert_int_equal(advice.n_codecs, 5);
    static const uint32_t order[] = {2, 4, 1, 3, 0};
    static const double steps[] = {13.5, 16, 17, 19, 31.25};
    for (uint32_t i = 0; i < 5; i++) {
        const gw_codec_advice *one = &advice.codecs[i];
        assert_int_equal(one->codec, order[i]);
        assert_true(near(one->step_ms, steps[i]));
        assert_true(near(one->speedup, 17 / steps[i]));
        assert_true(near(one->bytes, 1e6 * codecs[order[i]].bytes_per_element));
        assert_int_equal(one->n_groups, 1);
    }
    /* The time for a byte at which the codec saves as much as it costs. */
    assert_true(near(advice.codecs[0].pays_from_ms_per_byte, 2 / 5.5e6));
    assert_true(advice.codecs[1].pays_from_ms_per_byte == 0);
    assert_true(isinf(advice.codecs[2].pays_from_ms_per_byte));
    assert_true(isinf(advice.codecs[3].pays_from_ms_per_byte));
    assert_true(near(advice.codecs[4].pays_from_ms_per_byte, 20 / 5.75e6));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(advice.codecs[i].pays, i < 2);
    assert_false(advice.assumed_floats);
    assert_int_equal(advice.floats.codec, 1);
    assert_true(near(advice.floats.step_ms, 17));
}

TEST(floats_are_assumed_if_they_are_missing)
{
    const gw_profile_codec codec = {.spec = "slow", .compress_ms_fixed = 20, .bytes_per_element = 0.25};
    const gw_profile p = profile_of(&codec, 1);
    static gw_advice advice;
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_INLINE, &advice), GW_OK);
    assert_true(advice.assumed_floats);
    assert_int_equal(advice.n_codecs, 2);
    assert_int_equal(advice.codecs[0].codec, 1); /* n_codecs: the codec is floats */
    assert_true(near(advice.floats.step_ms, 17));
    assert_true(near(advice.floats.bytes, 6e6));
    assert_false(advice.codecs[0].pays || advice.codecs[1].pays);
}

/* A codec that saves less than a measurement can tell is not advised. */
TEST(little_is_not_worth_it)
{
    const gw_profile_codec codecs[] = {{.spec = "none", .bytes_per_element = 6},
                                       {.spec = "same", .bytes_per_element = 5.99}};
    const gw_profile p = profile_of(codecs, 2);
    static gw_advice advice;
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_INLINE, &advice), GW_OK);
    assert_int_equal(advice.codecs[0].codec, 1);
    assert_false(advice.codecs[0].pays);
}

TEST(odd_calls_are_refused)
{
    const gw_profile_codec codec = {.spec = "none", .bytes_per_element = 6};
    static gw_advice advice;
    gw_profile p = profile_of(&codec, 1);
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_INLINE, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_advise(NULL, &p, (gw_compress)0, &advice), GW_ERR_ARGUMENT);
    assert_int_equal(gw_advise(NULL, NULL, GW_COMPRESS_INLINE, &advice), GW_ERR_ARGUMENT);
    p.forward_ms = NAN;
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_INLINE, &advice), GW_ERR_ARGUMENT);
    p = profile_of(&codec, 1);
    p.link.ms_per_byte = 0;
    assert_int_equal(gw_advise(NULL, &p, GW_COMPRESS_INLINE, &advice), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "ms_per_byte is 0"));
}

TEST(a_shortage_is_told)
{
    const gw_profile_codec codec = {.spec = "none", .bytes_per_element = 6};
    const gw_profile p = profile_of(&codec, 1);
    static gw_advice advice;
    gw_status status = GW_ERR_MEMORY;
    for (int fail_at = 1; status != GW_OK; fail_at++) {
        struct shortage shortage = {0};
        gw_context *context = context_short_of(&shortage, 1);
        const int before = shortage.live;
        fail_nth(&shortage, fail_at);
        status = gw_advise(context, &p, GW_COMPRESS_BESIDE, &advice);
        assert_true(status == GW_OK || status == GW_ERR_MEMORY);
        assert_int_equal(shortage.live, before);
        assert_true(fail_at < 10000);
        gw_context_destroy(context);
    }
}

RUN_TESTS("advise", NULL, NULL)
