/* A folder of keys:
 *
 *     gradwire.key         this machine's public key: 40 characters of Z85 and an end of line, as in every file here
 *     gradwire.key_secret  its secret key; only the owner may read it
 *     rendezvous.key       the public key of rank 0's machine
 *     allowed/NAME         a public key for each machine that may be a member; any names */
#ifndef GW_LINK_TCP_KEYS_H
#define GW_LINK_TCP_KEYS_H

#include "link/tcp/wire.h"

#include <time.h>

struct gw_tcp_keys {
    char *folder;
    char public_key[GW_TCP_KEY_CHARS + 1], secret_key[GW_TCP_KEY_CHARS + 1], rendezvous[GW_TCP_KEY_CHARS + 1];
    uint32_t n_allowed;
    char (*allowed)[GW_TCP_KEY_CHARS + 1];
    double looked;        /* when allowed/ was read, */
    struct timespec time; /* and its own time then */
};

/* Errors: GW_ERR_SYSTEM (a file that cannot be read, holds no key, or holds a secret that others can read), GW_ERR_MEMORY. */
gw_status gw_tcp_keys_load(gw_context *context, const char *folder, struct gw_tcp_keys **out);
void gw_tcp_keys_free(gw_context *context, struct gw_tcp_keys *keys);

/* Reads allowed/ again where it has changed, or was last read a second ago; files that hold no key are left out. *changed: the list is
 * another one. Errors: the folder cannot be read, or no memory; the list stands. */
gw_status gw_tcp_keys_look(gw_context *context, struct gw_tcp_keys *keys, bool *changed);

/* Whether a member with this public key may connect. */
bool gw_tcp_keys_allow(const struct gw_tcp_keys *keys, const char *public_key);

#endif
