/* A folder of keys:
 *
 *     gradwire.crt       this machine's certificate (PEM)
 *     gradwire.pem       its secret key (Ed25519, PEM); only the owner may read it
 *     rendezvous.crt     the certificate of rank 0's machine
 *     allowed/NAME.crt   a certificate for each machine that may be a member, or a client
 *
 * allowed/ alone says who may connect: a machine's own certificate is allowed if it is there. Whom this machine calls
 * at the rendezvous must show the certificate of that file. A file that is written or removed there
 * counts within a second. */
#ifndef GW_NET_KEYS_H
#define GW_NET_KEYS_H

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

/* Reads a folder of keys. Errors: GW_ERR_SYSTEM (a file cannot be read or holds no certificate, or others can read the
 * secret key), GW_ERR_MEMORY. */
gw_status gw_net_keys_load(gw_context *context, const char *folder, struct gw_net_keys **out);
/* NULL is allowed. */
void gw_net_keys_free(struct gw_net_keys *keys);

const char *gw_net_keys_folder(const struct gw_net_keys *keys);
/* This machine's own certificate, and that of rank 0. */
const struct gw_net_identity *gw_net_keys_own(const struct gw_net_keys *keys);
const struct gw_net_identity *gw_net_keys_rendezvous(const struct gw_net_keys *keys);

/* Reads allowed/ again if it has changed, or if a second has passed. Files that hold no certificate are left
 * out. Errors: the folder cannot be read, or there is no memory; then the list stays as it is. */
gw_status gw_net_keys_look(struct gw_net_keys *keys);

bool gw_net_keys_allow(struct gw_net_keys *keys, const struct gw_net_identity *identity);

/* Writes these files into a folder, whose allowed/ is there. None of them may be there. If it fails it leaves none
 * behind. */
#define GW_NET_KEYS_FILES 4
extern const char *const gw_net_keys_files[GW_NET_KEYS_FILES];
gw_status gw_net_keys_write(const char *folder);

#endif
