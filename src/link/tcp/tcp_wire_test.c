/* Tests the bytes of the tcp link's meeting: what is written reads back, and messages that are cut or altered do no
 * harm. */
#include "checks.h"
#include "link/tcp/envelope.h"
#include "link/tcp/wire.h"

#include <gradwire/codec.h>

#include <stdlib.h>

static const char key[] = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"; /* 40 characters */
static const char *const endpoints[] = {"tcp://127.0.0.1:5555", "tcp://[fe80::1%eth0]:65535", "tcp://[::1]:1"};

/* A copy that ends where its memory ends, so that sanitizers see a read past it. */
static uint8_t *exactly(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

static size_t a_join(uint8_t *bytes, bool keyed)
{
    const struct gw_tcp_join join = {.keyed = keyed, .rank = 7, .size = 9, .n_links = 3};
    uint8_t *at = gw_tcp_join_write(bytes, &join);
    if (keyed)
        at = gw_tcp_write_key(at, key);
    for (int l = 0; l < 3; l++)
        at = gw_tcp_write_endpoint(at, endpoints[l]);
    return (size_t)(at - bytes);
}

static size_t a_table(uint8_t *bytes, bool keyed)
{
    const struct gw_tcp_table table = {.keyed = keyed, .session = 0x123456789ABCDEF0u, .size = 2, .n_links = 3};
    uint8_t *at = gw_tcp_table_write(bytes, &table);
    for (int r = 0; r < 2; r++) {
        if (keyed)
            at = gw_tcp_write_key(at, key);
        for (int l = 0; l < 3; l++)
            at = gw_tcp_write_endpoint(at, endpoints[(r + l) % 3]);
    }
    return (size_t)(at - bytes);
}

static void read_contact(struct gw_tcp_reader *reader, bool keyed, int first)
{
    char k[GW_ZMQ_KEY_CHARS + 1], e[GW_ZMQ_ENDPOINT_BYTES];
    if (keyed) {
        assert_true(gw_tcp_read_key(reader, k));
        assert_string_equal(k, key);
    }
    for (int l = 0; l < 3; l++) {
        assert_true(gw_tcp_read_endpoint(reader, e));
        assert_string_equal(e, endpoints[(first + l) % 3]);
    }
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    uint8_t bytes[2000];
    uint16_t version;
    for (int keyed = 0; keyed < 2; keyed++) {
        struct gw_tcp_join join;
        size_t n = a_join(bytes, keyed);
        assert_true(n <= GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(3, keyed));
        assert_int_equal(gw_tcp_kind_of(bytes, n, &version), GW_TCP_JOIN);
        assert_int_equal(version, GW_TCP_VERSION);
        assert_true(gw_tcp_join_read(bytes, n, &join));
        assert_true(join.keyed == keyed && join.rank == 7 && join.size == 9 && join.n_links == 3);
        read_contact(&join.contact, keyed, 0);
        struct gw_tcp_table table;
        n = a_table(bytes, keyed);
        assert_int_equal(gw_tcp_kind_of(bytes, n, &version), GW_TCP_TABLE);
        assert_true(gw_tcp_table_read(bytes, n, &table));
        assert_true(table.keyed == keyed && table.session == 0x123456789ABCDEF0u && table.size == 2 &&
                    table.n_links == 3);
        read_contact(&table.contacts, keyed, 0);
        read_contact(&table.contacts, keyed, 1);
        assert_ptr_equal(table.contacts.at, table.contacts.end);
    }
    char text[GW_TCP_TEXT_BYTES], longest[1000];
    gw_status status;
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    size_t n = gw_tcp_refuse_write(bytes, GW_ERR_TIMEOUT, "rank 3 is\nlate");
    assert_true(gw_tcp_refuse_read(bytes, n, &status, text));
    assert_int_equal(status, GW_ERR_TIMEOUT);
    assert_string_equal(text, "rank 3 is?late");
    n = gw_tcp_refuse_write(bytes, GW_ERR_MEMORY, longest);
    assert_true(n <= GW_TCP_TEXT_MESSAGE_BYTES && gw_tcp_refuse_read(bytes, n, &status, text));
    assert_int_equal(status, GW_ERR_PEER);
    assert_int_equal(strlen(text), GW_TCP_TEXT_BYTES - 1);
    n = gw_tcp_wait_write(bytes, longest);
    assert_true(gw_tcp_wait_read(bytes, n, text));
    uint64_t session;
    uint32_t nth;
    gw_tcp_hello_write(bytes, 0xFEDCBA9876543210u, 63);
    assert_true(gw_tcp_hello_read(bytes, GW_TCP_HELLO_BYTES, &session, &nth));
    assert_true(session == 0xFEDCBA9876543210u && nth == 63);
    assert_false(gw_tcp_hello_read(bytes, GW_TCP_HELLO_BYTES + 1, &session, &nth));
    const struct gw_tcp_envelope envelope = {.tag = 0x89ABCDEFu, .from = 32766, .type = GW_TCP_FAIL};
    gw_tcp_envelope_write(bytes, &envelope);
    struct gw_tcp_envelope back = gw_tcp_envelope_read(bytes);
    assert_true(back.tag == envelope.tag && back.from == envelope.from && back.type == envelope.type);
    assert_int_not_equal(gw_tcp_tag(session, 0), gw_tcp_tag(session, 1));
}

/* A message that was cut must be refused, and so must one with a byte after its end. */
static void cut_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[2000] = {0};
    for (int keyed = 0; keyed < 2; keyed++) {
        for (int what = 0; what < 2; what++) {
            size_t whole = what ? a_table(bytes, keyed) : a_join(bytes, keyed);
            for (size_t n = 0; n <= whole + 1; n++) {
                uint8_t *copy = exactly(bytes, n);
                struct gw_tcp_join join;
                struct gw_tcp_table table;
                bool read = what ? gw_tcp_table_read(copy, n, &table) : gw_tcp_join_read(copy, n, &join);
                CHECK(read == (n == whole), "kind %d, keyed %d, %zu of %zu bytes", what, keyed, n, whole);
                free(copy);
            }
        }
    }
}

/* Altered messages may be refused or accepted. If one is accepted, all its contacts can be read. */
static void altered_is_refused_or_sound(void **state)
{
    (void)state;
    uint8_t bytes[2000];
    struct numbers numbers = numbers_from(11);
    uint32_t n_good = 0;
    for (int i = 0; i < 100000; i++) {
        size_t n = i & 1 ? a_join(bytes, i & 2) : a_table(bytes, i & 2);
        for (uint32_t times = 1 + numbers_below(&numbers, 3); times > 0; times--)
            bytes[numbers_below(&numbers, (uint32_t)n)] = (uint8_t)numbers_word(&numbers);
        uint8_t *copy = exactly(bytes, n);
        struct gw_tcp_join join;
        struct gw_tcp_table table;
        struct gw_tcp_reader reader = {NULL, NULL};
        uint32_t contacts = 0, n_links = 0;
        bool keyed = false;
        if (gw_tcp_join_read(copy, n, &join))
            reader = join.contact, contacts = 1, n_links = join.n_links, keyed = join.keyed;
        else if (gw_tcp_table_read(copy, n, &table))
            reader = table.contacts, contacts = table.size, n_links = table.n_links, keyed = table.keyed;
        char k[GW_ZMQ_KEY_CHARS + 1], e[GW_ZMQ_ENDPOINT_BYTES];
        for (uint32_t c = 0; c < contacts; c++) {
            assert_true(!keyed || gw_tcp_read_key(&reader, k));
            for (uint32_t l = 0; l < n_links; l++)
                assert_true(gw_tcp_read_endpoint(&reader, e) && strncmp(e, "tcp://", 6) == 0);
        }
        assert_ptr_equal(reader.at, reader.end);
        n_good += contacts > 0;
        free(copy);
    }
    CHECK_IN_RANGE(n_good, 1000, 99000); /* both happen */
}

static void addresses_are_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "tcp://",          "tcp://localhost:5",    "tcp://127.0.0.1:*", "ipc://127.0.0.1:5", "inproc://x",
        "tcp://1.2.3.4;5", "tcp://[::1]:5;[::]:6", "tcp://[::1]/x:5",   "tcp://*:5",         "x"};
    char e[GW_ZMQ_ENDPOINT_BYTES];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[100];
        struct gw_tcp_reader reader = {bytes, gw_tcp_write_endpoint(bytes, bad[i])};
        CHECK(!gw_tcp_read_endpoint(&reader, e), "%s", bad[i]);
    }
}

/* A table of contacts of one link each, all at the same address. */
static bool reads_table_of(uint32_t size, uint32_t n_links)
{
    const struct gw_tcp_table head = {.session = 1, .size = size, .n_links = n_links};
    const size_t most = GW_TCP_TABLE_HEAD + (size_t)size * gw_tcp_contact_bound(n_links, false);
    uint8_t *bytes = malloc(most), *at = gw_tcp_table_write(bytes, &head);
    struct gw_tcp_table table;
    assert_non_null(bytes);
    for (size_t i = 0; i < (size_t)size * n_links; i++)
        at = gw_tcp_write_endpoint(at, endpoints[2]);
    assert_true(at <= bytes + most);
    const bool read = gw_tcp_table_read(bytes, (size_t)(at - bytes), &table);
    assert_true(!read || (table.size == size && table.n_links == n_links));
    free(bytes);
    return read;
}

static bool reads_join_of(uint32_t n_links)
{
    const struct gw_tcp_join head = {.size = 1, .n_links = n_links};
    uint8_t bytes[GW_TCP_JOIN_HEAD + 1000], *at = gw_tcp_join_write(bytes, &head);
    struct gw_tcp_join join;
    for (uint32_t l = 0; l < n_links; l++)
        at = gw_tcp_write_endpoint(at, endpoints[2]);
    assert_true(at <= bytes + sizeof bytes);
    return gw_tcp_join_read(bytes, (size_t)(at - bytes), &join);
}

static void numbers_at_their_limits(void **state)
{
    (void)state;
    assert_true(reads_table_of(GW_MAX_WORKERS, 1));
    assert_false(reads_table_of(GW_MAX_WORKERS + 1, 1));
    assert_true(reads_table_of(1, GW_TCP_MAX_LINKS));
    assert_false(reads_table_of(1, GW_TCP_MAX_LINKS + 1));
    assert_false(reads_table_of(1, 0));
    for (int c = 0; c < 256; c++) { /* keys go into the log, so control characters and spaces are refused */
        char read[GW_ZMQ_KEY_CHARS + 1];
        uint8_t bytes[GW_ZMQ_KEY_CHARS];
        memset(bytes, 'x', sizeof bytes);
        bytes[sizeof bytes - 1] = (uint8_t)c;
        struct gw_tcp_reader reader = {bytes, bytes + sizeof bytes};
        CHECK(gw_tcp_read_key(&reader, read) == (c > ' ' && c <= '~'), "a key with character %d", c);
    }
    assert_true(reads_join_of(GW_TCP_MAX_LINKS));
    assert_false(reads_join_of(GW_TCP_MAX_LINKS + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),  cmocka_unit_test(cut_is_refused),
        cmocka_unit_test(altered_is_refused_or_sound), cmocka_unit_test(addresses_are_numbers),
        cmocka_unit_test(numbers_at_their_limits),
    };
    return cmocka_run_group_tests_name("tcp wire", tests, NULL, NULL);
}
