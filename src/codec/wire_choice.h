/* How frames are written, if that is a choice: its names, and what an exchange tells its encoders. */
#ifndef GW_CODEC_WIRE_CHOICE_H
#define GW_CODEC_WIRE_CHOICE_H

#include <gradwire/codec.h>

/* The name of a wire choice: "auto", "small" or "fast". NULL if `wire` is none of these. Static storage. Any thread may
 * call it. */
const char *gw_wire_name(gw_wire wire);

/* Finds the wire choice of a name. Any thread may call it. Errors: GW_ERR_SPEC (another word; the sentence says which
 * are right), GW_ERR_ARGUMENT (a NULL). */
GW_MUST_CHECK gw_status gw_wire_parse(const char *name, gw_wire *out);

/* True if the codec's options leave a choice of how frames are written. Then GW_WIRE_FAST gives pushes or averages of
 * this tensor other bytes than GW_WIRE_SMALL. If an option names a code, frames have that code with either wire choice.
 * False for NULL. */
bool gw_encoder_has_wire_choice(const gw_encoder *encoder);

/* push: how this encoder writes its frames from here on. pull: how gw_reduce is to write the average of these frames
 * and others. gw_reduce writes an average as GW_WIRE_FAST if one of its frames asks for it. At first both are
 * GW_WIRE_SMALL. An encoder without a choice ignores the call, and so does NULL. */
void gw_encoder_choose_wire(gw_encoder *encoder, gw_wire push, gw_wire pull);

#endif
