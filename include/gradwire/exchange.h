/* The exchange: averages the gradients of all members, group by group, beside the computation.
 *
 *     gw_exchange_create(ctx, &options, &ex);                   // every rank, same options but for the link
 *     for each step:
 *         gw_exchange_begin(ex, step);
 *         gw_exchange_submit(ex, tensor, grad);                 // as backward finishes each tensor, any order
 *         gw_exchange_wait(ex, &result);                        // every grad now holds the average
 *         if (result.committed) optimizer step
 *     gw_exchange_destroy(ex);
 *
 * For every group: statistics -> shared numbers (maximum over members) -> encode -> push to owners -> owners
 * reduce -> pull -> decode into the gradient (TernGrad, algorithm 1; parameter localization). All members end a step
 * with the same bits in every gradient. */
#ifndef GRADWIRE_EXCHANGE_H
#define GRADWIRE_EXCHANGE_H

#include <gradwire/codec.h>
#include <gradwire/link.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_exchange gw_exchange;

typedef struct gw_exchange_options {
    size_t struct_bytes;        /* sizeof(gw_exchange_options) */
    const gw_codec *codec;      /* must outlive the exchange; NULL is not legal */
    const gw_tensor *tensors;   /* n_tensors of them in declared order (first layer first); copied. ids must be 0..n-1 */
    uint32_t n_tensors;
    const uint32_t *group_of;   /* group number of each tensor, copied; groups are 0..G-1 and none is empty; NULL: a
                                   group per tensor. A global codec's tensors all form one group whatever stands here. */
    gw_link link;               /* borrowed: the exchange never destroys it; link.rank and link.size say who this is. One
                                   exchange at a time uses a link; another may follow once every member has waited for a step of
                                   this and destroyed it */
    uint64_t seed;
    uint32_t timeout_ms;        /* how long a member that others wait for may be silent; 0: 60,000. Where it is waited for
                                   through another member it is named after twice this at the latest */
    const uint32_t *machine_of; /* number of the machine that each rank runs on, the same on all members; copied. What crosses between
                                   machines goes once for all workers of one: sums where codecs hold integers, else all their
                                   frames in one message; averages once. The results are the same bits. NULL: every rank its own */
    const char *identity;       /* lines "name = value" of the program's own (what it trains, on what) that must be the same on all
                                   members; copied, 15,000 bytes at most; NULL: none */
    const char *server_optimizer; /* over a link to parameter servers (gw_link_servers_create): the servers keep the parameters and move them by
                                     this rule (gw_ps_init_optimized), and gw_exchange_wait leaves parameters in the submitted buffers in
                                     place of averages. The same on all members; copied. NULL: averages come back */
} gw_exchange_options;

/* Bytes and seconds of one step on this member. Bytes count what crosses between members, this member's own share not;
 * statistics, headers and scalers included. */
typedef struct gw_step_result {
    bool committed;             /* the step's verdict, the same on every member; false: a gradient was not finite. Averages are not
                                   looked at: where finite gradients add up to more than float32 holds, they are infinite */
    uint32_t bad_tensor, bad_rank; /* where committed is false: the lowest (tensor, rank) found */
    uint64_t bytes_up;          /* sent by this member as a worker: statistics and pushes */
    uint64_t bytes_down;        /* received by this member as a worker: shared numbers and pulls */
    uint64_t dense_bytes;       /* what float32 pushes would have taken by the same rule */
    uint64_t nonzeros;          /* of this worker's pushed frames; 0 where gw_exchange_account is off (counting costs time) */
    uint64_t elements;          /* of this worker's pushed frames (its own share included); 0 likewise */
    double encode_seconds;      /* measure, encode, reduce, decode on this member's pipeline */
    double wait_seconds;        /* that gw_exchange_wait blocked */
    uint64_t bytes_between_machines_up;   /* of bytes_up and bytes_down, those that crossed between machines */
    uint64_t bytes_between_machines_down;
    uint64_t messages;          /* received by this member from others */
    double bound_gap;           /* TernGrad's max|g| * |g|_1 / |g|_2^2, the largest over this worker's tensors */
} gw_step_result;

/* What one tensor's frames took in the last finished step, for reports. */
typedef struct gw_tensor_traffic {
    uint64_t elements;
    uint64_t nonzeros;          /* of this worker's push */
    uint64_t push_frame_bytes;  /* all of this worker's push frames of the tensor, its own share included, headers too */
    uint64_t push_payload_bytes;
    uint64_t pull_frame_bytes;  /* all average frames of the tensor */
    uint64_t pull_payload_bytes;
    double push_entropy_bits;   /* order-0 entropy of the pushed symbols, bits per element, the mean of the slices' own; float
                                   tensors: 0 */
    double pull_entropy_bits;
    double gradient_squares;    /* sum of g^2 of this worker's gradient, as it was submitted */
    double push_squares;        /* sum of Q^2 of what this worker's frames hold; divided by gradient_squares it is the variance
                                   factor of a codec that draws without bias */
} gw_tensor_traffic;

/* Starts the member's pipeline thread, and does not wait for the others. Members then tell each other what must be the same on all:
 * codec, seed, tensors, groups, machines, identity. Where something is not, the exchange ends: on a member that found it with GW_ERR_ARGUMENT
 * and a sentence that gives both values, from the next call on; on the others with GW_ERR_PEER. No step is done before all members
 * have been compared. Errors: GW_ERR_ARGUMENT, GW_ERR_MEMORY, GW_ERR_SYSTEM; of the latter two the other
 * members are told. */
GW_API gw_status gw_exchange_create(gw_context *context, const gw_exchange_options *options, gw_exchange **out);

/* Stops the pipeline. A step still under way is abandoned and the other members are told. NULL is allowed. */
GW_API void gw_exchange_destroy(gw_exchange *exchange);

/* Opens a step. Every member calls it with the same number. Errors: GW_ERR_ORDER (a step is open), or the error
 * that ended an earlier step. begin, submit and wait of one exchange: one thread. */
GW_API gw_status gw_exchange_begin(gw_exchange *exchange, uint32_t step);

/* Hands over one tensor's gradient (n_elems floats). The buffer belongs to the exchange until gw_exchange_wait returns,
 * which then has put the average there. Returns at once. Errors: GW_ERR_ORDER (no open step, or handed over twice),
 * GW_ERR_ARGUMENT, or the pipeline's error. */
GW_API gw_status gw_exchange_submit(gw_exchange *exchange, uint32_t tensor, float *gradient);

/* Waits until every tensor (all must have been submitted, else GW_ERR_ORDER) holds the average. *result may be NULL.
 * With server_optimizer they hold parameters; where the servers' mode is not GW_PS_SYNC the verdict is then this member's own.
 * committed false is not an error: the gradients' contents are then unspecified and nothing of the codec's state changed.
 * Errors: GW_ERR_PEER, GW_ERR_TIMEOUT (the sentence names the silent members), GW_ERR_MEMORY and what codecs return; the
 * exchange is then unusable but for destroy. */
GW_API gw_status gw_exchange_wait(gw_exchange *exchange, gw_step_result *result);

/* With server_optimizer: between gw_exchange_create and the first step every member hands over its first parameters, an array of each
 * tensor's; those that come to a server first stand. The arrays then hold the servers' own, which may have moved already where its mode is
 * not GW_PS_SYNC. Waits for the servers. Errors: GW_ERR_ARGUMENT (no server_optimizer), GW_ERR_ORDER (a step is open), and as
 * gw_exchange_wait. */
GW_API gw_status gw_exchange_put_parameters(gw_exchange *exchange, float *const *values);

/* With server_optimizer: fetches the parameters as they are on the servers now; with GW_PS_SYNC those are what this member's last step
 * left. Otherwise as above; before there are any it waits for whoever puts them. */
GW_API gw_status gw_exchange_get_parameters(gw_exchange *exchange, float *const *values);

/* With server_optimizer: the learning rate of the steps that begin from here on; 0, as at first: the server_optimizer's own. Call between
 * steps. With GW_PS_SYNC rank 0's holds. Errors: GW_ERR_ARGUMENT (below 0 or no finite float32), GW_ERR_ORDER. */
GW_API gw_status gw_exchange_set_rate(gw_exchange *exchange, double rate);

/* What the codec keeps between steps (topk: residuals, thresholds) of all tensors on this member, for checkpoints. Call between
 * steps, on the thread that waits. state_bytes 0: the codec keeps nothing.
 * save: GW_ERR_CAPACITY, GW_ERR_ORDER (a step is open).
 * load: from one state, what this member itself saved: the next step is the one that would have followed. From the states of all
 * n_states workers of a run that had another number of workers: every member begins with their merged state (gw_states_merge).
 * GW_ERR_ARGUMENT where they are not of this codec and these tensors, or altered; the exchange is then good for destroy only. */
GW_API size_t gw_exchange_state_bytes(const gw_exchange *exchange);
GW_API gw_status gw_exchange_save(const gw_exchange *exchange, void *dst, size_t dst_capacity);
GW_API gw_status gw_exchange_load(gw_exchange *exchange, const void *const *states, uint32_t n_states, size_t state_bytes);

/* What the codec keeps of one tensor on this member, for reports (gw_encoder_describe): all 0 where it keeps nothing. Reads the
 * whole residual. Call between steps, on the thread that waits. Errors: GW_ERR_ARGUMENT, GW_ERR_ORDER (a step is open). */
GW_API gw_status gw_exchange_describe(const gw_exchange *exchange, uint32_t tensor, gw_encoder_condition *out);

/* Switches the accounting of nonzeros and of gw_exchange_traffic on or off (off at first: counting symbols, and decoding this
 * worker's own frames, costs time; none of it is in encode_seconds). Call between steps. */
GW_API void gw_exchange_account(gw_exchange *exchange, bool on);
GW_API gw_status gw_exchange_traffic(const gw_exchange *exchange, uint32_t tensor, gw_tensor_traffic *out);

#ifdef __cplusplus
}
#endif
#endif
