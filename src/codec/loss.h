/* What trainings lost with a codec, for advice. */
#ifndef GW_CODEC_LOSS_H
#define GW_CODEC_LOSS_H

#include <gradwire/codec.h>

/* The most that the codec lost, with just these options, in a training that gw_codec_info.losses knows: points of test
 * accuracy in percent. Below 0: it lost nothing. NAN: none is known, or memory is short. NULL is not allowed. Any
 * thread may call it. */
double gw_codec_lost(const gw_codec *codec);

#endif
