/* Chooses the codes of frames that are to cost few cycles. */
#include "codec/ternary/ternary.h"

bool ternary_has_wire_choice(const void *raw)
{
    const struct ternary_options *o = raw;
    return (o->packing.code == PUSH_AUTO && o->packing.entropy != ENTROPY_ON) ||
           (o->packing.pull == PULL_AUTO && o->share == SHARE_ON && o->packing.entropy == ENTROPY_AUTO);
}

struct ternary_packing ternary_fast(struct ternary_packing packing)
{
    if (packing.code == PUSH_AUTO)
        packing.code = PUSH_MASK;
    if (packing.pull == PULL_AUTO)
        packing.pull = PULL_PACKED;
    if (packing.entropy == ENTROPY_AUTO)
        packing.entropy = ENTROPY_OFF;
    return packing;
}
