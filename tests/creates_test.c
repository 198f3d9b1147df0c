/* Tests that no function leaves something old or half made behind when it fails: *out is NULL, and links have ops
 * NULL. A program may then destroy or look at them without care, and functions refuse them. */
#include "checks.h"
#include "shortage.h"

#include <gradwire/gradwire.h>

#include <stdlib.h>
#include <string.h>

static int garbage;

/* ---- arguments that are refused ------------------------------------------------------------------------------- */

#define EXPECT_NULL(type, call)                                                                                        \
    do {                                                                                                               \
        type *out = (type *)&garbage;                                                                                  \
        assert_true((call) < 0);                                                                                       \
        assert_null(out);                                                                                              \
    } while (0)

TEST(refused_arguments_leave_nothing)
{
    const gw_tensor large = {.name = "large", .n_elems = GW_MAX_ELEMENTS + 1};
    const gw_context_options no_context = {.struct_bytes = 1};
    const gw_exchange_options no_exchange = {.struct_bytes = 1}, no_codec = {.struct_bytes = sizeof no_codec};
    const gw_ps_server_options no_server = {.struct_bytes = 1}, no_workers = {.struct_bytes = sizeof no_workers};
    const gw_ps_server_options outside = {.struct_bytes = sizeof outside, .listen = "0.0.0.0:0", .n_workers = 1};
    const gw_ps_client_options no_client = {.struct_bytes = 1}, nowhere = {.struct_bytes = sizeof nowhere};
    const gw_ps_client_options misspelt = {.struct_bytes = sizeof misspelt, .servers = "nonsense"};
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);

    EXPECT_NULL(gw_context, gw_context_create(&no_context, &out));
    EXPECT_NULL(gw_codec, gw_codec_parse(NULL, NULL, &out));
    EXPECT_NULL(gw_codec, gw_codec_parse(NULL, "nonsense", &out));
    EXPECT_NULL(gw_codec, gw_codec_parse(NULL, "ternary:clip=x", &out));
    EXPECT_NULL(gw_encoder, gw_encoder_create(NULL, NULL, &large, &out));
    EXPECT_NULL(gw_encoder, gw_encoder_create(NULL, codec, NULL, &out));
    EXPECT_NULL(gw_encoder, gw_encoder_create(NULL, codec, &large, &out));
    EXPECT_NULL(gw_exchange, gw_exchange_create(NULL, NULL, &out));
    EXPECT_NULL(gw_exchange, gw_exchange_create(NULL, &no_exchange, &out));
    EXPECT_NULL(gw_exchange, gw_exchange_create(NULL, &no_codec, &out));
    EXPECT_NULL(gw_ps_server, gw_ps_server_create(NULL, NULL, &out));
    EXPECT_NULL(gw_ps_server, gw_ps_server_create(NULL, &no_server, &out));
    EXPECT_NULL(gw_ps_server, gw_ps_server_create(NULL, &no_workers, &out));
    EXPECT_NULL(gw_ps_server, gw_ps_server_create(NULL, &outside, &out));
    EXPECT_NULL(gw_ps_client, gw_ps_client_create(NULL, NULL, &out));
    EXPECT_NULL(gw_ps_client, gw_ps_client_create(NULL, &no_client, &out));
    EXPECT_NULL(gw_ps_client, gw_ps_client_create(NULL, &nowhere, &out));
    EXPECT_NULL(gw_ps_client, gw_ps_client_create(NULL, &misspelt, &out));
    gw_codec_destroy(codec);
}

TEST(refused_links_have_no_functions)
{
    const gw_link_options wrong = {.struct_bytes = 1}, right = {.struct_bytes = sizeof right};
    static const char *const addresses[] = {NULL, "", "nonsense", "tcp://nonsense?rank=0&size=2", "mpi:?rank=0"};
    for (size_t i = 0; i <= sizeof addresses / sizeof *addresses; i++) {
        const bool is_last = i == sizeof addresses / sizeof *addresses; /* its options are wrong */
        gw_link links[3];
        memset(links, 0x55, sizeof links);
        assert_true(gw_link_open(NULL, is_last ? "local:" : addresses[i], is_last ? &wrong : &right, 3, links) < 0);
        for (int l = 0; l < 3; l++)
            assert_null(links[l].ops);
    }
}

/* What a function left that failed, and what a program did not look at. */
TEST(what_was_not_made_is_refused)
{
    const gw_link never = {.ops = NULL};
    gw_message message;
    assert_int_equal(gw_link_recv(NULL, 0, &message), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_recv(&never, 0, &message), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_why(NULL, NULL, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_why(&never, NULL, NULL), GW_ERR_ARGUMENT);
    const gw_status status = gw_ps_server_run(NULL);
    assert_true(status == GW_ERR_ARGUMENT || status == GW_ERR_UNSUPPORTED); /* the latter: a build without servers */
}

/* So it is with functions that give no status: a program need not look before it ends or asks what it never made. */
TEST(what_is_not_there_may_be_asked_and_ended)
{
    const gw_link never_made = {0};
    assert_null(gw_codec_traits_of(NULL).canonical);
    assert_false(gw_codec_leaves_float(NULL, NULL));
    assert_int_equal(gw_encoder_traits_of(NULL).n_shared, 0);
    assert_int_equal(gw_encoder_bound(NULL, 5), 0);
    assert_int_equal(gw_ps_client_info(NULL).n_workers, 0);
    assert_false(gw_ps_take_notice(NULL, GW_PS_NOTICE_JOIN));
    gw_link_fail(NULL, GW_ERR_PEER, "why");
    gw_link_fail(&never_made, GW_ERR_PEER, "why");
    gw_ps_server_stop(NULL);
    gw_ps_cancel(NULL, 1);
    gw_ps_value_free(NULL);
    gw_message_free(NULL);
    gw_codec_destroy(NULL);
    gw_encoder_destroy(NULL);
    gw_exchange_destroy(NULL);
    gw_link_destroy(NULL);
    gw_ps_client_destroy(NULL);
    gw_ps_server_destroy(NULL);
    gw_context_destroy(NULL);
}

/* ---- memory that runs out --------------------------------------------------------------------------------------- */

static struct shortage shortage = {.for_good = true};

/* Makes an object with each number of allocations, until it succeeds. */
#define SHORT_OF_MEMORY(type, call, destroy)                                                                           \
    do {                                                                                                               \
        gw_status status;                                                                                              \
        int n = 0;                                                                                                     \
        do {                                                                                                           \
            type *out = (type *)&garbage;                                                                              \
            fail_nth(&shortage, ++n);                                                                                  \
            status = (call);                                                                                           \
            assert_true(status == GW_OK ? out != NULL : status == GW_ERR_MEMORY && out == NULL);                       \
            fail_nth(&shortage, 0);                                                                                    \
            destroy(out);                                                                                              \
        } while (status < 0);                                                                                          \
        assert_true(n > 1);                                                                                            \
    } while (0)

TEST(lack_of_memory_leaves_nothing)
{
    gw_allocator scarce = {short_alloc, short_free, &shortage};
    const gw_context_options of_context = {.struct_bytes = sizeof of_context, .allocator = &scarce};
    const gw_tensor tensor = {.name = "weights", .n_elems = 5000};
    gw_context *context;
    gw_codec *codec;
    SHORT_OF_MEMORY(gw_context, gw_context_create(&of_context, &out), gw_context_destroy);
    assert_int_equal(gw_context_create(&of_context, &context), GW_OK);
    assert_int_equal(gw_codec_parse(context, "topk:ratio=0.1", &codec), GW_OK);
    SHORT_OF_MEMORY(gw_codec, gw_codec_parse(context, "topk:ratio=0.1", &out), gw_codec_destroy);
    SHORT_OF_MEMORY(gw_encoder, gw_encoder_create(context, codec, &tensor, &out), gw_encoder_destroy);

    gw_link link;
    memset(&link, 0x55, sizeof link);
    fail_nth(&shortage, 1);
    assert_int_equal(gw_link_local_create(context, 1, &link), GW_ERR_MEMORY);
    assert_null(link.ops);
    fail_nth(&shortage, 0);
    assert_int_equal(gw_link_local_create(context, 1, &link), GW_OK);
    const gw_exchange_options of_exchange = {
        .struct_bytes = sizeof of_exchange, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = link};
    SHORT_OF_MEMORY(gw_exchange, gw_exchange_create(context, &of_exchange, &out), gw_exchange_destroy);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
    assert_int_equal(shortage.live, 0);
}

RUN_TESTS("creates", NULL, NULL)
