/* Tests keys of a certificate authority (CA): who is let in, whom a client believes, and what it says of the others. */
#define _GNU_SOURCE /* nftw */
#include "net/test_keys.h"
#include "net/test_peer.h"

#include "base/error.h"
#include "net/connection.h"
#include "net/tls.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

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
    gw_net_free(&c[0]);
    gw_net_free(&c[1]);
    return status == GW_OK;
}

TEST(who_is_signed_may_come)
{
    enum { FOR_LONG = 7200, IS_OVER = -3600 };
    char why[500];
    ca_key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    ca = sign(ca_key, NULL, FOR_LONG);
    struct gw_net_keys *server = folder_of("server", "DNS:node7,IP:192.0.2.7", FOR_LONG, GW_NET_SERVER);
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
    copy_file(at("server/gradwire.crt"), at("client/server.crt"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_signed_may_come),
    };
    return cmocka_run_group_tests_name("net CA", tests, begin, end);
}
