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

#include <stdbool.h>
#include <stdint.h>

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

struct gw_net_keys;

enum gw_net_role {
    GW_NET_MEMBER, /* of a job */
    GW_NET_SERVER, /* a parameter server */
    GW_NET_CLIENT  /* of parameter servers: it dials only, and needs no allowed/ */
};

/* Reads a folder of keys. log: gets lines about files in allowed/; NULL: nobody listens. Errors: GW_ERR_SYSTEM (a file
 * cannot be read or holds no certificate, or others can read the secret key), GW_ERR_MEMORY. */
gw_status gw_net_keys_load(gw_context *context, const char *folder, enum gw_net_role role, struct gw_net_log *log,
                           struct gw_net_keys **out);
/* NULL is allowed. */
void gw_net_keys_free(struct gw_net_keys *keys);

const char *gw_net_keys_folder(const struct gw_net_keys *keys);
/* This machine's own certificate, and that of rank 0. The latter is NULL if the CA alone says whom to believe. */
const struct gw_net_identity *gw_net_keys_own(const struct gw_net_keys *keys);
const struct gw_net_identity *gw_net_keys_rendezvous(const struct gw_net_keys *keys);

/* Reads allowed/ again if it has changed, or if a second has passed. Errors: the folder cannot be read, or there is no
 * memory; then the list stays as it is. */
gw_status gw_net_keys_look(struct gw_net_keys *keys);

/* How often the list has changed. */
uint64_t gw_net_keys_changes(struct gw_net_keys *keys);

bool gw_net_keys_allow(struct gw_net_keys *keys, const struct gw_net_identity *identity);

#endif
