/* What an exchange and measurements ask encoders of a network, besides what every program does with them. */
#ifndef GW_CODEC_TOGETHER_H
#define GW_CODEC_TOGETHER_H

#include <gradwire/codec.h>

/* If the codec is global (gw_codec_traits), the call says at the beginning of a step, before the first tensor is
 * measured, what the n encoders of all tensors of the network will do in it. Give them in declared order. *together
 * true: each waits until all are measured; gw_encoders_combine then comes before you encode. False: each can be encoded
 * as soon as it is measured, and gw_encoders_combine is not needed. Without the call, gw_encoders_combine is always
 * needed, and frames have the same bytes. With other codecs *together becomes false. Errors: GW_ERR_ARGUMENT (a NULL,
 * encoders of several codecs). */
GW_MUST_CHECK gw_status gw_encoders_begin(gw_encoder *const *encoders, uint32_t n, bool *together);

#endif
