/* A folder of keys:
 *
 *     gradwire.key         this machine's public key: 40 characters of Z85 and an end of line, as in every file here
 *     gradwire.key_secret  its secret key; only the owner may read it
 *     rendezvous.key       the public key of rank 0's machine
 *     server.key           the public key of the parameter servers, for their clients; without it rendezvous.key is
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
    bool without_own;          /* its own key is left out of the list */
    pthread_mutex_t lock;      /* of the list */
    atomic_uint_least64_t nth; /* which list it is: counts the changes */
    uint32_t n_allowed;
    char (*allowed)[GW_ZMQ_KEY_CHARS + 1];
    double looked;        /* when allowed/ was read, */
    struct timespec time; /* and its own time then */
};

/* Errors: GW_ERR_SYSTEM (a file that cannot be read, holds no key, or holds a secret that others can read),
 * GW_ERR_MEMORY. */
gw_status gw_zmq_keys_load(gw_context *context, const char *folder, struct gw_zmq_keys **out);
void gw_zmq_keys_free(gw_context *context, struct gw_zmq_keys *keys);

/* Reads allowed/ again if it has changed, or was last read a second ago; files that hold no key are left out.
 * *changed: the list is another one. Errors: the folder cannot be read, or no memory; the list stands. */
gw_status gw_zmq_keys_look(gw_context *context, struct gw_zmq_keys *keys, bool *changed);

/* From here on the own key is not allowed, whether allowed/ has it or not. A server says so, before its gate is open: a
 * client that had the server's secret key could pass for the server. */
void gw_zmq_keys_leave_own_out(struct gw_zmq_keys *keys);

/* Whether a member with this public key may connect. Any thread. */
bool gw_zmq_keys_allow(struct gw_zmq_keys *keys, const char *public_key);

#endif
