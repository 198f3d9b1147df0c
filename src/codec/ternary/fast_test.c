/* Tests ternary frames that are written as GW_WIRE_FAST: they have the named codes, hold the same values, and ask for
 * averages that are fast, too. */
#include "checks.h"
#include "codec/wire_choice.h"
#include "codecs.h"
#include "wire/frame.h"

#define N 200000u
#define N_WORKERS 3u

/* Pushes of three workers; ask: only worker 1 asks for a fast average. */
static void push_all(gw_context *context, const char *spec, gw_wire push, gw_wire ask, struct whole_frame *frames)
{
    float *g = room_for(N, sizeof *g), *shared = NULL;
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        gw_encoder *encoder = encoder_of(context, spec, N);
        uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
        shared = shared ? shared : room_for(n_shared, sizeof *shared);
        for (uint64_t i = 0; i < n_shared; i++)
            shared[i] = 100;
        numbers_fill_bell(r, g, N);
        gw_encoder_choose_wire(encoder, push, r == 1 ? ask : GW_WIRE_SMALL);
        frames[r] = encode_whole(encoder, g, N, n_shared ? shared : NULL, (gw_draw){.seed = 3, .rank = r});
        gw_encoder_destroy(encoder);
    }
    free(shared);
    free(g);
}

static gw_frame_info info_of(struct whole_frame frame)
{
    gw_frame_info info;
    CHECK(gw_frame_parse(frame.bytes, frame.size, &info) == GW_OK, "%s", gw_last_error());
    return info;
}

/* True if the frames are equal, apart from the flag and the checksum. */
static bool alike(struct whole_frame a, struct whole_frame b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, 5) == 0 && memcmp(a.bytes + 6, b.bytes + 6, 42) == 0 &&
           memcmp(a.bytes + GW_HEADER_BYTES, b.bytes + GW_HEADER_BYTES, a.size - GW_HEADER_BYTES) == 0;
}

TEST(fast_frames_are_those_of_named_codes)
{
    static const char *const specs[][2] = {{"ternary", "ternary:code=mask,pull=packed,entropy=off"},
                                           {"ternary:bucket=4096", "ternary:bucket=4096,code=mask,pull=packed"},
                                           {"ternary:share=off", "ternary:share=off,code=mask,entropy=off"},
                                           {"ternary:code=base3", "ternary:code=base3,pull=packed"},
                                           {"ternary:pull=packed", "ternary:code=mask,pull=packed,entropy=off"}};
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2)
        for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
            gw_context *context = context_of(n_threads);
            struct whole_frame small[N_WORKERS], fast[N_WORKERS], named[N_WORKERS], late[N_WORKERS];
            float *want = room_for(N, sizeof *want), *got = room_for(N, sizeof *got);
            push_all(context, specs[s][0], GW_WIRE_SMALL, GW_WIRE_SMALL, small);
            push_all(context, specs[s][0], GW_WIRE_FAST, GW_WIRE_FAST, fast);
            push_all(context, specs[s][0], GW_WIRE_SMALL, GW_WIRE_FAST,
                     late); /* the owner hears the choice before the workers do */
            push_all(context, specs[s][1], GW_WIRE_SMALL, GW_WIRE_SMALL, named);
            for (uint32_t r = 0; r < N_WORKERS; r++) {
                assert_true(alike(fast[r], named[r]));
                assert_int_equal(info_of(fast[r]).fast, r == 1);
                assert_false(info_of(small[r]).fast);
                decode_into(context, small[r], want, N);
                decode_into(context, fast[r], got, N);
                assert_true(same_floats(want, got, N));
            }
            struct whole_frame averages[] = {reduce_frames(context, small, N_WORKERS, specs[s][0]),
                                             reduce_frames(context, fast, N_WORKERS, specs[s][0]),
                                             reduce_frames(context, late, N_WORKERS, specs[s][0]),
                                             reduce_frames(context, named, N_WORKERS, specs[s][1])};
            decode_into(context, averages[0], want, N);
            for (int i = 1; i < 4; i++) {
                decode_into(context, averages[i], got, N);
                assert_true(same_floats(want, got, N));
                assert_true(alike(averages[i], averages[3]));
                assert_int_equal(info_of(averages[i]).fast, i < 3);
            }
            assert_false(info_of(averages[0]).fast);
            for (uint32_t r = 0; r < N_WORKERS; r++)
                free(small[r].bytes), free(fast[r].bytes), free(named[r].bytes), free(late[r].bytes);
            for (int i = 0; i < 4; i++)
                free(averages[i].bytes);
            free(want);
            free(got);
            gw_context_destroy(context);
        }
}

/* The average of a machine keeps what one of its pushes asked for. The order of the pushes does not matter. */
TEST(averages_of_averages_keep_it)
{
    gw_context *context = context_of(1);
    struct whole_frame pushes[N_WORKERS];
    push_all(context, "ternary", GW_WIRE_SMALL, GW_WIRE_FAST, pushes);
    struct whole_frame sum = reduce_frames(context, pushes + 1, 2, "ternary"), parts[] = {pushes[0], sum},
                       whole = reduce_frames(context, parts, 2, "ternary"),
                       plain = reduce_frames(context, pushes, N_WORKERS, "ternary");
    assert_true(info_of(sum).fast && info_of(whole).fast);
    assert_true(same_frame(whole, plain));
    for (uint32_t r = 0; r < N_WORKERS; r++)
        free(pushes[r].bytes);
    free(sum.bytes);
    free(whole.bytes);
    free(plain.bytes);
    gw_context_destroy(context);
}

TEST(codecs_without_a_choice_ignore_it)
{
    static const struct {
        const char *spec;
        bool choice;
    } cases[] = {{"ternary", true},
                 {"ternary:code=base3", true},
                 {"ternary:pull=packed", true},
                 {"ternary:share=off", true},
                 {"ternary:share=off,code=mask", false},
                 {"ternary:code=mask,pull=packed", false},
                 {"ternary:entropy=on", false},
                 {"ternary:code=mask,entropy=off", false},
                 {"ternary:skip=layer*", false},
                 {"none", false},
                 {"bf16", false},
                 {"topk:ratio=0.1,scope=layer", true},
                 {"gspar", true},
                 {"uniform", true},
                 {"f16", false}};
    gw_context *context = context_of(1);
    float g[100];
    numbers_fill_bell(1, g, 100);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_encoder *encoder = encoder_of(context, cases[i].spec, 100);
        assert_int_equal(gw_encoder_has_wire_choice(encoder), cases[i].choice);
        gw_encoder_choose_wire(encoder, GW_WIRE_FAST, GW_WIRE_FAST);
        struct whole_frame frame = encode_whole(encoder, g, 100, NULL, (gw_draw){.seed = 1});
        assert_int_equal(info_of(frame).fast, cases[i].choice);
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
    assert_false(gw_encoder_has_wire_choice(NULL));
    gw_context_destroy(context);
}

TEST(choices_have_names)
{
    for (gw_wire wire = GW_WIRE_AUTO; wire <= GW_WIRE_FAST; wire++) {
        gw_wire read = (gw_wire)9;
        assert_int_equal(gw_wire_parse(gw_wire_name(wire), &read), GW_OK);
        assert_int_equal(read, wire);
    }
    gw_wire read;
    assert_null(gw_wire_name((gw_wire)3));
    assert_int_equal(gw_wire_parse("slow", &read), GW_ERR_SPEC);
    assert_non_null(strstr(gw_last_error(), "\"slow\", and must be auto, small or fast"));
    assert_int_equal(gw_wire_parse(NULL, &read), GW_ERR_ARGUMENT);
    assert_int_equal(gw_wire_parse("auto", NULL), GW_ERR_ARGUMENT);
}

RUN_TESTS("fast", NULL, NULL)
