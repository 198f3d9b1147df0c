/* Kernels that need only logic on 64-bit words. They are compiled once per instruction set, and the compiler widens
 * them. Last comes the record of the set. Define before including: GW_SUFFIX(name), GW_NAME, GW_TARGET (a function
 * attribute), GW_GATHER(nonzero, sign) and GW_SCATTER(bits, nonzero), and the set's other kernels. */

/* The processor cannot foresee whether a word is full. So each step writes the word, full or not. */
GW_TARGET static uint64_t GW_SUFFIX(gather_signs)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n_words,
                                                  uint8_t *dst, size_t dst_bytes)
{
    uint64_t word = 0, n_bits = 0, w = 0;
    for (; w < n_words && (n_bits >> 6) * 8 + 8 <= dst_bytes; w++) {
        const uint64_t bits = GW_GATHER(nonzero[w], sign[w]);
        const unsigned count = (unsigned)__builtin_popcountll(nonzero[w]), fill = n_bits & 63;
        word |= bits << fill;
        gw_put64(dst + (n_bits >> 6) * 8, word);
        const uint64_t next = bits >> 1 >> (63 - fill);
        word = fill + count >= 64 ? next : word;
        n_bits += count;
    }
    for (; w < n_words; w++) { /* what is left goes into the last word; dst may have room for a part of it only */
        word |= GW_GATHER(nonzero[w], sign[w]) << (n_bits & 63);
        n_bits += (unsigned)__builtin_popcountll(nonzero[w]);
    }
    if (n_bits & 63)
        memcpy(dst + (n_bits >> 6) * 8, &word, ((n_bits & 63) + 7) / 8);
    return n_bits;
}

GW_TARGET static uint64_t GW_SUFFIX(count)(const uint64_t *words, uint64_t n_words)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < n_words; w++)
        count += (uint64_t)__builtin_popcountll(words[w]);
    return count;
}

GW_TARGET static uint64_t GW_SUFFIX(scatter_signs)(const void *nonzero, uint64_t n_words, const uint8_t *src,
                                                   size_t src_bytes, uint64_t *sign)
{
    uint64_t at = 0; /* bit */
    uint64_t n_safe = src_bytes >= 9 ? 8 * (src_bytes - 9) + 1 : 0, w = 0;
    for (; w < n_words && at < n_safe; w++) {
        uint64_t on = gw_get64((const uint8_t *)nonzero + 8 * w), count = (uint64_t)__builtin_popcountll(on);
        uint64_t bits = gw_get64(src + (at >> 3)) >> (at & 7);
        /* Eight bytes from any bit on hold at least 57 bits. That is enough, except for the fullest words. */
        if (__builtin_expect(count > 57, 0))
            bits |= (uint64_t)src[(at >> 3) + 8] << 1 << (63 - (at & 7));
        sign[w] = GW_SCATTER(bits, on);
        at += count;
    }
    if (w == n_words)
        return at;
    /* Goes on with the last bytes, nine at most, and zeros behind them. These few bits may belong to most of the
     * words. */
    uint8_t last[32] = {0};
    const uint64_t begin = at >> 3, most = sizeof last - 16;
    if (begin < src_bytes)
        memcpy(last, src + begin, src_bytes - begin);
    for (; w < n_words; w++) {
        const uint64_t on = gw_get64((const uint8_t *)nonzero + 8 * w), past = (at >> 3) - begin,
                       byte = past < most ? past : most;
        const uint64_t bits = gw_get64(last + byte) >> (at & 7) | (uint64_t)last[byte + 8] << 1 << (63 - (at & 7));
        sign[w] = GW_SCATTER(bits, on);
        at += (uint64_t)__builtin_popcountll(on);
    }
    return at;
}

#define GW_INLINE GW_TARGET static inline __attribute__((always_inline))

/* Eight words at a time: a 512-bit register, or what the instruction set makes of it. */
typedef uint64_t GW_SUFFIX(words8) __attribute__((vector_size(64)));

/* One-bit adders on every bit. An instruction set with three-operand logic brings its own GW_XOR3 and GW_MAJORITY. */
#ifndef GW_XOR3
#define GW_XOR3(a, b, c) ((a) ^ (b) ^ (c))
#define GW_MAJORITY(a, b, c) (((a) & (b)) | ((c) & ((a) ^ (b))))
#endif

/* Counts eight bits into four: four full adders and three half adders. */
#define GW_COUNT8(in, out)                                                                                             \
    do {                                                                                                               \
        GW_SUFFIX(words8) s0_ = GW_XOR3(in[0], in[1], in[2]);                                                          \
        GW_SUFFIX(words8) c0_ = GW_MAJORITY(in[0], in[1], in[2]);                                                      \
        GW_SUFFIX(words8) s1_ = GW_XOR3(in[3], in[4], in[5]);                                                          \
        GW_SUFFIX(words8) c1_ = GW_MAJORITY(in[3], in[4], in[5]);                                                      \
        GW_SUFFIX(words8) s2_ = in[6] ^ in[7], c2_ = in[6] & in[7];                                                    \
        GW_SUFFIX(words8) c3_ = GW_MAJORITY(s0_, s1_, s2_);                                                            \
        GW_SUFFIX(words8) t_ = GW_XOR3(c0_, c1_, c2_), d_ = GW_MAJORITY(c0_, c1_, c2_);                                \
        out[0] = GW_XOR3(s0_, s1_, s2_);                                                                               \
        out[1] = t_ ^ c3_;                                                                                             \
        out[2] = d_ ^ (t_ & c3_);                                                                                      \
        out[3] = d_ & (t_ & c3_);                                                                                      \
    } while (0)

/* These load up to eight words of each of n_planes planes, and store them again. The planes of a word stand side by
 * side. The functions are inlined below for the usual numbers of planes, so that the compiler unrolls the loops. */
GW_INLINE void GW_SUFFIX(load_planes)(const uint8_t *planes, uint32_t n_planes, uint32_t n, GW_SUFFIX(words8) * plane)
{
    uint64_t words[16][8] = {{0}}; /* through memory, because compilers take vectors apart word by word */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n_planes; j++)
            words[j][i] = gw_get64(planes + 8 * (i * n_planes + j));
    for (uint32_t j = 0; j < n_planes; j++)
        memcpy(&plane[j], words[j], 64);
}

GW_INLINE void GW_SUFFIX(store_planes)(const GW_SUFFIX(words8) * plane, uint32_t n_planes, uint32_t n, uint8_t *planes)
{
    uint64_t words[16][8];
    for (uint32_t j = 0; j < n_planes; j++)
        memcpy(words[j], &plane[j], 64);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n_planes; j++)
            gw_put64(planes + 8 * (i * n_planes + j), words[j][i]);
}

/* Adds up value + 1 of up to eight frames, in five planes. */
GW_INLINE void GW_SUFFIX(count_frames)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t w, uint32_t n,
                                       GW_SUFFIX(words8) add[5])
{
    /* Two bits hold value + 1: zero is 1, positive is 2. */
    GW_SUFFIX(words8) zero[GW_ADD_FRAMES], positive[GW_ADD_FRAMES], ones[4], twos[4], carry;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < GW_ADD_FRAMES; r++) {
        zero[r] = positive[r] = (GW_SUFFIX(words8)){0};
        if (r < n_frames) {
            GW_SUFFIX(words8) on = {0}, negative = {0};
            memcpy(&on, (const uint8_t *)frames[r].nonzero + 8 * w, 8 * n);
            memcpy(&negative, (const uint8_t *)frames[r].sign + 8 * w, 8 * n);
            zero[r] = ~on;
            positive[r] = on & ~negative;
        }
    }
    GW_COUNT8(zero, ones);
    GW_COUNT8(positive, twos);
    add[0] = ones[0];
    carry = ones[1] & twos[0];
    add[1] = ones[1] ^ twos[0];
    add[2] = GW_XOR3(ones[2], twos[1], carry);
    carry = GW_MAJORITY(ones[2], twos[1], carry);
    add[3] = GW_XOR3(ones[3], twos[2], carry);
    carry = GW_MAJORITY(ones[3], twos[2], carry);
    add[4] = twos[3] ^ carry; /* eight frames make 16 at most */
}

/* Adds n words from word w on. It is inlined for whole runs of eight words, for the rest, and for the usual numbers of
 * planes. */
GW_INLINE void GW_SUFFIX(add_words)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t w, uint32_t n,
                                    bool first, uint8_t *planes, uint32_t n_planes)
{
    GW_SUFFIX(words8) sum[16], add[5], carry = {0};
    GW_SUFFIX(count_frames)(frames, n_frames, w, n, add);
    if (first) {
#pragma GCC unroll 16
        for (uint32_t j = 0; j < n_planes; j++)
            sum[j] = j < 5 ? add[j] : carry;
    } else {
        GW_SUFFIX(load_planes)(planes + 8 * w * n_planes, n_planes, n, sum);
#pragma GCC unroll 16
        for (uint32_t j = 0; j < n_planes; j++) {
            GW_SUFFIX(words8) old = sum[j], more = {0};
            if (j < 5)
                more = add[j];
            sum[j] = GW_XOR3(old, more, carry);
            carry = GW_MAJORITY(old, more, carry);
        }
    }
    GW_SUFFIX(store_planes)(sum, n_planes, n, planes + 8 * w * n_planes);
}

GW_INLINE void GW_SUFFIX(add_in)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t n_words, bool first,
                                 uint8_t *planes, uint32_t n_planes)
{
    uint64_t w = 0;
    if (n_frames == GW_ADD_FRAMES && first)
        for (; w + 8 <= n_words; w += 8)
            GW_SUFFIX(add_words)(frames, GW_ADD_FRAMES, w, 8, true, planes, n_planes);
    for (; w + 8 <= n_words; w += 8)
        GW_SUFFIX(add_words)(frames, n_frames, w, 8, first, planes, n_planes);
    if (w < n_words)
        GW_SUFFIX(add_words)(frames, n_frames, w, (uint32_t)(n_words - w), first, planes, n_planes);
}

/* Calls an inlined function. If n_planes is a usual number, the compiler knows it, as n_planes_. */
#define GW_USUAL_PLANES(n_planes, call, ...)                                                                           \
    do {                                                                                                               \
        uint32_t n_planes_ = n_planes;                                                                                 \
        switch (n_planes_) {                                                                                           \
        case 3: /* 2, 3 workers */                                                                                     \
            n_planes_ = 3;                                                                                             \
            call(__VA_ARGS__);                                                                                         \
            break;                                                                                                     \
        case 4: /* 4 to 7 */                                                                                           \
            n_planes_ = 4;                                                                                             \
            call(__VA_ARGS__);                                                                                         \
            break;                                                                                                     \
        case 5: /* 8 to 15 */                                                                                          \
            n_planes_ = 5;                                                                                             \
            call(__VA_ARGS__);                                                                                         \
            break;                                                                                                     \
        default:                                                                                                       \
            call(__VA_ARGS__);                                                                                         \
        }                                                                                                              \
    } while (0)

GW_TARGET static void GW_SUFFIX(add_digits)(const struct gw_bitmaps *frames, uint32_t n_frames, uint64_t n_words,
                                            bool first, uint8_t *planes, uint32_t n_planes)
{
    GW_USUAL_PLANES(n_planes, GW_SUFFIX(add_in), frames, n_frames, n_words, first, planes, n_planes_);
}

/* Does n words from word w on; part_all below does all words. */
GW_INLINE void GW_SUFFIX(part_words)(const uint8_t *planes, uint32_t n_planes, uint64_t w, uint32_t n, uint64_t n_words,
                                     uint32_t center, uint64_t *negative, uint64_t *magnitudes)
{
    GW_SUFFIX(words8) digit[16], borrow = {0}, carry;
    GW_SUFFIX(load_planes)(planes + 8 * w * n_planes, n_planes, n, digit);
    for (uint32_t j = 0; j < n_planes; j++) { /* subtracts the center */
        const GW_SUFFIX(words8) old = digit[j];
        digit[j] = center >> j & 1 ? ~(old ^ borrow) : old ^ borrow;
        borrow = center >> j & 1 ? ~old | borrow : ~old & borrow;
    }
    memcpy(negative + w, &borrow, 8 * n);
    carry = borrow;
    for (uint32_t j = 0; j < n_planes; j++) { /* if the result is negative, negates it */
        const GW_SUFFIX(words8) turned = digit[j] ^ borrow, magnitude = turned ^ carry;
        carry &= turned;
        memcpy(magnitudes + j * n_words + w, &magnitude, 8 * n);
    }
}

GW_INLINE void GW_SUFFIX(part_all)(const uint8_t *planes, uint32_t n_planes, uint64_t n_words, uint32_t center,
                                   uint64_t *negative, uint64_t *magnitudes)
{
    uint64_t w = 0;
    for (; w + 8 <= n_words; w += 8)
        GW_SUFFIX(part_words)(planes, n_planes, w, 8, n_words, center, negative, magnitudes);
    if (w < n_words)
        GW_SUFFIX(part_words)(planes, n_planes, w, (uint32_t)(n_words - w), n_words, center, negative, magnitudes);
}

GW_TARGET static void GW_SUFFIX(part_digits)(const uint8_t *planes, uint32_t n_planes, uint64_t n_words,
                                             uint32_t center, uint64_t *negative, uint64_t *magnitudes)
{
    GW_USUAL_PLANES(n_planes, GW_SUFFIX(part_all), planes, n_planes_, n_words, center, negative, magnitudes);
}

GW_INLINE void GW_SUFFIX(above_words)(const uint64_t *magnitudes, uint32_t n_planes, uint64_t w, uint32_t n,
                                      uint64_t n_words, uint32_t level, uint64_t *marks)
{
    GW_SUFFIX(words8) above = {0}, equal = ~above; /* what is known from the planes seen so far */
    for (uint32_t j = n_planes; j-- > 0;) {
        GW_SUFFIX(words8) plane = {0};
        memcpy(&plane, magnitudes + j * n_words + w, 8 * n);
        if (level >> j & 1) {
            equal &= plane;
        } else {
            above |= equal & plane;
            equal &= ~plane;
        }
    }
    memcpy(marks + w, &above, 8 * n);
}

GW_INLINE void GW_SUFFIX(above_all)(const uint64_t *magnitudes, uint32_t n_planes, uint64_t n_words, uint32_t level,
                                    uint64_t *marks)
{
    uint64_t w = 0;
    for (; w + 8 <= n_words; w += 8)
        GW_SUFFIX(above_words)(magnitudes, n_planes, w, 8, n_words, level, marks);
    if (w < n_words)
        GW_SUFFIX(above_words)(magnitudes, n_planes, w, (uint32_t)(n_words - w), n_words, level, marks);
}

GW_TARGET static uint64_t GW_SUFFIX(above)(const uint64_t *magnitudes, uint32_t n_planes, uint64_t n_words,
                                           uint32_t level, uint64_t *marks)
{
    GW_USUAL_PLANES(n_planes, GW_SUFFIX(above_all), magnitudes, n_planes_, n_words, level, marks);
    return GW_SUFFIX(count)(marks, n_words);
}

const struct gw_kernels GW_SUFFIX(gw_kernels) = {
    .name = GW_NAME,
    .stats_block = GW_SUFFIX(stats_block),
    .draw = GW_SUFFIX(draw),
    .round = GW_SUFFIX(round),
    .carry = GW_SUFFIX(carry),
    .gather_signs = GW_SUFFIX(gather_signs),
    .scatter_signs = GW_SUFFIX(scatter_signs),
    .count = GW_SUFFIX(count),
    .expand = GW_SUFFIX(expand),
    .add_digits = GW_SUFFIX(add_digits),
    .part_digits = GW_SUFFIX(part_digits),
    .above = GW_SUFFIX(above),
    .decode_planes = GW_SUFFIX(decode_planes),
    .split = GW_SUFFIX(split),
};
