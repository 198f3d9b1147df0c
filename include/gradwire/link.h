/* A link moves messages between the members of a group: ranks 0..size-1.
 *
 * A link is a small record of functions, so a program may bring its own. It knows nothing of codecs. It delivers whole
 * messages, and says which member is gone. Why it went, it says itself (gw_link_fail). The messages from one member to
 * another arrive in the order in which they were sent. The MPI link is in link_mpi.h. */
#ifndef GRADWIRE_LINK_H
#define GRADWIRE_LINK_H

#include <gradwire/context.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One message. `bytes` comes from gw_message_alloc(). Whoever holds the message owns it. */
typedef struct gw_message {
    uint32_t from;
    void *bytes;
    size_t n_bytes;
} gw_message;

/* Takes memory for a message's bytes, 8-byte aligned. n_bytes 0 is legal. Returns NULL if there is no memory. Any
 * thread may call it. */
GW_API void *gw_message_alloc(gw_context *context, size_t n_bytes);

/* Gives a message's bytes back to the allocator that they came from. The caller may have another context than that of
 * gw_message_alloc: members of one process may have contexts of their own. That context may be destroyed already, but
 * its allocator's `user` must still be there. NULL is allowed. Any thread may call it. */
GW_API void gw_message_free(void *bytes);

/* What every link offers. All entries but send_all and flush are required. `self` is gw_link.self. One endpoint serves
 * one rank. Different threads may call send, recv and the others at the same time. Only one thread at a time may call
 * recv. */
typedef struct gw_link_ops {
    const char *name; /* "local", "mpi", "tcp" */

    /* Hands a message to rank `to`, which may be the sender itself. The link owns `bytes` from the call on, even if the
     * call fails. The call does not wait for the receiver. It may block while the link's own queue is full, but no
     * longer than timeout_ms. Errors: GW_ERR_PEER (`to` is gone), GW_ERR_CLOSED (this endpoint is closed),
     * GW_ERR_TIMEOUT, GW_ERR_MEMORY. */
    gw_status (*send)(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);

    /* Hands the same message to every member but this one, without a copy for each. As with send, the link owns `bytes`
     * from the call on. The errors are those of send. If the call fails, some members may have got the message. NULL:
     * the link has no better way than to send a copy to each. */
    gw_status (*send_all)(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms);

    /* Waits until the system has taken all that was sent, at most timeout_ms. A link may keep what the system does not
     * take at once, and send it while its owner receives. So who receives no more for a while calls this. NULL: the
     * link sends without its owner. Errors: GW_ERR_TIMEOUT, GW_ERR_MEMORY. */
    gw_status (*flush)(void *self, uint32_t timeout_ms);

    /* Waits for the next message from anyone. The caller owns message->bytes. Errors: GW_ERR_TIMEOUT; GW_ERR_CLOSED;
     * GW_ERR_PEER: the member message->from is gone. It has closed its endpoint, or died, or its connection is lost;
     * gw_last_error() says more. What it had sent, as far as it arrives, was received before. Each member is reported
     * once, and the others are still heard. Only the link's user knows whether that member was to go. */
    gw_status (*recv)(void *self, uint32_t timeout_ms, gw_message *message);

    /* Ends this endpoint. If its recv is blocked, recv returns GW_ERR_CLOSED. It may be called twice. */
    void (*close)(void *self);

    /* Closes the endpoint and frees it. It leaves gw_last_error() as it is. */
    void (*destroy)(void *self);
} gw_link_ops;

/* A link's endpoint for one rank. It is a plain value and may be copied. Its holder calls gw_link_destroy once. If a
 * function that makes links fails, they have ops NULL; if it refuses their number, they stay as they were. */
typedef struct gw_link {
    const gw_link_ops *ops;
    void *self;
    uint32_t rank;
    uint32_t size;
    /* the machine that each of the `size` ranks runs on, given as the lowest rank on that machine. It is the same on
     * every member. It belongs to the link and lives as long as this endpoint. An exchange uses it if its own options
     * say nothing of machines (exchange.h, machine_of). NULL: the link does not know. The mpi link asks MPI. */
    const uint32_t *machine_of;
} gw_link;

/* Closes the endpoint, frees it, and sets *link to zero. NULL, and a link with ops NULL, are allowed. No thread may be
 * in a function of this endpoint. gw_last_error() stays. */
GW_API void gw_link_destroy(gw_link *link);

/* Tells every other member that this one fails, and why, by a message over the link. gw_link_recv of the others, and
 * their exchange, then returns GW_ERR_PEER with "rank R failed: " and `why`. With GW_ERR_TIMEOUT another member is the
 * cause, and they get "rank R gave up: " and `why`. With GW_ERR_PEER `why` is what the link or another member said of
 * the cause, and they get it as it is. why NULL or "": the general text of the status. link NULL, or with ops NULL:
 * nothing happens. The message's memory comes from malloc. gw_last_error() stays. Any thread may call it. */
GW_API void gw_link_fail(const gw_link *link, gw_status status, const char *why);

/* The link's recv, for members that tell each other of failures by gw_link_fail. It returns GW_ERR_PEER also for such a
 * message. message->from is then link->size, because nobody is gone. */
GW_API GW_MUST_CHECK gw_status gw_link_recv(const gw_link *link, uint32_t timeout_ms, gw_message *message);

/* Looks at a message. GW_ERR_PEER, with a sentence: the message says why a member is gone. Other statuses mean nothing.
 */
typedef gw_status gw_link_look(void *user, const gw_message *message);

/* Finds out why a member is gone, after a send failed with GW_ERR_PEER. Call it on the thread that receives. What the
 * member said before it went has come already. So this takes messages and drops them, until one says why a member
 * failed (gw_link_fail), or `look` finds one that does, or none is left. look: sees each message before it is dropped.
 * NULL: no other message says why. Returns GW_ERR_PEER with the sentence that it found, or else that of the send. */
GW_API GW_MUST_CHECK gw_status gw_link_why(const gw_link *link, gw_link_look *look, void *user);

/* What an address cannot say. */
typedef struct gw_link_options {
    size_t struct_bytes; /* sizeof(gw_link_options) */
    /* gets a line for each member that is refused: who, and why. A thread that is in a function of the link calls it.
     * NULL: no log */
    void (*log)(const char *line, void *user);
    void *log_user;
    /* is asked four times a second while members meet. If it returns true, the meeting ends with GW_ERR_CLOSED. NULL:
     * the meeting goes on */
    bool (*stop)(void *user);
    void *stop_user;
} gw_link_options;

/* Opens this process's end of n_links links among the same members, 1 to 64 and independent of each other, and fills
 * links[0..n_links). All members call it at the same time, with the same n_links. It blocks until they have met. The
 * holder of each link destroys it, in any order. `address` says over what the members meet:
 *
 *   local:                              this process is the only member. (gw_link_local_create makes all the ends of a
 *                                       link between threads.)
 *   mpi:                                all ranks of MPI_COMM_WORLD, with the ranks that MPI gave them
 *   mpi:?rank=R&size=N                  the same with other ranks: each process gives its own, and N is their number
 *   tcp://HOST:PORT?rank=R&size=N       N processes, anywhere that TCP reaches. Several members may share a process.
 *                                       Rank 0 listens at HOST:PORT, which is the same on every rank. An IPv6 address
 *                                       is in brackets: tcp://[::1]:29500?rank=0&size=2
 *
 * Keys of tcp, behind a question mark and with & between them:
 *
 *   rank=R, size=N   this member, from 0, and how many there are
 *   keys=DIR         a folder of keys (gw_keys_new). Traffic is then encrypted (TLS 1.3), and a member is refused if
 *                    its certificate is not listed there
 *   insecure=1       without keys, addresses other than loopback are legal too
 *   advertise=HOST   where other members reach this one, if not at the address from which it reaches HOST
 *   timeout_ms=T     60,000 if not given. Within this time all members must have met. Later, a machine that has not
 *                    answered for this time counts as failed
 *   spin_us=U        before recv sleeps, it looks again and again for so many microseconds, at most 1,000,000. That
 *                    makes steps of small models shorter, and keeps a core busy meanwhile. So it is for machines with
 *                    cores to spare
 *
 * In DIR and in advertise the signs & % ? # and blanks are written as % and two hexadecimal digits (%26 is &). An
 * address has at most 4095 bytes.
 *
 * tcp: rank 0 listens until its last link is destroyed. While it receives, it tells a process that comes late that the
 * job is already running. If the name HOST is not known yet, the call looks it up again for up to timeout_ms, and the
 * log says so. The link has no thread of its own: what the system does not take at once from send leaves while its
 * owner is in recv, flush or destroy. destroy waits up to 2 s until all that was sent has arrived.
 *
 * mpi: the call loads libgradwire_mpi.so.0: the one that GRADWIRE_MPI_LIBRARY names, or that lies beside this library,
 * or that the system finds. If MPI is not initialised, the call starts it, and MPI ends when the process exits. A
 * program that calls MPI itself should take gw_link_mpi_create (link_mpi.h), which says more.
 *
 * options: NULL: neither log nor stop. Errors: GW_ERR_SPEC (the address: an unknown or doubled key, a number out of
 * range, no rank or size; the sentence says what is right); GW_ERR_ARGUMENT; GW_ERR_TIMEOUT (the sentence names the
 * missing ranks, and the members that were refused); GW_ERR_PEER (rank 0 refused this member or died; it refuses a rank
 * that is taken, another size, version or kind of keys, and everybody once the job is running); GW_ERR_SYSTEM
 * (HOST:PORT cannot be used, for example because a job is running there; or a key cannot be read); GW_ERR_MEMORY;
 * GW_ERR_CLOSED (options.stop); GW_ERR_UNSUPPORTED (a build without OpenSSL; libgradwire_mpi.so.0 does not load); and
 * for mpi those of gw_link_mpi_create. There GW_ERR_TIMEOUT means that the call has started MPI, and a rank did not
 * come within 60 s. The process should then exit. */
GW_API GW_MUST_CHECK gw_status gw_link_open(gw_context *context, const char *address, const gw_link_options *options,
                                            uint32_t n_links, gw_link *links);

/* Creates all ends of a local link: `size` ranks in one process. It hands messages over without a copy. Fills
 * endpoints[0..size). The holder of each endpoint destroys it, in any order. Errors: GW_ERR_ARGUMENT (size 0 or above
 * GW_MAX_WORKERS), GW_ERR_MEMORY, GW_ERR_SYSTEM. */
GW_API GW_MUST_CHECK gw_status gw_link_local_create(gw_context *context, uint32_t size, gw_link *endpoints);

/* Makes a folder of keys for a tcp link (keys=DIR), or for parameter servers, with fresh keys. At first the folder
 * allows these alone, and has them as those of the rendezvous. So it is enough to copy the folder to all machines of a
 * job. Machines may also have keys of their own. Then allowed/ in each folder holds the certificate of every machine
 * (the file gradwire.crt of its folder, under any name that ends in .crt), and rendezvous.crt is that of rank 0's
 * machine. gradwire.pem is the secret key (Ed25519). The call never replaces a key. Errors: GW_ERR_ARGUMENT (there is a
 * key already, or a ca.crt, whose CA would have to sign it), GW_ERR_SYSTEM (the folder cannot be written),
 * GW_ERR_UNSUPPORTED (an OpenSSL without Ed25519, or a build without OpenSSL).
 *
 * server_folder and client: NULL, or both for the folder of a client of parameter servers (gw_ps_client_options.keys).
 * Then the call also lists the client in the servers' folder, as allowed/CLIENT.crt. Remove that file to shut out this
 * client and nobody else. The new folder holds the servers' certificate as server.crt. Workers may use a copy of it for
 * a tcp link of their own. `client`: 1 to 64 letters, digits and ".-_"; it does not begin with a dot. If the call
 * fails, it leaves nothing behind. Errors then: GW_ERR_ARGUMENT also for a name that is not legal, or is listed
 * already; GW_ERR_SYSTEM also for a servers' folder that has no key, or cannot be written. */
GW_API GW_MUST_CHECK gw_status gw_keys_new(const char *folder, const char *server_folder, const char *client);

#ifdef __cplusplus
}
#endif
#endif
