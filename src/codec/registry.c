/* The tables of codecs, which specifications name, and of wire codecs, which frames name by their numbers. */
#include "codec/codec.h"

/* A new codec NAME is one line here: its file defines gw_codec_NAME. Listings have this order. */
#define CODECS(CODEC)                                                                                                  \
    CODEC(none)                                                                                                        \
    CODEC(bf16)                                                                                                        \
    CODEC(f16)                                                                                                         \
    CODEC(ternary)                                                                                                     \
    CODEC(gspar)                                                                                                       \
    CODEC(uniform)                                                                                                     \
    CODEC(topk)                                                                                                        \
    CODEC(onebit)

/* Frames with a number of their own (enum gw_wire_id) are one line here: a file defines gw_wire_NAME. */
#define WIRE_CODECS(WIRE_CODEC)                                                                                        \
    WIRE_CODEC(none)                                                                                                   \
    WIRE_CODEC(bf16)                                                                                                   \
    WIRE_CODEC(f16)                                                                                                    \
    WIRE_CODEC(ternary)                                                                                                \
    WIRE_CODEC(sparse)                                                                                                 \
    WIRE_CODEC(gspar)                                                                                                  \
    WIRE_CODEC(onebit)

#define DECLARE_CODEC(name) extern const struct gw_codec_record gw_codec_##name;
#define DECLARE_WIRE_CODEC(name) extern const struct gw_wire_codec gw_wire_##name;
CODECS(DECLARE_CODEC)
WIRE_CODECS(DECLARE_WIRE_CODEC)

#define LIST_CODEC(name) &gw_codec_##name,
#define LIST_WIRE_CODEC(name) &gw_wire_##name,
const struct gw_codec_record *const gw_codec_records[] = {CODECS(LIST_CODEC) NULL};
const struct gw_wire_codec *const gw_wire_codecs[] = {WIRE_CODECS(LIST_WIRE_CODEC) NULL};

const struct gw_wire_codec *gw_wire_codec_by_id(uint8_t id)
{
    const struct gw_wire_codec *const *wire = gw_wire_codecs;
    while (*wire && (*wire)->id != id)
        wire++;
    return *wire;
}

uint64_t gw_frame_n_scalers(uint8_t wire_id, uint32_t bucket, uint64_t count)
{
    const struct gw_wire_codec *wire = gw_wire_codec_by_id(wire_id);
    return wire && wire->n_scalers ? wire->n_scalers(bucket, count) : 0;
}

const gw_codec_info *gw_codec_list(size_t i)
{
    const size_t n = sizeof gw_codec_records / sizeof *gw_codec_records - 1;
    return i < n ? &gw_codec_records[i]->info : NULL;
}
