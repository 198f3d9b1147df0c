/* The inside of a folder of keys, for tls.c and keys_new.c. */
#ifndef GW_NET_KEYS_STATE_H
#define GW_NET_KEYS_STATE_H

#include "net/keys.h"

#include <limits.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define GW_NET_CERTIFICATE "gradwire.crt"
#define GW_NET_SECRET "gradwire.pem"
#define GW_NET_RENDEZVOUS "rendezvous.crt"
#define GW_NET_SERVER_FILE "server.crt"
#define GW_NET_ALLOWED "allowed"
#define GW_NET_CA "ca.crt"
#define GW_NET_SUFFIX ".crt" /* of the files in allowed/ */

struct gw_net_keys {
    gw_context *context;
    enum gw_net_role role;
    struct gw_net_log *log; /* NULL: nobody listens */
    char *folder;
    X509 *certificate;
    EVP_PKEY *secret;
    struct gw_net_identity own, rendezvous; /* a client has the servers' certificate in place of rank 0's */
    X509_STORE *ca;                         /* who is signed by one of these may connect; NULL: allowed/ says who may */
    bool knows_place;                       /* `rendezvous` is known. Without ca it always is */
    pthread_mutex_t lock;                   /* protects what follows */
    uint32_t n_allowed;
    struct gw_net_identity *allowed;
    uint64_t n_changes;     /* how often the list has changed */
    atomic_bool unreadable; /* the log has been told that allowed/ cannot be read */
    double looked;          /* when allowed/ was read */
    struct timespec time;   /* when that folder had changed last, then */
    SSL_CTX *ssl;           /* what all sessions have in common. tls.c makes it with the first session */
};

gw_status gw_net_keys_path(char path[PATH_MAX], const char *folder, const char *name);

/* Reads a certificate. certificate NULL: not wanted; else the caller frees it. */
gw_status gw_net_keys_read(const char *folder, const char *name, X509 **certificate, struct gw_net_identity *identity);

#endif
