/* The messages of clients and server: docs/pserver-protocol.md. A message is a head, which is the header of a message
 * of net/connection.h. Messages that carry a value have it as their body. Code and number, which every head has, mean
 * something else in each operation. So the structures below have unions, with a name for each meaning. */
#ifndef GW_PSERVER_PROTOCOL_MESSAGE_H
#define GW_PSERVER_PROTOCOL_MESSAGE_H

#include "pserver/protocol/value.h"

#include <string.h>

#define GW_PS_MESSAGE 16 /* the kind of all these messages (net/connection.h) */
#define GW_PS_VERSION 6
#define GW_PS_HEAD_BYTES 1024 /* no head is longer */
#define GW_PS_SENTENCE 512    /* bytes of an error's sentence, with its closing 0 */
/* No round and no count of pushes is larger, so adding 1 cannot overflow. */
#define GW_PS_MOST_ROUNDS (1ull << 62)
/* flag of an answer: the request is done, but the result is only in memory, because the server cannot write its
 * snapshot folder */
#define GW_PS_IN_MEMORY 1
/* flag of an answer to INIT: the worker cannot push with the number n_pushed again, because that round went on without
 * it, or belongs to an earlier run */
#define GW_PS_IS_PAST 2

enum gw_ps_operation {
    GW_PS_HELLO = 1,    /* says who the client is. The answer says what the server is */
    GW_PS_INIT = 2,     /* makes a key */
    GW_PS_PUSH = 3,     /* pushes a value, or a refusal, which has no body */
    GW_PS_PULL = 4,     /* pulls a value */
    GW_PS_BYE = 5,      /* leaves in good order. The server answers by ending the connection */
    GW_PS_WHO = 6,      /* only an answer, and an error: the request could not be read */
    GW_PS_AGREE = 7,    /* its body has lines "name = value", which must be the same from all workers */
    GW_PS_PUT = 8,      /* puts a value that is no push */
    GW_PS_JOIN = 9,     /* waits until this worker may take part in the exchange */
    GW_PS_ADMIT = 10,   /* lets a worker take part in the exchange */
    GW_PS_MEMBERS = 11, /* asks who takes part. The answer's body is a gw_ps_presence for each worker, in a byte */
    GW_PS_ASK = 12,     /* only an answer, to no request: this worker is to admit those that wait */
    GW_PS_GET = 13,     /* waits for a value that was put with this version or a higher one */
    GW_PS_VERDICT = 14, /* says whether this worker's pending pushes, its nth to each key of the exchange, count */
};
#define GW_PS_OPERATIONS 15 /* more than any of their numbers */

/* push_kind */
#define GW_PS_PUSH_PLAIN 0
#define GW_PS_PUSH_REFUSED 1 /* the worker has no value that can be used: `refusal` says why */
#define GW_PS_PUSH_PENDING 2 /* counts once a VERDICT says so */

/* refusal of a VERDICT: none, the pushes count */
#define GW_PS_NOT_REFUSED UINT64_MAX

/* put_kind */
#define GW_PS_PUT_FIRST 0   /* float32, first parameters of a key with an optimizer. The first to come stay */
#define GW_PS_PUT_VERSION 1 /* a value that belongs to no round. The one with the highest version stays */

/* hello_flags */
#define GW_PS_HELLO_JOINS 1 /* rounds do not wait for this worker before it JOINs */
#define GW_PS_HELLO_AGAIN 2 /* this client has been welcome before */

/* run_flags */
#define GW_PS_HAS_BEGUN 1        /* a round has been whole */
#define GW_PS_KEEPS_PARAMETERS 2 /* the server has the parameters of the exchange */

/* Keys of exchanges begin so. A worker that JOINs takes part in the rounds of all of them from the same number on. */
#define GW_PS_EXCHANGE "exchange/"
static inline bool gw_ps_is_of_exchange(const char *key)
{
    return strncmp(key, GW_PS_EXCHANGE, sizeof GW_PS_EXCHANGE - 1) == 0;
}

struct gw_ps_request {
    enum gw_ps_operation operation;
    union {
        uint8_t code;        /* as the head has it */
        uint8_t hello_flags; /* HELLO */
        uint8_t type;        /* INIT: gw_ps_type */
        uint8_t push_kind;   /* PUSH */
        uint8_t method;      /* PULL: gw_ps_method */
        uint8_t put_kind;    /* PUT */
        /* JOIN: 1: on another server a run has begun, so somebody there must admit this worker */
        uint8_t others_have_begun;
    };
    uint64_t id;
    union {
        uint64_t number;     /* as the head has it */
        uint64_t hello_rank; /* HELLO: a worker's rank, or GW_PS_READER */
        uint64_t skipped;    /* INIT: rounds up to this number go on without this worker; 0: none */
        uint64_t nth;        /* PUSH, VERDICT: the number of this worker's push to the key, from 1 */
        uint64_t as_it_is;   /* PULL of parameters: 1: as they are now, whatever this worker has pushed */
        uint64_t version;    /* PUT, GET */
        uint64_t round;      /* JOIN: the first that it can begin with. ADMIT */
    };
    uint32_t timeout_ms;                                             /* how long it may wait for other workers */
    char key[GW_PS_MOST_NAME + 1], scale_key[GW_PS_MOST_NAME + 1];   /* "" if there is none */
    char codec[GW_PS_MOST_NAME + 1], optimizer[GW_PS_MOST_NAME + 1]; /* INIT; "": none */
    double rate; /* PUSH: learning rate of an optimizer; 0: the key's own */
    gw_ps_shape shape;
    uint64_t refusal;     /* PUSH of GW_PS_PUSH_REFUSED: why there is no value. VERDICT: why the pushes do not count */
    uint64_t incarnation; /* HELLO: a random number, different for every client */
    uint32_t place, n_servers; /* HELLO: this server is number `place`, from 0, of the servers in the client's list */
    uint32_t n_parts;          /* INIT, PULL, GET: on how many servers the key lies, as far as the client knows */
    uint32_t rank;             /* ADMIT */
};

/* True if the request has a body. */
static inline bool gw_ps_request_has_value(const struct gw_ps_request *request)
{
    return (request->operation == GW_PS_PUSH && request->push_kind != GW_PS_PUSH_REFUSED) ||
           request->operation == GW_PS_AGREE || request->operation == GW_PS_PUT;
}

/* True if its answer, unless that is an error, has a value. */
static inline bool gw_ps_request_gives_value(const struct gw_ps_request *request)
{
    return request->operation == GW_PS_PULL || request->operation == GW_PS_GET;
}

struct gw_ps_answer {
    enum gw_ps_operation operation;
    union {
        uint8_t code;      /* as the head has it */
        uint8_t type;      /* PULL, GET: gw_ps_type */
        uint8_t run_flags; /* MEMBERS */
    };
    uint8_t flags;
    uint64_t id;
    union {
        uint64_t number;   /* as the head has it */
        uint64_t n_pushed; /* INIT: this worker's pushes to the key so far */
        uint64_t nth;      /* PUSH, VERDICT: as in the request */
        uint64_t round;    /* PULL, JOIN, ADMIT; MEMBERS: the foremost open round of the exchange */
        uint64_t version;  /* GET */
        uint64_t refusal;  /* PULL with GW_ERR_NONFINITE: the least refusal of the round */
    };
    gw_status status;
    char sentence[GW_PS_SENTENCE]; /* if status is an error */
    gw_ps_shape shape;
    uint32_t n_pushes;
    /* HELLO's */
    uint32_t n_workers;
    uint64_t max_key_bytes;
    uint8_t mode; /* gw_ps_mode */
    uint32_t staleness, backup;
    uint32_t timeout_ms; /* if the server has not heard a client for so long, the client counts as gone */
};

/* Write a head of at most GW_PS_HEAD_BYTES, and return its length. */
size_t gw_ps_request_write(uint8_t *at, const struct gw_ps_request *request);
size_t gw_ps_answer_write(uint8_t *at, const struct gw_ps_answer *answer);

/* Read a whole head, which may come from anybody. GW_ERR_FRAME_CUT, _MAGIC, _VERSION or _FIELD: it is no head. The id
 * of a refused request is still set; it is 0 if even that is missing. They take no memory. */
gw_status gw_ps_request_read(const void *bytes, size_t n_bytes, struct gw_ps_request *request);
gw_status gw_ps_answer_read(const void *bytes, size_t n_bytes, struct gw_ps_answer *answer);

/* "sync", "async", or "stale". */
const char *gw_ps_mode_word(gw_ps_mode mode);

#endif
