/* The order of samples: a new shuffle in every epoch, which depends only on the seed and the epoch. Batch t has the
 * same samples, however many workers share it. At the end of an epoch n mod B samples are left over, in every epoch
 * others. They are dropped, so that every batch is whole. */
#ifndef GW_TRAIN_ORDER_H
#define GW_TRAIN_ORDER_H

#include <stdint.h>

/* Fills order[0..n) with a permutation of 0..n-1. */
void gw_order_shuffle(uint64_t seed, uint64_t epoch, uint32_t n, uint32_t *order);

/* Worker `rank` of `workers` takes samples [begin, begin+count) of a batch. Shares differ by at most one sample. */
void gw_order_share(uint32_t batch, uint32_t workers, uint32_t rank, uint32_t *begin, uint32_t *count);

#endif
