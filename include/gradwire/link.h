/* A link moves messages between the members of a group: ranks 0..size-1.
 *
 * A link is a small record of functions, so a program may bring its own. It knows nothing of codecs:
 * it delivers whole messages, each pair's in the order sent, and says who failed. The MPI link is in link_mpi.h. */
#ifndef GRADWIRE_LINK_H
#define GRADWIRE_LINK_H

#include <gradwire/context.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One message. `bytes` was taken by gw_message_alloc() and is owned by whoever holds the message. */
typedef struct gw_message {
    uint32_t from;
    void *bytes;
    size_t n_bytes;
} gw_message;

/* Takes memory for a message's bytes, 8-byte aligned. NULL: there is no memory. n_bytes 0 is legal. */
GW_API void *gw_message_alloc(gw_context *context, size_t n_bytes);

/* Gives it back to the allocator it came from, whoever holds it by then: members of one process may have contexts of
 * their own. The context may be gone already; its allocator's `user` must not. NULL is allowed. */
GW_API void gw_message_free(void *bytes);

/* What every link offers. All entries but send_all are required. `self` is gw_link.self. One endpoint serves one rank.
 * send, recv and the others may be called from different threads at the same time; recv from one thread at a time. */
typedef struct gw_link_ops {
    const char *name; /* "local", "mpi", "tcp" */

    /* Hands a message to rank `to`, which may be the sender itself. Owns `bytes` from the call on, even if it fails.
     * Does not wait for the receiver; may block while the link's own queue is full, no longer than timeout_ms.
     * Errors: GW_ERR_PEER (`to` failed or left), GW_ERR_CLOSED (this endpoint is closed), GW_ERR_TIMEOUT,
     * GW_ERR_MEMORY. */
    gw_status (*send)(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);

    /* Hands the same message to every member but this one, without a copy for each. Owns `bytes` and errs as send does.
     * If it fails, some members may have got the message. NULL: the link can do no better than send a copy to each. */
    gw_status (*send_all)(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms);

    /* Waits for the next message from anyone. The caller owns message->bytes. A message that has arrived is delivered
     * before a failure is reported. Errors: GW_ERR_TIMEOUT; GW_ERR_PEER (a member failed: gw_last_error() names it and
     * says why); GW_ERR_CLOSED. */
    gw_status (*recv)(void *self, uint32_t timeout_ms, gw_message *message);

    /* Tells every other member that this one failed and why; their recv then returns GW_ERR_PEER. If the status is
     * GW_ERR_TIMEOUT or GW_ERR_PEER, another member is the cause, and they hear that this one gave up. Takes no memory.
     */
    void (*fail)(void *self, gw_status status, const char *why);

    /* Ends this endpoint in good order; a blocked recv of it returns GW_ERR_CLOSED. Others go on. May be called twice.
     */
    void (*close)(void *self);

    /* Frees the endpoint, closing it first. */
    void (*destroy)(void *self);
} gw_link_ops;

/* A link's endpoint for one rank. A plain value; the holder calls ops->destroy(self) once. */
typedef struct gw_link {
    const gw_link_ops *ops;
    void *self;
    uint32_t rank;
    uint32_t size;
    /* which machine each of the `size` ranks runs on, as the lowest rank there; the same on every member. It belongs to
     * the link and lives as long as this endpoint. An exchange takes it if its own options say nothing of machines
     * (exchange.h, machine_of). NULL: the link does not know. The mpi link asks MPI. */
    const uint32_t *machine_of;
} gw_link;

/* The local link: `size` ranks in one process, messages handed over without a copy.
 * Fills endpoints[0..size). Each endpoint is destroyed by its holder, in any order.
 * Errors: GW_ERR_ARGUMENT (size 0 or above GW_MAX_WORKERS), GW_ERR_MEMORY, GW_ERR_SYSTEM. */
GW_API gw_status gw_link_local_create(gw_context *context, uint32_t size, gw_link *endpoints);

/* The tcp link: every rank is a process (or several ranks share one), anywhere that TCP reaches. Members meet at the
 * rendezvous, where rank 0 listens, learn each other's addresses there, and then talk directly (ZeroMQ over TCP).
 * Rank 0 listens there until its last link is destroyed, and tells whoever comes late that the job is already
 * running. */
typedef struct gw_tcp_options {
    size_t struct_bytes; /* sizeof(gw_tcp_options) */
    uint32_t rank, size;
    const char *rendezvous; /* "HOST:PORT", the same on every rank; an IPv6 address in brackets. HOST is rank 0's */
    /* host or address at which the other members reach this one; NULL: the address from which this machine reaches the
     * rendezvous */
    const char *advertise;
    /* folder of keys (gradwire keys new): traffic is encrypted (CURVE), and members whose key is not listed there are
     * refused. NULL: neither */
    const char *keys;
    bool insecure; /* true: without keys, other addresses than loopback are legal too */
    /* all members must have met after so long; and a machine that has not answered for so long has failed; 0: 60,000 */
    uint32_t timeout_ms;
    /* gets a line for each refusal: who, and why; on the link's own threads. NULL: nobody does */
    void (*log)(const char *line, void *user);
    void *log_user;
    /* asked four times a second while members meet: true ends that with GW_ERR_CLOSED. NULL: never */
    bool (*stop)(void *user);
    void *stop_user;
} gw_tcp_options;

/* Meets the other members and fills links[0..n_links): so many links among the same members, independent of each other.
 * Blocks until all members are there. n_links, size, rendezvous and the kind of keys must be the same on every rank. If
 * nobody knows the rendezvous's name yet, it asks again for up to timeout_ms, and the log says so.
 * Each link is destroyed by its holder, in any order; destroy waits up to 2 s until what was sent has left this
 * machine. Errors: GW_ERR_ARGUMENT; GW_ERR_TIMEOUT (the sentence names the missing ranks, and who was refused
 * meanwhile); GW_ERR_PEER (this member was refused: its rank is taken, or size, version or kind of keys are not rank
 * 0's, or the job there is already running; or rank 0 died); GW_ERR_SYSTEM (an address cannot be used, for example
 * because a job is running at the rendezvous; or a key cannot be read); GW_ERR_MEMORY; GW_ERR_CLOSED (options.stop);
 * GW_ERR_UNSUPPORTED (a build without ZeroMQ). */
GW_API gw_status gw_link_tcp_create(gw_context *context, const gw_tcp_options *options, uint32_t n_links,
                                    gw_link *links);

/* Makes a folder of keys for gw_tcp_options.keys, or for parameter servers, with a fresh pair. Its own key is the only
 * one allowed there and is the rendezvous's, so that copies of the folder on all machines of a job are enough. If
 * machines have keys of their own, allowed/ holds the public key of each (gradwire.key of its folder, under any name),
 * and rendezvous.key is the one of rank 0's machine. Never replaces a key. Errors: GW_ERR_ARGUMENT (there is a key
 * already), GW_ERR_SYSTEM (the folder cannot be written), GW_ERR_UNSUPPORTED (a ZeroMQ without CURVE, or a build
 * without ZeroMQ). */
GW_API gw_status gw_keys_new(const char *folder);

/* Makes a folder of keys for a client of parameter servers (gw_ps_client_options.keys), with a fresh pair of its own,
 * and lists the client in the servers' folder, as allowed/NAME.key. Removing that file shuts out this client and nobody
 * else. The servers' public key is in the client's folder as server.key; the rest is as gw_keys_new makes it, so that
 * the same folder serves the workers' own tcp link. `name`: 1 to 64 letters, digits and ".-_", no dot first. Nothing is
 * left behind by a failure, and no key is replaced. Errors: those of gw_keys_new; GW_ERR_ARGUMENT also for a name that
 * is none, or is listed already; GW_ERR_SYSTEM also for a server's folder that has no key, or cannot be written. */
GW_API gw_status gw_keys_new_client(const char *folder, const char *server_folder, const char *name);

#ifdef __cplusplus
}
#endif
#endif
