/* What an exchange, probes and reports ask of encoders and codecs, besides what every program does with them. */
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

/* If the codec is global (gw_codec_traits), the call says at the beginning of a step, before the first tensor is
 * measured, what the n encoders of all tensors of the network will do in it. Give them in declared order. *together
 * true: each waits until all are measured; gw_encoders_combine then comes before you encode. False: each can be encoded
 * as soon as it is measured, and gw_encoders_combine is not needed. Without the call, gw_encoders_combine is always
 * needed, and frames have the same bytes. With other codecs *together becomes false. Errors: GW_ERR_ARGUMENT (a NULL,
 * encoders of several codecs). */
GW_MUST_CHECK gw_status gw_encoders_begin(gw_encoder *const *encoders, uint32_t n, bool *together);

/* Sets *points to the most that the codec lost, with just these options, in a training that gw_codec_info.losses knows:
 * points of test accuracy in percent. Below 0: it lost nothing. NAN: none is known. NULL is not allowed. Any thread may
 * call it. Errors: GW_ERR_MEMORY. */
GW_MUST_CHECK gw_status gw_codec_lost(const gw_codec *codec, double *points);

#endif
