/* Tests the keys of the tcp link: who gets in. */
#define _GNU_SOURCE /* nftw */
#include "link/tcp/test_world.h"
#include "net/test_keys.h"

#define SHORT_MS 2500u

/* ---- who gets in --------------------------------------------------------------------------------------- */

static const char *folders[3];

static void with_keys(void)
{
    for (int r = 0; r < 3; r++)
        members[r].options.keys = folders[r];
}

static void meet_and_talk(void)
{
    struct world_member late;
    world_begin(3, 2);
    with_keys();
    world_start(0, 3);
    world_join_all(3, GW_OK, NULL);
    late = members[1];
    world_attend(&members[0].links[1]);
    world_come(&late);
    world_attend_no_more();
    world_expect_all(&late, 1, GW_ERR_PEER, "is already running, with 3 workers");
    for (uint32_t r = 0; r < 3; r++)
        link_test_send(context, &members[r].links[1], (r + 1) % 3, 100000, r, 1);
    for (uint32_t r = 0; r < 3; r++)
        link_test_expect(&members[(r + 1) % 3].links[1], r, 100000, r, 1);
    world_end();
}

TEST(one_folder_for_all)
{
    folders[0] = folders[1] = folders[2] = at("job");
    meet_and_talk();
}

/* Rank 2's machine has keys of its own, and each knows the other's. */
TEST(two_machines)
{
    ok(gw_keys_new(at("one"), NULL, NULL));
    ok(gw_keys_new(at("two"), NULL, NULL));
    copy_file(at("two/gradwire.crt"), at("one/allowed/the second.crt"));
    copy_file(at("one/gradwire.crt"), at("two/allowed/the first.crt"));
    copy_file(at("one/gradwire.crt"), at("two/rendezvous.crt"));
    folders[0] = folders[1] = at("one");
    folders[2] = at("two");
    meet_and_talk();
}

/* A member that knows rank 0's key but whose own is not listed there, one that takes rank 0 for another, and keys on
 * one side only. */
TEST(the_unlisted_stay_out)
{
    const char *job = at("job"), *stray = at("stray");
    char unlisted[600];
    struct gw_net_keys *keys;
    ok(gw_keys_new(stray, NULL, NULL));
    ok(gw_net_keys_load(NULL, stray, GW_NET_MEMBER, NULL, &keys));
    const struct gw_net_identity_text key = gw_net_identity_write(&keys->own);
    gw_net_keys_free(keys);
    copy_file(at("job/gradwire.crt"), at("stray/rendezvous.crt"));
    snprintf(unlisted, sizeof unlisted,
             "refused address=127.0.0.1 reason=\"its certificate %s is not in %s/allowed\"\n", key.text, job);
    const struct {
        const char *host, *member;
        gw_status status;
        const char *words, *line;
    } cases[] = {{job, stray, GW_ERR_PEER, "refused this machine: its certificate", unlisted},
                 {job, at("other"), GW_ERR_TIMEOUT, "other/ names? The last try: its certificate", ""},
                 {job, NULL, GW_ERR_PEER, "rank 1 has no keys, and rank 0 (127.0.0.1:",
                  "refused address=127.0.0.1 reason=\"it does not speak as this job does; this job has keys"},
                 {NULL, job, GW_ERR_PEER, "rank 1 has keys, and rank 0 (127.0.0.1:",
                  "refused address=127.0.0.1 reason=\"it does not speak as this job does; this job has no keys"}};
    for (int i = 0; i < 4; i++) {
        world_begin(2, 1);
        members[0].options.keys = cases[i].host;
        members[1].options.keys = cases[i].member;
        members[0].options.timeout_ms = SHORT_MS + 1000;
        members[1].options.timeout_ms = SHORT_MS;
        world_start(0, 2);
        world_join(members, 2);
        /* If rank 0 ends every connection before the member has read who is there, only the deadline reports it. */
        bool late = i >= 2 && members[1].status == GW_ERR_TIMEOUT &&
                    strstr(members[1].sentence, i == 2 ? "without keys" : "has it keys");
        if (!late && (members[1].status != cases[i].status || !strstr(members[1].sentence, cases[i].words)))
            fail_msg("case %d: %d, \"%s\"", i, members[1].status, members[1].sentence);
        world_expect_all(members, 1, GW_ERR_TIMEOUT, "rank 1 did not come");
        if (!world_has_line(cases[i].line) || world_n_lines > 2)
            fail_msg("case %d: %d lines: %s", i, world_n_lines, world_lines);
        world_end();
    }
}

/* Somebody listens at the rendezvous, and says nothing. The member does not say that nobody is there. */
TEST(a_silent_rendezvous)
{
    world_begin(2, 1);
    const int fd = peer_listen(place);
    members[1].options.keys = at("job");
    members[1].options.timeout_ms = SHORT_MS;
    world_come(&members[1]);
    world_expect_all(&members[1], 1, GW_ERR_TIMEOUT, "The last try: nothing has come from there");
    close(fd);
    world_end();
}

/* Rank 0 allows a member that another member does not. */
TEST(unlisted_by_a_peer)
{
    folders[0] = at("host"), folders[1] = at("first"), folders[2] = at("second");
    for (int i = 0; i < 3; i++)
        ok(gw_keys_new(folders[i], NULL, NULL));
    copy_file(at("first/gradwire.crt"), at("host/allowed/first.crt"));
    copy_file(at("second/gradwire.crt"), at("host/allowed/second.crt"));
    for (int i = 0; i < 2; i++) {
        copy_file(at("host/gradwire.crt"), at(i ? "second/rendezvous.crt" : "first/rendezvous.crt"));
        copy_file(at("host/gradwire.crt"), at(i ? "second/allowed/host.crt" : "first/allowed/host.crt"));
    }
    copy_file(at("second/gradwire.crt"), at("first/allowed/second.crt")); /* but second does not list first */
    world_begin(3, 1);
    with_keys();
    world_start(0, 3);
    world_join_all(3, GW_ERR_PEER, "rank 2 does not connect to rank 1 (127.0.0.1:");
    world_expect_all(members, 3, GW_ERR_PEER, "is not in ");
    world_end();
}

/* ---- a certificate must be the one that rank 0 has seen -------------------------------------------------- */

/* Dials rank 0 with the keys of a folder, and says something. */
static void dial_with(struct gw_net_keys *keys, struct gw_net_connection *c, uint16_t kind, void *body, size_t n_bytes)
{
    struct gw_net_address address;
    gw_status status = GW_ERR_PEER;
    ok(gw_net_address_parse("it", place, false, &address));
    gw_net_init(c, NULL);
    for (int i = 0; i < 3000 && status != GW_OK; i++, link_test_pause(10)) { /* nobody may listen there yet */
        if (status == GW_ERR_PEER)
            ok(gw_net_dial(c, &address, keys, NULL, LINK_LONG_MS));
        status = gw_net_establish(c);
    }
    ok(status);
    ok(gw_net_send(c, kind, body, n_bytes));
}

static gw_status next_of(struct gw_net_connection *c, struct gw_net_message *message)
{
    gw_status status = GW_NOT_YET;
    gw_net_consume(c);
    for (int i = 0; i < 3000 && status == GW_NOT_YET; i++, link_test_pause(10))
        status = gw_net_next(c, message);
    return status;
}

/* A listed machine that is not of this job says HELLO with the right session and another member's rank. It does not get
 * that member's place. */
TEST(another_machines_rank)
{
    struct gw_net_keys *keys;
    struct gw_net_connection c, second;
    struct gw_net_message message;
    struct gw_tcp_member table[3];
    struct gw_tcp_hello hello = {.rank = 1};
    uint8_t join[GW_TCP_JOIN_BYTES], bytes[GW_TCP_HELLO_BYTES];
    ok(gw_keys_new(at("third"), NULL, NULL));
    copy_file(at("third/gradwire.crt"), at("job/allowed/third.crt"));
    copy_file(at("job/gradwire.crt"), at("third/allowed/job.crt"));
    ok(gw_net_keys_load(NULL, at("third"), GW_NET_MEMBER, NULL, &keys));
    world_begin(3, 1);
    for (int r = 0; r < 3; r++)
        members[r].options.keys = at("job");
    members[0].options.timeout_ms = members[1].options.timeout_ms = SHORT_MS + 1000;
    world_start(0, 2);
    /* It comes as rank 2, and is let in: it is listed. So rank 0 hands out the table, with this certificate in it. */
    world_write_join(join, (struct gw_tcp_join){GW_TCP_VERSION, .keyed = true, .rank = 2, .size = 3, .n_links = 1});
    dial_with(keys, &c, GW_TCP_JOIN, join, sizeof join);
    do
        ok(next_of(&c, &message));
    while (message.kind != GW_TCP_TABLE);
    assert_true(gw_tcp_table_read(message.bytes, message.n_bytes, 3, 1, &hello.session, table));
    assert_true(gw_net_same_identity(&table[2].identity, &keys->own));
    assert_false(gw_net_same_identity(&table[1].identity, &keys->own));
    /* Now it calls rank 0 as rank 1. */
    gw_tcp_hello_write(bytes, &hello);
    dial_with(keys, &second, GW_TCP_HELLO, bytes, sizeof bytes);
    assert_int_equal(next_of(&second, &message), GW_ERR_PEER);
    gw_net_close(&second);
    gw_net_close(&c);
    gw_net_keys_free(keys);
    world_join(members, 2);
    assert_true(members[0].status < 0 && members[1].status < 0);
    unlink(at("job/allowed/third.crt"));
    world_end();
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Every allocation of a member's create fails once; then it has memory and comes, and the other one has noticed
 * nothing. The first that it can do without, because it connects again, ends this. */
TEST(memory_runs_out)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        bool failed = true;
        for (int k = 1; failed; k++) {
            assert_true(k < 100);
            struct shortage shortage = {0};
            world_begin(2, 1);
            gw_context *scarce = context_short_of(&shortage, 1);
            members[0].options.keys = members[1].options.keys = at("job");
            members[rank].context = scarce;
            world_start_one(&members[!rank]);
            fail_nth(&shortage, k);
            world_come(&members[rank]);
            failed = members[rank].status != GW_OK;
            assert_true(failed || k > 10);
            if (failed) {
                world_expect_all(&members[rank], 1, GW_ERR_MEMORY, "no memory");
                fail_nth(&shortage, 0);
                world_come(&members[rank]);
            }
            pthread_join(members[!rank].thread, NULL);
            world_expect_all(members, 2, GW_OK, NULL);
            /* A message for which there is no memory is not lost. */
            link_test_send(context, &members[!rank].links[0], rank, 40, 1, 2);
            gw_link *link = &members[rank].links[0];
            gw_message message;
            fail_nth(&shortage, 1);
            refused(link_test_recv(link, LINK_LONG_MS, &message), GW_ERR_MEMORY, "");
            fail_nth(&shortage, 0);
            link_test_expect(link, !rank, 40, 1, 2);
            world_end_links();
            gw_context_destroy(scarce);
            assert_int_equal(shortage.live, 0);
            world_end();
        }
    }
}

RUN_TESTS("tcp keys", begin, end)
