/* The members of a run: this process's place among all workers, and the links that join them. Begin, connect, end.
 *
 * With `local` all ranks are threads of this process. With `mpi`, `tcp` and `servers` a process is one rank. With
 * `servers` it never meets the others directly, only at parameter servers: its links have this rank alone. If parameter
 * servers own the slices, the exchange needs no link: link 0 is left empty (ops NULL). */
#ifndef GW_TRAIN_MEMBERS_H
#define GW_TRAIN_MEMBERS_H

#include "link/scheme.h"
#include "members/launcher.h"

#include <gradwire/gradwire.h>

struct gw_members_options {
    const char *link; /* a scheme's name; NULL: not given (gw_members_choose_link) */
    uint32_t workers; /* 0: not given. mpi: if given, it must be the number of ranks */
    uint32_t rank;    /* tcp, servers; GW_LAUNCHER_NO_RANK: not given */
    /* "HOST:PORT,...": parameter servers that own the slices; NULL: the members of link 0 own them */
    const char *servers;
    bool must_meet; /* true: links on which members never meet each other are refused */
    /* what the links are opened with, without rank and size; log and stop are called while servers are awaited, too */
    struct gw_link_request request;
};

struct gw_members {
    const struct gw_link_scheme *scheme;
    uint32_t size;                  /* how many workers there are in all */
    uint32_t first, count;          /* this process's ranks */
    struct gw_link_request request; /* what its links are opened with */
    char rendezvous[300];           /* the request's, if the environment says it */
    gw_ps_client_options servers;   /* the options of each rank's client; servers NULL: there are no servers */
    /* the clients of this process's ranks, once connected. NULL without servers, and with the scheme `servers` */
    gw_ps_client **clients;
    gw_link opened; /* the link from which begin knows the ranks; ops NULL: it was handed over, or there is none */
};

/* A scheme is a way in which members reach each other. --link names it. Schemes are the library's links
 * (gw_link_schemes), and `servers`, of which the library knows nothing. Options, help, errors and --version follow from
 * them. `open` of `servers` leaves link 0 empty. */
extern const struct gw_link_scheme gw_members_servers;

/* The i-th scheme, from 0. NULL: there are no more. */
const struct gw_link_scheme *gw_members_nth(size_t i);

/* Finds a scheme by its name. NULL: there is none. */
const struct gw_link_scheme *gw_members_find(const char *name);

/* True if a member never meets the others: its links have this rank alone. */
static inline bool gw_members_is_alone(const struct gw_link_scheme *scheme)
{
    return scheme == &gw_members_servers;
}

/* Lists the schemes that take all of these options, for a sentence: "local, tcp and mpi". alone: also schemes whose
 * members never meet each other. last: what stands before the last name. Returns `text`. */
const char *gw_members_list(unsigned takes, bool alone, const char *last, char *text, size_t capacity);

/* Chooses a link if none is given: local; or, if a launcher started several ranks (launcher.h), the link that joins
 * them. GW_ERR_ARGUMENT: no link joins them, so each rank would be a run of its own. */
gw_status gw_members_choose_link(struct gw_members_options *options);

/* Begins a process's membership. What tcp needs and the options lack is taken from the environment (launcher.h). Texts
 * of the options are borrowed until connect. options->link must be given. Errors: GW_ERR_ARGUMENT (the sentence says
 * what is missing), GW_ERR_UNSUPPORTED (a link that this build does not have). */
gw_status gw_members_begin(const struct gw_members_options *options, struct gw_members *members);

/* Joins the members by n_links links (with servers, at least two): links[k * count + i] becomes link k of rank first +
 * i, and its holder destroys it. It blocks until all are there. Errors: as of the links' own create functions. */
gw_status gw_members_connect(struct gw_members *members, gw_context *context, uint32_t n_links, gw_link *links);

/* Makes a client of the parameter servers. While servers do not answer, it says so in the log after a second, and asks
 * whether to stop. Errors: those of gw_ps_client_create; GW_ERR_CLOSED (the program was asked to stop). */
gw_status gw_members_client(const struct gw_members *members, const gw_ps_client_options *options, gw_ps_client **out);

/* A number for the machine on which this process runs: the same for all its processes, in containers too. If
 * GRADWIRE_MACHINE is set, to any text, the number is made of that. */
uint64_t gw_members_machine(void);

/* Ends the membership, after all links are destroyed. failed: if this is an MPI job, the other ranks are ended too, but
 * one second later, so that they can say why. */
void gw_members_end(struct gw_members *members, bool failed);

/* gw_members_begin for the scheme `servers`. */
gw_status gw_members_begin_alone(const struct gw_members_options *options, struct gw_members *members);

#endif
