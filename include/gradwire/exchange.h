/* The exchange: averages the gradients of all members, group by group, beside the computation.
 *
 *     gw_exchange_create(ctx, &options, &ex);                   // every member; `options` says what must be alike
 *     for each step:
 *         gw_exchange_begin(ex, step);
 *         gw_exchange_submit(ex, tensor, grad);                 // as backward finishes each tensor, any order
 *         gw_exchange_wait(ex, &result);                        // GW_OK: every grad holds the average
 *     gw_exchange_destroy(ex);
 *
 * Programs look at the status of each of these calls. After an error the gradients are unspecified. docs/design.md
 * explains the words. The pipeline is the exchange's own thread.
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
    /* the number of each tensor's group; copied. Groups are 0..G-1, and none is empty. NULL: every tensor is a group.
     * With a codec of one_group (gw_codec_traits), all tensors form one group, and this is ignored */
    const uint32_t *group_of;
    /* the members talk over this link, and each of them owns a part of the slices. Borrowed: the exchange never
     * destroys it. link.rank and link.size say who this member is. One exchange at a time uses a link. Another may
     * use it once every member has finished a step here and destroyed this exchange */
    gw_link link;
    /* in place of a link (link.ops is then NULL): parameter servers own the slices. Members push frames to them and
     * pull the averages, with the same bits as over any link. The client must be a worker's. Its rank, and the number
     * of workers, say who this member is. Borrowed: until the exchange is destroyed, only the exchange may call the
     * client. The servers' mode must be GW_PS_SYNC, unless they keep the parameters (server_optimizer). They serve one
     * exchange only, and its workers must begin with the same step. NULL: the members of the link own the slices */
    gw_ps_client *servers;
    uint64_t seed;
    /* how many milliseconds a member may be silent while others wait for it; 0: 60,000. Then, or a second later,
     * those that wait for it name it, and all members end. A member that owes nothing in this step, and itself waits,
     * is not silent: it says so. If nothing but such words comes for four times this time, the wait ends all the same
     */
    uint32_t timeout_ms;
    /* the number of the machine that each rank runs on; copied. It must be the same on all members. All workers of one
     * machine then send to another machine together: one sum if the codec holds integers, else all their frames in one
     * message. An average comes back once for a machine. The results are the same bits. NULL: what the link says
     * (gw_link.machine_of; the mpi link knows it), if there are several machines and one of them has several ranks.
     * Else every rank is a machine of its own. Set link.machine_of to NULL as well if every rank is to be a machine of
     * its own. With `servers` it is ignored */
    const uint32_t *machine_of;
    /* lines "name = value" of the program's own that must be the same on all members, for example what it trains, and
     * on which data. Copied; at most 15,000 bytes. A line without a name and "=" is GW_ERR_ARGUMENT. NULL: none */
    const char *identity;
    /* with `servers`: the servers keep the parameters, and move them by this rule (gw_ps_key_options).
     * gw_exchange_wait then leaves parameters in the submitted buffers, and no averages. It must be the same on all
     * members; copied. NULL: averages come back */
    const char *server_optimizer;
    /* how frames are written, if the codec leaves a choice: with the fewest bytes, with the fewest cycles, or (0,
     * GW_WIRE_AUTO) in the way that makes the steps shorter. The results are the same bits. With GW_WIRE_AUTO rank 0
     * measures steps with both: at the beginning, and again now and then. The other members see in the averages what
     * rank 0 has chosen, and follow a step later. With server_optimizer every member compares for itself. Members may
     * differ here. A member with GW_WIRE_SMALL or GW_WIRE_FAST keeps to it. Owners write fast averages if rank 0 has
     * chosen so, or if any member has GW_WIRE_FAST */
    gw_wire wire;
    /* what becomes of a codec's residual (topk, onebit) if all elements of a tensor's gradient are zero on this member.
     * false: the residual takes part in the step as in any other. true: this member sends nothing of the tensor, and
     * its residual waits. Say true if a step may leave some parameters unused. Members may differ here */
    bool skip_zero_gradients;
    /* the member with which the dealing of slices begins. It must be the same on all members, and 0 with
     * `servers`. A short tensor has one owner. So if several exchanges go on beside each other, and each has one
     * tensor, give each a member of its own. Else member 0 owns them all */
    uint32_t first_owner;
} gw_exchange_options;

/* Bytes and seconds of one step on this member. Bytes count what crosses between members, with statistics, headers and
 * scalers. What this member keeps for itself, as the owner of slices, is not counted. */
typedef struct gw_step_result {
    /* the step's verdict, the same on every member. false: a gradient, or its sum with the codec's residual, was not
     * finite, and gw_exchange_wait has said GW_ERR_NONFINITE. Averages are not looked at: if finite gradients add up to
     * more than float32 holds, the average is infinite */
    bool committed;
    uint32_t bad_tensor, bad_rank; /* if committed is false: the lowest (tensor, rank) found */
    uint64_t bytes_up;             /* sent by this member as a worker: statistics and pushes */
    uint64_t bytes_down;           /* received by this member as a worker: shared numbers and pulls */
    uint64_t dense_bytes;          /* what the pushes would take in float32 */
    /* nonzeros of this worker's pushed frames; 0 without GW_EXCHANGE_ACCOUNT */
    uint64_t nonzeros;
    uint64_t elements;                  /* elements of the same frames; 0 without GW_EXCHANGE_ACCOUNT */
    double encode_seconds;              /* measure, encode, reduce, decode on this member's pipeline */
    double wait_seconds;                /* how long gw_exchange_wait blocked */
    uint64_t bytes_between_machines_up; /* of bytes_up and bytes_down, those that crossed between machines */
    uint64_t bytes_between_machines_down;
    uint64_t messages; /* received by this member from others */
    double bound_gap;  /* TernGrad's max|g| * |g|_1 / |g|_2^2, the largest over this worker's tensors */
    gw_wire wire;      /* how this member's frames were written, never GW_WIRE_AUTO */
} gw_step_result;

/* What the frames of one tensor took in the last finished step, for reports. */
typedef struct gw_tensor_traffic {
    uint64_t elements;
    uint64_t nonzeros; /* of this worker's push */
    /* all of this worker's push frames of the tensor, with headers, and with those that it keeps for itself */
    uint64_t push_frame_bytes;
    uint64_t push_payload_bytes;
    uint64_t pull_frame_bytes; /* all average frames of the tensor */
    uint64_t pull_payload_bytes;
    /* order-0 entropy of the pushed symbols in bits per element: the mean over the slices; 0 for float tensors */
    double push_entropy_bits;
    double pull_entropy_bits;
    double gradient_squares; /* sum of g^2 of this worker's gradient, as it was submitted */
    /* sum of Q^2 of the values that this worker's frames hold. Divided by gradient_squares it is the variance factor of
     * a codec that draws without bias */
    double push_squares;
} gw_tensor_traffic;

/* Creates this member's exchange, and starts its pipeline thread. It does not wait for the others. Then the members
 * tell each other what must be the same on all: codec, seed, tensors, groups, machines, identity. If something differs,
 * the exchange ends. A member that found the difference gets GW_ERR_ARGUMENT from its next call on, and a sentence with
 * both values. The others get GW_ERR_PEER. No step ends before all members have been compared. The caller destroys *out
 * with gw_exchange_destroy. Errors: GW_ERR_ARGUMENT, GW_ERR_SPEC (momentum= with server_optimizer), GW_ERR_ORDER (the
 * client has not met its servers), GW_ERR_MEMORY, GW_ERR_SYSTEM. Over a link the other members hear of GW_ERR_MEMORY
 * and GW_ERR_SYSTEM. After other errors they wait for this member: call again, or gw_link_fail. */
GW_API GW_MUST_CHECK gw_status gw_exchange_create(gw_context *context, const gw_exchange_options *options,
                                                  gw_exchange **out);

/* Tells the other members that this one begins no more steps, as gw_exchange_destroy does. Call it between steps, if
 * there is time between the last step and the end. A member that has begun a step more gets GW_ERR_PEER at once, with
 * a sentence that names this member. Members that have made the same steps are not disturbed. The call does not wait.
 * After it, call only gw_exchange_destroy. A second call does nothing. With servers the call does nothing: they notice
 * themselves who is there. Errors: GW_ERR_ARGUMENT (NULL), GW_ERR_ORDER (a step is open), or the error that ended the
 * exchange. */
GW_API GW_MUST_CHECK gw_status gw_exchange_leave(gw_exchange *exchange);

/* Stops the pipeline and destroys the exchange. The other members are told, as by gw_exchange_leave. If a step is still
 * under way, it is abandoned, and they get GW_ERR_PEER. To tell them why, call gw_link_fail before. NULL is
 * allowed. */
GW_API void gw_exchange_destroy(gw_exchange *exchange);

/* Opens a step. step: any number, the same on all members; draws depend on it. After gw_exchange_load go on with the
 * number that would have followed. One thread at a time calls begin, submit and wait of an exchange. Errors:
 * GW_ERR_ORDER (a step is open, or this member has left), or the error that ended the exchange. */
GW_API GW_MUST_CHECK gw_status gw_exchange_begin(gw_exchange *exchange, uint32_t step);

/* Hands over one tensor's gradient (n_elems floats). Every step needs every tensor, one that was not used as zeros. The
 * buffer belongs to the exchange until gw_exchange_wait returns. Then it holds the average. The call returns at once.
 * Errors: GW_ERR_ORDER (no open step, or handed over twice), GW_ERR_ARGUMENT, or the error that ended the exchange. */
GW_API GW_MUST_CHECK gw_status gw_exchange_submit(gw_exchange *exchange, uint32_t tensor, float *gradient);

/* Hands over n tensors in one call: tensors[i] has its gradient at gradients[i]. All of them, or none if it fails. n 0
 * does nothing. The two arrays may be freed after the call. Errors: as gw_exchange_submit. */
GW_API GW_MUST_CHECK gw_status gw_exchange_submit_many(gw_exchange *exchange, uint32_t n, const uint32_t *tensors,
                                                       float *const *gradients);

/* Waits until every tensor holds the average, and ends the step. With server_optimizer the tensors hold parameters.
 * result: NULL: not wanted. GW_ERR_NONFINITE: the step is dropped, on every member, because a gradient was not finite;
 * the sentence names it. The contents of the gradients are then unspecified, and the codec's state is as it was before
 * the step. The result is written, and the next step may begin. (With server_optimizer, and a mode of the servers that
 * is not GW_PS_SYNC, that is about this member's gradients alone.) Errors: GW_ERR_ORDER (a tensor was not submitted:
 * submit it, and wait again; or members began different steps), GW_ERR_PEER, GW_ERR_TIMEOUT (the sentence names the
 * silent members), GW_ERR_MEMORY, and those of codec and link. Three leave the exchange as it is: a tensor is missing,
 * no step is open, another thread waits already. After any other error call only gw_exchange_destroy. */
GW_API GW_MUST_CHECK gw_status gw_exchange_wait(gw_exchange *exchange, gw_step_result *result);

/* With server_optimizer: between gw_exchange_create and the first step every member hands over its first parameters,
 * one array for each tensor. A server keeps those that reach it first. The call waits for the servers. Then the arrays
 * hold the servers' parameters. If the mode is not GW_PS_SYNC, other members may have moved them already. Errors:
 * GW_ERR_ARGUMENT (no server_optimizer), GW_ERR_ORDER (a step is open), and as gw_exchange_wait. */
GW_API GW_MUST_CHECK gw_status gw_exchange_init_parameters(gw_exchange *exchange, float *const *values);

/* With server_optimizer: pulls the parameters as they are on the servers now. With GW_PS_SYNC those are what this
 * member's last step left. If there are none yet, it waits for a member that brings them (gw_exchange_init_parameters).
 * values: as there. Errors: as there. */
GW_API GW_MUST_CHECK gw_status gw_exchange_pull_parameters(gw_exchange *exchange, float *const *values);

/* What gw_exchange_set changes. */
typedef enum gw_exchange_setting {
    /* with server_optimizer: the learning rate of the steps that begin from here on, a finite float32 from 0 up. It is
     * 0 at first, which means the rate that server_optimizer names. With GW_PS_SYNC the servers use rank 0's rate */
    GW_EXCHANGE_RATE,
    /* a gw_wire in place of gw_exchange_options.wire. With GW_WIRE_AUTO, comparisons begin anew. Members need not all
     * call it */
    GW_EXCHANGE_WIRE,
    /* 1: count nonzeros, and what gw_tensor_traffic tells. It is 0 at first, because counting takes time: the member
     * counts symbols, and decodes its own frames. That time is not in encode_seconds */
    GW_EXCHANGE_ACCOUNT,
    /* a factor, a finite float32 above 0: multiplies the residuals of all tensors on this member. Use it if gradients
     * come in another unit from the next step on (the factor of a loss scaling has changed). All members call it */
    GW_EXCHANGE_RESCALE,
} gw_exchange_setting;

/* Changes a setting from the next step on. Call it between steps. Errors: GW_ERR_ARGUMENT (no such setting, or no legal
 * value of it; a rate without server_optimizer), GW_ERR_ORDER (a step is open). */
GW_API GW_MUST_CHECK gw_status gw_exchange_set(gw_exchange *exchange, gw_exchange_setting setting, double value);

/* Writes what the codec keeps between steps of all tensors on this member (topk: residuals, thresholds), for a
 * checkpoint. *state_bytes: how many bytes that are; 0 if the codec keeps nothing. dst NULL: the call only tells
 * *state_bytes, which stays the same while the exchange lives. Call it between steps, never beside a wait. Errors:
 * GW_ERR_CAPACITY (dst_capacity is too small), GW_ERR_ORDER (a step is open), GW_ERR_ARGUMENT. */
GW_API GW_MUST_CHECK gw_status gw_exchange_save(const gw_exchange *exchange, void *dst, size_t dst_capacity,
                                                size_t *state_bytes);

/* Puts a state back that was saved. n_states 1: it is the one that this member itself saved, and the next step is then
 * the one that would have followed the save. If the training had another number of workers, give the states of all of
 * them. Then every member begins with their merged state: the mean of the residuals, and thresholds that are taken
 * afresh. Each state has state_bytes bytes. Call it between steps, never beside a wait. Errors: GW_ERR_ARGUMENT (the
 * states are not of this codec and these tensors, or were altered), GW_ERR_MEMORY, GW_ERR_ORDER (a step is open).
 * After an error nothing has changed. So the call takes memory for one state, and for two if it merges. */
GW_API GW_MUST_CHECK gw_status gw_exchange_load(gw_exchange *exchange, const void *const *states, uint32_t n_states,
                                                size_t state_bytes);

/* The wire choice, for reports. */
typedef struct gw_wire_report {
    gw_wire asked; /* the choice in gw_exchange_options.wire, or that of the last gw_exchange_set */
    /* false: the codec leaves no choice, or there is nobody to send to. Frames are then written as GW_WIRE_SMALL */
    bool has_choice;
    /* true: the choice is GW_WIRE_AUTO, and this member compares. If false, the three numbers below are 0 */
    bool compares;
    /* what has proved better so far, never GW_WIRE_AUTO. If `compares` is false: how the last step was written */
    gw_wire stands;
    uint32_t n_comparisons, n_changes;
    /* medians of the last comparison. A step is timed from its first gw_exchange_submit to the end of gw_exchange_wait
     */
    double small_seconds, fast_seconds;
} gw_wire_report;

/* When each stage of a group was reached in the last finished step on this member, in seconds since gw_exchange_begin.
 * If the step was dropped, a stage that was not reached is 0. */
typedef struct gw_group_moments {
    double ready;    /* the program had handed over its last gradient */
    double measured; /* its last gradient had been measured */
    double encoding; /* its encoding began, because the shared numbers had come */
    double pushed;   /* the member had handed its last frame to the link */
    double arrived;  /* its averages stood in the gradients */
} gw_group_moments;

/* What a report asks for. The call fills what the pointers name; NULL: not wanted. */
typedef struct gw_stats {
    uint32_t tensor;
    gw_tensor_traffic *traffic; /* of that tensor, in the last step that was counted; all 0 if none was */
    /* What the codec keeps of that tensor on this member; all 0 if it keeps nothing. It reads the whole residual. */
    gw_encoder_condition *condition;
    uint32_t group;
    gw_group_moments *moments; /* of that group */
    gw_wire_report *wire;      /* how the wire choice stands on this member */
} gw_stats;

/* Tells this member's figures of the last finished step. Call it between steps, never beside a wait. Errors:
 * GW_ERR_ARGUMENT (there is no such tensor or group, or a NULL), GW_ERR_ORDER (a step is open). Nothing is written
 * then. */
GW_API GW_MUST_CHECK gw_status gw_exchange_stats(const gw_exchange *exchange, const gw_stats *wanted);

/* Averages values[0..n_elems) over all members of the link, in place, in one call. All members call it, with the same
 * spec, seed and n_elems. All end with the same bits. Use a link for one call only: if a second call used the same
 * link, its messages could come before all members have ended the first one. (gw_average_mpi in link_mpi.h makes a link
 * of its own for each call.) Codecs with a residual are refused, because a later step is to send what one leaves out.
 * Programs that average in every step should make an exchange: it takes them, and works beside the computation. The
 * caller's thread does all of it, so the link's functions are called on no other thread. link: borrowed. result: NULL:
 * not wanted. The call waits up to 60 s for silent members. Errors: GW_ERR_SPEC, GW_ERR_ARGUMENT (also if members
 * called with other arguments), GW_ERR_NONFINITE (some member's values hold a NaN or an infinity; all members get this
 * error, and the values are unspecified), and those of gw_exchange_create and gw_exchange_wait. */
GW_API GW_MUST_CHECK gw_status gw_average_once(gw_context *context, const char *spec, const gw_link *link,
                                               uint64_t seed, float *values, uint64_t n_elems, gw_step_result *result);

#ifdef __cplusplus
}
#endif
#endif
