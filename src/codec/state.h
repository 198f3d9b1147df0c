/* What an exchange and reports do with the state that encoders keep between steps, besides saving it. */
#ifndef GW_CODEC_STATE_H
#define GW_CODEC_STATE_H

#include <gradwire/codec.h>

/* Multiplies the residual by `factor`, a finite number above 0. Use it if gradients come in another unit from here on
 * (loss scaling). Call it between two steps. Errors: GW_ERR_ARGUMENT. */
GW_MUST_CHECK gw_status gw_encoder_scale(gw_encoder *encoder, float factor);

/* Merges the states that n_states workers saved of one tensor into one state. With it, a run goes on with another
 * number of workers: each of them loads it. It holds the mean (1/N) sum e_i of the residuals, so that what they add to
 * the average stays the same. Thresholds are taken afresh. All states and dst have state_bytes bytes. n_states: 1 ..
 * GW_MAX_WORKERS. Errors: GW_ERR_ARGUMENT (they are not states of one tensor and codec). */
GW_MUST_CHECK gw_status gw_states_merge(const void *const *states, uint32_t n_states, size_t state_bytes, void *dst);

/* Describes what an encoder keeps between steps. It reads the whole residual. encoder NULL: all 0. */
void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_condition *condition);

#endif
