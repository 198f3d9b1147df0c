/* Tests that every instruction set's XXH3 gives the same hash, whole and in pieces, at any address. */
#include "checks.h"
#include "wire/hash.h"

#include <stdlib.h>

enum { MOST = 5000 };

TEST(same_everywhere)
{
    uint8_t *bytes = malloc(MOST + 8);
    struct gw_hash_state memory;
    uint32_t x = 12345;
    for (int i = 0; i < MOST + 8; i++)
        bytes[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (enum gw_cpu cpu = GW_CPU_SCALAR; cpu <= GW_CPU_NEON; cpu++) {
        const struct gw_hash *plain = gw_hash_for(GW_CPU_SCALAR), *hash = gw_hash_for(cpu);
        if (!hash || (gw_cpu_best() != GW_CPU_NEON && cpu > gw_cpu_best()))
            continue;
        for (size_t n = 0; n <= MOST; n += n < 300 ? 1 : 97) {
            const uint8_t *at = bytes + n % 8;
            uint64_t expected = plain->whole(at, n, n);
            assert_int_equal(hash->whole(at, n, n), expected);
            hash->begin(&memory, n);
            for (size_t done = 0, piece = 0; done < n; done += piece) {
                piece = 1 + (done * 7 + n) % 700;
                piece = piece < n - done ? piece : n - done;
                hash->add(&memory, at + done, piece);
            }
            assert_int_equal(hash->end(&memory), expected);
        }
    }
    free(bytes);
}

/* From xxHash's documentation: the hash of the empty input. */
TEST(known_answer)
{
    assert_int_equal(gw_hash_now()->whole("", 0, 0), 0x2D06800538D394C2ull);
}

RUN_TESTS("hash", NULL, NULL)
