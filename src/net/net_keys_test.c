/* Tests folders of keys: how they are made, which are refused, and who is allowed by them. The same for keys of a
 * certificate authority (CA): whom a client believes, and what it says of the others. */
#define _GNU_SOURCE /* nftw */
#include "net/test_keys.h"
#include "net/test_peer.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

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

/* ---- keys of a CA --------------------------------------------------------------------------------------- */

static EVP_PKEY *ca_key;
static X509 *ca;

/* A certificate of `key`, signed by the CA, or by itself if there is none yet. names: as in subjectAltName; NULL: none.
 * seconds: until it ends. */
static X509 *sign(EVP_PKEY *key, const char *names, long seconds)
{
    X509 *made = X509_new();
    X509_NAME *subject = X509_get_subject_name(made);
    const char *constraint = ca ? "CA:FALSE" : "critical,CA:TRUE";
    static long serial;
    assert_true(X509_set_version(made, 2) && ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial) &&
                X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)(ca ? "leaf" : "our CA"),
                                           -1, -1, 0) &&
                X509_set_issuer_name(made, ca ? X509_get_subject_name(ca) : subject) && X509_set_pubkey(made, key) &&
                X509_gmtime_adj(X509_getm_notBefore(made), -7200) &&
                X509_gmtime_adj(X509_getm_notAfter(made), seconds));
    X509_EXTENSION *more[] = {X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, constraint),
                              names ? X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names) : NULL};
    for (int i = 0; i < 2; i++)
        assert_true(!more[i] || X509_add_ext(made, more[i], -1));
    assert_true(X509_sign(made, ca ? ca_key : key, NULL) > 0);
    X509_EXTENSION_free(more[0]);
    X509_EXTENSION_free(more[1]);
    return made;
}

static void put(const char *path, X509 *certificate, EVP_PKEY *secret)
{
    FILE *file = fopen(path, "w");
    assert_true(file && (secret ? PEM_write_PrivateKey(file, secret, NULL, NULL, 0, NULL, NULL)
                                : PEM_write_X509(file, certificate)));
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
}

/* A folder of keys as somebody with a CA makes it. */
static struct gw_net_keys *folder_of(const char *name, const char *names, long seconds, enum gw_net_role role)
{
    const char *folder = at(name);
    char path[400];
    struct gw_net_keys *keys;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    X509 *certificate = sign(key, names, seconds);
    assert_int_equal(mkdir(folder, 0700), 0);
    const struct {
        const char *name;
        X509 *certificate;
        EVP_PKEY *secret;
    } files[] = {{GW_NET_CERTIFICATE, certificate, NULL}, {GW_NET_SECRET, NULL, key}, {GW_NET_CA, ca, NULL}};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        put(path, files[i].certificate, files[i].secret);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    ok(gw_net_keys_load(NULL, folder, role, NULL, &keys));
    return keys;
}

/* Shakes hands: `client` dials `host`, and `server` answers. *why: what the side that refuses says. */
static bool shake_hands(struct gw_net_keys *client, const char *host, struct gw_net_keys *server, char why[500])
{
    struct gw_net_connection c[2];
    const gw_status status = peer_pair((struct gw_net_connection *const[]){&c[0], &c[1]},
                                       (struct gw_net_keys *const[]){client, server}, host);
    snprintf(why, 500, "%s", status < 0 ? gw_last_error() : "");
    gw_net_close(&c[0]);
    gw_net_close(&c[1]);
    return status == GW_OK;
}

TEST(who_is_signed_may_come)
{
    enum { FOR_LONG = 7200, IS_OVER = -3600 };
    char why[500];
    ca_key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    ca = sign(ca_key, NULL, FOR_LONG);
    struct gw_net_keys *server = folder_of("node7", "DNS:node7,IP:192.0.2.7", FOR_LONG, GW_NET_SERVER);
    struct gw_net_keys *client = folder_of("client", NULL, FOR_LONG, GW_NET_CLIENT);
    struct gw_net_keys *late = folder_of("late", NULL, IS_OVER, GW_NET_CLIENT);
    struct gw_net_keys *member = folder_of("member", "DNS:node8", FOR_LONG, GW_NET_MEMBER);
    const struct {
        struct gw_net_keys *client;
        const char *host;
        struct gw_net_keys *server;
        const char *why; /* NULL: they agree */
    } cases[] = {
        {client, "node7", server, NULL},
        {client, "192.0.2.7", server, NULL},
        {client, "node8", server, "is not for the name node8"},
        {client, "192.0.2.8", server, "is not for the name 192.0.2.8"},
        {late, "node7", server, "certificate has expired"},
        {member, NULL, server, NULL}, /* to a peer whose certificate rank 0 has named */
        {client, "node8", member, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool agreed = shake_hands(cases[i].client, cases[i].host, cases[i].server, why);
        CHECK(cases[i].why ? !agreed && strstr(why, cases[i].why) : agreed, "%zu: %s", i, why);
    }
    assert_true(gw_net_keys_allow(server, &client->own) && !client->knows_place);

    /* One that another CA has signed, or that has signed itself, is refused by both sides. */
    struct gw_net_keys *strange;
    ok(gw_net_keys_load(NULL, at("other"), GW_NET_MEMBER, NULL, &strange));
    assert_false(shake_hands(strange, "node7", server, why));
    assert_false(shake_hands(client, "node7", strange, why));
    CHECK(strstr(why, "is not good for") && strstr(why, "client/ca.crt"), "%s", why);

    /* A client that knows the server's certificate believes no other, whoever has signed it. */
    copy_file(at("node7/gradwire.crt"), at("client/server.crt"));
    gw_net_keys_free(client);
    ok(gw_net_keys_load(NULL, at("client"), GW_NET_CLIENT, NULL, &client));
    CHECK(shake_hands(client, "any name", server, why), "%s", why);
    assert_false(shake_hands(client, "node8", member, why));

    /* Folders that are refused as they are read. */
    static const char *const end_of_chain = "-----BEGIN CERTIFICATE-----\nrotten\n-----END CERTIFICATE-----\n";
    FILE *file = fopen(at("late/gradwire.crt"), "a");
    assert_true(file && fputs(end_of_chain, file) >= 0 && fclose(file) == 0);
    gw_net_keys_free(late);
    refused(gw_net_keys_load(NULL, at("late"), GW_NET_CLIENT, NULL, &late), GW_ERR_SYSTEM, "chain in");
    file = fopen(at("late/ca.crt"), "a");
    X509_CRL *revoked = X509_CRL_new();
    assert_true(file && X509_CRL_set_issuer_name(revoked, X509_get_subject_name(ca)) &&
                X509_CRL_set1_lastUpdate(revoked, X509_get0_notBefore(ca)) &&
                X509_CRL_sign(revoked, ca_key, NULL) > 0 && PEM_write_X509_CRL(file, revoked) && fclose(file) == 0);
    X509_CRL_free(revoked);
    refused(gw_net_keys_load(NULL, at("late"), GW_NET_CLIENT, NULL, &late), GW_ERR_SYSTEM, "late/ca.crt holds");
    write_file(at("late/ca.crt"), "rotten\n", 0644);
    refused(gw_net_keys_load(NULL, at("late"), GW_NET_CLIENT, NULL, &late), GW_ERR_SYSTEM,
            "late/ca.crt holds no certificates of a CA");
    assert_true(unlink(at("late/ca.crt")) == 0 && symlink("nowhere", at("late/ca.crt")) == 0);
    refused(gw_net_keys_load(NULL, at("late"), GW_NET_CLIENT, NULL, &late), GW_ERR_SYSTEM,
            "late/ca.crt cannot be read");
    gw_net_keys_free(strange);
    gw_net_keys_free(member);
    gw_net_keys_free(client);
    gw_net_keys_free(server);
    X509_free(ca);
    EVP_PKEY_free(ca_key);
}

RUN_TESTS("net keys", begin, end)
