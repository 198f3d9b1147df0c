/* Chooses the codes of frames that are to cost few cycles. */
#include "codec/ternary/ternary.h"

bool ternary_has_wire_choice(const void *raw)
{
    const struct ternary_options *o = raw;
    return (o->code == PUSH_AUTO && o->entropy != ENTROPY_ON) ||
           (o->pull == PULL_AUTO && o->share == SHARE_ON && o->entropy == ENTROPY_AUTO);
}

struct ternary_options ternary_fast(const struct ternary_options *as_given)
{
    struct ternary_options fast = *as_given;
    if (fast.code == PUSH_AUTO)
        fast.code = PUSH_MASK;
    if (fast.pull == PULL_AUTO)
        fast.pull = PULL_PACKED;
    if (fast.entropy == ENTROPY_AUTO)
        fast.entropy = ENTROPY_OFF;
    return fast;
}
