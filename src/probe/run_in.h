/* For measurements: an exchange whose codec has been at work for a while. */
#ifndef GW_PROBE_RUN_IN_H
#define GW_PROBE_RUN_IN_H

#include <gradwire/exchange.h>

/* Gives the codec a state as if many steps with gradients like these had gone before (gw_encoder_run_in). Tensor t's
 * gradient begins at gradients + offsets[t]. Call it before the first step. */
void gw_exchange_run_in(gw_exchange *exchange, const float *gradients, const uint64_t *offsets);

#endif
