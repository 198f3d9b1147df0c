/* Draws elements of a tensor: element e with probability min(|g_e|, clip) / s. The random numbers depend on where in
 * the run and in the tensor the element stands (docs/wire-format.md, "Random numbers"). */
#ifndef GW_CODEC_DRAW_H
#define GW_CODEC_DRAW_H

#include "codec/kernels.h"

/* Draws elements [begin, end) of the tensor g, with clip at most s. The bitmaps have n_words words and begin at element
 * `base`, a multiple of 64. `negative` marks the drawn elements that are negative. If the run begins or ends within a
 * group of GW_DRAW_GROUP elements, its bits are added to those of the bitmaps. Sets to_threshold of `draw`. */
void gw_draw_range(struct gw_ternary_draw *draw, const float *g, float s, uint64_t begin, uint64_t end, uint64_t base,
                   uint64_t *drawn, uint64_t *negative, uint64_t n_words);

#endif
