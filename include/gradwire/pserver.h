/* The parameter server keeps tensors by key (PaddlePaddle/Paddle#6599). Workers push values to a key, and pull one
 * value that a reduce method makes of all pushes.
 *
 * A key has a type and a shape. Each worker's first push to a key belongs to the key's round 1, its second to round 2,
 * and so on. A round is whole when every worker has pushed. A pull names a reduce method. Its answer is made of all
 * workers' pushes in one round, the round of the asking worker's last push:
 *
 *     gw_ps_init(client, "max_abs_grad", &one_float32);
 *     gw_ps_push(client, "max_abs_grad", &x, sizeof x);
 *     gw_ps_pull(client, "max_abs_grad", GW_PS_MAX, NULL, &value);
 *
 * Programs look at the status of each of these calls, and free the value. The same pushes may be pulled more than once,
 * with different methods. */
#ifndef GRADWIRE_PSERVER_H
#define GRADWIRE_PSERVER_H

#include <gradwire/context.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_PS_MOST_DIMS 8
#define GW_PS_MOST_NAME 255 /* bytes of a key's name */

/* Types of keys. The numbers are a part of the protocol. A number is never used again for another type. */
typedef enum gw_ps_type {
    GW_PS_FLOAT32 = 1,
    GW_PS_FLOAT16 = 2,
    GW_PS_BFLOAT16 = 3,
    GW_PS_INT32 = 4,
    GW_PS_INT64 = 5,
    GW_PS_UINT8 = 6, /* also four 2-bit codes a byte, lowest element in the lowest bits: 00 = -1, 01 = 0, 10 = +1 */
    /* a push is one or more Gradwire frames (codec.h), back to back. Together they have as many elements as the shape.
     * All workers push the same number of frames, and of the same slices */
    GW_PS_FRAME = 7,
} gw_ps_type;

/* How a pull makes one value of the workers' pushes. Pushes are taken in the order of ranks, and not in the order in
 * which they came.
 *
 *   max, min        plain types: a value of the key's type
 *   sum             float types: added in float64, rounded once to the key's type
 *                   integers: int64, refused if the sum does not fit
 *   mean            float types: the sum in float64 divided by their number, rounded once
 *                   integers: float32, the exact sum divided by their number, rounded once
 *   latest          any type: the push that came last; waits for no round
 *   decode_sum      uint8: float32, four times as many elements: the sum of the codes
 *                   frames: float32, the sum of what they hold
 *   decode_average  uint8: float32, the sum of the codes divided by the number of pushes, both exact
 *                   frames: for each frame of a push, a frame of the average (gw_reduce)
 *   parameters      keys with an optimizer (gw_ps_key_options): float32 of the key's shape, what the pushes so far
 *                   have made of the parameters
 *   median          float types: a value of the key's type, the middle of all pushes, element by element; of an even
 *                   number the mean of the two in the middle, in float32. A NaN counts as missing. As long as fewer
 *                   than half of the pushes are wrong, it lies between the smallest and the largest of the others
 *
 * A NaN in one push makes the max, min, sum and mean of that element a NaN, and so do both infinities in a sum or mean.
 * Else an infinity is a number like others, the largest or the smallest. A median is a NaN only if no push is finite. A
 * NaN that these methods give has always the same bits. Keys with an optimizer take no NaN and no infinity.
 *
 * If a scale_key is named, decode_sum and decode_average of uint8 are multiplied by that key's maximum in the same
 * round. With S the sum of the codes, s this maximum and N the number of pushes, the average is then S * (s/N). s/N is
 * rounded to float32 first, as in frames. */
typedef enum gw_ps_method {
    GW_PS_MAX = 1,
    GW_PS_MIN = 2,
    GW_PS_SUM = 3,
    GW_PS_MEAN = 4,
    GW_PS_LATEST = 5,
    GW_PS_DECODE_SUM = 6,
    GW_PS_DECODE_AVERAGE = 7,
    GW_PS_PARAMETERS = 8,
    GW_PS_MEDIAN = 9,
} gw_ps_method;

/* The word for a type: "float32", "float16", "bfloat16", "int32", "int64", "uint8" or "frame". NULL: the number is no
 * type. The word lives as long as the program. Any thread. */
GW_API const char *gw_ps_type_name(gw_ps_type type);

/* The word for a method, as it is spelled above. NULL: the number is no method. The word lives as long as the program.
 * Any thread. */
GW_API const char *gw_ps_method_name(gw_ps_method method);

typedef struct gw_ps_shape {
    uint32_t n_dims;                /* 0: one element */
    uint64_t dims[GW_PS_MOST_DIMS]; /* each is 1 or more, and their product at most 2^48 */
} gw_ps_shape;

/* ---- server ---------------------------------------------------------------------------------------------- */

/* The mode of servers: over which pushes they answer a pull, and when. */
typedef enum gw_ps_mode {
    GW_PS_SYNC, /* over one round, once all workers have pushed to it */
    /* over each worker's last push, once no worker is more than `staleness` pushes behind the worker that asks */
    GW_PS_STALE,
    GW_PS_ASYNC, /* over each worker's last push, at once */
} gw_ps_mode;

/* What happens to the other workers if a worker is away: its connection has ended, or its machine no longer answers. */
typedef enum gw_ps_missing {
    /* rounds wait for it, until it is back under its rank, or until the deadlines of the waiting calls pass */
    GW_PS_MISSING_WAIT,
    /* after away_ms rounds go on without it: an open round is reduced over those that have pushed. It may come back */
    GW_PS_MISSING_CONTINUE,
    /* after away_ms every worker that waits for it, and every later one, gets GW_ERR_CLOSED, with its rank */
    GW_PS_MISSING_STOP,
} gw_ps_missing;

typedef struct gw_ps_server gw_ps_server;

typedef struct gw_ps_server_options {
    size_t struct_bytes; /* sizeof(gw_ps_server_options) */
    const char *listen;  /* "HOST:PORT", an IPv6 address in brackets; port 0: any free port */
    uint32_t n_workers;  /* 1 .. GW_MAX_WORKERS */
    gw_ps_mode mode;
    uint32_t staleness; /* used with GW_PS_STALE; else ignored */
    gw_ps_missing missing;
    uint32_t away_ms; /* how long a worker may be away before `missing` applies; 0: 2,000 */
    /* with GW_PS_MISSING_CONTINUE: the first round waits until this many workers are there; 0: until all are */
    uint32_t min_workers;
    /* with GW_PS_SYNC: a round does not wait for the slowest `backup` workers. If they push to that round later, the
     * push is dropped. Less than n_workers */
    uint32_t backup;
    /* the folder of the server's identity (gradwire keys new). Traffic is then encrypted. A client is refused if its
     * identity is not listed in the folder's allowed/, or is the server's own. If it is removed there, its connection
     * is dropped within two seconds. NULL: none */
    const char *keys;
    bool insecure; /* true: without an identity, addresses other than loopback are legal too */
    /* a client's machine counts as gone if it has not answered for so many milliseconds; 0: 10,000 */
    uint32_t timeout_ms;
    uint64_t max_keys;      /* how many keys the server keeps at most; 0: 1,048,576 */
    uint64_t max_key_bytes; /* the most bytes of one value; 0: 1 GiB */
    uint64_t max_bytes;     /* the most bytes of all that the server keeps; 0: three quarters of the machine's memory */
    uint32_t max_clients;   /* how many clients may be connected at a time; 0: 1,024 beside the workers */
    /* a folder in which the server keeps all that it has acknowledged. It is made if it is missing. If the server is
     * killed and starts again with the same options, it goes on where it was. A folder belongs to one server. NULL:
     * nothing outlives the process */
    const char *snapshot;
    /* gets a line "event key=value ..." for each thing that happens. The server's threads call it. NULL: no log */
    void (*log)(const char *line, void *user);
    void *log_user;
} gw_ps_server_options;

/* Creates a server. It listens, but serves nobody before gw_ps_server_run. The caller destroys *out with
 * gw_ps_server_destroy. Errors: GW_ERR_ARGUMENT, GW_ERR_SYSTEM (the address cannot be used; a key cannot be read; the
 * snapshot folder is damaged, or cannot be used), GW_ERR_FRAME_CHECKSUM (what is kept there was altered),
 * GW_ERR_MEMORY, GW_ERR_UNSUPPORTED (a build without OpenSSL; `snapshot` in a build without SQLite). */
GW_API GW_MUST_CHECK gw_status gw_ps_server_create(gw_context *context, const gw_ps_server_options *options,
                                                   gw_ps_server **out);

/* The address "HOST:PORT" at which the server listens. The text lives as long as the server. NULL for NULL. */
GW_API const char *gw_ps_server_address(const gw_ps_server *server);

/* Serves until gw_ps_server_stop. Then it answers the requests that have come. One thread
 * calls it. If a client does something wrong, the client gets an error, the log gets a line, and the server goes on.
 * Errors: GW_ERR_SYSTEM, also if the last changes could not be kept in the folder. */
GW_API GW_MUST_CHECK gw_status gw_ps_server_run(gw_ps_server *server);

/* Makes gw_ps_server_run return. NULL is allowed. Any thread, and signal handlers. */
GW_API void gw_ps_server_stop(gw_ps_server *server);

/* Destroys the server. Call it after gw_ps_server_run has returned, or if it never ran. NULL is allowed. */
GW_API void gw_ps_server_destroy(gw_ps_server *server);

/* ---- client ---------------------------------------------------------------------------------------------- */

#define GW_PS_READER UINT32_MAX /* rank of a client that is no worker: it may pull, not push */

typedef struct gw_ps_client gw_ps_client;

typedef struct gw_ps_client_options {
    size_t struct_bytes; /* sizeof(gw_ps_client_options) */
    /* "HOST:PORT", or up to 64 of them separated by commas. Every client must have the same list in the same order; the
       servers refuse a client with another list */
    const char *servers;
    uint32_t rank;    /* 0 .. n_workers-1, and only one client for each rank; or GW_PS_READER */
    const char *keys; /* folder of this client's identity (gw_keys_new); NULL: not encrypted */
    /* a call gives up after so many milliseconds; 0: 60,000. A server that is there then says for whom it waits. If
     * it says nothing, the call gives up 2 seconds later */
    uint32_t timeout_ms;
    /* true: rounds wait for this worker only after gw_ps_join. If it was left out, it must call gw_ps_join again.
     * false: rounds wait for it from its first connection on, and again as soon as it is back */
    bool joins;
    /* gw_ps_client_create gives up after so many milliseconds if no connection can be made: the port is closed, or
     * nobody is there. At most timeout_ms; 0: 3,000. If a client may start before its servers, set it to timeout_ms */
    uint32_t connect_ms;
    bool no_wait; /* gw_ps_client_create returns before the servers have answered; gw_ps_client_meet waits for them */
} gw_ps_client_options;

/* The value of a pull or a get. gw_ps_value_free frees `bytes`. */
typedef struct gw_ps_value {
    gw_ps_type type;
    gw_ps_shape shape;
    /* the round of the pushes; with GW_PS_STALE and GW_PS_ASYNC the number of the asking worker's last push */
    uint64_t round;
    uint32_t n_pushes; /* of how many pushes it is made; of parts on several servers the fewest */
    void *bytes;
    size_t n_bytes;
    void *hold; /* used by the library only */
} gw_ps_value;

/* Creates a client. It connects to the servers, and says who it is. Only one thread at a time may use a client. The
 * caller destroys *out with gw_ps_client_destroy. Errors: GW_ERR_ARGUMENT (also if one side has an identity and the
 * other has none, or a server does not allow this one); GW_ERR_TIMEOUT (no connection can be made, and the sentence
 * says why; or a server does not answer); GW_ERR_PEER (a server refused this client; the sentence says why);
 * GW_ERR_SYSTEM, GW_ERR_MEMORY, GW_ERR_UNSUPPORTED. */
GW_API GW_MUST_CHECK gw_status gw_ps_client_create(gw_context *context, const gw_ps_client_options *options,
                                                   gw_ps_client **out);

/* For a client with the option no_wait: waits for the servers, for at most `ms`. GW_OK: all have answered, now or
 * before. GW_NOT_YET: not yet; call again. Until GW_OK every call but gw_ps_client_destroy is GW_ERR_ORDER. Errors: as
 * of gw_ps_client_create; after one, only gw_ps_client_destroy may be called. */
GW_API GW_MUST_CHECK gw_status gw_ps_client_meet(gw_ps_client *client, uint32_t ms);

/* Says goodbye to the servers, and destroys the client. NULL is allowed. */
GW_API void gw_ps_client_destroy(gw_ps_client *client);

/* What a client knows of its servers. */
typedef struct gw_ps_info {
    uint32_t n_workers; /* how many workers they are for */
    gw_ps_mode mode;
    uint32_t staleness; /* of GW_PS_STALE; else 0 */
} gw_ps_info;

/* Says what the servers are. It does not change. All 0 for NULL. */
GW_API gw_ps_info gw_ps_client_info(const gw_ps_client *client);

/* What servers tell a client without being asked. */
typedef enum gw_ps_notice {
    /* a server has done what was asked, and could not write it to its snapshot folder. It has it in memory only, so
     * that it is lost if the server is killed now. Once the server can write again, it writes everything */
    GW_PS_NOTICE_IN_MEMORY,
    /* the first server asks this worker to admit workers (gw_ps_admit). While somebody waits, it asks again four times
     * a second */
    GW_PS_NOTICE_JOIN,
} gw_ps_notice;

/* Takes a notice, and clears it. True: it has come since the last call. False for NULL. Any thread. */
GW_API bool gw_ps_take_notice(gw_ps_client *client, gw_ps_notice notice);

/* ---- calls that wait for their answer --------------------------------------------------------------------- */

/* What a key is to be. */
typedef struct gw_ps_key_options {
    size_t struct_bytes; /* sizeof(gw_ps_key_options) */
    gw_ps_type type;
    gw_ps_shape shape;
    /* NULL: none. Else pushes are gradients, and the servers keep parameters that the pushes move. The method
     * "parameters" pulls these. NAME[:key=value,...], the same on all clients:
     *   sgd        lr=0.01, weight-decay=0
     *   momentum   as sgd, and momentum=0.9: v = momentum*v + lr*(g + decay*w), w -= v
     *   adam       lr=0.001, weight-decay=0, beta1=0.9, beta2=0.999, epsilon=1e-8
     * All are 0 or more as floats; momentum and betas are below 1, epsilon is 1.2e-38 or more. The type is then
     * float32, float16 or bfloat16 (a round moves the parameters by its mean), or frame (by its decode_average).
     * Parameters, and what the optimizer keeps, are float32 and belong to this key only.
     *
     * With GW_PS_SYNC the average of a round moves the parameters once. A worker pulls what its last push's round has
     * made of them. With GW_PS_STALE and GW_PS_ASYNC each push moves them by itself. Its rate is divided by the number
     * of workers that take part, so that one learning rate suits all modes. adam counts rounds; in the two other modes
     * it counts pushes. A worker that has not pushed to the key, and a reader, pull the parameters as they are now. */
    const char *optimizer;
    /* with an optimizer: the first parameters, as many float32 as the shape has. A server keeps those that come first.
     * NULL: another client gives them; until then pushes, and pulls of parameters, wait */
    const float *values;
} gw_ps_key_options;

/* Makes the key on the servers. If other clients have made it with the same options, it is the same key. If all
 * workers that took part before have left, this begins a new run: their pushes to rounds that never became whole are
 * dropped. If one of these workers may be back in a moment, the call waits until that is known. A name that begins with
 * "exchange/" is for exchanges: their rounds follow other rules. Errors: GW_ERR_ARGUMENT (another type, shape or
 * optimizer, and which), GW_ERR_SPEC (an invalid optimizer), GW_ERR_NONFINITE (a NaN or an infinity in `values`),
 * GW_ERR_CAPACITY (a limit of the server's), GW_ERR_TIMEOUT, GW_ERR_PEER. */
GW_API GW_MUST_CHECK gw_status gw_ps_init(gw_ps_client *client, const char *key, const gw_ps_key_options *options);

/* Pushes the key's next value, of as many bytes as its type and shape have. Returns once the server has it. `bytes` is
 * not read after that. Errors: GW_ERR_ARGUMENT (no such key, and which is nearest; another length), GW_ERR_ORDER (this
 * client has not initialised the key), GW_ERR_FRAME_* (of a frame), GW_ERR_CAPACITY, GW_ERR_NONFINITE (a NaN or an
 * infinity to a key with an optimizer: nothing was taken), GW_ERR_TIMEOUT (the round of the worker's last push before
 * this one still waits for others: the sentence names them), GW_ERR_PEER. After GW_ERR_TIMEOUT and GW_ERR_PEER the
 * servers may have taken the value, or some of its parts. Then push only the same value again. */
GW_API GW_MUST_CHECK gw_status gw_ps_push(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes);

/* Pulls one value of a key. scale_key is for decode_sum and decode_average of uint8: it is a key of one float32. The
 * result is multiplied by this key's maximum in the same round. NULL: it is not. The caller frees *out with
 * gw_ps_value_free. Errors: GW_ERR_ARGUMENT (there is no such key; or its type does not allow the method: the sentence
 * says which methods it allows), GW_ERR_ORDER (the worker has not pushed yet; this client has not initialised the key
 * or its scale_key, and must, because they lie on several servers; or a reader got parts of different rounds: try
 * again), GW_ERR_TIMEOUT (the sentence names the workers that have not pushed), GW_ERR_PEER, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_ps_pull(gw_ps_client *client, const char *key, gw_ps_method method,
                                          const char *scale_key, gw_ps_value *out);

/* Puts a value at a key for others to get. It belongs to no round. The server keeps it beside the key's pushes until
 * one of a higher version comes, and ignores all others. For keys of plain types without an optimizer.
 * Readers may put, too. Errors: as of gw_ps_push. */
GW_API GW_MUST_CHECK gw_status gw_ps_put(gw_ps_client *client, const char *key, uint64_t version, const void *bytes,
                                         size_t n_bytes);

/* Waits until a value of version `least` or higher was put, and gets it: out->round is its version,
 * out->n_pushes is 0. Errors: as of gw_ps_pull; GW_ERR_ORDER (parts on several servers have different versions: the
 * value was replaced meanwhile). */
GW_API GW_MUST_CHECK gw_status gw_ps_get(gw_ps_client *client, const char *key, uint64_t least, gw_ps_value *out);

/* Frees the value of a pull or a get, and makes it empty. An empty value, or NULL, is allowed. The client
 * may be gone already. One thread at a time for one value. */
GW_API void gw_ps_value_free(gw_ps_value *value);

/* ---- calls that do not wait -------------------------------------------------------------------------------- */

typedef enum gw_ps_call_kind {
    GW_PS_CALL_INIT = 1, /* key, options. Wait for its answer before you push to the key; else a push is GW_ERR_ORDER */
    GW_PS_CALL_PUSH,     /* key, bytes, n_bytes, rate */
    GW_PS_CALL_PULL,     /* key, method, scale_key. gw_ps_wait gives the value */
    GW_PS_CALL_PUT,      /* key, bytes, n_bytes, version */
    GW_PS_CALL_GET,      /* key, version: the least. gw_ps_wait gives the value */
} gw_ps_call_kind;

/* A call as data. Fields that its kind does not name are ignored. */
typedef struct gw_ps_call {
    size_t struct_bytes; /* sizeof(gw_ps_call) */
    gw_ps_call_kind kind;
    const char *key;
    const gw_ps_key_options *options;
    const void *bytes;
    size_t n_bytes;
    uint64_t version;
    gw_ps_method method;
    const char *scale_key; /* NULL: none */
    /* the learning rate of a push to a key with an optimizer, a finite number from 0 up; 0: the key's own. With
     * GW_PS_SYNC a round uses the rate of the least rank in it */
    double rate;
} gw_ps_call;

/* Sends a request, and does not wait for its answer. It sets the request's number, which is given back once, by
 * gw_ps_wait or gw_ps_cancel. Many may be under way; those of one key are done in order. What `bytes` and
 * `options->values` point to must stay as it is until then; all else is copied. Errors: as of the call that waits;
 * those of a server come from gw_ps_wait. */
GW_API GW_MUST_CHECK gw_status gw_ps_begin(gw_ps_client *client, const gw_ps_call *call, uint64_t *request);

#define GW_PS_NO_LIMIT UINT32_MAX

/* Waits for a request's answer, for at most `ms`; GW_PS_NO_LIMIT: as long as the client's timeout. out: the value of a
 * pull or a get, which the caller frees; NULL for others. GW_NOT_YET: there is no answer yet, and the request is
 * still valid. Errors: as of the call that waits; GW_ERR_ORDER (there is no such request, or it was waited for
 * already). */
GW_API GW_MUST_CHECK gw_status gw_ps_wait(gw_ps_client *client, uint64_t request, uint32_t ms, gw_ps_value *out);

/* Gives a request up. The client connects anew, which may take up to 1 s. Its bytes may then be freed. The servers
 * may still have taken a push. So the next push to that key first asks the servers whether they took it, and waits for
 * the answer. To ask without waiting, begin a GW_PS_CALL_INIT of the key before that push. If there is no such request,
 * gw_ps_cancel does nothing. */
GW_API void gw_ps_cancel(gw_ps_client *client, uint64_t request);

/* ---- training through servers ---------------------------------------------------------------------------- */

/* Workers may come and go while others train. Such a worker's client has the option `joins`. The worker creates its
 * exchange (gw_exchange_options.servers) after gw_ps_join. */

/* Joins the exchange: the worker takes part from round *round on, which is the same on all servers. Step t of a
 * training run is round t+1. If no worker takes part now, this one takes part at once: from round 1, or from the round
 * at which the last ones left. Else a worker that takes part must admit it (gw_ps_admit). The call waits for that, at
 * most as long as the client's timeout. Errors: GW_ERR_TIMEOUT, GW_ERR_PEER, and those of any call. */
GW_API GW_MUST_CHECK gw_status gw_ps_join(gw_ps_client *client, uint64_t *round);

/* What the first server knows of a worker. */
typedef enum gw_ps_presence {
    GW_PS_ABSENT = 0,
    GW_PS_PRESENT = 1, /* rounds wait for it */
    GW_PS_AWAY = 2,    /* rounds wait for it, but it is not connected */
    GW_PS_JOINING = 3, /* it waits to be admitted */
} gw_ps_presence;

/* Tells what the first server knows of each rank (gw_ps_presence), and the number of the open round of the exchange
 * there (the largest, if its keys are at different rounds). presence: room for `capacity` workers; the first
 * gw_ps_info.n_workers are written; NULL: not wanted. next_round: NULL: not wanted. Errors: GW_ERR_CAPACITY (there are
 * more workers than room; nothing is written), GW_ERR_TIMEOUT, GW_ERR_PEER. */
GW_API GW_MUST_CHECK gw_status gw_ps_members(gw_ps_client *client, gw_ps_presence *presence, uint32_t capacity,
                                             uint64_t *next_round);

/* Lets worker `rank` take part on all servers from `round` on. Call it before the calling worker pushes to that round:
 * until then no server can be beyond it. Readers may call it, too. Errors: GW_ERR_ORDER (a server is beyond it),
 * GW_ERR_PEER (that worker is not connected), GW_ERR_TIMEOUT. */
GW_API GW_MUST_CHECK gw_status gw_ps_admit(gw_ps_client *client, uint32_t rank, uint64_t round);

#ifdef __cplusplus
}
#endif
#endif
