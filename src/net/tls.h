/* TLS 1.3 on one connection. Both sides show a certificate, and each must be listed by the other (keys.h). */
#ifndef GW_NET_TLS_H
#define GW_NET_TLS_H

#include "net/keys.h"

#include <stddef.h>

/* Why keys do not fit. */
enum gw_net_refusal {
    GW_NET_NO_REFUSAL,
    GW_NET_NOT_LISTED,  /* this side does not allow the other one's certificate */
    GW_NET_TURNED_AWAY, /* the other side does not allow this one's */
    GW_NET_WITHOUT_TLS, /* the other side does not speak TLS */
    GW_NET_MET_TLS      /* the other side speaks TLS, and this one does not */
};

struct gw_net_tls {
    struct ssl_st *ssl; /* OpenSSL's SSL */
    struct gw_net_keys *keys;
    struct gw_net_identity peer; /* the certificate that the other side has shown. All zero before it has */
    enum gw_net_refusal refusal; /* why the handshake failed */
    int error;                   /* the errno of what ended the session; 0: the other side ended it in order */
    const char *host;            /* whom this side has dialled, if its certificate must be for that name; else NULL */
    int fd;
    bool dialled;
    bool wants_write; /* the handshake waits until it can write */
    /* What was received and OpenSSL has not read, and what OpenSSL has written and was not sent. NULL: the other side
     * is not known yet */
    uint8_t *in, *out;
    size_t in_at, in_end, out_at, out_end;
    size_t n_sealed;    /* how many bytes of the caller are in `out` */
    uint32_t n_records; /* how many were written with the key of now */
    bool gathers;       /* records go to `out` */
    bool stays;         /* nothing is received from the socket now */
    bool asked;         /* the other side has asked for new keys */
};

/* Makes a session over a connected or connecting socket, which stays the caller's. dialled: this side has dialled.
 * host: if a CA alone says whom to believe, the other side's certificate must be for this name; NULL: for any. It lives
 * as long as the session. Errors: GW_ERR_MEMORY. */
gw_status gw_net_tls_new(struct gw_net_keys *keys, int fd, bool dialled, const char *host, struct gw_net_tls **out);
/* NULL is allowed. */
void gw_net_tls_free(struct gw_net_tls *tls);

/* Goes on with the handshake, when the socket is connected. GW_OK, GW_NOT_YET, or GW_ERR_PEER with a sentence. */
gw_status gw_net_tls_handshake(struct gw_net_tls *tls);

/* Reads up to n_bytes. from_socket false: of what was received before. *n_read 0: nothing has come. Errors:
 * GW_ERR_PEER; `error` says which. */
gw_status gw_net_tls_read(struct gw_net_tls *tls, void *to, size_t n_bytes, bool from_socket, size_t *n_read);

/* True if bytes were read from the socket that gw_net_tls_read has not handed over. */
bool gw_net_tls_has_more(const struct gw_net_tls *tls);

/* Writes a part of a head and the bytes behind it, of which n_sent have been written in all. *n_written 0: it cannot
 * write now, and must be called again with the same bytes. GW_ERR_PEER: it cannot write any more; reading tells why. */
gw_status gw_net_tls_write(struct gw_net_tls *tls, const uint8_t *head, size_t n_head, const void *bytes,
                           size_t n_bytes, size_t n_sent, size_t *n_written);

/* After so many records a side takes a new key. Tests lower it. */
extern uint32_t gw_net_tls_records_a_key;

#endif
