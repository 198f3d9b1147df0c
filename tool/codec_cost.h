/* Measures what a codec costs on drawn gradients: bits for each element on the wire, and time on this machine. */
#ifndef GRADWIRE_CODEC_COST_H
#define GRADWIRE_CODEC_COST_H

#include <gradwire/gradwire.h>
#include <stdint.h>

#define TOOL_MOST_PUSHES 512u /* an average of more pushes is measured as one of this many */

/* Encodes the drawn gradients of `machines` workers (probe/gradient.h), and reduces the frames. Each worker has another
 * part of the sequence. *bits_up is the mean of the pushes, and *bits_down that of the average, in bits for each
 * element, with headers. A codec with a state takes its first step. Errors: those of the codec, GW_ERR_MEMORY. */
gw_status tool_codec_bits(gw_context *context, const gw_codec *codec, uint32_t machines, double *bits_up,
                          double *bits_down);

/* Measures the seconds for each element to measure and encode a gradient, and to decode an average of two, with the
 * context's threads. These are medians of a few runs. Errors: those of the codec, GW_ERR_MEMORY. */
gw_status tool_codec_seconds(gw_context *context, const gw_codec *codec, double *seconds_per_element);

#endif
