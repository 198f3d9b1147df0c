/* Tests folders of keys: how they are made, which are refused, and who is allowed by them. */
#define _GNU_SOURCE /* nftw */
#include "zmq/test_keys.h"

#include "base/error.h"

static void a_new_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"gradwire.key", "gradwire.key_secret", "rendezvous.key", "allowed/self.key"};
    char texts[4][1000], path[320];
    assert_int_equal(gw_keys_new(at("new")), GW_OK);
    for (int i = 0; i < 4; i++) {
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", at("new"), names[i]);
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(status.st_mode & 077, i == 1 ? 0 : status.st_mode & 077);
        read_file(path, texts[i]);
        assert_int_equal(strlen(texts[i]), GW_ZMQ_KEY_CHARS + 1);
    }
    assert_string_equal(texts[0], texts[2]);
    assert_string_equal(texts[0], texts[3]);
    assert_string_not_equal(texts[0], texts[1]);
    /* Keys are never replaced: neither a whole folder, nor one that another call has begun. */
    assert_int_equal(gw_keys_new(at("new")), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "there is a key already"));
    for (int i = 0; i < 4; i++) {
        char again[1000];
        snprintf(path, sizeof path, "%s/%s", at("new"), names[i]);
        read_file(path, again);
        assert_string_equal(again, texts[i]);
        if (i > 0)
            unlink(path);
    }
    assert_int_equal(gw_keys_new(at("new")), GW_ERR_ARGUMENT);
    snprintf(path, sizeof path, "%s/%s", at("new"), names[1]);
    assert_int_equal(access(path, F_OK), -1);
    /* Half a folder is not left behind. */
    write_file(at("file"), "x", 0644);
    assert_int_equal(gw_keys_new(at("file")), GW_ERR_SYSTEM);
    assert_int_equal(mkdir(at("half"), 0700), 0);
    write_file(at("half/allowed"), "no folder", 0644);
    assert_int_equal(gw_keys_new(at("half")), GW_ERR_SYSTEM);
    assert_int_equal(access(at("half/gradwire.key_secret"), F_OK), -1);
    assert_int_equal(access(at("half/gradwire.key_secret.partial"), F_OK), -1);
    unlink(at("half/allowed"));
    assert_int_equal(gw_keys_new(at("half")), GW_OK);
    assert_int_equal(gw_keys_new(""), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new(NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new(at("no/such")), GW_ERR_SYSTEM);
}

static void bad_folders_are_refused(void **state)
{
    (void)state;
    struct gw_zmq_keys *keys;
    char secret[1000];
    assert_int_equal(gw_keys_new(at("bad")), GW_OK);
    read_file(at("bad/gradwire.key_secret"), secret);
    assert_int_equal(chmod(at("bad/gradwire.key_secret"), 0640), 0);
    assert_int_equal(gw_zmq_keys_load(NULL, at("bad"), &keys), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "gradwire.key_secret can be read by others (mode 0640)"));
    assert_int_equal(chmod(at("bad/gradwire.key_secret"), 0600), 0);
    assert_int_equal(gw_zmq_keys_load(NULL, at("bad"), &keys), GW_OK);
    gw_zmq_keys_free(NULL, keys);
    static const char *const names[] = {"bad/rendezvous.key", "bad/allowed/self.key", "bad/gradwire.key",
                                        "bad/gradwire.key_secret"};
    static const char *const texts[] = {"", "short\n", "0123456789012345678901234567890123456789x\n",
                                        "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"};
    for (int n = 0; n < 4; n++) {
        char right[1000];
        read_file(at(names[n]), right);
        for (int t = 0; t < 4; t++) {
            write_file(at(names[n]), texts[t], 0600);
            assert_int_equal(gw_zmq_keys_load(NULL, at("bad"), &keys), GW_ERR_SYSTEM);
            assert_non_null(strstr(gw_last_error(), "is not a key"));
            assert_non_null(strstr(gw_last_error(), names[n]));
        }
        unlink(at(names[n]));
        if (n != 1) { /* nobody else allowed is a choice */
            assert_int_equal(gw_zmq_keys_load(NULL, at("bad"), &keys), GW_ERR_SYSTEM);
            assert_non_null(strstr(gw_last_error(), names[n]));
        }
        write_file(at(names[n]), right, 0600);
    }
    copy_file(at("other/gradwire.key"), at("bad/gradwire.key"));
    assert_int_equal(gw_zmq_keys_load(NULL, at("bad"), &keys), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "not a pair"));
    assert_int_equal(gw_zmq_keys_load(NULL, at("nowhere"), &keys), GW_ERR_SYSTEM);
}

/* allowed/ alone says who may connect: the own key too, which a server leaves out in any case. A client's keys are its
 * own, and removing its file removes it alone. */
static void the_list_alone_says(void **state)
{
    (void)state;
    struct gw_zmq_keys *keys, *client;
    bool changed;
    char server[300], anna[300], bert[300];
    snprintf(server, sizeof server, "%s", at("server"));
    snprintf(anna, sizeof anna, "%s", at("anna"));
    snprintf(bert, sizeof bert, "%s", at("bert"));
    assert_int_equal(gw_keys_new(server), GW_OK);
    assert_int_equal(gw_zmq_keys_load(NULL, server, &keys), GW_OK);
    assert_true(gw_zmq_keys_allow(keys, keys->public_key));
    assert_int_equal(gw_keys_new_client(anna, server, "anna"), GW_OK);
    assert_int_equal(gw_keys_new_client(bert, server, "bert.2"), GW_OK);
    assert_int_equal(gw_zmq_keys_load(NULL, anna, &client), GW_OK);
    assert_string_equal(client->server, keys->public_key);
    assert_string_equal(client->rendezvous, client->public_key); /* its folder serves a job of its own, too */
    assert_int_equal(gw_zmq_keys_look(NULL, keys, &changed), GW_OK);
    assert_true(changed && keys->nth == 1 && keys->n_allowed == 3 && gw_zmq_keys_allow(keys, client->public_key));
    unlink(at("server/allowed/anna.key"));
    unlink(at("server/allowed/self.key"));
    assert_int_equal(gw_zmq_keys_look(NULL, keys, &changed), GW_OK);
    assert_true(changed && keys->n_allowed == 1);
    assert_false(gw_zmq_keys_allow(keys, client->public_key) || gw_zmq_keys_allow(keys, keys->public_key));
    gw_zmq_keys_leave_own_out(keys);
    copy_file(at("server/gradwire.key"), at("server/allowed/again"));
    assert_int_equal(gw_zmq_keys_look(NULL, keys, &changed), GW_OK);
    assert_true(!changed && keys->n_allowed == 1 && !gw_zmq_keys_allow(keys, keys->public_key));
    /* What is refused leaves nothing, and replaces nothing. */
    static const char *const names[] = {"", ".hidden", "a/b", "anna key", "bert.2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(gw_keys_new_client(at("carl"), server, names[i]), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new_client(NULL, server, "carl"), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new_client("", server, "carl"), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new_client(at("carl"), NULL, "carl"), GW_ERR_ARGUMENT);
    assert_int_equal(gw_keys_new_client(at("carl"), server, NULL), GW_ERR_ARGUMENT);
    char none[300];
    snprintf(none, sizeof none, "%s", at("none"));
    assert_int_equal(gw_keys_new_client(at("carl"), none, "carl"), GW_ERR_SYSTEM);
    assert_int_equal(gw_keys_new_client(anna, server, "carl"), GW_ERR_ARGUMENT);
    assert_int_equal(access(at("carl/gradwire.key_secret"), F_OK), -1);
    assert_int_equal(access(at("server/allowed/carl.key"), F_OK), -1);
    /* The last file cannot be written, because an earlier try was killed: all that was made before it goes again. */
    write_file(at("server/allowed/carl.key.partial"), "", 0644);
    assert_int_equal(gw_keys_new_client(at("carl"), server, "carl"), GW_ERR_SYSTEM);
    static const char *const made[] = {"gradwire.key",   "gradwire.key_secret", "rendezvous.key",
                                       "server.key",     "gradwire.crt",        "gradwire.pem",
                                       "rendezvous.crt", "allowed/self.key",    "allowed/self.crt"};
    char path[400];
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", at("carl"), made[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
    /* A certificate is a key, too. */
    write_file(at("carl/gradwire.crt"), "", 0644);
    assert_int_equal(gw_keys_new(at("carl")), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "gradwire.crt, and it is never replaced"));
    assert_int_equal(access(at("carl/gradwire.key_secret"), F_OK), -1);
    /* A folder's name may have one letter. */
    char before[1000];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(at(".")), 0);
    assert_int_equal(gw_keys_new_client("d", server, "dora"), GW_OK);
    assert_int_equal(chdir(before), 0);
    gw_zmq_keys_free(NULL, client);
    gw_zmq_keys_free(NULL, keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_folder),
        cmocka_unit_test(bad_folders_are_refused),
        cmocka_unit_test(the_list_alone_says),
    };
    return cmocka_run_group_tests_name("zmq keys", tests, begin, end);
}
