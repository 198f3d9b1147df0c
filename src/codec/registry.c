/* The tables of codecs: those that specifications name, and those that frames name. */
#include "codec/sparse/sparse.h"

const struct gw_codec_record *const gw_codec_records[] = {&gw_codec_none, &gw_codec_bf16, &gw_codec_f16, &gw_codec_ternary,
                                                          &gw_codec_gspar, &gw_codec_uniform, &gw_codec_topk, NULL};

static const struct gw_codec_record *const by_wire_id[GW_WIRE_END] = {
    [GW_WIRE_NONE] = &gw_codec_none,       [GW_WIRE_BF16] = &gw_codec_bf16,     [GW_WIRE_F16] = &gw_codec_f16,
    [GW_WIRE_TERNARY] = &gw_codec_ternary, [GW_WIRE_SPARSE] = &gw_frames_sparse, [GW_WIRE_GSPAR] = &gw_frames_gspar,
};

const struct gw_codec_record *gw_codec_record_by_id(uint8_t wire_id)
{
    return wire_id < GW_WIRE_END ? by_wire_id[wire_id] : NULL;
}

const gw_codec_info *gw_codec_list(size_t i)
{
    for (size_t j = 0; gw_codec_records[j]; j++)
        if (j == i)
            return &gw_codec_records[j]->info;
    return NULL;
}
