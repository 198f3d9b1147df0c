/* Tests folders of keys: how they are made, which are refused, and who is allowed by them. */
#define _GNU_SOURCE /* nftw */
#include "net/test_keys.h"

#include "base/error.h"
#include "net/keys.h"

TEST(a_new_folder)
{
    const char *const paths[] = {at("new/gradwire.crt"), at("new/gradwire.pem"), at("new/rendezvous.crt"),
                                 at("new/allowed/self.crt")};
    char texts[4][1000];
    ok(gw_keys_new(at("new"), NULL, NULL));
    for (int i = 0; i < 4; i++) {
        struct stat status;
        assert_int_equal(stat(paths[i], &status), 0);
        assert_int_equal(status.st_mode & 077, i == 1 ? 0 : status.st_mode & 077);
        read_file(paths[i], texts[i]);
        assert_non_null(strstr(texts[i], i == 1 ? "BEGIN PRIVATE KEY" : "BEGIN CERTIFICATE"));
    }
    assert_string_equal(texts[0], texts[2]);
    assert_string_equal(texts[0], texts[3]);
    assert_string_not_equal(texts[0], texts[1]);
    /* Keys are never replaced: neither a whole folder, nor one that another call has begun. */
    refused(gw_keys_new(at("new"), NULL, NULL), GW_ERR_ARGUMENT, "there is a key already");
    for (int i = 0; i < 4; i++) {
        char again[1000];
        read_file(paths[i], again);
        assert_string_equal(again, texts[i]);
        unlink(paths[i]);
    }
    for (int alone = 0; alone < 4; alone++) {
        write_file(paths[alone], texts[alone], 0600);
        refused(gw_keys_new(at("new"), NULL, NULL), GW_ERR_ARGUMENT, "there is a key already");
        for (int i = 0; i < 4; i++)
            assert_int_equal(access(paths[i], F_OK), i == alone ? 0 : -1);
        unlink(paths[alone]);
    }
    /* Half a folder is not left behind. */
    write_file(at("file"), "x", 0644);
    refused(gw_keys_new(at("file"), NULL, NULL), GW_ERR_SYSTEM, "");
    assert_int_equal(mkdir(at("half"), 0700), 0);
    write_file(at("half/allowed"), "no folder", 0644);
    refused(gw_keys_new(at("half"), NULL, NULL), GW_ERR_SYSTEM, "");
    assert_int_equal(access(at("half/gradwire.pem"), F_OK), -1);
    assert_int_equal(access(at("half/gradwire.pem.partial"), F_OK), -1);
    unlink(at("half/allowed"));
    ok(gw_keys_new(at("half"), NULL, NULL));
    refused(gw_keys_new("", NULL, NULL), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(NULL, NULL, NULL), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(at("no/such"), NULL, NULL), GW_ERR_SYSTEM, "");
}

static gw_status load(const char *folder, enum gw_net_role role, struct gw_net_log *log, struct gw_net_keys **keys)
{
    return gw_net_keys_load(NULL, folder, role, log, keys);
}

static char said[1000];

static void say(const char *line, void *user)
{
    (void)user;
    snprintf(said, sizeof said, "%s", line);
}

TEST(bad_folders_are_refused)
{
    struct gw_net_keys *keys;
    struct gw_net_log log = GW_NET_LOG_OF_NEWCOMERS(say, NULL);
    assert_int_equal(load("", GW_NET_CLIENT, NULL, &keys), GW_ERR_ARGUMENT);
    ok(gw_keys_new(at("bad"), NULL, NULL));
    assert_int_equal(chmod(at("bad/gradwire.pem"), 0640), 0);
    refused(load(at("bad"), GW_NET_MEMBER, NULL, &keys), GW_ERR_SYSTEM,
            "gradwire.pem can be read by others (mode 0640)");
    assert_int_equal(chmod(at("bad/gradwire.pem"), 0600), 0);
    ok(load(at("bad"), GW_NET_MEMBER, NULL, &keys));
    gw_net_keys_free(keys);
    static const char *const names[] = {"bad/rendezvous.crt", "bad/gradwire.crt", "bad/gradwire.pem"};
    static const char *const texts[] = {"", "short\n", "-----BEGIN CERTIFICATE-----\n",
                                        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"};
    for (int n = 0; n < 3; n++) {
        char right[2000];
        read_file(at(names[n]), right);
        for (int t = 0; t < 4; t++) {
            write_file(at(names[n]), texts[t], 0600);
            refused(load(at("bad"), GW_NET_MEMBER, NULL, &keys), GW_ERR_SYSTEM, names[n]);
        }
        unlink(at(names[n]));
        refused(load(at("bad"), GW_NET_MEMBER, NULL, &keys), GW_ERR_SYSTEM, names[n]);
        write_file(at(names[n]), right, 0600);
    }
    /* A file in allowed/ that is no certificate is left out, at the beginning and later, and the log says so. */
    write_file(at("bad/allowed/old.crt"), "rotten\n", 0644);
    ok(load(at("bad"), GW_NET_MEMBER, &log, &keys));
    assert_non_null(strstr(said, "left-out reason="));
    assert_non_null(strstr(said, "allowed/old.crt"));
    assert_int_equal(keys->n_allowed, 1);
    write_file(at("bad/allowed/new.crt"), "rotten\n", 0644);
    unlink(at("bad/allowed/old.crt"));
    ok(gw_net_keys_look(keys));
    assert_non_null(strstr(said, "allowed/new.crt"));
    assert_true(keys->n_allowed == 1 && keys->n_changes == 1); /* the first list was a change */
    gw_net_keys_free(keys);
    unlink(at("bad/allowed/new.crt"));
    copy_file(at("other/gradwire.crt"), at("bad/gradwire.crt"));
    refused(load(at("bad"), GW_NET_MEMBER, NULL, &keys), GW_ERR_SYSTEM, "is not the secret key of");
    assert_int_equal(load(at("nowhere"), GW_NET_MEMBER, NULL, &keys), GW_ERR_SYSTEM);
}

/* allowed/ alone says who may connect: the own certificate, too, which a server leaves out in any case. A client's key
 * is its own, and removing its file removes it alone. */
TEST(the_list_alone_says)
{
    struct gw_net_keys *keys, *client, *member;
    const char *server = at("server"), *anna = at("anna");
    ok(gw_keys_new(server, NULL, NULL));
    ok(load(server, GW_NET_SERVER, NULL, &keys));
    ok(load(server, GW_NET_MEMBER, NULL, &member));
    assert_false(gw_net_keys_allow(keys, &keys->own));
    assert_true(gw_net_keys_allow(member, &keys->own));
    ok(gw_keys_new(anna, server, "anna"));
    ok(gw_keys_new(at("bert"), server, "bert.2"));
    ok(load(anna, GW_NET_CLIENT, NULL, &client));
    assert_true(gw_net_same_identity(&client->rendezvous, &keys->own));
    const struct gw_net_identity anna_is = client->own;
    gw_net_keys_free(client);
    ok(load(anna, GW_NET_MEMBER, NULL, &client)); /* its folder serves a job of its own, too */
    assert_true(gw_net_same_identity(&client->rendezvous, &anna_is));
    const uint64_t before = keys->n_changes;
    ok(gw_net_keys_look(keys));
    assert_true(keys->n_changes == before + 1 && keys->n_allowed == 2);
    assert_true(gw_net_keys_allow(keys, &anna_is));
    /* A file has its text a moment after its name, and the folder does not change with the text. */
    write_file(at("server/allowed/late.crt"), "", 0644);
    ok(gw_net_keys_look(keys));
    assert_int_equal(keys->n_allowed, 2);
    FILE *late = fopen(at("server/allowed/late.crt"), "w");
    char text[1000];
    read_file(at("other/gradwire.crt"), text);
    assert_true(late && fputs(text, late) >= 0 && fclose(late) == 0);
    ok(gw_net_keys_look(keys));
    assert_true(keys->n_changes == before + 2 && keys->n_allowed == 3);
    unlink(at("server/allowed/late.crt"));
    unlink(at("server/allowed/anna.crt"));
    unlink(at("server/allowed/self.crt"));
    ok(gw_net_keys_look(keys));
    ok(gw_net_keys_look(member));
    assert_true(keys->n_changes == before + 3 && keys->n_allowed == 1 && member->n_allowed == 1);
    assert_false(gw_net_keys_allow(keys, &anna_is) || gw_net_keys_allow(member, &keys->own));
    /* What is refused leaves nothing, and replaces nothing. */
    static const char *const names[] = {"", ".hidden", "a/b", "anna key", "bert.2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        refused(gw_keys_new(at("carl"), server, names[i]), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(NULL, server, "carl"), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new("", server, "carl"), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(at("carl"), NULL, "carl"), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(at("carl"), server, NULL), GW_ERR_ARGUMENT, "");
    refused(gw_keys_new(at("carl"), at("none"), "carl"), GW_ERR_SYSTEM, "");
    refused(gw_keys_new(anna, server, "carl"), GW_ERR_ARGUMENT, "");
    write_file(at("server/ca.crt"), "", 0644); /* then allowed/ counts for nothing */
    refused(gw_keys_new(at("carl"), server, "carl"), GW_ERR_ARGUMENT, "ca.crt is there");
    assert_int_equal(rename(at("server/ca.crt"), at("ca.crt")), 0);
    refused(gw_keys_new(at("."), NULL, NULL), GW_ERR_ARGUMENT, "ca.crt is there");
    unlink(at("ca.crt"));
    assert_int_equal(access(at("carl/gradwire.pem"), F_OK), -1);
    assert_int_equal(access(at("server/allowed/carl.crt"), F_OK), -1);
    /* The last file cannot be written, because an earlier try was killed: all that was made before it goes again. */
    write_file(at("server/allowed/carl.crt.partial"), "", 0644);
    refused(gw_keys_new(at("carl"), server, "carl"), GW_ERR_SYSTEM, "");
    const char *const made[] = {at("carl/gradwire.crt"), at("carl/gradwire.pem"), at("carl/rendezvous.crt"),
                                at("carl/server.crt"), at("carl/allowed/self.crt")};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        assert_int_equal(access(made[i], F_OK), -1);
    /* A folder's name may have one letter. */
    char old[1000];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(at(".")), 0);
    ok(gw_keys_new("d", server, "dora"));
    assert_int_equal(chdir(old), 0);
    gw_net_keys_free(client);
    gw_net_keys_free(member);
    gw_net_keys_free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_folder),
        cmocka_unit_test(bad_folders_are_refused),
        cmocka_unit_test(the_list_alone_says),
    };
    return cmocka_run_group_tests_name("net keys", tests, begin, end);
}
