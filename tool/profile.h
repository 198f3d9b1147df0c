/* PROFILE.json: `gradwire probe` writes it, and plans, advice and replays read it. */
#ifndef GRADWIRE_PROFILE_H
#define GRADWIRE_PROFILE_H

#include "tool.h"

typedef struct tool_profile {
    gw_profile profile;   /* checked */
    gw_compress compress; /* as --compress says, else as it was measured; inline if the file does not say it */
    json_t *root;         /* its names point in here */
    gw_profile_layer *layers;
    gw_profile_codec *codecs;
    double *off_by; /* for each codec: the median by which the model was off what was measured. NAN: not known */
} tool_profile;

/* Reads a file and checks it. compress: the value of --compress; NULL: it was not given. Returns TOOL_DONE, or an exit
 * status with the message printed and nothing to free. */
int tool_profile_read(const char *path, const char *compress, tool_profile *out);

/* Reads only "forward_ms" and "layers"; the rest of the file may be missing. profile.codecs and profile.link are not
 * set. Otherwise as above. */
int tool_profile_read_layers(const char *path, tool_profile *out);

void tool_profile_free(tool_profile *profile);

/* True if the profile has the codec that `spec` means, also if it is spelled in another way. *codec: its number. */
bool tool_profile_has_codec(const tool_profile *profile, const char *spec, uint32_t *codec);

/* The same, but the codec must be there. */
int tool_profile_codec(const tool_profile *profile, const char *spec, uint32_t *codec);

/* Reads METHOD, or fixed:BYTES, as --plan and --method take it. */
int tool_parse_merge(const char *option, const char *text, gw_merge *method, uint64_t *fixed_bytes);

/* The help of --compress. */
#define TOOL_COMPRESS_HELP                                                                                             \
    "inline: backward waits while a gradient is measured and encoded, as in the paper; beside: another processor "     \
    "does "                                                                                                            \
    "that. Default: as the profile says, else inline"

#endif
