/* A verdict: whether gradients are finite, and if not, which is named. */
#ifndef GW_EXCHANGE_VERDICT_H
#define GW_EXCHANGE_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether all gradients looked at so far are finite, and if not, the lowest (tensor, rank). */
struct verdict {
    bool bad;
    uint32_t tensor, rank;
};

static inline void gw_verdict_add(struct verdict *sum, struct verdict one)
{
    if (one.bad && (!sum->bad || one.tensor < sum->tensor || (one.tensor == sum->tensor && one.rank < sum->rank)))
        *sum = one;
}

#endif
