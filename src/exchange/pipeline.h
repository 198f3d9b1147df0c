/* The parts of the pipeline: what each thing that happens leads to. All of this is called on the pipeline's own thread.
 */
#ifndef GW_EXCHANGE_PIPELINE_H
#define GW_EXCHANGE_PIPELINE_H

#include "exchange/state.h"

/* ---- the loop (pipeline.c) ---- */

/* The thread: runs until told to stop, or until an error, which it leaves in the exchange and tells the others. */
void *gw_pipeline_main(void *exchange);

/* Looks at what the caller left. wake: what called for that, kept for the next time; NULL: nothing did. */
gw_status gw_pipeline_look(struct gw_exchange *exchange, void *wake, bool *stop);

/* ---- sending (send.c) ---- */

/* A message with its header. run: number of the run within the group; 0: the message is of the whole group. n_bytes
 * includes the header. NULL: there is no memory. */
void *gw_message_new(struct gw_exchange *exchange, enum message_type type, const struct group *group, uint32_t run,
                     size_t n_bytes);

/* A message of MESSAGE_BAD_BYTES that says what is not finite in place of its ordinary body. */
void *gw_message_bad(struct gw_exchange *exchange, enum message_type type, const struct group *group, uint32_t run,
                     struct verdict verdict);

/* Each owns `bytes`, which may be NULL for want of memory, even if it fails: to one member; a copy to one, and the
 * bytes stay the caller's; to every other member; to every member. */
gw_status gw_send_to(struct gw_exchange *exchange, uint32_t to, void *bytes, size_t n_bytes);
gw_status gw_send_copy(struct gw_exchange *exchange, uint32_t to, const void *bytes, size_t n_bytes);
gw_status gw_send_to_others(struct gw_exchange *exchange, void *bytes, size_t n_bytes);
gw_status gw_send_to_all(struct gw_exchange *exchange, void *bytes, size_t n_bytes);

/* Counts what this member, as a worker, sends to another member or a server, and what it gets from there. */
void gw_count_up(struct gw_exchange *exchange, uint32_t to, size_t n_bytes);
void gw_count_down(struct gw_exchange *exchange, uint32_t from, size_t n_bytes);

/* ---- worker (worker.c) ---- */

/* Measures a tensor, and sends what follows once its group is measured. */
gw_status gw_take_gradient(struct gw_exchange *exchange, uint32_t tensor);

/* Encodes a run and pushes it. */
gw_status gw_push_run(struct gw_exchange *exchange, struct group *group, struct run *run);

/* Shared numbers, or the averages of a run, have come. They were asked for and are of this step. */
gw_status gw_take_shared(struct gw_exchange *exchange, struct group *group, const struct arrival *arrival);
gw_status gw_take_averages(struct gw_exchange *exchange, struct group *group, struct run *run,
                           const struct arrival *arrival);

/* The run's results stand in the gradients, or never will. */
void gw_pulled(struct gw_exchange *exchange, struct group *group, struct run *run);

void gw_finish_group(struct gw_exchange *exchange, struct group *group);

/* All groups are done; of members that sent nothing else the first message may still be under way. */
bool gw_waits_for_hellos(const struct gw_exchange *exchange);
void gw_finish_step(struct gw_exchange *exchange);

/* ---- parameters on servers (parameters.c) ---- */

/* A group's pushes have left, or it will have none. After the last group the step's verdict follows, and then all
 * parameters are asked for. */
gw_status gw_through(struct gw_exchange *exchange);

/* Asks for all parameters. Brings the first ones if there are any. */
gw_status gw_begin_errand(struct gw_exchange *exchange);

/* The parameters of a run have come. */
gw_status gw_take_parameters(struct gw_exchange *exchange, struct group *group, struct run *run,
                             const struct arrival *arrival);

/* ---- coordinator (coordinator.c) ---- */

/* The statistics of a worker have come. */
gw_status gw_take_stats(struct gw_exchange *exchange, struct group *group, const struct arrival *arrival);

/* ---- owner, and relay to another's owner (owner.c) ---- */

/* A push has come. Keeps message->bytes, and sets it NULL, if all is well. */
gw_status gw_take_push(struct gw_exchange *exchange, struct group *group, struct run *run,
                       const struct arrival *arrival, gw_message *message);

/* Puts in the owner's own part of a run, which goes nowhere: the gradient itself is added up. */
gw_status gw_take_own(struct gw_exchange *exchange, struct group *group, struct run *run);

/* As a relay, hands averages on to the other workers of its machine. */
gw_status gw_hand_on(struct gw_exchange *exchange, const struct run *run, const gw_message *message);

#endif
