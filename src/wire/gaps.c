/* Chooses how a string of bits is coded and calls the coder for this processor (gaps_impl.h). It also holds the tables
 * that decoding looks into. */
#define GW_GAPS gw_gaps_plain
#include "wire/gaps_impl.h"

#include <pthread.h>

#define TABLE_MAX_K 2

static uint64_t tables[TABLE_MAX_K][1 << GW_GAPS_LOOK]; /* of k from 1 on */

static uint64_t table_entry(uint32_t bits, uint32_t k)
{
    uint64_t marks = 0;
    uint32_t used = 0, advance = 0, n = 0;
    while (bits >> used) {
        uint32_t zeros = (uint32_t)__builtin_ctz(bits >> used), taken = zeros + 1 + k;
        uint32_t gap = zeros << k | (bits >> (used + zeros + 1) & ((1u << k) - 1));
        if (used + taken > GW_GAPS_LOOK || advance + gap >= 50)
            break;
        marks |= 1ull << (advance + gap);
        advance += gap + 1;
        used += taken;
        n++;
    }
    return marks | (uint64_t)n << 50 | (uint64_t)advance << 54 | (uint64_t)used << 60;
}

static void fill_tables(void)
{
    for (uint32_t k = 1; k <= TABLE_MAX_K; k++)
        for (uint32_t bits = 0; bits < 1u << GW_GAPS_LOOK; bits++)
            tables[k - 1][bits] = table_entry(bits, k);
}

const uint64_t *gw_gaps_table(uint32_t k)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (k > TABLE_MAX_K)
        return NULL;
    pthread_once(&once, fill_tables);
    return tables[k - 1];
}

const struct gw_gaps *gw_gaps_for(enum gw_cpu cpu)
{
#if defined(__x86_64__)
    if (cpu >= GW_CPU_AVX2)
        return &gw_gaps_avx2;
#else
    (void)cpu;
#endif
    return &gw_gaps_plain;
}

uint64_t gw_gaps_put(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones)
{
    return gw_gaps_for(gw_cpu())->put(writer, string, m, ones);
}

gw_status gw_gaps_get(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones)
{
    return gw_gaps_for(gw_cpu())->get(reader, m, string, ones);
}
