/* The table of codecs. */
#include "codec/codec.h"

const struct gw_codec_record *const gw_codec_records[] = {&gw_codec_none, &gw_codec_bf16, &gw_codec_f16, &gw_codec_ternary,
                                                          NULL};

const struct gw_codec_record *gw_codec_record_by_id(uint8_t wire_id)
{
    for (size_t i = 0; gw_codec_records[i]; i++)
        if (gw_codec_records[i]->info.wire_id == wire_id)
            return gw_codec_records[i];
    return NULL;
}

const gw_codec_info *gw_codec_list(size_t i)
{
    for (size_t j = 0; gw_codec_records[j]; j++)
        if (j == i)
            return &gw_codec_records[j]->info;
    return NULL;
}
