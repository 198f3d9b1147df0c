/* Draws which elements of a range are sent, with the kernels of this machine. It scales up very small tensors first,
 * and passes groups that are cut at an end through a copy. */
#include "codec/draw.h"

#include <float.h>
#include <math.h>

/* The least s for which 2^32/s is far from overflow. Smaller tensors are first scaled up by 2^64, which is exact. */
#define TINY_SCALER 0x1p-90f

void gw_draw_range(struct gw_ternary_draw *draw, const float *g, float s, uint64_t begin, uint64_t end, uint64_t base,
                   uint64_t *drawn, uint64_t *negative, uint64_t n_words)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    float clip = draw->clip, up = 1;
    if (s == 0)
        return;
    if (s < TINY_SCALER) {
        up = 0x1p64f;
        s *= up;
        draw->clip = clip < 1 ? clip * up : FLT_MAX;
    }
    draw->to_threshold = 0x1p32f / s;
    if (s * draw->to_threshold < 0x1p32f) /* so the largest element is drawn for certain */
        draw->to_threshold = nextafterf(draw->to_threshold, FLT_MAX);
    while (begin < end) {
        uint64_t group = begin / GW_DRAW_GROUP, group_begin = group * GW_DRAW_GROUP, w = (group_begin - base) / 64;
        if (begin == group_begin && end - begin >= GW_DRAW_GROUP && up == 1) {
            uint64_t n_groups = (end - begin) / GW_DRAW_GROUP;
            kernels->draw(draw, g + begin, group, n_groups, drawn + w, negative + w);
            begin += n_groups * GW_DRAW_GROUP;
            continue;
        }
        /* Whole groups go straight to the kernel. A bucket or the tensor's end may cut a group. Such a part goes
         * through a copy with zeros around it, which are never drawn. */
        float copy[GW_DRAW_GROUP] = {0};
        uint64_t stop = end < group_begin + GW_DRAW_GROUP ? end : group_begin + GW_DRAW_GROUP, bits[2], signs[2];
        for (uint64_t e = begin; e < stop; e++)
            copy[e - group_begin] = g[e] * up;
        kernels->draw(draw, copy, group, 1, bits, signs);
        /* A group has two words. The tensor may end with the first of them. */
        for (uint64_t half = 0; half < 2 && w + half < n_words; half++) {
            drawn[w + half] |= bits[half];
            negative[w + half] |= signs[half];
        }
        begin = stop;
    }
    draw->clip = clip;
}
