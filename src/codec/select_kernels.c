/* The readable kernels of selection, and the choice of the set for this machine. */
#include "codec/select_kernels.h"
#include "wire/bytes.h"
#include "wire/float16.h"

#include <stddef.h>

const struct gw_select_kernels *gw_select_kernels_for(enum gw_cpu cpu)
{
    static const struct gw_select_kernels *const sets[] = {
        [GW_CPU_SCALAR] = &gw_select_kernels_ref,
#if defined(__x86_64__)
        [GW_CPU_AVX2] = &gw_select_kernels_avx2,
        [GW_CPU_AVX512] = &gw_select_kernels_avx512,
#elif defined(__aarch64__)
        [GW_CPU_NEON] = &gw_select_kernels_ref,
#endif
    };
    return cpu < sizeof sets / sizeof *sets ? sets[cpu] : NULL;
}

const struct gw_select_kernels *gw_select_kernels_now(void)
{
    return gw_select_kernels_for(gw_cpu());
}

float gw_select_round(enum gw_value_type value, float x)
{
    return value == GW_VALUE_F32 ? x : value == GW_VALUE_BF16 ? gw_from_bf16(gw_to_bf16(x)) : gw_from_f16(gw_to_f16(x));
}

static struct gw_select_counts select_ref(const struct gw_select_run *run, float *values)
{
    struct gw_select_counts counts = {0};
    for (uint64_t i = 0; i < run->n; i++) {
        float a = run->g[i];
        if (run->residual) {
            const bool sent = run->sent[i / 64] >> (i % 64) & 1;
            a += sent ? gw_select_left(run->value, run->over, run->residual[i]) : run->residual[i];
            run->next[i] = a;
        }
        uint32_t bits = gw_float_bits(a) & 0x7FFFFFFFu;
        bool above = bits > run->threshold_bits;
        if (above)
            values[counts.n_above++] = a;
        counts.n_equal += bits == run->threshold_bits;
        counts.max_bits = bits > counts.max_bits ? bits : counts.max_bits;
        if (i % 64 == 0)
            run->kept[i / 64] = 0;
        run->kept[i / 64] |= (uint64_t)above << (i % 64);
    }
    return counts;
}

struct gw_select_counts gw_select_rest(const struct gw_select_run *run, uint64_t done, float *values, uint64_t n_above)
{
    struct gw_select_run rest = *run;
    rest.g += done;
    rest.n -= done;
    rest.kept += done / 64;
    if (run->residual) {
        rest.residual += done;
        rest.sent += done / 64;
        rest.next += done;
    }
    struct gw_select_counts counts = select_ref(&rest, values + n_above);
    counts.n_above += n_above;
    return counts;
}

static void expand_ref(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, bool stream,
                       float *out)
{
    (void)n_values;
    (void)stream;
    for (uint64_t i = 0; i < n; i++)
        out[i] = kept[i / 64] >> (i % 64) & 1 ? *values++ : 0;
}

void gw_select_add_ref(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, float *sum)
{
    (void)n_values;
    for (uint64_t w = 0; w < gw_div_up(n, 64); w++)
        for (uint64_t bits = kept[w]; bits; bits &= bits - 1)
            sum[64 * w + (uint64_t)__builtin_ctzll(bits)] += *values++;
}

static void below_ref(const uint8_t *bytes, uint64_t n_words, uint8_t bound, uint64_t *out)
{
    for (uint64_t w = 0; w < n_words; w++) {
        out[w] = 0;
        for (unsigned i = 0; i < 64; i++)
            out[w] |= (uint64_t)(bytes[64 * w + i] < bound) << i;
    }
}

static void lower_ref(const uint64_t *bits, uint64_t n_words, uint8_t *bytes)
{
    for (uint64_t w = 0; w < n_words; w++)
        for (uint64_t left = bits[w]; left; left &= left - 1)
            bytes[64 * w + (uint64_t)__builtin_ctzll(left)]--;
}

void gw_select_join_ref(const uint8_t *rests, const uint8_t *exponents, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i++, rests += 3) {
        uint32_t rest = rests[0] | (uint32_t)rests[1] << 8 | (uint32_t)rests[2] << 16;
        out[i] = gw_bits_float((rest & 0x7FFFFFu) | (uint32_t)exponents[i] << 23 | rest >> 23 << 31);
    }
}

void gw_select_rests_ref(const float *values, uint64_t n, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++, out += 3) {
        uint32_t bits = gw_float_bits(values[i]), rest = (bits & 0x7FFFFFu) | bits >> 31 << 23;
        out[0] = (uint8_t)rest;
        out[1] = (uint8_t)(rest >> 8);
        out[2] = (uint8_t)(rest >> 16);
    }
}

const struct gw_select_kernels gw_select_kernels_ref = {
    .name = "scalar",
    .select = select_ref,
    .expand = expand_ref,
    .add = gw_select_add_ref,
    .below = below_ref,
    .lower = lower_ref,
    .join = gw_select_join_ref,
    .rests = gw_select_rests_ref,
};
