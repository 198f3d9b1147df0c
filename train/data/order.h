/* The order of samples: a new shuffle every epoch, a function of the seed and the epoch alone. Batch t of an epoch is
 * the same set of samples however many workers share it. The n mod B samples left over at an epoch's end are dropped,
 * so every batch is whole. Other samples are left over in the next epoch. */
#ifndef GW_TRAIN_ORDER_H
#define GW_TRAIN_ORDER_H

#include <stdint.h>

/* Fills order[0..n) with a permutation of 0..n-1. */
void gw_order_shuffle(uint64_t seed, uint64_t epoch, uint32_t n, uint32_t *order);

/* Worker `rank` of `workers` takes samples [begin, begin+count) of a batch of B: shares differ by at most one. */
void gw_order_share(uint32_t batch, uint32_t workers, uint32_t rank, uint32_t *begin, uint32_t *count);

#endif
