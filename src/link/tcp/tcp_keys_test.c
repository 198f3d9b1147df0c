/* Tests the keys of the tcp link: who gets in. */
#define _GNU_SOURCE /* nftw */
#include "link/tcp/test_world.h"
#include "zmq/test_keys.h"

#define SHORT_MS 2500u

/* ---- who gets in --------------------------------------------------------------------------------------- */

static const char *folders[3];

static void with_keys(struct world_member *members)
{
    for (int r = 0; r < 3; r++)
        members[r].options.keys = folders[r];
}

static void meet_and_talk(void)
{
    struct world_member members[3], late;
    char place[32];
    gw_context *context = link_test_context();
    world_prepare(context, 3, 2, members, place);
    with_keys(members);
    world_start(members, 3);
    world_join(members, 3);
    for (uint32_t r = 0; r < 3; r++)
        if (members[r].status < 0)
            fail_msg("rank %u: %s", r, members[r].sentence);
    late = members[1];
    world_come(&late);
    world_expect_all(&late, 1, GW_ERR_PEER, "is already running, with 3 workers");
    for (uint32_t r = 0; r < 3; r++)
        link_test_send(context, &members[r].links[1], (r + 1) % 3, 100000, r, 1);
    for (uint32_t r = 0; r < 3; r++)
        link_test_expect(&members[(r + 1) % 3].links[1], r, 100000, r, 1);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t l = 0; l < 2; l++)
            members[r].links[l].ops->destroy(members[r].links[l].self);
    link_test_end(context, NULL, 0);
}

static void one_folder_for_all(void **state)
{
    (void)state;
    folders[0] = folders[1] = folders[2] = at("job");
    meet_and_talk();
}

/* Rank 2's machine has keys of its own, and each knows the other's. */
static void two_machines(void **state)
{
    (void)state;
    assert_int_equal(gw_keys_new(at("one")), GW_OK);
    assert_int_equal(gw_keys_new(at("two")), GW_OK);
    copy_file(at("two/gradwire.key"), at("one/allowed/the second"));
    copy_file(at("one/gradwire.key"), at("two/allowed/the first"));
    copy_file(at("one/gradwire.key"), at("two/rendezvous.key"));
    static char one[300], two[300];
    snprintf(one, sizeof one, "%s", at("one"));
    snprintf(two, sizeof two, "%s", at("two"));
    folders[0] = folders[1] = one;
    folders[2] = two;
    meet_and_talk();
}

/* A member that knows rank 0's key but whose own is not listed there, one that takes rank 0 for another, and keys on
 * one side only. */
static void the_unlisted_stay_out(void **state)
{
    (void)state;
    char key[100], job[300], stray[300], rightful[300], unlisted[600];
    assert_int_equal(gw_keys_new(at("stray")), GW_OK);
    read_file(at("stray/gradwire.key"), key);
    key[GW_ZMQ_KEY_CHARS] = 0;
    copy_file(at("job/gradwire.key"), at("stray/rendezvous.key"));
    snprintf(job, sizeof job, "%s", at("job"));
    snprintf(stray, sizeof stray, "%s", at("stray"));
    snprintf(rightful, sizeof rightful, "%s", at("other"));
    snprintf(unlisted, sizeof unlisted, "refused address=127.0.0.1 reason=\"its identity %s is not in %s/allowed\"\n",
             key, job);
    const struct {
        const char *host, *member;
        gw_status status;
        const char *words, *line;
    } cases[] = {
        {job, stray, GW_ERR_PEER, "refused this machine: its key", unlisted},
        {job, rightful, GW_ERR_TIMEOUT, "rendezvous.key", ""},
        {job, NULL, GW_ERR_PEER, "rank 1 has no keys, and rank 0 (127.0.0.1:",
         "refused address=127.0.0.1 reason=\"it does not speak as this job's members do; this job has keys"},
        {NULL, job, GW_ERR_PEER, "rank 1 has keys, and rank 0 (127.0.0.1:",
         "refused address=127.0.0.1 reason=\"it does not speak as this job's members do; this job has no keys"}};
    for (int i = 0; i < 4; i++) {
        struct world_member members[2];
        char place[32];
        gw_context *context = link_test_context();
        world_prepare(context, 2, 1, members, place);
        members[0].options.keys = cases[i].host;
        members[1].options.keys = cases[i].member;
        members[0].options.timeout_ms = SHORT_MS + 1000;
        members[1].options.timeout_ms = SHORT_MS;
        members[0].options.log = world_keep_line;
        world_forget_lines();
        world_start(members, 2);
        world_join(members, 2);
        /* If rank 0 ends every connection before the member has read who is there, only the deadline reports it. */
        bool late = i >= 2 && members[1].status == GW_ERR_TIMEOUT &&
                    strstr(members[1].sentence, i == 2 ? "without keys" : "has it keys");
        if (!late && (members[1].status != cases[i].status || !strstr(members[1].sentence, cases[i].words)))
            fail_msg("case %d: %d, \"%s\"", i, members[1].status, members[1].sentence);
        assert_int_equal(members[0].status, GW_ERR_TIMEOUT);
        assert_non_null(strstr(members[0].sentence, "rank 1 did not come"));
        if (!world_has_line(cases[i].line) || world_n_lines > 2)
            fail_msg("case %d: %d lines: %s", i, world_n_lines, world_lines);
        link_test_end(context, NULL, 0);
    }
}

/* Rank 0 allows a member that another member does not. */
static void unlisted_by_a_peer(void **state)
{
    (void)state;
    static char host[300], first[300], second[300];
    snprintf(host, sizeof host, "%s", at("host"));
    snprintf(first, sizeof first, "%s", at("first"));
    snprintf(second, sizeof second, "%s", at("second"));
    assert_true(gw_keys_new(host) == GW_OK && gw_keys_new(first) == GW_OK && gw_keys_new(second) == GW_OK);
    copy_file(at("first/gradwire.key"), at("host/allowed/first"));
    copy_file(at("second/gradwire.key"), at("host/allowed/second"));
    for (int i = 0; i < 2; i++) {
        copy_file(at("host/gradwire.key"), at(i ? "second/rendezvous.key" : "first/rendezvous.key"));
        copy_file(at("host/gradwire.key"), at(i ? "second/allowed/host" : "first/allowed/host"));
    }
    copy_file(at("second/gradwire.key"), at("first/allowed/second")); /* but second does not list first */
    folders[0] = host, folders[1] = first, folders[2] = second;
    struct world_member members[3];
    gw_context *context = link_test_context();
    world_meet(context, 3, 1, members, with_keys);
    assert_int_equal(members[1].status, GW_ERR_PEER);
    assert_non_null(strstr(members[1].sentence, "rank 2"));
    assert_non_null(strstr(members[1].sentence, "refused this machine"));
    for (int r = 0; r < 3; r++) { /* the others stood already, or hear of it */
        assert_true(members[r].status == GW_OK || members[r].status == GW_ERR_PEER);
        gw_message message;
        if (members[r].status == GW_OK) {
            assert_int_equal(members[r].links[0].ops->recv(members[r].links[0].self, LINK_LONG_MS, &message),
                             GW_ERR_PEER);
            if (!strstr(gw_last_error(), "rank 1"))
                fail_msg("rank %d: %s", r, gw_last_error());
            members[r].links[0].ops->destroy(members[r].links[0].self);
        }
    }
    link_test_end(context, NULL, 0);
}

/* A listed machine says JOIN with the key of another one. If that were believed, the others would encrypt for that key
 * what this machine's member is to read. */
static void another_machines_key(void **state)
{
    (void)state;
    struct world_member members[2];
    struct gw_zmq_keys *own, *others;
    char place[32], endpoint[GW_ZMQ_ENDPOINT_BYTES];
    uint8_t bytes[GW_TCP_TEXT_MESSAGE_BYTES];
    const int linger = 5000;
    gw_context *context = link_test_context();
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_DEALER);
    assert_int_equal(gw_zmq_keys_load(NULL, at("job"), &own), GW_OK);
    assert_int_equal(gw_zmq_keys_load(NULL, at("other"), &others), GW_OK);
    world_prepare(context, 2, 1, members, place);
    members[0].options.keys = at("job");
    members[0].options.timeout_ms = SHORT_MS;
    members[0].options.log = world_keep_line;
    world_forget_lines();
    world_start_one(&members[0]);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, own->public_key, GW_ZMQ_KEY_CHARS);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own->public_key, GW_ZMQ_KEY_CHARS);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own->secret_key, GW_ZMQ_KEY_CHARS);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", place);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    const struct gw_tcp_join join = {.keyed = true, .rank = 1, .size = 2, .n_links = 1};
    uint8_t *contact = gw_tcp_write_key(gw_tcp_join_write(bytes, &join), others->public_key);
    const size_t n_bytes = (size_t)(gw_tcp_write_endpoint(contact, "tcp://127.0.0.1:1") - bytes);
    assert_int_equal(zmq_send(socket, bytes, n_bytes, 0), n_bytes);
    world_await_line("this is no message of a member");
    world_join(&members[0], 1);
    world_expect_all(&members[0], 1, GW_ERR_TIMEOUT, "rank 1 did not come");
    zmq_close(socket);
    zmq_ctx_term(zmq);
    gw_zmq_keys_free(NULL, own);
    gw_zmq_keys_free(NULL, others);
    link_test_end(context, NULL, 0);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static atomic_int allocations, fail_at;

static void *short_alloc(size_t bytes, void *user)
{
    return ++allocations == fail_at ? NULL : link_test_alloc(bytes, user);
}

static void memory_runs_out(void **state)
{
    (void)state;
    const gw_allocator allocator = {short_alloc, link_test_free, NULL};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    gw_context *context;
    struct world_member member;
    char place[32];
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    world_prepare(context, 1, 2, &member, place);
    member.options.keys = at("job");
    for (fail_at = 1;; fail_at++) {
        allocations = 0;
        world_come(&member);
        if (member.status == GW_OK)
            break;
        assert_int_equal(member.status, GW_ERR_MEMORY);
        assert_non_null(strstr(member.sentence, "no memory"));
        assert_int_equal(atomic_load(&link_test_live), 1); /* the context */
    }
    assert_true(fail_at > 10);
    fail_at = 0;
    link_test_end(context, member.links, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_folder_for_all),    cmocka_unit_test(two_machines),
        cmocka_unit_test(the_unlisted_stay_out), cmocka_unit_test(unlisted_by_a_peer),
        cmocka_unit_test(another_machines_key),  cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests_name("tcp keys", tests, begin, end);
}
