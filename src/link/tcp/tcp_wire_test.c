/* Tests the bytes of the tcp link: what is written reads back, and what is cut or altered is refused, or is another
 * good message. */
#include "link/tcp/wire.h"
#include "outcome.h"

#include <gradwire/codec.h>

#include <stdlib.h>
#include <string.h>

static struct gw_net_address address_of(const char *text)
{
    struct gw_net_address address;
    ok(gw_net_address_parse("it", text, false, &address));
    return address;
}

/* A copy that ends where its memory ends, so that sanitizers see a read past it. */
static uint8_t *exactly(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

TEST(joins)
{
    static const char *const places[] = {"127.0.0.1:5555", "[2001:db8::7]:65535", "[::1]:1"};
    for (size_t i = 0; i < 3; i++) {
        const struct gw_tcp_join join = {.version = GW_TCP_VERSION,
                                         .keyed = i & 1,
                                         .rank = 7,
                                         .size = GW_MAX_WORKERS,
                                         .n_links = 3,
                                         .address = address_of(places[i])};
        uint8_t bytes[GW_TCP_JOIN_BYTES];
        struct gw_tcp_join back;
        memset(bytes, 0xAA, sizeof bytes); /* all of them are written */
        gw_tcp_join_write(bytes, &join);
        assert_true(gw_tcp_join_read(bytes, sizeof bytes, &back));
        assert_true(back.version == join.version && back.keyed == join.keyed && back.rank == 7 &&
                    back.size == GW_MAX_WORKERS && back.n_links == 3);
        assert_string_equal(back.address.place, places[i]);
        for (size_t n = 0; n < sizeof bytes; n++) {
            uint8_t *cut = exactly(bytes, n);
            assert_false(gw_tcp_join_read(cut, n, &back));
            free(cut);
        }
    }
    struct gw_tcp_join other; /* of another version */
    assert_true(gw_tcp_join_read((const uint8_t[]){77, 0, 1, 2, 3}, 5, &other));
    assert_int_equal(other.version, 77);
}

TEST(tables)
{
    enum { SIZE = 3 };
    struct gw_tcp_member members[SIZE] = {{.address = address_of("127.0.0.1:1")},
                                          {.address = address_of("[::1]:2"), .identity = {{1, 2, 3}}},
                                          {.address = address_of("192.0.2.1:3"), .identity = {{9}}}};
    struct gw_tcp_member back[SIZE];
    uint8_t bytes[GW_TCP_TABLE_HEAD + SIZE * GW_TCP_CONTACT_BYTES];
    uint64_t session;
    gw_tcp_table_write(bytes, 0x123456789ABCDEF0u, SIZE, 2, members);
    assert_true(gw_tcp_table_read(bytes, sizeof bytes, SIZE, 2, &session, back));
    assert_int_equal(session, 0x123456789ABCDEF0u);
    for (int r = 0; r < SIZE; r++) {
        assert_string_equal(back[r].address.place, members[r].address.place);
        assert_memory_equal(&back[r].identity, &members[r].identity, sizeof back[r].identity);
    }
    for (size_t n = 0; n < sizeof bytes; n++) {
        uint8_t *cut = exactly(bytes, n);
        assert_false(gw_tcp_table_read(cut, n, SIZE, 2, &session, back));
        free(cut);
    }
    assert_false(gw_tcp_table_read(bytes, sizeof bytes, SIZE, 1, &session, back));
    assert_false(gw_tcp_table_read(bytes, sizeof bytes, SIZE - 1, 2, &session, back));
    memset(bytes, 0, 8); /* no session has this number */
    assert_false(gw_tcp_table_read(bytes, sizeof bytes, SIZE, 2, &session, back));
}

TEST(hellos)
{
    const struct gw_tcp_hello hello = {0x1122334455667788u, 5, 6};
    struct gw_tcp_hello back;
    uint8_t bytes[GW_TCP_HELLO_BYTES + 1] = {0};
    gw_tcp_hello_write(bytes, &hello);
    for (size_t n = 0; n < sizeof bytes; n++) {
        uint8_t *cut = exactly(bytes, n);
        assert_int_equal(gw_tcp_hello_read(cut, n, &back), n == GW_TCP_HELLO_BYTES);
        free(cut);
    }
    assert_true(gw_tcp_hello_read(bytes, GW_TCP_HELLO_BYTES, &back));
    assert_memory_equal(&back, &hello, sizeof hello);
}

TEST(texts)
{
    uint8_t bytes[GW_TCP_REFUSE_BYTES + 1] = {0};
    char longest[1000], text[GW_TCP_TEXT_BYTES];
    gw_status status;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    for (int i = 0; i < 2; i++) {
        const gw_status sent = i ? GW_ERR_TIMEOUT : GW_ERR_SYSTEM;
        size_t n = gw_tcp_refuse_write(bytes, sent, "rank 2 failed: caf\xC3\xA9");
        uint8_t *exact = exactly(bytes, n);
        assert_true(gw_tcp_refuse_read(exact, n, &status, text));
        assert_int_equal(status, i ? GW_ERR_TIMEOUT : GW_ERR_PEER);
        assert_string_equal(text, "rank 2 failed: caf\xC3\xA9");
        free(exact);
        n = gw_tcp_refuse_write(bytes, sent, longest);
        assert_int_equal(n, GW_TCP_REFUSE_BYTES - 1);
        assert_true(gw_tcp_refuse_read(bytes, n, &status, text));
        assert_int_equal(strlen(text), GW_TCP_TEXT_BYTES - 1);
    }
    assert_false(gw_tcp_refuse_read(bytes, 3, &status, text));
    assert_false(gw_tcp_refuse_read(bytes, sizeof bytes, &status, text));
    assert_true(gw_tcp_text_read("a\nb\033[2Jc\0d", 10, text));
    assert_string_equal(text, "a?b?[2Jc");
}

RUN_TESTS("tcp wire", NULL, NULL)
