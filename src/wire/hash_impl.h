/* XXH3 for one instruction set. Include it inside a region that is compiled for that instruction set. First define
 * GW_HASH (the record's name), and XXH_VECTOR if the compiler must be told. */
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "wire/hash.h"

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct gw_hash_state), "a state must fit");

static uint64_t whole(const void *bytes, size_t n_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, n_bytes, seed);
}

static void begin(void *memory, uint64_t seed)
{
    XXH3_state_t *state = memory;
    XXH3_INITSTATE(state);
    XXH3_64bits_reset_withSeed(state, seed);
}

static void add(void *memory, const void *bytes, size_t n_bytes)
{
    XXH3_64bits_update(memory, bytes, n_bytes);
}

static uint64_t end(const void *memory)
{
    return XXH3_64bits_digest(memory);
}

const struct gw_hash GW_HASH;
const struct gw_hash GW_HASH = {.whole = whole, .begin = begin, .add = add, .end = end};
