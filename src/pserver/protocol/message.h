/* What clients and server say to each other: docs/pserver-protocol.md. A message is a head and, for pushes and answers
 * to pulls, a body of its own, so that large values travel without a copy. All numbers are little-endian.
 *
 *     offset  head of a request                   head of an answer
 *     0       magic "GWPQ"                        magic "GWPA"
 *     4       version u8                          version u8
 *     5       operation u8                        operation u8
 *     6       code u8 (type or method)            code u8 (type)
 *     7       0 u8                                flags u8
 *     8       id u64                              id u64 of the request
 *     16      number u64                          number u64
 *     24      timeout u32, ms                     status i32
 *     28      then what the operation needs       then fields, or the sentence of an error */
#ifndef GW_PSERVER_PROTOCOL_MESSAGE_H
#define GW_PSERVER_PROTOCOL_MESSAGE_H

#include "pserver/protocol/value.h"

#define GW_PS_VERSION 4
#define GW_PS_HEAD_BYTES 1024 /* no head is longer */
#define GW_PS_SENTENCE 512    /* of an error, its end included */
/* flag of an answer: what was asked for is done, and does not outlive the server's process, though it should */
#define GW_PS_IN_MEMORY 1

enum gw_ps_operation {
    /* number: rank; the first of every connection; code 1: it takes part in rounds from when it JOINs */
    GW_PS_HELLO = 1,
    /* code: type; key, shape, codec, optimizer. Answer's number: this rank's pushes to the key so far */
    GW_PS_INIT = 2,
    /* number: its how-many-th push to the key, from 1; code of those below; key, rate; body: the value; with
       GW_PS_PUSH_REFUSED in its place a refusal */
    GW_PS_PUSH = 3,
    /* code: method; number 1: parameters as they are now, whatever this rank has pushed; key, scale key (or none).
       Answer: code: type; number: round; shape, pushes; body: the value */
    GW_PS_PULL = 4,
    GW_PS_BYE = 5,   /* leaves in good order */
    GW_PS_WHO = 6,   /* an answer only: this connection has not said HELLO */
    GW_PS_AGREE = 7, /* body: lines "name = value" that must be the same from all workers */
    /* code 0: key; body: float32, the first parameters of a key with an optimizer. Those that came first stand; code 1:
       number: version; key; body: a value that is no round's. That of the highest version stands */
    GW_PS_PUT = 8,
    /* number: least round; code 1: others have begun; waits until it may take part in the exchange. Answer's number:
       from which round on */
    GW_PS_JOIN = 9,
    GW_PS_ADMIT = 10, /* number: round, rank: that worker takes part in the exchange from there on */
    /* Answer's number: the foremost open round of the exchange; code: of the flags below; body: a gw_ps_presence for
       each worker */
    GW_PS_MEMBERS = 11,
    /* an answer only, that answers nothing: workers wait to be admitted, and this one is to do it */
    GW_PS_ASK = 12,
    GW_PS_GET = 13, /* number: least version; key. Answer as PULL's, its number the version */
    /* number: of its pushes to the exchange's keys with an optimizer that are pending; refusal: UINT64_MAX: they count
       now; else they are refused */
    GW_PS_VERDICT = 14,
};
#define GW_PS_OPERATIONS 15 /* more than any of their numbers */

/* PUSH's code */
#define GW_PS_PUSH_PLAIN 0
#define GW_PS_PUSH_REFUSED 1 /* no value */
#define GW_PS_PUSH_PENDING 2 /* counts once a VERDICT says so */

/* HELLO's code */
#define GW_PS_HELLO_JOINS 1 /* rounds do not wait for this worker before it JOINs */
#define GW_PS_HELLO_AGAIN 2 /* this client has been welcome before */

/* MEMBERS */
#define GW_PS_HAS_BEGUN 1        /* a round has been whole */
#define GW_PS_KEEPS_PARAMETERS 2 /* the exchange's are on the server */

/* Keys of exchanges begin so: workers that JOIN take part in the rounds of all of them from one number on. */
#define GW_PS_EXCHANGE "exchange/"

struct gw_ps_request {
    enum gw_ps_operation operation;
    uint8_t code;
    uint64_t id, number;
    uint32_t timeout_ms;                                           /* PUSH, PULL: that it may wait for other workers */
    char key[GW_PS_MAX_NAME + 1], scale_key[GW_PS_MAX_NAME + 1];   /* "" if there is none */
    char codec[GW_PS_MAX_NAME + 1], optimizer[GW_PS_MAX_NAME + 1]; /* INIT; "": none */
    double rate; /* PUSH: learning rate of an optimizer; 0: the key's own */
    gw_ps_shape shape;
    uint64_t refusal;          /* PUSH of code 1: why there is no value; VERDICT: why they do not count */
    uint64_t incarnation;      /* HELLO: another number for every client ever */
    uint32_t place, n_servers; /* HELLO: which of how many servers this one is in the client's list, from 0 */
    uint32_t n_parts;          /* INIT, PULL, GET: servers that the key lies on, as far as the client knows */
    uint32_t rank;             /* ADMIT */
};

/* Whether the request has a second part. */
static inline bool gw_ps_request_has_value(const struct gw_ps_request *request)
{
    return (request->operation == GW_PS_PUSH && request->code != GW_PS_PUSH_REFUSED) ||
           request->operation == GW_PS_AGREE || request->operation == GW_PS_PUT;
}

struct gw_ps_reply {
    enum gw_ps_operation operation;
    uint8_t code, flags;
    uint64_t id, number;
    gw_status status;
    char sentence[GW_PS_SENTENCE]; /* if status is an error */
    gw_ps_shape shape;
    uint32_t n_pushes;
    /* HELLO's */
    uint32_t n_workers;
    uint64_t max_key_bytes;
    uint8_t mode; /* gw_ps_mode */
    uint32_t staleness, backup;
    uint32_t timeout_ms; /* after which a client that is not heard is gone */
};

/* Write a head of at most GW_PS_HEAD_BYTES; return its bytes. */
size_t gw_ps_request_write(uint8_t *at, const struct gw_ps_request *request);
size_t gw_ps_reply_write(uint8_t *at, const struct gw_ps_reply *reply);

/* Read a whole head, from anybody: GW_ERR_FRAME_CUT, _MAGIC, _VERSION or _FIELD if it is none. A request that is
 * refused still has its id, 0 if even that is missing. Take no memory. */
gw_status gw_ps_request_read(const void *bytes, size_t n_bytes, struct gw_ps_request *request);
gw_status gw_ps_reply_read(const void *bytes, size_t n_bytes, struct gw_ps_reply *reply);

#endif
