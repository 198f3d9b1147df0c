/* A folder of keys:
 *
 *     gradwire.crt       this machine's certificate (PEM)
 *     gradwire.pem       its secret key (Ed25519, PEM); only the owner may read it
 *     rendezvous.crt     the certificate of rank 0's machine
 *     server.crt         of a client of parameter servers: their certificate; else rendezvous.crt is
 *     allowed/NAME.crt   a certificate for each machine that may be a member, or a client
 *
 * allowed/ alone says who may connect: a machine's own certificate is allowed if it is there, but for a parameter
 * server's. Whom this machine calls at the rendezvous, or as a client, must show the certificate of that file. A file
 * that is written or removed in allowed/ counts within a second. One that holds no certificate is left out, and the log
 * says so.
 *
 * An organization may have a certificate authority (CA) of its own. Its certificates then lie in ca.crt, and
 * gradwire.crt holds one that it has signed, with the chain up to it. Whoever it has signed may connect, and allowed/
 * is not read. Without rendezvous.crt (or server.crt) the certificate of rank 0 or of a server must be for the name
 * that was dialled. */
#ifndef GW_NET_KEYS_H
#define GW_NET_KEYS_H

#include "net/log.h"

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define GW_NET_CERTIFICATE "gradwire.crt"
#define GW_NET_SECRET "gradwire.pem"
#define GW_NET_RENDEZVOUS "rendezvous.crt"
#define GW_NET_SERVER_FILE "server.crt"
#define GW_NET_ALLOWED "allowed"
#define GW_NET_CA "ca.crt"
#define GW_NET_SUFFIX ".crt" /* of the files in allowed/ */

/* The SHA-256 of a certificate. */
struct gw_net_identity {
    uint8_t bytes[32];
};
/* In 64 digits, as `openssl x509 -fingerprint -sha256` prints it without colons. */
struct gw_net_identity_text {
    char text[65];
};
struct gw_net_identity_text gw_net_identity_write(const struct gw_net_identity *identity);
static inline bool gw_net_same_identity(const struct gw_net_identity *a, const struct gw_net_identity *b)
{
    return __builtin_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

enum gw_net_role {
    GW_NET_MEMBER, /* of a job */
    GW_NET_SERVER, /* a parameter server */
    GW_NET_CLIENT  /* of parameter servers: it dials only, and needs no allowed/ */
};

/* A folder that was read. The structs without a definition here are OpenSSL's X509, EVP_PKEY, X509_STORE, SSL_CTX. */
struct gw_net_keys {
    gw_context *context;
    enum gw_net_role role;
    struct gw_net_log *log; /* NULL: nobody listens */
    char *folder;
    struct x509_st *certificate;
    struct evp_pkey_st *secret;
    struct gw_net_identity own, rendezvous; /* a client has the servers' certificate in place of rank 0's */
    struct x509_store_st *ca;               /* who is signed by one of these may connect; NULL: allowed/ says who may */
    bool knows_place;                       /* `rendezvous` is known; else the CA alone says whom to believe */
    pthread_mutex_t lock;                   /* protects what follows */
    uint32_t n_allowed;
    struct gw_net_identity *allowed;
    uint64_t n_changes;     /* how often the list has changed; a process with one thread may read it without the lock */
    bool unreadable;        /* the log has been told that allowed/ cannot be read */
    double looked;          /* when allowed/ was read */
    struct timespec time;   /* when that folder had changed last, then */
    double change_seen;     /* when that was seen */
    struct ssl_ctx_st *ssl; /* what all sessions have in common. tls.c makes it with the first session */
};

/* Reads a folder of keys. log: gets lines about files in allowed/; NULL: nobody listens. Errors: GW_ERR_SYSTEM (a file
 * cannot be read or holds no certificate, or others can read the secret key), GW_ERR_MEMORY. */
gw_status gw_net_keys_load(gw_context *context, const char *folder, enum gw_net_role role, struct gw_net_log *log,
                           struct gw_net_keys **out);
/* NULL is allowed. */
void gw_net_keys_free(struct gw_net_keys *keys);

/* Reads allowed/ again if it has changed, within the second after that, and then once a second. Errors: the folder
 * cannot be read, or there is no memory; then the list stays as it is. */
gw_status gw_net_keys_look(struct gw_net_keys *keys);

bool gw_net_keys_allow(struct gw_net_keys *keys, const struct gw_net_identity *identity);

gw_status gw_net_keys_path(char path[PATH_MAX], const char *folder, const char *name);

/* Reads a certificate. certificate NULL: not wanted; else the caller frees it. */
gw_status gw_net_keys_read(const char *folder, const char *name, struct x509_st **certificate,
                           struct gw_net_identity *identity);

#endif
