/* Chooses the codes of frames that are to cost few cycles. */
#include "codec/ternary/ternary.h"

/* Indices into `codes` and `pulls` of ternary.c. */
enum { AUTO, CODE_IS_MASK = 3, PULL_IS_PACKED = 1 };

bool ternary_has_wire_choice(const void *raw)
{
    const struct ternary_options *o = raw;
    return (o->code == AUTO && o->entropy != ENTROPY_ON) ||
           (o->pull == AUTO && o->share == SHARE_ON && o->entropy == ENTROPY_AUTO);
}

struct ternary_options ternary_fast(const struct ternary_options *as_given)
{
    struct ternary_options fast = *as_given;
    if (fast.code == AUTO)
        fast.code = CODE_IS_MASK;
    if (fast.pull == AUTO)
        fast.pull = PULL_IS_PACKED;
    if (fast.entropy == ENTROPY_AUTO)
        fast.entropy = ENTROPY_OFF;
    return fast;
}
