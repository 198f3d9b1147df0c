/* Tests codec specifications: every option, every refusal and its sentence, the listing, and which tensors a pattern
 * leaves in float. */
#include "codec/state.h"
#include "codec/codec.h"
#include "codecs.h"
#include "checks.h"

#include <locale.h>
#include <stdio.h>
#include <unistd.h>

TEST(names_are_found)
{
    const char *names[] = {"none", "bf16", "f16", "ternary"};
    for (size_t i = 0; i < 4; i++) {
        gw_codec *codec = codec_of(NULL, names[i]);
        assert_string_equal(gw_codec_traits_of(codec).name, names[i]);
        assert_false(gw_codec_traits_of(codec).global);
        gw_codec_destroy(codec);
    }
    gw_codec_destroy(NULL);
}

static bool an_example_has(const gw_codec_info *info, const char *key)
{
    char setting[32];
    bool has = false;
    snprintf(setting, sizeof setting, "%s=", key);
    for (size_t k = 1; info->examples[k] && !has; k++)
        has = strstr(info->examples[k], setting) != NULL;
    return has;
}

TEST(the_listing_is_complete)
{
    size_t n = 0;
    for (const gw_codec_info *info; (info = gw_codec_list(n)); n++) {
        assert_true(strlen(info->summary) > 5);
        assert_non_null(info->source);
        assert_int_equal(info->lossy, strcmp(info->name, "none") != 0);
        assert_non_null(gw_wire_codec_by_id(info->wire_id)); /* reads its frames */
        gw_codec *codec = codec_of(NULL, info->name);
        /* The canonical text of the defaults names every option in the listing's order, with the listing's default. */
        char expected[512];
        int used = snprintf(expected, sizeof expected, "%s", info->name);
        int n_texts = 0;
        for (size_t i = 0; i < info->n_options; i++) {
            const gw_codec_option *option = &info->options[i];
            n_texts += gw_codec_records[n]->rules[i].kind == GW_OPTION_TEXT;
            assert_true(strlen(option->help) > 5 && strlen(option->values) > 2);
            used += snprintf(expected + used, sizeof expected - (size_t)used, "%c%s=%s", i ? ',' : ':', option->key,
                             option->default_value);
            CHECK(an_example_has(info, option->key), "no example of %s has %s=", info->name, option->key);
        }
        CHECK(n_texts <= 1, "%s: a canonical text has room for one option that is a text", info->name);
        assert_string_equal(info->examples[0], info->name);
        for (size_t k = 1; info->examples[k]; k++)
            gw_codec_destroy(codec_of(NULL, info->examples[k]));
        assert_string_equal(gw_codec_traits_of(codec).canonical, expected);
        gw_codec_destroy(codec);
        for (size_t j = 0; j < n; j++)
            assert_string_not_equal(info->name, gw_codec_list(j)->name);
    }
    assert_null(gw_codec_list(n + 1));
    assert_null(gw_codec_list(SIZE_MAX));
}

/* The numbers are those of the wire format, and each record has all that every wire codec must have. */
TEST(wire_codecs_are_complete)
{
    for (size_t i = 0; gw_wire_codecs[i]; i++) {
        const struct gw_wire_codec *wire = gw_wire_codecs[i];
        assert_int_equal(wire->id, i + 1);
        assert_ptr_equal(gw_wire_codec_by_id(wire->id), wire);
        assert_true(*wire->name && wire->code_names[0]);
        assert_true(wire->check_frame && wire->decode && wire->symbols && wire->reduce_bound && wire->reduce);
    }
    assert_null(gw_wire_codec_by_id(0));
    assert_null(gw_wire_codec_by_id(255));
}

#define PLAIN ",residual=off,level=3,momentum=0,output=gradient"
#define CODES ",share=on,bucket=0,scope=layer,skip=,min=0,code=auto,pull=auto,entropy=auto"
#define REST CODES PLAIN

static void canonical(const char *spec, const char *expected)
{
    gw_codec *codec = codec_of(NULL, spec), *again = codec_of(NULL, gw_codec_traits_of(codec).canonical);
    CHECK(strcmp(gw_codec_traits_of(codec).canonical, expected) == 0, "%s becomes %s, not %s", spec,
          gw_codec_traits_of(codec).canonical, expected);
    assert_string_equal(gw_codec_traits_of(again).canonical, expected);
    gw_codec_destroy(codec);
    gw_codec_destroy(again);
}

TEST(legal_words_are_spelled_out)
{
    canonical("none", "none");
    canonical("none:", "none");
    canonical("bf16", "bf16");
    canonical("f16", "f16");
    canonical("ternary", "ternary:clip=2.5" REST);
    canonical("ternary:", "ternary:clip=2.5" REST);
    canonical("ternary:clip=0", "ternary:clip=0" REST);
    canonical("ternary:clip=-0", "ternary:clip=0" REST);
    canonical("ternary:clip=1e3", "ternary:clip=1000" REST);
    canonical("ternary:clip=.5", "ternary:clip=0.5" REST);
    canonical("ternary:clip=1e30", "ternary:clip=1e+30" REST);
    canonical("ternary:clip=0.1234567890123456789", "ternary:clip=0.12345678901234568" REST);
    canonical("ternary:share=off",
              "ternary:clip=2.5,share=off,bucket=0,scope=layer,skip=,min=0,code=auto,pull=auto,entropy=auto" PLAIN);
    canonical(
        "ternary:bucket=1073741824",
        "ternary:clip=2.5,share=on,bucket=1073741824,scope=layer,skip=,min=0,code=auto,pull=auto,entropy=auto" PLAIN);
    canonical("ternary:scope=global",
              "ternary:clip=2.5,share=on,bucket=0,scope=global,skip=,min=0,code=auto,pull=auto,entropy=auto" PLAIN);
    canonical("ternary:skip=last+conv?.bias", "ternary:clip=2.5,share=on,bucket=0,scope=layer,skip=last+conv?.bias,min="
                                              "0,code=auto,pull=auto,entropy=auto" PLAIN);
    canonical("ternary:min=1000000000000000000", "ternary:clip=2.5,share=on,bucket=0,scope=layer,skip=,min="
                                                 "1000000000000000000,code=auto,pull=auto,entropy=auto" PLAIN);
    canonical("ternary:residual=on,level=max,momentum=0.5,output=velocity",
              "ternary:clip=2.5" CODES ",residual=on,level=max,momentum=0.5,output=velocity");
    canonical("onebit", "onebit:bucket=512,momentum=0,output=gradient"); /* experiments/onebit-mnist has the figures */
    canonical("onebit:bucket=0,momentum=0.9", "onebit:bucket=0,momentum=0.9,output=gradient");
    canonical("onebit:momentum=0.9999999", "onebit:bucket=512,momentum=0.9999999,output=gradient");
    /* The order of the options does not matter. */
    canonical("ternary:entropy=off,pull=packed,code=2bit,min=3,skip=a*,bucket=64,clip=3,share=on,scope=layer",
              "ternary:clip=3,share=on,bucket=64,scope=layer,skip=a*,min=3,code=2bit,pull=packed,entropy=off" PLAIN);
    const char *codes[] = {"auto", "2bit", "base3", "mask"}, *pulls[] = {"auto", "packed"};
    const char *entropies[] = {"auto", "on", "off"};
    for (size_t c = 0; c < 4; c++)
        for (size_t p = 0; p < 2; p++)
            for (size_t e = 0; e < 3; e++) {
                char spec[128], expected[256];
                snprintf(spec, sizeof spec, "ternary:code=%s,pull=%s,entropy=%s", codes[c], pulls[p], entropies[e]);
                snprintf(expected, sizeof expected,
                         "ternary:clip=2.5,share=on,bucket=0,scope=layer,skip=,min=0,code=%s,pull=%s,entropy=%s" PLAIN,
                         codes[c], pulls[p], entropies[e]);
                canonical(spec, expected);
            }
}

TEST(momentum_and_bias_are_known)
{
    static const struct {
        const char *spec;
        gw_codec_traits traits;
    } cases[] = {{"none", {.unbiased = true}},
                 {"ternary", {.lossy = true, .unbiased = true}},
                 {"ternary:residual=on", {.lossy = true}},
                 {"ternary:residual=on,momentum=0.5", {.lossy = true, .momentum = 0.5}},
                 {"topk:momentum=0.5,output=velocity", {.lossy = true, .momentum = 0.5, .velocity = true}},
                 {"onebit:momentum=0.25", {.lossy = true, .momentum = 0.25}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec *codec = codec_of(NULL, cases[i].spec);
        const gw_codec_traits traits = gw_codec_traits_of(codec), *want = &cases[i].traits;
        CHECK(traits.lossy == want->lossy && traits.unbiased == want->unbiased && traits.momentum == want->momentum &&
                  traits.velocity == want->velocity,
              "%s", cases[i].spec);
        gw_codec_destroy(codec);
    }
}

static double lost_by(const gw_codec *codec)
{
    double points;
    assert_int_equal(gw_codec_lost(codec, &points), GW_OK);
    return points;
}

/* A loss belongs to a codec, however its specification is spelled, and to no other one. */
TEST(losses_are_known)
{
    const gw_codec_info *info;
    size_t n_rows = 0;
    for (size_t i = 0; (info = gw_codec_list(i)); i++)
        for (const gw_codec_loss *loss = info->losses; loss && loss->spec; loss++, n_rows++) {
            gw_codec *codec = codec_of(NULL, loss->spec),
                     *spelled = codec_of(NULL, gw_codec_traits_of(codec).canonical);
            CHECK(strcmp(gw_codec_traits_of(codec).name, info->name) == 0, "%s", loss->spec);
            CHECK(lost_by(codec) >= loss->points, "%s", loss->spec);
            CHECK(lost_by(spelled) == lost_by(codec), "%s", loss->spec);
            CHECK(loss->n_seeds > 0 && loss->bits_up > 0 && loss->bits_down > 0, "%s", loss->spec);
            gw_codec_destroy(codec);
            gw_codec_destroy(spelled);
        }
    assert_true(n_rows > 5);
    gw_codec *unknown = codec_of(NULL, "ternary:clip=7");
    assert_true(isnan(lost_by(unknown)));
    gw_codec_destroy(unknown);
}

TEST(global_is_known)
{
    static const struct {
        const char *spec;
        bool is_global, is_one_group;
    } cases[] = {{"ternary:scope=global", true, true},         {"ternary:scope=layer", false, false},
                 {"topk:scope=global,refresh=1", true, true},  {"topk:scope=global,refresh=2", true, false},
                 {"topk:scope=layer,refresh=1", false, false}, {"none", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec *codec = codec_of(NULL, cases[i].spec);
        assert_true(gw_codec_traits_of(codec).global == cases[i].is_global);
        assert_true(gw_codec_traits_of(codec).one_group == cases[i].is_one_group);
        gw_codec_destroy(codec);
    }
}

/* Checks that the specification is refused, with a sentence that holds all of these words. */
static void refused(const char *spec, const char *words[])
{
    gw_codec *codec = (gw_codec *)&codec;
    CHECK(gw_codec_parse(NULL, spec, &codec) == GW_ERR_SPEC, "%s", spec);
    assert_null(codec);
    for (; *words; words++)
        CHECK(strstr(gw_last_error(), *words), "%s: \"%s\" does not say \"%s\"", spec, gw_last_error(), *words);
}

#define REFUSED(spec, ...) refused(spec, (const char *[]){__VA_ARGS__, NULL})

TEST(what_is_not_legal_is_named)
{
    /* names */
    REFUSED("", "no codec ''", "none, bf16, f16, ternary");
    REFUSED("ternar", "no codec 'ternar'", "did you mean 'ternary'?");
    REFUSED("terngrad", "did you mean 'ternary'?");
    REFUSED("TernGrad:clip=2", "no codec 'TernGrad'", "did you mean 'ternary'?");
    REFUSED("DLGS", "did you mean 'topk'?");
    REFUSED("fp16", "did you mean 'f16'?");
    REFUSED("ternary2", "no codec 'ternary2'");
    REFUSED("Ternary", "no codec 'Ternary'");
    REFUSED(":clip=2", "no codec ''");
    REFUSED("ternary,clip=2", "no codec 'ternary,clip=2'");
    REFUSED("a_name_that_is_far_too_long_to_be_repeated_in_a_sentence", "'a_name_that_is_far_too_long_to_be_repeat'");

    /* keys */
    REFUSED("none:clip=2", "none has no option 'clip'", "it has none");
    REFUSED("ternary:clop=2", "ternary has no option 'clop'",
            "clip, share, bucket, scope, skip, min, code, pull, entropy, residual, level, momentum, output");
    REFUSED("ternary:cli=2", "no option 'cli'");
    REFUSED("ternary:clip", "option 'clip' has no value", "key=value");
    REFUSED("ternary:,clip=2", "an option is empty", "commas between options only");
    REFUSED("ternary:clip=2,,share=on", "an option is empty");
    REFUSED("ternary:clip=2,", "an option is empty");
    REFUSED("ternary:,", "an option is empty");
    REFUSED("none:,", "none: an option is empty");
    REFUSED("ternary:=2", "no option ''");
    REFUSED("ternary:clip=2,clip=2", "option 'clip' is given twice");
    REFUSED("ternary:code=mask,share=on,code=2bit", "option 'code' is given twice");

    /* values */
    REFUSED("ternary:clip=", "clip= is not legal", "0 to 1e30", "default 2.5");
    REFUSED("ternary:clip=-1", "clip=-1 is not legal", "0 to 1e30; 0 switches clipping off");
    REFUSED("ternary:clip=2.5x", "clip=2.5x is not legal");
    REFUSED("ternary:clip=two", "clip=two is not legal");
    REFUSED("ternary:clip=nan", "clip=nan is not legal");
    REFUSED("ternary:clip=inf", "clip=inf is not legal");
    REFUSED("ternary:clip=1e31", "clip=1e31 is not legal");
    REFUSED("ternary:clip=1e999", "clip=1e999 is not legal");
    REFUSED("ternary:share=yes", "share=yes is not legal", "on|off", "default on");
    REFUSED("ternary:share=", "share= is not legal");
    REFUSED("ternary:bucket=-1", "bucket=-1 is not legal", "up to 2^30", "default 0");
    REFUSED("ternary:bucket=+1", "bucket=+1 is not legal");
    REFUSED("ternary:bucket= 1", "bucket= 1 is not legal");
    REFUSED("ternary:bucket=1.5", "bucket=1.5 is not legal");
    REFUSED("ternary:bucket=1k", "bucket=1k is not legal");
    REFUSED("ternary:bucket=", "bucket= is not legal");
    REFUSED("ternary:bucket=1073741825", "bucket=1073741825 is not legal");
    REFUSED("ternary:bucket=99999999999999999999999999", "is not legal");
    REFUSED("ternary:scope=tensor", "scope=tensor is not legal", "layer|global", "default layer");
    REFUSED("ternary:min=-3", "min=-3 is not legal", "a number of elements");
    REFUSED("ternary:min=1000000000000000001000", "is not legal");
    REFUSED("ternary:code=packed", "code=packed is not legal", "auto|2bit|base3|mask", "default auto");
    REFUSED("ternary:code=2BIT", "code=2BIT is not legal");
    REFUSED("ternary:pull=2bit", "pull=2bit is not legal", "auto|packed");
    REFUSED("ternary:entropy=maybe", "entropy=maybe is not legal", "auto|on|off");
    char longest[2400] = "ternary:skip=";
    memset(longest + 13, 'a', 2200);
    REFUSED(longest, "2205 characters is too long");
    REFUSED("ternary:residual=on,level=inf", "level=inf is not legal", "0 to 100, or max");
    REFUSED("ternary:residual=on,level=101", "level=101 is not legal");
    REFUSED("topk:momentum=1", "momentum=1 is not legal", "below 1");
    REFUSED("topk:momentum=max", "momentum=max is not legal");
    REFUSED("topk:over=-0.1", "over=-0.1 is not legal", "0 to 0.75");
    REFUSED("topk:over=0.7501", "over=0.7501 is not legal", "default 0");
    REFUSED("topk:over=nan", "over=nan is not legal");

    /* combinations */
    REFUSED("ternary:scope=global,bucket=64", "scope=global", "bucket=64 cannot go with it");
    REFUSED("ternary:share=off,scope=global", "scope=global", "share=off cannot go with it");
    REFUSED("ternary:level=2", "level= and momentum= go with residual=on");
    REFUSED("ternary:level=max", "level= and momentum= go with residual=on");
    REFUSED("ternary:momentum=0.9", "level= and momentum= go with residual=on");
    REFUSED("ternary:residual=on,clip=0", "clip= limits what is drawn");
    REFUSED("ternary:residual=on,output=velocity", "without momentum= leave it out");
    REFUSED("topk:output=velocity", "without momentum= leave it out");
    REFUSED("onebit:output=velocity", "without momentum= leave it out");
}

TEST(missing_arguments_are_refused)
{
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(NULL, NULL, &codec), GW_ERR_ARGUMENT);
    assert_int_equal(gw_codec_parse(NULL, "none", NULL), GW_ERR_ARGUMENT);
}

/* ---- patterns ---------------------------------------------------------------------------------------- */

static bool left_in_float(const char *options, const char *name, uint64_t n, bool last)
{
    char spec[GW_OPTION_TEXT_BYTES + 64];
    snprintf(spec, sizeof spec, "ternary:%s", options);
    gw_codec *codec = codec_of(NULL, spec);
    const gw_tensor tensor = {.name = name, .n_elems = n, .last_layer = last};
    gw_encoder *encoder;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
    bool is_float = gw_encoder_traits_of(encoder).n_shared == 0;
    assert_int_equal(gw_codec_leaves_float(codec, &tensor), is_float);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
    return is_float;
}

TEST(who_leaves_nothing_in_float)
{
    const gw_tensor nameless = {.n_elems = 10, .last_layer = true};
    gw_codec *none = codec_of(NULL, "none"), *all = codec_of(NULL, "ternary"),
             *last = codec_of(NULL, "ternary:skip=last");
    assert_false(gw_codec_leaves_float(none, &nameless)); /* the codec none leaves no tensor in float: all are float
                                                           * already */
    assert_false(gw_codec_leaves_float(all, &nameless));
    assert_true(gw_codec_leaves_float(last, &nameless));
    assert_false(gw_codec_leaves_float(NULL, &nameless));
    assert_false(gw_codec_leaves_float(last, NULL));
    gw_codec_destroy(none);
    gw_codec_destroy(all);
    gw_codec_destroy(last);
}

TEST(every_name_in_skip_must_fit)
{
    const gw_tensor tensors[] = {{.name = "conv1.weight", .n_elems = 4}, {.n_elems = 1, .last_layer = true}};
    static const char *const good[] = {"none",
                                       "ternary",
                                       "ternary:min=9",
                                       "ternary:skip=last",
                                       "ternary:skip=conv?.*+",
                                       "ternary:skip=++conv1.weight+last"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        gw_codec *codec = codec_of(NULL, good[i]);
        assert_int_equal(gw_codec_check_skip(codec, tensors, 2), GW_OK);
        gw_codec_destroy(codec);
    }
    gw_codec *codec = codec_of(NULL, "ternary:skip=last+conv9.weight");
    assert_int_equal(gw_codec_check_skip(codec, tensors, 2), GW_ERR_SPEC);
    assert_string_equal(gw_last_error(),
                        "ternary: skip=conv9.weight fits no name here (conv1.weight, ); several names are joined by +");
    assert_int_equal(gw_codec_check_skip(codec, NULL, 0), GW_ERR_SPEC); /* last fits none of no tensors */
    assert_int_equal(gw_codec_check_skip(codec, NULL, 1), GW_ERR_ARGUMENT);
    assert_int_equal(gw_codec_check_skip(NULL, tensors, 2), GW_ERR_ARGUMENT);
    gw_tensor many[100]; /* the sentence has room for a part of their names */
    char name[GW_MAX_NAME];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = (gw_tensor){.name = name};
    assert_int_equal(gw_codec_check_skip(codec, many, 100), GW_ERR_SPEC);
    assert_non_null(strstr(gw_last_error(), "nn...); several"));
    gw_codec_destroy(codec);
}

static bool matches(const char *pattern, const char *name)
{
    char options[128];
    snprintf(options, sizeof options, "skip=%s", pattern);
    return left_in_float(options, name, 10, false);
}

TEST(patterns_match_names)
{
    assert_true(matches("conv1.bias", "conv1.bias"));
    assert_false(matches("conv1.bias", "conv1.bia"));
    assert_false(matches("conv1.bias", "conv1.biass"));
    assert_false(matches("conv1.bias", "Conv1.bias"));
    assert_true(matches("*", ""));
    assert_true(matches("*", "anything"));
    assert_true(matches("*.bias", "conv1.bias"));
    assert_true(matches("*.bias", ".bias"));
    assert_false(matches("*.bias", "bias"));
    assert_true(matches("conv*", "conv"));
    assert_true(matches("conv?", "conv1"));
    assert_false(matches("conv?", "conv"));
    assert_false(matches("conv?", "conv12"));
    assert_true(matches("*1*b*", "conv1.bias"));
    assert_true(matches("c*s*s", "classes"));
    assert_false(matches("*x", "conv1.bias"));
    assert_true(matches("**", "a"));
    assert_true(matches("a*b*c*d", "a.b.b.c.x.c.d"));
    assert_true(matches("fc2+conv1", "conv1"));
    assert_true(matches("fc2+conv1", "fc2"));
    assert_false(matches("fc2+conv1", "fc2+conv1"));
    assert_false(matches("", "x"));
    assert_false(matches("", ""));
    assert_true(matches("last", "last")); /* also a name */
    assert_false(matches("last", "fc2.weight"));
    assert_true(left_in_float("skip=last", "fc2.weight", 10, true));
    assert_true(left_in_float("skip=conv*+last", "fc2.weight", 10, true));
    assert_false(left_in_float("skip=conv*", "fc2.weight", 10, true));
    assert_true(left_in_float("skip=*", NULL, 10, false)); /* no name is the name "" */
}

/* Names of real models have 145 bytes and more, and an option may join several. */
TEST(long_names_are_taken)
{
    char name[GW_MAX_NAME],
        options[GW_OPTION_TEXT_BYTES + 8] = "skip=", spec[GW_OPTION_TEXT_BYTES + 32] = "ternary:skip=";
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    strcat(options, name);
    assert_true(left_in_float(options, name, 10, false));
    strcat(options, "+b");
    assert_true(left_in_float(options, "b", 10, false));
    name[sizeof name - 2] = 'm';
    assert_false(left_in_float(options, name, 10, false));
    gw_codec *codec;
    memset(spec + strlen(spec), 'n', GW_OPTION_TEXT_BYTES);
    assert_int_equal(gw_codec_parse(NULL, spec, &codec), GW_ERR_SPEC);
    assert_non_null(strstr(gw_last_error(), "has a text of 2048 bytes; at most 2047"));
}

/* Many stars must not take time exponential in their number. */
TEST(patterns_of_many_stars_end)
{
    char pattern[96], name[130];
    for (int i = 0; i < 94; i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[93] = 'b';
    pattern[94] = 0;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_false(matches(pattern, name));
    name[sizeof name - 2] = 'b';
    assert_true(matches(pattern, name));
}

TEST(short_tensors_are_left_in_float)
{
    assert_true(left_in_float("min=100", "x", 99, false));
    assert_false(left_in_float("min=100", "x", 100, false));
    assert_false(left_in_float("min=0", "x", 0, false));
    assert_true(left_in_float("min=1", "x", 0, false));
}

/* ---- the host's locale ------------------------------------------------------------------------------- */

#define LOCALES GW_BINARY_DIR "/locales"

/* Under a locale that writes 2,5, programs read and print the same specifications. The test builds such a locale if the
 * system can. */
TEST(decimal_points_do_not_depend_on_the_locale)
{
    setenv("LOCPATH", LOCALES, 1);
    if ((access(LOCALES "/de_DE.UTF-8", F_OK) != 0 &&
         system("mkdir -p '" LOCALES "' && localedef -i de_DE -f UTF-8 '" LOCALES "/de_DE.UTF-8' 2>'" LOCALES
                "/log'") != 0) ||
        !setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("no locale with a decimal comma can be built here\n");
        skip();
    }
    assert_string_equal(localeconv()->decimal_point, ",");
    canonical("ternary:clip=1.25", "ternary:clip=1.25" REST);
    REFUSED("ternary:clip=1,25", "option '25' has no value");
    assert_string_equal(localeconv()->decimal_point, ","); /* the host's locale is left as it was */
    setlocale(LC_NUMERIC, "C");
}

RUN_TESTS("parse", NULL, NULL)
