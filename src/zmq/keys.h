/* A folder of keys:
 *
 *     gradwire.key         this machine's public key: 40 characters of Z85 and an end of line, as in every file here
 *     gradwire.key_secret  its secret key; only the owner may read it
 *     rendezvous.key       the public key of rank 0's machine
 *     server.key           the public key of the parameter servers, for their clients; else rendezvous.key is
 *     allowed/NAME         a public key for each machine that may be a member, or a client; any names
 *
 * allowed/ alone says who may connect: a machine's own key is allowed if it is there. A gate reads it, and other
 * threads may ask. */
#ifndef GW_ZMQ_KEYS_H
#define GW_ZMQ_KEYS_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define GW_ZMQ_KEY_CHARS 40 /* of a public key in Z85 */

struct gw_zmq_keys {
    char *folder;
    char public_key[GW_ZMQ_KEY_CHARS + 1], secret_key[GW_ZMQ_KEY_CHARS + 1];
    char rendezvous[GW_ZMQ_KEY_CHARS + 1], server[GW_ZMQ_KEY_CHARS + 1];
    bool without_own;          /* the folder's own key is left out of the list */
    pthread_mutex_t lock;      /* protects the list */
    atomic_uint_least64_t nth; /* the number of the list: each change adds one */
    uint32_t n_allowed;
    char (*allowed)[GW_ZMQ_KEY_CHARS + 1];
    double looked;        /* when allowed/ was read */
    struct timespec time; /* the time of change of the folder allowed/ then */
};

/* Reads a folder of keys. Errors: GW_ERR_SYSTEM (a file cannot be read or holds no key, or others can read the secret
 * key), GW_ERR_MEMORY. */
gw_status gw_zmq_keys_load(gw_context *context, const char *folder, struct gw_zmq_keys **out);
void gw_zmq_keys_free(gw_context *context, struct gw_zmq_keys *keys);

/* Reads allowed/ again if it has changed, or if it was last read a second ago or earlier. It leaves out files that hold
 * no key. *changed: the list has changed. Errors: the folder cannot be read, or there is no memory; then the list stays
 * as it is. */
gw_status gw_zmq_keys_look(gw_context *context, struct gw_zmq_keys *keys, bool *changed);

/* From here on the folder's own key is not allowed, even if allowed/ has it. A server calls this before it opens its
 * gate. The reason: a client with the server's secret key could pass itself off as the server. */
void gw_zmq_keys_leave_own_out(struct gw_zmq_keys *keys);

/* True if a member with this public key may connect. Any thread may call it. */
bool gw_zmq_keys_allow(struct gw_zmq_keys *keys, const char *public_key);

#endif
