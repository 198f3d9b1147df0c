/* Lets the codec of an exchange begin as if it had been at work for a while. */
#include "probe/run_in.h"
#include "codec/codec.h"
#include "exchange/state.h"

void gw_exchange_run_in(gw_exchange *ex, const float *gradients, const uint64_t *offsets)
{
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        gw_encoder_run_in(ex->tensors[t].encoder, gradients + offsets[t], ex->rank);
}
