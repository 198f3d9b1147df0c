/* State files (.gws): what one worker's codec keeps between steps. They belong to a checkpoint, which all workers
 * share. Each worker has a file of its own. Rank 0 writes it when it gets the worker's state.
 *
 * All numbers little-endian:
 *     8 bytes   "GWSTATE1"
 *     8         identity of the checkpoint (checkpoint.h) that it belongs to
 *     8         step: updates made so far
 *     4         rank
 *     4         workers
 *     8         n, bytes of the state
 *     n         the state, as gw_exchange_save wrote it
 *     8         XXH3 (64 bit) of everything before */
#ifndef GW_TRAIN_RANK_STATE_H
#define GW_TRAIN_RANK_STATE_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

struct gw_rank_state {
    uint64_t identity, step;
    uint32_t rank, workers;
    const void *state;
    size_t state_bytes;
    uint8_t *file; /* the bytes that were read; `state` points into them */
};

/* Writes the worker's file of this step, whole or not at all. */
gw_status gw_rank_state_write(const char *folder, const struct gw_rank_state *state);

/* Reads the file of state->step, state->rank and state->workers. It refuses a file that belongs to another checkpoint.
 */
gw_status gw_rank_state_read(const char *folder, struct gw_rank_state *state);
void gw_rank_state_free(struct gw_rank_state *state);

#endif
