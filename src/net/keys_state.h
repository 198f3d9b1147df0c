/* What tls.c needs of a folder of keys. */
#ifndef GW_NET_KEYS_STATE_H
#define GW_NET_KEYS_STATE_H

#include "net/keys.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <time.h>

struct gw_net_keys {
    gw_context *context;
    char *folder;
    X509 *certificate;
    EVP_PKEY *secret;
    struct gw_net_identity own, rendezvous;
    pthread_mutex_t lock; /* protects what follows */
    uint32_t n_allowed;
    struct gw_net_identity *allowed;
    double looked;        /* when allowed/ was read */
    struct timespec time; /* when that folder had changed last, then */
    SSL_CTX *ssl;         /* what all sessions have in common. tls.c makes it with the first session */
};

#endif
