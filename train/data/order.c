/* Shuffles the samples of an epoch, and says which part of a batch is a worker's share. */
#include "data/order.h"
#include "random.h"

void gw_order_shuffle(uint64_t seed, uint64_t epoch, uint32_t n, uint32_t *order)
{
    struct gw_random r = gw_random_open(seed, GW_PURPOSE_ORDER, (uint32_t)epoch, (uint32_t)(epoch >> 32));
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) { /* Fisher and Yates */
        uint32_t j = gw_random_below(&r, i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

void gw_order_share(uint32_t batch, uint32_t workers, uint32_t rank, uint32_t *begin, uint32_t *count)
{
    uint32_t each = batch / workers, more = batch % workers;
    *begin = rank * each + (rank < more ? rank : more);
    *count = each + (rank < more);
}
