/* The inside of gw_link_open: what an address says, and the table of links. A new link is a folder and a row there. */
#ifndef GW_LINK_SCHEME_H
#define GW_LINK_SCHEME_H

#include <gradwire/link.h>

/* What an address and gw_link_options say, for the link's own `open`. 0 and NULL: not given. Texts are borrowed. */
struct gw_link_request {
    uint32_t rank, size;          /* local: links for all `size` ranks are asked for */
    const char *rendezvous;       /* "HOST:PORT" */
    const char *advertise, *keys; /* a host; a folder */
    bool insecure;                /* other machines may come without keys */
    uint32_t timeout_ms, spin_us; /* timeout_ms 0: 60,000 */
    void (*log)(const char *line, void *user);
    void *log_user;
    bool (*stop)(void *user);
    void *stop_user;
};

/* What an address holds: a rank and a rendezvous if the link takes them, and the others if the user wants. */
enum {
    GW_LINK_RANK = 1, /* rank= and size= */
    GW_LINK_RENDEZVOUS = 2,
    GW_LINK_ADVERTISE = 4,
    GW_LINK_KEYS = 8,
    GW_LINK_INSECURE = 16,
    GW_LINK_SPIN = 32,
    GW_LINK_TIMEOUT = 64
};

/* Whose ranks a process has. */
enum gw_link_ranks {
    GW_LINK_RANKS_HERE,  /* all of them, as threads */
    GW_LINK_RANKS_TOLD,  /* one, which somebody tells it */
    GW_LINK_RANKS_KNOWN, /* one, which the link knows. Its address may have another one, with rank= and size= */
};

struct gw_link_scheme {
    const char *name; /* what stands before the colon */
    const char *help; /* the end of a sentence about the members: "they are threads of this process" */
    enum gw_link_ranks ranks;
    unsigned takes; /* GW_LINK_... */
    /* Writes the name and version of the library that it uses, or "". False: this build does not have the link. */
    bool (*version)(char *text, size_t capacity);
    /* Fills links[0..n_links), for local links[0..n_links * size). If it fails, links that it has made may stay there.
     */
    gw_status (*open)(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links);
    void (*end)(bool failed); /* ends what all its links share, when they are destroyed; NULL: nothing */
};

extern const struct gw_link_scheme gw_link_schemes[];
extern const size_t gw_link_n_schemes;

#define GW_LINK_MOST 64u            /* links in one call */
#define GW_LINK_ADDRESS_BYTES 4096u /* of an address, with the closing 0 */

/* Reads an address. Its texts are in `text`, which has GW_LINK_ADDRESS_BYTES. Errors: GW_ERR_SPEC. */
gw_status gw_link_read_address(const char *address, char *text, const struct gw_link_scheme **scheme,
                               struct gw_link_request *request);

/* Opens links of a scheme: n_links of them, or n_links * request->size if all ranks are here. After a failure all have
 * ops NULL. */
gw_status gw_link_open_scheme(gw_context *context, const struct gw_link_scheme *scheme,
                              const struct gw_link_request *request, uint32_t n_links, gw_link *links);

/* ---- what the rows name ---- */

gw_status gw_local_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links);
bool gw_tcp_version(char *text, size_t capacity);
gw_status gw_tcp_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links);
bool gw_mpi_version(char *text, size_t capacity);
gw_status gw_mpi_load_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links,
                           gw_link *links);
void gw_mpi_load_end(bool failed);

#endif
