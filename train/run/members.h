/* Who trains together: this process's place among all workers, and the links that join them.
 *
 *     struct gw_members members;
 *     gw_members_begin(&options, &members);                      // size, first and count stand
 *     // links[k * members.count + i] becomes link k of rank first + i
 *     gw_members_connect(&members, context, n_links, links);
 *     ...                                                        // each link is destroyed by its holder
 *     gw_members_end(&members, failed);
 *
 * With `local` all ranks are threads of this process. With `mpi`, `tcp` and `servers` a process is one rank. With
 * `servers` it never meets the others directly, only at parameter servers: its links have this rank alone.
 *
 * If parameter servers own the slices, the exchange needs no link: link 0 is left empty (ops NULL). */
#ifndef GW_TRAIN_MEMBERS_H
#define GW_TRAIN_MEMBERS_H

#include "run/launcher.h"

#include <gradwire/gradwire.h>

#define GW_MEMBERS_NO_RANK GW_LAUNCHER_NO_RANK

struct gw_members_options {
    const char *link;       /* local | mpi | tcp | servers; NULL: not given (gw_members_choose_link) */
    uint32_t workers;       /* 0: not given. mpi: must be the number of ranks then */
    uint32_t rank;          /* tcp, servers; GW_MEMBERS_NO_RANK: not given */
    const char *rendezvous; /* tcp: HOST:PORT; NULL: not given */
    const char *advertise, *keys;
    const char *servers; /* "HOST:PORT,...": parameter servers that own the slices; NULL: the members of link 0 do */
    bool insecure;
    uint32_t timeout_ms;
    void (*log)(const char *line, void *user); /* NULL: none */
    bool (*stop)(void *user);                  /* tcp: asked while members meet; NULL: never */
    void *user;                                /* of both */
};

enum gw_members_kind { GW_MEMBERS_LOCAL, GW_MEMBERS_MPI, GW_MEMBERS_TCP, GW_MEMBERS_SERVERS };

struct gw_members {
    enum gw_members_kind kind;
    uint32_t size;         /* of all workers */
    uint32_t first, count; /* this process's ranks */
    gw_tcp_options tcp;
    char rendezvous[300];
    gw_ps_client_options servers; /* of each rank; servers NULL: none */
    gw_ps_client **clients;       /* of this process's ranks, once connected; NULL without servers, or with `servers` */
    bool mpi_begun;               /* gw_members_begin has called MPI_Init_thread */
};

/* Fills in a link that is not given: local; or, if a launcher started several ranks (launcher.h), the link that joins
 * them. GW_ERR_ARGUMENT if none does: trained by itself, each rank would be a run that knows nothing of the others. */
gw_status gw_members_choose_link(struct gw_members_options *options);

/* Where tcp's rank, number of workers and rendezvous are not given they are taken from the environment
 * (gw_launcher_place, gw_launcher_meeting). Texts of the options are borrowed until connect.
 * options->link is given. Errors: GW_ERR_ARGUMENT (the sentence says what is missing), GW_ERR_UNSUPPORTED (a link that
 * this build lacks). */
gw_status gw_members_begin(const struct gw_members_options *options, struct gw_members *members);

/* Joins the members by n_links links (at least two where there are servers); blocks until all are there. Errors as of
 * the links' own create functions. */
gw_status gw_members_connect(struct gw_members *members, gw_context *context, uint32_t n_links, gw_link *links);

/* Says which machine this process runs on: the same for all of one machine (containers too), most likely another for
 * each other. GRADWIRE_MACHINE, any text, says it in its place. */
uint64_t gw_members_machine(void);

/* After all links are destroyed. failed: of an MPI job the other ranks are ended too, after a second in which they say
 * why. */
void gw_members_end(struct gw_members *members, bool failed);

#endif
