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
#include <gradwire/pserver.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_exchange gw_exchange;

typedef struct gw_exchange_options {
    size_t struct_bytes;   /* sizeof(gw_exchange_options) */
    const gw_codec *codec; /* must outlive the exchange; NULL is not legal */
    /* all n_tensors tensors in declared order (first layer first); copied. Their ids must be 0..n-1 */
    const gw_tensor *tensors;
    uint32_t n_tensors;
    /* group number of each tensor; copied. Groups are 0..G-1 and none is empty. NULL: every tensor is a group. With a
     * global codec all tensors form one group, whatever stands here. */
    const uint32_t *group_of;
    /* The members own the slices, each a part, and talk over this link. Borrowed: the exchange never destroys it.
     * link.rank and link.size say who this member is. One exchange at a time uses a link. Another may follow once every
     * member has waited for a step of this one and destroyed it */
    gw_link link;
    /* In place of a link (link.ops is then NULL): parameter servers own the slices. Members push frames to them and
     * pull the averages, with the same bits as over any link. The client must be a worker's; its rank and the number of
     * workers say who this member is. Borrowed: until the exchange is destroyed, nobody else calls it. The servers'
     * mode must be GW_PS_SYNC, unless they keep the parameters (server_optimizer). They serve one exchange only, and
     * its workers must begin with the same step. NULL: the members of the link own the slices */
    gw_ps_client *servers;
    uint64_t seed;
    /* how long a member that others wait for may be silent; 0: 60,000. If they wait for it through another member, they
     * name it after twice this time at the latest */
    uint32_t timeout_ms;
    /* number of the machine that each rank runs on, the same on all members; copied. What crosses between machines goes
     * once for all workers of one machine: as sums if the codec holds integers, else as all their frames in one
     * message. Averages come back once. The results are the same bits. NULL: as the link says (gw_link.machine_of; the
     * mpi link knows it), if there are several machines and one of them has several ranks; else every rank is a machine
     * of its own. To have that with such a link, set link.machine_of to NULL. */
    const uint32_t *machine_of;
    /* the program's own lines "name = value" (what it trains, on what) that must be the same on all members. Copied;
     * 15,000 bytes at most. A line without a name and "=" is GW_ERR_ARGUMENT. NULL: none */
    const char *identity;
    /* with `servers`: they keep the parameters and move them by this rule (gw_ps_init_optimized). gw_exchange_wait then
     * leaves parameters in the submitted buffers in place of averages. The same on all members; copied. NULL: averages
     * come back */
    const char *server_optimizer;
    /* how frames are written, if the codec leaves a choice: the fewest bytes, the fewest cycles, or (0) what makes the
     * steps shorter. Parameters are the same bits. With GW_WIRE_AUTO rank 0 compares the times of steps with both, at
     * first and now and then after, and its averages tell the others, who follow a step later. With server_optimizer
     * every member compares for itself. Members need not have the same here: one that has GW_WIRE_SMALL or GW_WIRE_FAST
     * keeps to it, and owners write fast averages if rank 0 or such a member asks for them */
    gw_wire wire;
    /* What becomes of a codec's residual (topk, onebit) if a tensor's gradient is zero throughout on this member.
     * false: the residual takes part in the step as in any other. true: this member sends nothing of the tensor, and
     * its residual waits, as for parameters that a step did not use. Members need not have the same here */
    bool zero_rests;
} gw_exchange_options;

/* Bytes and seconds of one step on this member. Bytes count what crosses between members, with statistics, headers and
 * scalers, and without this member's own share. */
typedef struct gw_step_result {
    /* the step's verdict, the same on every member. false: a gradient was not finite. The verdict does not look at
     * averages: if finite gradients add up to more than float32 holds, the average is infinite */
    bool committed;
    uint32_t bad_tensor, bad_rank; /* if committed is false: the lowest (tensor, rank) found */
    uint64_t bytes_up;             /* sent by this member as a worker: statistics and pushes */
    uint64_t bytes_down;           /* received by this member as a worker: shared numbers and pulls */
    uint64_t dense_bytes;          /* what float32 pushes would have taken by the same rule */
    /* nonzeros of this worker's pushed frames; 0 if gw_exchange_account is off (counting costs time) */
    uint64_t nonzeros;
    uint64_t elements;                  /* of this worker's pushed frames, with its own share; 0 likewise */
    double encode_seconds;              /* measure, encode, reduce, decode on this member's pipeline */
    double wait_seconds;                /* that gw_exchange_wait blocked */
    uint64_t bytes_between_machines_up; /* of bytes_up and bytes_down, those that crossed between machines */
    uint64_t bytes_between_machines_down;
    uint64_t messages; /* received by this member from others */
    double bound_gap;  /* TernGrad's max|g| * |g|_1 / |g|_2^2, the largest over this worker's tensors */
    gw_wire wire;      /* how this member's frames were written, never GW_WIRE_AUTO */
} gw_step_result;

/* What one tensor's frames took in the last finished step, for reports. */
typedef struct gw_tensor_traffic {
    uint64_t elements;
    uint64_t nonzeros; /* of this worker's push */
    /* all of this worker's push frames of the tensor, its own share included, headers too */
    uint64_t push_frame_bytes;
    uint64_t push_payload_bytes;
    uint64_t pull_frame_bytes; /* all average frames of the tensor */
    uint64_t pull_payload_bytes;
    /* order-0 entropy of the pushed symbols, bits per element, the mean of the slices' own; float tensors: 0 */
    double push_entropy_bits;
    double pull_entropy_bits;
    double gradient_squares; /* sum of g^2 of this worker's gradient, as it was submitted */
    /* sum of Q^2 of what this worker's frames hold; divided by gradient_squares it is the variance factor of a codec
     * that draws without bias */
    double push_squares;
} gw_tensor_traffic;

/* Starts the member's pipeline thread, and does not wait for the others. Members then tell each other what must be the
 * same on all: codec, seed, tensors, groups, machines, identity. If something differs, the exchange ends. A member that
 * found it gets GW_ERR_ARGUMENT from the next call on, and a sentence with both values; the others get GW_ERR_PEER. No
 * step is done before all members have been compared. Errors: GW_ERR_ARGUMENT, GW_ERR_MEMORY, GW_ERR_SYSTEM. The other
 * members are told of the latter two. */
GW_API gw_status gw_exchange_create(gw_context *context, const gw_exchange_options *options, gw_exchange **out);

/* Stops the pipeline. It abandons a step that is still under way, and tells the other members. NULL is allowed. */
GW_API void gw_exchange_destroy(gw_exchange *exchange);

/* Opens a step. Every member calls it with the same number. Errors: GW_ERR_ORDER (a step is open), or the error
 * that ended an earlier step. begin, submit and wait of one exchange: one thread. */
GW_API gw_status gw_exchange_begin(gw_exchange *exchange, uint32_t step);

/* Hands over one tensor's gradient (n_elems floats). The buffer belongs to the exchange until gw_exchange_wait returns,
 * which then has put the average there. Returns at once. Errors: GW_ERR_ORDER (no open step, or handed over twice),
 * GW_ERR_ARGUMENT, or the pipeline's error. */
GW_API gw_status gw_exchange_submit(gw_exchange *exchange, uint32_t tensor, float *gradient);

/* Hands over n tensors in one call: tensors[i] has its gradient at gradients[i]. All of them, or none if it fails.
 * n 0 does nothing. The arrays may go at once. Errors: as gw_exchange_submit. */
GW_API gw_status gw_exchange_submit_many(gw_exchange *exchange, uint32_t n, const uint32_t *tensors,
                                         float *const *gradients);

/* Waits until every tensor holds the average. All must have been submitted, else GW_ERR_ORDER. *result may be NULL.
 * With server_optimizer the tensors hold parameters; if the servers' mode is not GW_PS_SYNC, the verdict is then this
 * member's own. committed false is not an error: the gradients' contents are then unspecified, and nothing of the
 * codec's state has changed. Errors: GW_ERR_PEER, GW_ERR_TIMEOUT (the sentence names the silent members), GW_ERR_MEMORY
 * and what codecs return. After an error only gw_exchange_destroy may be called. */
GW_API gw_status gw_exchange_wait(gw_exchange *exchange, gw_step_result *result);

/* With server_optimizer: between gw_exchange_create and the first step every member hands over its first parameters,
 * one array for each tensor. Those that come to a server first stand. The arrays then hold the servers' parameters,
 * which may have moved already if their mode is not GW_PS_SYNC. Waits for the servers. Errors: GW_ERR_ARGUMENT (no
 * server_optimizer), GW_ERR_ORDER (a step is open), and as gw_exchange_wait. */
GW_API gw_status gw_exchange_init_parameters(gw_exchange *exchange, float *const *values);

/* With server_optimizer: pulls the parameters as they are on the servers now. With GW_PS_SYNC those are what this
 * member's last step left. If there are none yet, it waits for a member that brings them (gw_exchange_init_parameters).
 * values: as there. Errors: as there. */
GW_API gw_status gw_exchange_pull_parameters(gw_exchange *exchange, float *const *values);

/* With server_optimizer: sets the learning rate of the steps that begin from here on. 0, as at first, means the
 * server_optimizer's own. Call between steps. With GW_PS_SYNC rank 0's rate holds. Errors: GW_ERR_ARGUMENT (below 0 or
 * no finite float32), GW_ERR_ORDER. */
GW_API gw_status gw_exchange_set_rate(gw_exchange *exchange, double rate);

/* What the codec keeps between steps (topk: residuals, thresholds) of all tensors on this member, for checkpoints. Call
 * between steps, on the thread that waits.
 *
 * state_bytes: 0 if the codec keeps nothing. save: errors are GW_ERR_CAPACITY and GW_ERR_ORDER (a step is open).
 *
 * load: with n_states 1 it takes the state that this member itself saved, and the next step is the one that would have
 * followed. A run that had another number of workers has another number of states. Give those of all its workers, and
 * every member begins with their merged state (gw_states_merge). GW_ERR_ARGUMENT: they are not of this codec and these
 * tensors, or were altered; after that only gw_exchange_destroy may be called. */
GW_API size_t gw_exchange_state_bytes(const gw_exchange *exchange);
GW_API gw_status gw_exchange_save(const gw_exchange *exchange, void *dst, size_t dst_capacity);
GW_API gw_status gw_exchange_load(gw_exchange *exchange, const void *const *states, uint32_t n_states,
                                  size_t state_bytes);

/* Multiplies what the codec keeps of all tensors on this member by `factor`, above 0: for gradients that come in
 * another unit from the next step on (the factor of a loss scaling has changed). Call between steps, on all members.
 * Errors: GW_ERR_ARGUMENT, GW_ERR_ORDER (a step is open). */
GW_API gw_status gw_exchange_scale(gw_exchange *exchange, float factor);

/* What the codec keeps of one tensor on this member, for reports (gw_encoder_describe): all 0 if it keeps nothing.
 * Reads the whole residual. Call between steps, on the thread that waits. Errors: GW_ERR_ARGUMENT, GW_ERR_ORDER (a step
 * is open). */
GW_API gw_status gw_exchange_describe(const gw_exchange *exchange, uint32_t tensor, gw_encoder_condition *out);

/* The wire choice, for reports. */
typedef struct gw_wire_report {
    gw_wire asked;   /* gw_exchange_options.wire, or what gw_exchange_set_wire said last */
    bool has_choice; /* false: the codec leaves none, or there is nobody to send to; frames are small */
    bool compares;   /* GW_WIRE_AUTO, and this member compares. What follows is 0 on others */
    gw_wire stands;  /* what was found to be better so far, never GW_WIRE_AUTO; on others: as their last step */
    uint32_t n_comparisons, n_changes;
    /* medians of the last comparison: from a step's first gw_exchange_submit to the end of gw_exchange_wait */
    double small_seconds, fast_seconds;
} gw_wire_report;
/* Any member, between steps. Errors: GW_ERR_ARGUMENT. */
GW_API gw_status gw_exchange_wire(const gw_exchange *exchange, gw_wire_report *out);

/* Puts another choice in the place of gw_exchange_options.wire, from the next step on. Comparisons begin anew with
 * GW_WIRE_AUTO. Call between steps, on any number of members. Errors: GW_ERR_ARGUMENT, GW_ERR_ORDER (a step is open).
 */
GW_API gw_status gw_exchange_set_wire(gw_exchange *exchange, gw_wire wire);

/* Switches the accounting of nonzeros and of gw_exchange_traffic on or off (off at first: counting symbols, and
 * decoding this worker's own frames, costs time; none of it is in encode_seconds). Call between steps. */
GW_API void gw_exchange_account(gw_exchange *exchange, bool on);
GW_API gw_status gw_exchange_traffic(const gw_exchange *exchange, uint32_t tensor, gw_tensor_traffic *out);

/* What became of a group in the last finished step, on this member: seconds since gw_exchange_begin. In a step that was
 * dropped, what did not happen is 0. */
typedef struct gw_group_moments {
    double ready;    /* its last gradient was handed over */
    double measured; /* and measured */
    double encoding; /* encoding began: shared numbers are there */
    double pushed;   /* its last frame was handed to the link */
    double arrived;  /* its averages stand in the gradients */
} gw_group_moments;

/* Call between steps, on the thread that waits. Errors: GW_ERR_ARGUMENT, GW_ERR_ORDER (a step is open). */
GW_API gw_status gw_exchange_moments(const gw_exchange *exchange, uint32_t group, gw_group_moments *out);

/* Averages values[0..n_elems) over all members of the link, in place, in one call. All members call it, with the same
 * spec, seed and n_elems. All end with the same bits. A link serves one call: another one on it may come before all
 * members have ended this one. (gw_average_mpi, link_mpi.h, makes a link of its own for each call.) Programs that
 * average in every step make an exchange, which keeps residuals and overlaps with the computation. link: borrowed.
 * result: NULL: not wanted. Waits up to 60 s for silent members. Errors: GW_ERR_SPEC, GW_ERR_ARGUMENT (also: members
 * called with something else), GW_ERR_NONFINITE (a member's values hold a NaN or an infinity; said on all, and the
 * values are unspecified), and those of gw_exchange_create and gw_exchange_wait. */
GW_API gw_status gw_average_once(gw_context *context, const char *spec, const gw_link *link, uint64_t seed,
                                 float *values, uint64_t n_elems, gw_step_result *result);

#ifdef __cplusplus
}
#endif
#endif
