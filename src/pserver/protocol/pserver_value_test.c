/* Tests what is known of types, shapes, reduce methods and names: a table of each, written down a second time. */
#include "checks.h"
#include "pserver/protocol/methods.h"
#include "pserver/protocol/names.h"
#include "shortage.h"

#include <gradwire/status.h>

#include <stdio.h>
#include <string.h>

enum { FIRST_NO_TYPE = GW_PS_FRAME + 1, FIRST_NO_METHOD = GW_PS_MEDIAN + 1 };

TEST(types_and_their_words)
{
    static const struct {
        gw_ps_type type;
        const char *word;
        size_t bytes;
        bool is_float;
    } types[] = {
        {GW_PS_FLOAT32, "float32", 4, true}, {GW_PS_FLOAT16, "float16", 2, true}, {GW_PS_BFLOAT16, "bfloat16", 2, true},
        {GW_PS_INT32, "int32", 4, false},    {GW_PS_INT64, "int64", 8, false},    {GW_PS_UINT8, "uint8", 1, false},
        {GW_PS_FRAME, "frame", 0, false},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_string_equal(gw_ps_type_name(types[i].type), types[i].word);
        assert_int_equal(gw_ps_type_bytes(types[i].type), types[i].bytes);
        assert_int_equal(gw_ps_is_float(types[i].type), types[i].is_float);
    }
    static const int none[] = {0, FIRST_NO_TYPE, 1000};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(gw_ps_type_name((gw_ps_type)none[i]));
        assert_int_equal(gw_ps_type_bytes((gw_ps_type)none[i]), 0);
        assert_false(gw_ps_is_float((gw_ps_type)none[i]));
    }
}

/* results[T] is the type of a method's result if the key has type T; 0: the method does not take such a key. bytes_of_3
 * has the bytes of a result of 3 elements, by the type of the result. */
TEST(methods_and_their_results)
{
    static const struct {
        gw_ps_method method;
        const char *word;
        gw_ps_type results[FIRST_NO_TYPE];
    } methods[] = {
        {GW_PS_MAX, "max", {0, 1, 2, 3, 4, 5, 6, 0}},
        {GW_PS_MIN, "min", {0, 1, 2, 3, 4, 5, 6, 0}},
        {GW_PS_SUM, "sum", {0, 1, 2, 3, 5, 5, 5, 0}},
        {GW_PS_MEAN, "mean", {0, 1, 2, 3, 1, 1, 1, 0}},
        {GW_PS_LATEST, "latest", {0, 1, 2, 3, 4, 5, 6, 7}},
        {GW_PS_DECODE_SUM, "decode_sum", {0, 0, 0, 0, 0, 0, 1, 1}},
        {GW_PS_DECODE_AVERAGE, "decode_average", {0, 0, 0, 0, 0, 0, 1, 7}},
        {GW_PS_PARAMETERS, "parameters", {0}},
        {GW_PS_MEDIAN, "median", {0, 1, 2, 3, 0, 0, 0, 0}},
    };
    static const uint64_t bytes_of_3[FIRST_NO_TYPE] = {0, 12, 6, 6, 12, 24, 3, 12};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const gw_ps_method method = methods[i].method;
        assert_string_equal(gw_ps_method_name(method), methods[i].word);
        assert_non_null(gw_ps_method_help(method));
        for (int t = 0; t <= FIRST_NO_TYPE; t++) {
            const gw_ps_type type = (gw_ps_type)t, want = t < FIRST_NO_TYPE ? methods[i].results[t] : 0;
            CHECK(gw_ps_result_type(method, type) == want, "%s of type %d", methods[i].word, t);
            if (!gw_ps_type_name(type))
                continue;
            CHECK(gw_ps_method_check(method, type) == (want ? GW_OK : GW_ERR_ARGUMENT), "%s of type %d",
                  methods[i].word, t);
            const bool codes = type == GW_PS_UINT8 && (method == GW_PS_DECODE_SUM || method == GW_PS_DECODE_AVERAGE);
            CHECK(gw_ps_result_bytes(method, type, 3) == (codes ? 48 : bytes_of_3[want]), "%s of type %d",
                  methods[i].word, t);
        }
    }
    static const int none[] = {0, FIRST_NO_METHOD, 1000};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(gw_ps_method_name((gw_ps_method)none[i]));
        assert_null(gw_ps_method_help((gw_ps_method)none[i]));
        assert_int_equal(gw_ps_result_type((gw_ps_method)none[i], GW_PS_FLOAT32), 0);
        assert_int_equal(gw_ps_method_check((gw_ps_method)none[i], GW_PS_INT32), GW_ERR_ARGUMENT);
        assert_string_equal(gw_last_error(), "int32 values cannot be pulled with a method of that number; with max, "
                                             "min, sum, mean, latest they can");
    }
    assert_int_equal(gw_ps_method_check(GW_PS_MAX, GW_PS_FRAME), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "with latest, decode_sum, decode_average they can"));
}

TEST(shapes_and_their_elements)
{
    static const struct {
        gw_ps_shape shape;
        uint64_t n; /* 0: it cannot be */
        const char *text;
    } cases[] = {
        {{0, {0}}, 1, "[]"},
        {{1, {5}}, 5, "[5]"},
        {{3, {2, 3, 4}}, 24, "[2, 3, 4]"},
        {{2, {2, 0}}, 0, "[2, 0]"},
        {{8, {1, 2, 1, 2, 1, 2, 1, 2}}, 16, "[1, 2, 1, 2, 1, 2, 1, 2]"},
        {{9, {1, 1, 1, 1, 1, 1, 1, 1}}, 0, "[1, 1, 1, 1, 1, 1, 1, 1]"},
        {{1, {1ull << 48}}, 1ull << 48, "[281474976710656]"},
        {{1, {(1ull << 48) + 1}}, 0, "[281474976710657]"},
        {{2, {1ull << 24, 1ull << 24}}, 1ull << 48, "[16777216, 16777216]"},
        {{2, {1ull << 24, (1ull << 24) + 1}}, 0, "[16777216, 16777217]"},
        {{3, {3, 3, UINT64_MAX}}, 0, "[3, 3, 18446744073709551615]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = 0;
        const bool can_be = gw_ps_shape_elems(&cases[i].shape, &n);
        CHECK(can_be == (cases[i].n != 0) && (!can_be || n == cases[i].n), "%s: %llu", cases[i].text,
              (unsigned long long)n);
        assert_string_equal(gw_ps_shape_text(&cases[i].shape).text, cases[i].text);
        for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
            CHECK(gw_ps_shapes_equal(&cases[i].shape, &cases[j].shape) == (i == j), "%s and %s", cases[i].text,
                  cases[j].text);
    }
}

/* Codes are four elements a byte, along the last dimension. */
TEST(shapes_of_decoded_codes)
{
    const gw_ps_shape shapes[] = {{0, {0}}, {2, {3, 5}}};
    const char *const texts[] = {"[4]", "[3, 20]"};
    for (int i = 0; i < 2; i++) {
        const gw_ps_shape decoded = gw_ps_result_shape(GW_PS_DECODE_SUM, GW_PS_UINT8, &shapes[i]);
        assert_string_equal(gw_ps_shape_text(&decoded).text, texts[i]);
    }
}

struct thing {
    char *name, text[16];
};

static const char *name_thing(struct thing *thing, uint64_t n)
{
    snprintf(thing->text, sizeof thing->text, "key %d", (int)n);
    return thing->name = thing->text;
}

TEST(names_have_numbers)
{
    enum { N = 1000 };
    static struct thing things[N];
    struct gw_ps_names names = {.context = NULL};
    assert_null(gw_ps_names_find(&names, "key 0"));
    for (uint64_t n = 0; n < N; n++) {
        assert_null(gw_ps_names_find(&names, name_thing(&things[n], n)));
        assert_int_equal(gw_ps_names_add(&names, &things[n]), GW_OK);
        assert_int_equal(names.n, n + 1);
        assert_ptr_equal(gw_ps_names_find(&names, things[n].name), &things[n]);
    }
    for (uint64_t i = 0; i < N; i++) {
        assert_ptr_equal(gw_ps_names_find(&names, things[i].name), &things[i]);
        assert_ptr_equal(names.all[i], &things[i]);
    }
    for (uint64_t i = names.n = 0; i < N; i += 3) /* two of three go */
        names.all[names.n++] = &things[i];
    gw_ps_names_refresh(&names);
    for (uint64_t i = 0; i < N; i++)
        assert_ptr_equal(gw_ps_names_find(&names, things[i].name), i % 3 ? NULL : &things[i]);
    gw_ps_names_fini(&names);
}

/* Whichever memory is not there: the names before stay, and the name can be added later. */
TEST(names_without_memory)
{
    struct shortage shortage = {0};
    struct gw_ps_names names = {.context = context_short_of(&shortage, 1)};
    static struct thing things[40];
    for (uint64_t n = 0; n < 40; n++) {
        name_thing(&things[n], n);
        gw_status status;
        int nth = 0;
        do {
            fail_nth(&shortage, ++nth);
            status = gw_ps_names_add(&names, &things[n]);
            assert_int_equal(names.n, status == GW_OK ? n + 1 : n);
            assert_ptr_equal(gw_ps_names_find(&names, things[n].name), status == GW_OK ? &things[n] : NULL);
        } while (status == GW_ERR_MEMORY);
        assert_int_equal(status, GW_OK);
        assert_int_equal(nth, n == 0 || n == 16 || n == 32 ? 2 : 1); /* the table grows at some */
    }
    gw_ps_names_fini(&names);
    gw_context_destroy(names.context);
    assert_int_equal(shortage.live, 0);
}

RUN_TESTS("pserver value", NULL, NULL)
