/* XXH3-64, from xxHash's header. The shared library of distributions is compiled for the oldest processors and runs at
 * half the speed or less. So it is built here once per instruction set; all give the same hash. */
#ifndef GW_WIRE_HASH_H
#define GW_WIRE_HASH_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

struct gw_hash {
    /* Of n_bytes bytes at once. */
    uint64_t (*whole)(const void *bytes, size_t n_bytes, uint64_t seed);

    /* Piece by piece. `memory`: a struct gw_hash_state. */
    void (*begin)(void *memory, uint64_t seed);
    void (*add)(void *memory, const void *bytes, size_t n_bytes);
    uint64_t (*end)(const void *memory);
};

/* Room for a state of any of them. */
struct gw_hash_state {
    _Alignas(64) uint8_t bytes[640];
};

/* The one for gw_cpu(). */
const struct gw_hash *gw_hash_now(void);

/* One instruction set's; NULL if this build has none. */
const struct gw_hash *gw_hash_for(enum gw_cpu cpu);

#endif
