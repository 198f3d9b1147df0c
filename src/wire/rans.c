/* Tables of the entropy coder, and the coder itself a symbol at a time, which the kernels are tested against. */
#include "wire/rans.h"
#include "wire/bytes.h"

#include <pthread.h>
#include <string.h>

static struct gw_rans_order order;

static void make_order(void)
{
    uint32_t at = 0;
    for (uint32_t class = 0; class <= 8; class ++) {
        order.class_begin[class] = (uint8_t)at;
        for (uint32_t byte = 0; byte < 256; byte++)
            if ((uint32_t)__builtin_popcount(byte) == class) {
                order.class_of[byte] = (uint8_t) class;
                order.position[byte] = (uint8_t)at;
                order.byte[at++] = (uint8_t)byte;
            }
    }
    memset(order.shuffle, 0x80, sizeof order.shuffle);
    memset(order.pack, 0x80, sizeof order.pack);
    for (uint32_t mask = 0; mask < 256; mask++) {
        uint32_t taken = 0, n = (uint32_t)__builtin_popcount(mask);
        for (uint32_t lane = 0; lane < 8; lane++)
            if (mask >> lane & 1) {
                uint32_t word = 7 - taken, appended = n - 1 - taken;
                for (uint32_t half = 0; half < 2; half++) {
                    order.shuffle[mask][2 * lane + half] = (uint8_t)(2 * word + half);
                    order.pack[mask][2 * appended + half] = (uint8_t)(2 * lane + half);
                }
                taken++;
            }
    }
}

const struct gw_rans_order *gw_rans_order(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_order);
    return &order;
}

void gw_rans_table_make(struct gw_rans_table *table, uint32_t m, uint32_t ones, uint32_t last)
{
    static const uint8_t members[9] = {1, 8, 28, 56, 70, 56, 28, 8, 1};
    const struct gw_rans_order *places = gw_rans_order();
    *table = (struct gw_rans_table){.last = last};
    /* These are shares, with 32 fractional bits. The share of ones is at most a half. */
    const uint64_t one = ((uint64_t)ones << 32) / m, zero = (1ull << 32) - one;
    uint32_t left = 65536;
    for (uint32_t class = 1; class <= last; class ++) {
        uint64_t x = 1ull << 32;
        for (uint32_t i = 0; i < 8; i++)
            x = x * (i < class ? one : zero) >> 32;
        uint32_t each = (uint32_t)((x + (1u << 15)) >> 16);
        table->each[class] = (uint16_t)(each ? each : 1);
        left -= members[class] * table->each[class];
    }
    /* The byte without ones is at least as frequent as any other, so it takes the rest. */
    table->each[0] = (uint16_t)left;
    for (uint32_t class = 0, first = 0; class <= last; class ++) {
        const uint32_t each = table->each[class], shift = (uint32_t)__builtin_clz(each) - 16, reciprocal = 65536 / each;
        table->first[class] = (uint16_t)first;
        table->origin[class] = (uint16_t)(first - each * places->class_begin[class]);
        table->reciprocal[class] = (uint16_t)(reciprocal < 65535 ? reciprocal : 65535);
        table->scale[class] = (uint16_t)(1u << shift);
        table->inverse[class] = (uint16_t)(UINT32_MAX / (each << shift) - 65536);
        first += members[class] * each;
    }
}

static void join(const struct gw_rans_states *states, uint32_t *x)
{
    for (uint32_t lane = 0; lane < GW_RANS_LANES; lane++)
        x[lane] = (uint32_t)states->high[lane] << 16 | states->low[lane];
}

static void part(const uint32_t *x, struct gw_rans_states *states)
{
    for (uint32_t lane = 0; lane < GW_RANS_LANES; lane++) {
        states->low[lane] = (uint16_t)x[lane];
        states->high[lane] = (uint16_t)(x[lane] >> 16);
    }
}

uint8_t *gw_rans_encode(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n, uint32_t n_lanes,
                        struct gw_rans_states *states, uint8_t *words)
{
    const struct gw_rans_order *places = gw_rans_order();
    uint32_t states_now[GW_RANS_LANES], mask = n_lanes - 1;
    join(states, states_now);
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t class = places->class_of[symbols[i]], each = table->each[class];
        uint32_t x = states_now[i & mask];
        /* The processor cannot foresee whether a word goes out, so there is no branch. */
        const bool full = x >= each << 16;
        gw_put16(words, (uint16_t)x);
        words += 2 * full;
        x >>= 16 * full;
        const uint32_t quotient = x / each,
                       slot =
                           (uint16_t)(table->origin[class] + places->position[symbols[i]] * each) + x - quotient * each;
        states_now[i & mask] = quotient << 16 | slot;
    }
    part(states_now, states);
    return words;
}

bool gw_rans_decode(struct gw_rans_source *source, uint32_t n, uint32_t n_lanes)
{
    const struct gw_rans_table *table = source->table;
    const uint8_t *begin = source->begin, *at = source->words;
    const struct gw_rans_order *places = gw_rans_order();
    uint32_t states_now[GW_RANS_LANES], mask = n_lanes - 1, first[9];
    join(source->states, states_now);
    for (uint32_t c = 0; c < 9; c++)
        first[c] = c <= table->last ? table->first[c] : UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t x = states_now[i & mask];
        const uint32_t slot = x & 0xFFFF, class = (slot >= first[1]) + (slot >= first[2]) + (slot >= first[3]) +
                                                  (slot >= first[4]) + (slot >= first[5]) + (slot >= first[6]) +
                                                  (slot >= first[7]) + (slot >= first[8]);
        const uint32_t each = table->each[class], in_class = slot - table->first[class];
        /* The right index may be one more. */
        uint32_t index = in_class * table->reciprocal[class] >> 16, rest = in_class - index * each;
        const uint32_t more = rest >= each;
        index += more;
        rest -= each & -more;
        x = each * (x >> 16) + rest;
        source->symbols[i] = places->byte[places->class_begin[class] + index];
        if (at - begin < 2) { /* only the last symbols come here */
            if (x < 65536)
                return false;
        } else {
            const uint32_t empty = x < 65536;
            at -= 2 * empty;
            x = empty ? x << 16 | gw_get16(at) : x;
        }
        states_now[i & mask] = x;
    }
    part(states_now, source->states);
    source->symbols += n;
    source->words = at;
    return true;
}

extern const struct gw_rans gw_rans_avx2, gw_rans_avx512, gw_rans_neon;

const struct gw_rans *gw_rans_for(enum gw_cpu cpu)
{
#if defined(__x86_64__)
    /* The kernel compresses words and permutes bytes with two extensions. The first processors with AVX-512 lack these.
     */
    if (cpu == GW_CPU_AVX512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
        return &gw_rans_avx512;
    if (cpu == GW_CPU_AVX2 || cpu == GW_CPU_AVX512)
        return &gw_rans_avx2;
#elif defined(__aarch64__)
    if (cpu == GW_CPU_NEON)
        return &gw_rans_neon;
#else
    (void)cpu;
#endif
    return NULL;
}
