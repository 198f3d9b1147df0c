/* A verdict says whether gradients are finite. If one is not, the verdict names it. */
#ifndef GW_EXCHANGE_VERDICT_H
#define GW_EXCHANGE_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

/* bad false: all gradients so far are finite. true: one is not finite; it names the lowest (tensor, rank) of these. */
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
