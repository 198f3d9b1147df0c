/* The parts of the pipeline: what each thing that happens leads to. All of this is called on the pipeline's own thread.
 */
#ifndef GW_EXCHANGE_PIPELINE_H
#define GW_EXCHANGE_PIPELINE_H

#include "exchange/state.h"

/* ---- the loop (pipeline.c) ---- */

/* The thread: runs until told to stop, or until an error, which it leaves in the exchange and tells the others. */
void *gw_pipeline_main(void *exchange);

/* Makes the only step of an exchange without a thread of its own, on the caller's thread. The caller has begun the step
 * and submitted all tensors. Returns when the step is done, or after an error, as the thread would leave it. */
void gw_pipeline_run_step(struct gw_exchange *exchange);

/* Looks at what the caller left. wake: the message that asked for this, which is kept for the next time; NULL: there
 * was none. */
gw_status gw_pipeline_look(struct gw_exchange *exchange, void *wake, bool *stop);

/* ---- sending (send.c) ---- */

/* Makes a message with its header. run: number of the run within the group; 0 if the message is about the whole group.
 * n_bytes includes the header. NULL: there is no memory. */
void *gw_message_new(struct gw_exchange *exchange, enum message_type type, const struct group *group, uint32_t run,
                     size_t n_bytes);

/* Makes a message of MESSAGE_BAD_BYTES. In place of the ordinary body it says which tensor of which rank is not finite.
 */
void *gw_message_bad(struct gw_exchange *exchange, enum message_type type, const struct group *group, uint32_t run,
                     struct verdict verdict);

/* Four ways to send: to one member; a copy to one member; to every other member; to every member. Each owns `bytes`
 * from the call on, even if it fails; but if it sends a copy, the caller keeps them. bytes NULL means that there was no
 * memory, and is GW_ERR_MEMORY. */
gw_status gw_send_to(struct gw_exchange *exchange, uint32_t to, void *bytes, size_t n_bytes);
gw_status gw_send_copy(struct gw_exchange *exchange, uint32_t to, const void *bytes, size_t n_bytes);
gw_status gw_send_to_others(struct gw_exchange *exchange, void *bytes, size_t n_bytes);
gw_status gw_send_to_all(struct gw_exchange *exchange, void *bytes, size_t n_bytes);

/* Takes the status of a send. If a member is gone, finds out why. */
gw_status gw_sent(struct gw_exchange *exchange, gw_status status);

/* Counts what this member, as a worker, sends to another member or a server, and what it gets from there. */
void gw_count_up(struct gw_exchange *exchange, uint32_t to, size_t n_bytes);
void gw_count_down(struct gw_exchange *exchange, uint32_t from, size_t n_bytes);

/* ---- farewells (leave.c) ---- */

/* Tells every other member that this one sends nothing more, and who left first. */
void gw_say_leave(struct gw_exchange *exchange);

/* Handles another member's farewell. If that member has made the step that is under way here, all that it owes has come
 * before this message. */
gw_status gw_take_leave(struct gw_exchange *exchange, const gw_message *message);

/* GW_ERR_PEER if a member that left has made fewer steps than this one has begun. This member leaves then, too. Between
 * steps the next step counts as begun: call it there only if no step can follow. */
gw_status gw_check_departed(struct gw_exchange *exchange);

/* ---- what is over (finish.c) ---- */

/* Notes that a run is over: its results are in the gradients, or it has none. */
void gw_pulled(struct gw_exchange *exchange, struct group *group, struct run *run);

/* Notes that a group is done in this step. After the last group the step ends, if no first message is missing. */
void gw_finish_group(struct gw_exchange *exchange, struct group *group);

/* True if all groups are done, but the first message of some member has not come yet. */
bool gw_waits_for_hellos(const struct gw_exchange *exchange);
/* True if this member cannot go on before others have sent something. */
bool gw_waits_for_others(const struct gw_exchange *exchange);

/* Ends the step: the encoders get its verdict, and the caller gets its result. */
void gw_finish_step(struct gw_exchange *exchange);

/* ---- worker (worker.c) ---- */

/* Measures a tensor. If that was the last of its group, sends the group's statistics, or begins to encode the group. */
gw_status gw_take_gradient(struct gw_exchange *exchange, uint32_t tensor);

/* Encodes a run and pushes it. */
gw_status gw_push_run(struct gw_exchange *exchange, struct group *group, struct run *run);

/* Handle shared numbers, or the averages of a run, that have come. They were asked for, and belong to this step. */
gw_status gw_take_shared(struct gw_exchange *exchange, struct group *group, const struct arrival *arrival);
gw_status gw_take_averages(struct gw_exchange *exchange, struct group *group, struct run *run,
                           const struct arrival *arrival);

/* ---- parameters on servers (parameters.c) ---- */

/* Notes that all pushes of a group have left, or that the group has none. After the last group it gives the step's
 * verdict, and then asks for all parameters. */
gw_status gw_group_all_pushed(struct gw_exchange *exchange);

/* Asks for all parameters. Brings the first ones if there are any. */
gw_status gw_begin_parameters(struct gw_exchange *exchange);

/* Handles the parameters of a run that have come. */
gw_status gw_take_parameters(struct gw_exchange *exchange, struct group *group, struct run *run,
                             const struct arrival *arrival);

/* ---- coordinator (coordinator.c) ---- */

/* Handles the statistics of a worker that have come. */
gw_status gw_take_stats(struct gw_exchange *exchange, struct group *group, const struct arrival *arrival);

/* ---- owner, and relay to another's owner (owner.c) ---- */

/* Handles a push that has come. If all is well, it keeps message->bytes and sets the pointer to NULL. */
gw_status gw_take_push(struct gw_exchange *exchange, struct group *group, struct run *run,
                       const struct arrival *arrival, gw_message *message);

/* Adds the owner's own part of a run. It is not sent anywhere: the owner adds up the gradient itself. */
gw_status gw_take_own(struct gw_exchange *exchange, struct group *group, struct run *run);

#endif
