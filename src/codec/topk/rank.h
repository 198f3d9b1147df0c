/* Finds the k-th largest magnitude of a list of tensors, exactly. The tensors are cut into chunks. Only selection uses
 * it. */
#ifndef GW_CODEC_TOPK_RANK_H
#define GW_CODEC_TOPK_RANK_H

#include "codec/topk/select.h"
#include "wire/bytes.h"

/* A list of parts, cut into chunks of GW_CHUNK elements. A chunk lies in one part only. If it is only ranked, a part
 * may have no residual: then a = g. */
struct gw_select_list {
    const struct gw_select_part *parts;
    uint32_t n_parts;
    uint64_t n, n_chunks;
    uint64_t *first_chunk; /* the first chunk of each part, and the end; NULL if there is only one part */
};

struct gw_select_chunk {
    uint32_t part;
    uint64_t begin, n; /* elements of the part */
};

gw_status gw_select_list_init(gw_context *context, const struct gw_select_part *parts, uint32_t n_parts,
                              struct gw_select_list *list);
void gw_select_list_fini(gw_context *context, struct gw_select_list *list);
struct gw_select_chunk gw_select_list_chunk(const struct gw_select_list *list, uint64_t i);

/* How many slots gw_parallel_for can give out over the list's chunks. */
uint32_t gw_select_list_slots(gw_context *context, const struct gw_select_list *list);

/* Finds the k-th largest |a| of the list, with k from 1 to its length. The time is linear in the length. All magnitudes
 * must lie between `low` and `high`. *k becomes the count of those among the k that are equal to it. */
gw_status gw_rank_find(gw_context *context, const struct gw_select_list *list, uint64_t *k, uint32_t low, uint32_t high,
                       uint32_t *bits);

/* The sample of a list of n elements, if n is larger than the sample: its size, and the place of its element s. Tests
 * use these to put values where no guess looks. */
uint64_t gw_rank_sample_size(uint64_t n);
uint64_t gw_rank_sample_place(uint64_t n, uint64_t s);

/* Guesses a magnitude from a sample. The guess is hardly ever above the k-th largest, and hardly ever are more than
 * *most elements above the guess. *most is at least k. If the list is short, the guess is the k-th largest itself. */
gw_status gw_rank_guess(gw_context *context, const struct gw_select_list *list, uint64_t k, uint32_t *bits,
                        uint64_t *most);

#endif
