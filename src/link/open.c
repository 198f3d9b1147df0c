/* Opens links by an address, and has the table of links. */
#include "base/append.h"
#include "base/error.h"
#include "base/host.h"
#include "base/options.h"
#include "base/spec.h"
#include "link/scheme.h"

#include <gradwire/codec.h>

#include <string.h>

static bool no_version(char *text, size_t capacity)
{
    (void)capacity;
    *text = 0;
    return true;
}

const struct gw_link_scheme gw_link_schemes[] = {
    {.name = "local",
     .help = "they are threads of this process",
     .ranks = GW_LINK_RANKS_HERE,
     .version = no_version,
     .open = gw_local_open},
    {.name = "tcp",
     .help = "they are processes that meet over TCP (gradwire launch starts them)",
     .ranks = GW_LINK_RANKS_TOLD,
     .takes = GW_LINK_RANK | GW_LINK_RENDEZVOUS | GW_LINK_ADVERTISE | GW_LINK_KEYS | GW_LINK_INSECURE | GW_LINK_SPIN |
              GW_LINK_TIMEOUT,
     .version = gw_tcp_version,
     .open = gw_tcp_open},
    {.name = "mpi",
     .help = "they are ranks under mpirun or srun (the default there)",
     .ranks = GW_LINK_RANKS_KNOWN,
     .version = gw_mpi_version,
     .open = gw_mpi_load_open,
     .end = gw_mpi_load_end},
};
const size_t gw_link_n_schemes = sizeof gw_link_schemes / sizeof *gw_link_schemes;

/* ---- addresses ---------------------------------------------------------------------------------------------- */

enum key { RANK, SIZE, KEYS, ADVERTISE, INSECURE, SPIN, TIMEOUT, N_KEYS };

static const struct {
    const char *name;
    unsigned bit;  /* GW_LINK_... */
    uint32_t most; /* numbers: the largest; 0: a text */
} all_keys[N_KEYS] = {
    [RANK] = {"rank", GW_LINK_RANK, GW_MAX_WORKERS - 1},
    [SIZE] = {"size", GW_LINK_RANK, GW_MAX_WORKERS},
    [KEYS] = {"keys", GW_LINK_KEYS, 0},
    [ADVERTISE] = {"advertise", GW_LINK_ADVERTISE, 0},
    [INSECURE] = {"insecure", GW_LINK_INSECURE, 1},
    [SPIN] = {"spin_us", GW_LINK_SPIN, 1000000},
    [TIMEOUT] = {"timeout_ms", GW_LINK_TIMEOUT, UINT32_MAX},
};

struct reading {
    const char *what;          /* "the tcp address", for sentences */
    const char *names[N_KEYS]; /* the keys that the link takes */
    enum key keys[N_KEYS];     /* which these are */
    struct gw_link_request *into;
    uint32_t numbers[N_KEYS];
    bool given[N_KEYS];
    char *text; /* where the next text goes. All are no longer than the address */
};

static int hexadecimal(char digit)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF", *at = digit ? strchr(digits, digit) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* Copies a text without its escapes: %41 is A. Signs that end or begin something elsewhere in addresses need one. */
static gw_status take_text(struct reading *r, const char *key, const char *value, const char **out)
{
    *out = r->text;
    if (!*value)
        return gw_fail(GW_ERR_SPEC, "%s: %s is empty; write %s=TEXT, or leave it out", r->what, key, key);
    while (*value) {
        int sign = (unsigned char)*value;
        if (sign == '%') {
            const int high = hexadecimal(value[1]), low = high < 0 ? -1 : hexadecimal(value[2]);
            sign = low < 0 ? 0 : high * 16 + low;
            if (sign == 0)
                return gw_fail(GW_ERR_SPEC,
                               "%s: %s goes on with \"%.20s\", and a %% stands before the two hexadecimal digits of a "
                               "sign; a %% itself is written %%25",
                               r->what, key, value);
            value += 2;
        } else if (sign <= ' ' || sign == 0x7f || strchr("?#", sign)) {
            return gw_fail(GW_ERR_SPEC, "%s: %s goes on with \"%.20s\"; write its first sign as %%%02X", r->what, key,
                           value, (unsigned)sign);
        }
        value++;
        *r->text++ = (char)sign;
    }
    *r->text++ = 0;
    return GW_OK;
}

static gw_status take_key(void *user, size_t nth, const char *value)
{
    struct reading *r = user;
    const enum key key = r->keys[nth];
    const char *name = r->names[nth];
    const uint32_t least = key == SIZE || key == TIMEOUT ? 1 : 0, most = all_keys[key].most;
    uint64_t number;
    r->given[key] = true;
    if (key == KEYS || key == ADVERTISE)
        return take_text(r, name, value, key == KEYS ? &r->into->keys : &r->into->advertise);
    if (!gw_spec_count(value, least, most, &number))
        return gw_fail(GW_ERR_SPEC, "%s: %s is \"%.40s\", and must be a whole number from %u to %u", r->what, name,
                       value, least, most);
    r->numbers[key] = (uint32_t)number;
    return GW_OK;
}

/* Finds the row that an address names. */
static gw_status find_scheme(const char *address, const struct gw_link_scheme **scheme)
{
    const size_t length = strcspn(address, ":");
    char forms[100] = "";
    for (size_t i = 0; i < gw_link_n_schemes; i++) {
        const char *name = gw_link_schemes[i].name;
        if (address[length] && strlen(name) == length && memcmp(name, address, length) == 0) {
            *scheme = &gw_link_schemes[i];
            return GW_OK;
        }
        gw_append(forms, sizeof forms, "%s%s:", i == 0 ? "" : i + 1 < gw_link_n_schemes ? ", " : " or ", name);
    }
    return gw_fail(GW_ERR_SPEC, "the address \"%.80s\" names no link; it must begin with %s", address, forms);
}

/* Reads "//HOST:PORT" at `at`, up to the end or a question mark, if the link has such a part. */
static gw_status read_rendezvous(struct reading *r, const struct gw_link_scheme *scheme, const char *at)
{
    const size_t length = strcspn(at, "?");
    char host[GW_HOST_BYTES];
    uint32_t port;
    if (!(scheme->takes & GW_LINK_RENDEZVOUS))
        return length == 0
                   ? GW_OK
                   : gw_fail(GW_ERR_SPEC, "%s has no host or name; write %s:%s", r->what, scheme->name,
                             scheme->ranks == GW_LINK_RANKS_KNOWN ? ", and keys behind a question mark" : " alone");
    if (length > 2 && memcmp(at, "//", 2) == 0) {
        memcpy(r->text, at + 2, length - 2);
        r->text[length - 2] = 0;
        if (gw_host_split(r->text, host, &port) && port >= 1 && port <= 65535) {
            r->into->rendezvous = r->text;
            r->text += length - 1;
            return GW_OK;
        }
    }
    return gw_fail(
        GW_ERR_SPEC,
        "%s must go on with //HOST:PORT, where rank 0 listens: tcp://node7:29500 or tcp://[::1]:29500, with a "
        "port from 1 to 65535 and nothing but keys behind it",
        r->what);
}

/* Checks what must stand together, and gives the numbers to the request. */
static gw_status finish(struct reading *r, const struct gw_link_scheme *scheme)
{
    const bool whole = r->given[RANK] && r->given[SIZE];
    if (!whole && (r->given[RANK] || r->given[SIZE] || scheme->takes & GW_LINK_RANK))
        return gw_fail(GW_ERR_SPEC, "%s does not say %s=; %s", r->what, r->given[RANK] ? "size" : "rank",
                       scheme->takes & GW_LINK_RANK
                           ? "write ?rank=R&size=N, with N the number of members and R this one's, from 0"
                           : "write both rank= and size=, or neither");
    if (whole && r->numbers[RANK] >= r->numbers[SIZE])
        return gw_fail(GW_ERR_SPEC, "%s: rank is %u and size is %u; ranks are 0 to %u", r->what, r->numbers[RANK],
                       r->numbers[SIZE], r->numbers[SIZE] - 1);
    struct gw_link_request *into = r->into;
    into->rank = r->numbers[RANK], into->size = r->numbers[SIZE];
    into->insecure = r->numbers[INSECURE];
    into->timeout_ms = r->numbers[TIMEOUT], into->spin_us = r->numbers[SPIN];
    return GW_OK;
}

gw_status gw_link_read_address(const char *address, char *text, const struct gw_link_scheme **scheme,
                               struct gw_link_request *request)
{
    char what[40];
    struct reading r = {.what = what, .into = request, .text = text};
    *request = (struct gw_link_request){.rank = 0};
    if (strlen(address) >= GW_LINK_ADDRESS_BYTES)
        return gw_fail(GW_ERR_SPEC, "an address has at most %u bytes, and this one has %zu", GW_LINK_ADDRESS_BYTES - 1,
                       strlen(address));
    GW_TRY(find_scheme(address, scheme));
    what[0] = 0;
    gw_append(what, sizeof what, "the %s address", (*scheme)->name);
    const char *at = address + strlen((*scheme)->name) + 1, *question = strchr(at, '?');
    GW_TRY(read_rendezvous(&r, *scheme, at));
    struct gw_spec keys = {.what = what, .keys = r.names, .between = '&', .take = take_key, .user = &r};
    for (enum key k = 0; k < N_KEYS; k++)
        if ((*scheme)->takes & all_keys[k].bit || (k <= SIZE && (*scheme)->ranks == GW_LINK_RANKS_KNOWN))
            r.keys[keys.n_keys] = k, r.names[keys.n_keys++] = all_keys[k].name;
    if (question && !question[1])
        return gw_fail(GW_ERR_SPEC,
                       "%s: nothing stands behind the question mark; write key=value there, or leave it out", what);
    GW_TRY(gw_spec_parse(&keys, question ? question + 1 : NULL));
    return finish(&r, *scheme);
}

/* ---- links -------------------------------------------------------------------------------------------------- */

gw_status gw_link_open_scheme(gw_context *context, const struct gw_link_scheme *scheme,
                              const struct gw_link_request *request, uint32_t n_links, gw_link *links)
{
    const size_t n = n_links * (scheme->ranks == GW_LINK_RANKS_HERE && request->size ? (size_t)request->size : 1);
    memset(links, 0, n * sizeof *links);
    gw_status status = scheme->open(context, request, n_links, links);
    for (size_t i = 0; status < 0 && i < n; i++)
        gw_link_destroy(&links[i]);
    return status;
}

gw_status gw_link_open(gw_context *context, const char *address, const gw_link_options *options, uint32_t n_links,
                       gw_link *links)
{
    const struct gw_link_scheme *scheme;
    struct gw_link_request request;
    gw_link_options taken = {.struct_bytes = sizeof taken};
    char text[GW_LINK_ADDRESS_BYTES];
    if (n_links == 0 || n_links > GW_LINK_MOST)
        return gw_fail(GW_ERR_ARGUMENT, "%u links asked for; 1 to %u are possible", n_links, GW_LINK_MOST);
    if (links)
        memset(links, 0, n_links * sizeof *links);
    if (!address || !links)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_open: %s is NULL", links ? "address" : "links");
    if (options)
        GW_TRY(GW_TAKE_OPTIONS(gw_link_options, options, &taken));
    GW_TRY(gw_link_read_address(address, text, &scheme, &request));
    request.log = taken.log, request.log_user = taken.log_user;
    request.stop = taken.stop, request.stop_user = taken.stop_user;
    return gw_link_open_scheme(context, scheme, &request, n_links, links);
}
