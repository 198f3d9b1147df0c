/* The entropy coder's kernel for NEON: a row of 32 symbols is four registers of 16-bit numbers. */
#if defined(__aarch64__)
#include "wire/rans.h"

#include <arm_neon.h>

#define PARTS 4

/* Low and high bytes of 16 numbers, as tables for look-ups of bytes. */
struct halves {
    uint8x16_t low, high;
};

static inline struct halves halves_of(const uint16_t numbers[16])
{
    const uint8x16x2_t bytes = vld2q_u8((const uint8_t *)numbers);
    return (struct halves){bytes.val[0], bytes.val[1]};
}

static inline uint16x8_t look_up(struct halves table, uint8x8_t classes)
{
    const uint8x16_t both = vcombine_u8(vqtbl1_u8(table.low, classes), vqtbl1_u8(table.high, classes));
    return vorrq_u16(vmovl_u8(vget_low_u8(both)), vshll_n_u8(vget_high_u8(both), 8));
}

static inline uint8x8_t look_up_256(const uint8_t table[256], uint8x8_t index)
{
    uint8x8_t found = vdup_n_u8(0);
    for (int t = 0; t < 4; t++)
        found = vqtbx4_u8(found, vld1q_u8_x4(table + 64 * t), vsub_u8(index, vdup_n_u8((uint8_t)(64 * t))));
    return found;
}

static inline uint16x8_t multiply_high(uint16x8_t a, uint16x8_t b)
{
    return vuzp2q_u16(vreinterpretq_u16_u32(vmull_u16(vget_low_u16(a), vget_low_u16(b))),
                      vreinterpretq_u16_u32(vmull_high_u16(a, b)));
}

/* Bit i is set if lane i is all ones. */
static inline uint32_t mask_of(uint16x8_t lanes)
{
    static const uint16_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(lanes, vld1q_u16(bits)));
}

static uint8_t *encode_neon(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n_rows,
                            struct gw_rans_states *states, uint8_t *words)
{
    const struct gw_rans_order *order = gw_rans_order();
    const struct halves each = halves_of(table->each), origin = halves_of(table->origin),
                        scale = halves_of(table->scale), inverse = halves_of(table->inverse);
    const uint16x8_t one = vdupq_n_u16(1);
    uint16x8_t low[PARTS], high[PARTS];
    for (int h = 0; h < PARTS; h++) {
        low[h] = vld1q_u16(states->low + 8 * h);
        high[h] = vld1q_u16(states->high + 8 * h);
    }
    for (uint32_t row = n_rows; row-- > 0;)
        for (int h = PARTS - 1; h >= 0; h--) {
            const uint8x8_t bytes = vld1_u8(symbols + 32 * (size_t)row + 8 * h), classes = vcnt_u8(bytes);
            const uint16x8_t f = look_up(each, classes), o = look_up(origin, classes), s = look_up(scale, classes),
                             v = look_up(inverse, classes), p = vmovl_u8(look_up_256(order->position, bytes));
            const uint16x8_t full = vcgeq_u16(high[h], f);
            const uint32_t mask = mask_of(full);
            vst1q_u8(words, vqtbl1q_u8(vreinterpretq_u8_u16(low[h]), vld1q_u8(order->pack[mask])));
            words += 2 * (uint32_t)__builtin_popcount(mask);
            const uint16x8_t x0 = vbslq_u16(full, high[h], low[h]), x1 = vbicq_u16(high[h], full);
            /* (x1, x0) / each: Moeller and Granlund, "Improved division by invariant integers", algorithm 4 */
            const uint16x8_t u0 = vmulq_u16(x0, s), d = vmulq_u16(f, s);
            const uint16x8_t u1 = vorrq_u16(vmulq_u16(x1, s), multiply_high(x0, s));
            const uint16x8_t q0 = vaddq_u16(vmulq_u16(v, u1), u0);
            uint16x8_t q = vaddq_u16(vaddq_u16(multiply_high(v, u1), u1), one);
            q = vsubq_u16(q, vcltq_u16(q0, u0));
            uint16x8_t r = vmlsq_u16(u0, q, d);
            const uint16x8_t over = vcgtq_u16(r, q0);
            q = vaddq_u16(q, over);
            r = vaddq_u16(r, vandq_u16(over, d));
            q = vsubq_u16(q, vcgeq_u16(r, d));
            low[h] = vaddq_u16(vmlaq_u16(o, p, f), vmlsq_u16(x0, q, f));
            high[h] = q;
        }
    for (int h = 0; h < PARTS; h++) {
        vst1q_u16(states->low + 8 * h, low[h]);
        vst1q_u16(states->high + 8 * h, high[h]);
    }
    return words;
}

static uint32_t decode_neon(struct gw_rans_source *source, uint32_t n_rows)
{
    const struct gw_rans_table *table = source->table;
    struct gw_rans_states *states = source->states;
    uint8_t *symbols = source->symbols;
    const struct gw_rans_order *order = gw_rans_order();
    const struct halves each = halves_of(table->each), first = halves_of(table->first),
                        reciprocal = halves_of(table->reciprocal);
    const uint8x16_t class_begin = vld1q_u8(order->class_begin);
    const uint8_t *begin = source->begin, *at = source->words;
    uint16x8_t low[PARTS], high[PARTS];
    for (int h = 0; h < PARTS; h++) {
        low[h] = vld1q_u16(states->low + 8 * h);
        high[h] = vld1q_u16(states->high + 8 * h);
    }
    uint32_t row = 0;
    for (; row < n_rows && at - begin >= 2 * GW_RANS_LANES; row++)
        for (int h = 0; h < PARTS; h++) {
            uint16x8_t class = vdupq_n_u16(0);
            for (uint32_t c = 1; c <= table->last; c++)
                class = vsubq_u16(class, vcgeq_u16(low[h], vdupq_n_u16(table->first[c])));
            const uint8x8_t classes = vmovn_u16(class);
            const uint16x8_t f = look_up(each, classes), in_class = vsubq_u16(low[h], look_up(first, classes));
            uint16x8_t q = multiply_high(in_class, look_up(reciprocal, classes)); /* the right index may be one more */
            uint16x8_t r = vmlsq_u16(in_class, q, f);
            const uint16x8_t more = vcgeq_u16(r, f);
            q = vsubq_u16(q, more);
            r = vsubq_u16(r, vandq_u16(more, f));
            const uint16x8_t sum = vmlaq_u16(r, f, high[h]);
            const uint16x8_t up = vsubq_u16(multiply_high(f, high[h]), vcltq_u16(sum, r));
            const uint16x8_t need = vceqzq_u16(up);
            const uint32_t mask = mask_of(need);
            const uint8x16_t word = vqtbl1q_u8(vld1q_u8(at - 16), vld1q_u8(order->shuffle[mask]));
            at -= 2 * (uint32_t)__builtin_popcount(mask);
            high[h] = vbslq_u16(need, sum, up);
            low[h] = vbslq_u16(need, vreinterpretq_u16_u8(word), sum);
            const uint8x8_t positions = vadd_u8(vmovn_u16(q), vqtbl1_u8(class_begin, classes));
            vst1_u8(symbols + 32 * (size_t)row + 8 * h, look_up_256(order->byte, positions));
        }
    for (int h = 0; h < PARTS; h++) {
        vst1q_u16(states->low + 8 * h, low[h]);
        vst1q_u16(states->high + 8 * h, high[h]);
    }
    source->symbols += GW_RANS_LANES * (size_t)row;
    source->words = at;
    return row;
}

const struct gw_rans gw_rans_neon;
const struct gw_rans gw_rans_neon = {.encode = encode_neon, .decode = decode_neon, .decode_many = NULL};
#endif
