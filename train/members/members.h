/* The members of a run: this process's place among all workers, and the links that join them.
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

#include "members/launcher.h"

#include <gradwire/gradwire.h>

#define GW_MEMBERS_NO_RANK GW_LAUNCHER_NO_RANK

struct gw_members_options {
    const char *link;       /* a scheme's name; NULL: not given (gw_members_choose_link) */
    uint32_t workers;       /* 0: not given. mpi: if given, it must be the number of ranks */
    uint32_t rank;          /* tcp, servers; GW_MEMBERS_NO_RANK: not given */
    const char *rendezvous; /* tcp: HOST:PORT; NULL: not given */
    const char *advertise, *keys;
    /* "HOST:PORT,...": parameter servers that own the slices; NULL: the members of link 0 own them */
    const char *servers;
    bool insecure;
    uint32_t spin_us; /* tcp: gw_tcp_options.spin_us */
    bool must_meet;   /* true: links on which members never meet each other are refused */
    uint32_t timeout_ms;
    void (*log)(const char *line, void *user); /* NULL: none */
    bool (*stop)(void *user);                  /* tcp: called while members meet; NULL: never */
    void *user;                                /* is given to both functions */
};

/* Options that only some schemes take. */
enum {
    GW_MEMBERS_TAKES_RANK = 1,
    GW_MEMBERS_TAKES_RENDEZVOUS = 2,
    GW_MEMBERS_TAKES_ADVERTISE = 4,
    GW_MEMBERS_TAKES_KEYS = 8,
    GW_MEMBERS_TAKES_INSECURE = 16,
    GW_MEMBERS_TAKES_SPIN = 32
};

struct gw_members {
    const struct gw_members_scheme *scheme;
    uint32_t size;         /* how many workers there are in all */
    uint32_t first, count; /* this process's ranks */
    gw_tcp_options tcp;
    char rendezvous[300];
    gw_ps_client_options servers; /* the options of each rank's client; servers NULL: there are no servers */
    /* the clients of this process's ranks, once connected. NULL without servers, and with the scheme `servers` */
    gw_ps_client **clients;
    gw_link mpi_first; /* mpi: the link that begin made; ops NULL: it was handed over, or there is none */
};

/* A scheme: a way in which members reach each other. --link names it. For a new scheme add a file, and a line in
 * gw_members_schemes. Options, help, errors and --version follow from that. */
struct gw_members_scheme {
    const char *name;
    const char *help;    /* the end of a sentence about the members: "they are threads of this process" */
    bool is_one_process; /* all members are threads of this process */
    bool is_alone;       /* a member never meets the others: its links have this rank alone */
    bool has_launcher;   /* the launcher knows how many members there are */
    unsigned takes;      /* GW_MEMBERS_TAKES_... */
    /* Writes the name and version of the library that it uses, or "". False: this build does not have the scheme, and
     * begin may be NULL. */
    bool (*version)(char *text, size_t capacity);
    /* Fills in size, first and count, and the fields that connect needs. The scheme and the servers of `members` are
     * set. */
    gw_status (*begin)(const struct gw_members_options *options, struct gw_members *members);
    /* As gw_members_connect, for links without parameter servers. */
    gw_status (*connect)(struct gw_members *members, gw_context *context, uint32_t n_links, gw_link *links);
    void (*end)(struct gw_members *members, bool failed); /* NULL: there is nothing to do */
};

extern const struct gw_members_scheme gw_members_local, gw_members_tcp, gw_members_mpi, gw_members_servers;
extern const struct gw_members_scheme *const gw_members_schemes[]; /* all of them; the last is NULL */

/* Finds a scheme by its name. NULL: there is none. */
const struct gw_members_scheme *gw_members_find(const char *name);

/* Lists the schemes that take all of these options, for a sentence: "local, tcp and mpi". alone: also schemes whose
 * members never meet each other. last: what stands before the last name. Returns `text`. */
const char *gw_members_list(unsigned takes, bool alone, const char *last, char *text, size_t capacity);

/* Chooses a link if none is given: local; or, if a launcher started several ranks (launcher.h), the link that joins
 * them. GW_ERR_ARGUMENT: no link joins them. Without this error, each rank would be a run of its own and know nothing
 * of the others. */
gw_status gw_members_choose_link(struct gw_members_options *options);

/* Begins a process's membership. If tcp's rank, number of workers or rendezvous is not given, it is taken from the
 * environment (gw_launcher_place, gw_launcher_meeting). Texts of the options are borrowed until connect. options->link
 * must be given. Errors: GW_ERR_ARGUMENT (the sentence says what is missing), GW_ERR_UNSUPPORTED (a link that this
 * build does not have). */
gw_status gw_members_begin(const struct gw_members_options *options, struct gw_members *members);

/* Joins the members by n_links links (with servers, at least two). It blocks until all are there. Errors: as of the
 * links' own create functions. */
gw_status gw_members_connect(struct gw_members *members, gw_context *context, uint32_t n_links, gw_link *links);

/* A number for the machine on which this process runs. All processes of a machine get the same number, in containers
 * too. Different machines most likely get different numbers. If GRADWIRE_MACHINE is set, to any text, the number is
 * made of that. */
uint64_t gw_members_machine(void);

/* Ends the membership, after all links are destroyed. failed: if this is an MPI job, the other ranks are ended too, but
 * one second later, so that they can say why. */
void gw_members_end(struct gw_members *members, bool failed);

/* ---- for schemes -------------------------------------------------------------------------------- */

/* Writes one line for all ranks to the log: only rank 0 of those that the launcher started writes it. */
void gw_members_say(const struct gw_members_options *options, const struct gw_launcher *by, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A `connect` for links that are made one by one. */
gw_status gw_members_connect_each(struct gw_members *members, gw_context *context, uint32_t n_links, gw_link *links,
                                  gw_status (*one)(struct gw_members *, gw_context *, gw_link *));

#endif
