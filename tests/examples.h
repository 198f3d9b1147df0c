/* Walks the examples of all codecs (gw_codec_info), so that a test of every codec needs no list of its own. */
#ifndef GW_TESTS_EXAMPLES_H
#define GW_TESTS_EXAMPLES_H

#include <gradwire/codec.h>

/* The nth example, from 0. NULL after the last. */
static inline const char *example(size_t nth)
{
    const gw_codec_info *info;
    for (size_t i = 0; (info = gw_codec_list(i)); i++)
        for (size_t k = 0; info->examples[k]; k++)
            if (nth-- == 0)
                return info->examples[k];
    return NULL;
}

#endif
