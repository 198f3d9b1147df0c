/* What a codec costs on drawn gradients: bits an element on the wire, and time on this machine. */
#ifndef GRADWIRE_CODEC_COST_H
#define GRADWIRE_CODEC_COST_H

#include <gradwire/gradwire.h>
#include <stdint.h>

#define TOOL_MOST_PUSHES 512u /* an average of more is measured as one of so many */

/* Encodes the drawn gradients of `machines` workers (bench_gradient.h), each another part of the sequence, and reduces
 * the frames. *bits_up is the mean of the pushes and *bits_down the average, in bits an element, headers included. A
 * codec with a state takes its first step. Errors: those of the codec, GW_ERR_MEMORY. */
gw_status tool_codec_bits(gw_context *context, const gw_codec *codec, uint32_t machines, double *bits_up,
                          double *bits_down);

/* Seconds an element to measure and encode a gradient and to decode an average of two, with the context's threads:
 * medians of a few runs. Errors: those of the codec, GW_ERR_MEMORY. */
gw_status tool_codec_seconds(gw_context *context, const gw_codec *codec, double *seconds_per_element);

#endif
