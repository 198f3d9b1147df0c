/* Kernels made of 64-bit words' logic only, compiled once per instruction set: the compiler widens them. Before including:
 * GW_SUFFIX(name), GW_TARGET (a function attribute), GW_GATHER(nonzero, sign) and GW_SCATTER(bits, nonzero). */

GW_TARGET static uint64_t GW_SUFFIX(gather_signs)(const uint64_t *nonzero, const uint64_t *sign, uint64_t n_words, uint8_t *dst)
{
    uint64_t word = 0, n_bits = 0;
    for (uint64_t w = 0; w < n_words; w++) {
        uint64_t bits = GW_GATHER(nonzero[w], sign[w]);
        unsigned count = (unsigned)__builtin_popcountll(nonzero[w]), fill = n_bits & 63;
        word |= bits << fill;
        if (fill + count >= 64) {
            gw_put64(dst + (n_bits >> 6) * 8, word);
            word = fill ? bits >> (64 - fill) : 0;
        }
        n_bits += count;
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

GW_TARGET static uint64_t GW_SUFFIX(scatter_signs)(const uint64_t *nonzero, uint64_t n_words, const uint8_t *src,
                                                   size_t src_bytes, uint64_t *sign)
{
    uint64_t at = 0; /* bit */
    for (uint64_t w = 0; w < n_words; w++) {
        size_t byte = (size_t)(at >> 3);
        unsigned shift = at & 7;
        uint64_t bits;
        if (byte + 9 <= src_bytes)
            bits = gw_get64(src + byte) >> shift | (uint64_t)src[byte + 8] << 1 << (63 - shift);
        else if (byte < src_bytes)
            bits = gw_get_partial(src + byte, src_bytes - byte) >> shift |
                   (src_bytes - byte > 8 ? (uint64_t)src[byte + 8] << 1 << (63 - shift) : 0);
        else
            bits = 0;
        sign[w] = GW_SCATTER(bits, nonzero[w]);
        at += (uint64_t)__builtin_popcountll(nonzero[w]);
    }
    return at;
}

GW_TARGET static void GW_SUFFIX(add_digits)(const uint64_t *restrict nonzero, const uint64_t *restrict sign, uint64_t n_words,
                                            uint64_t *restrict planes, uint32_t n_planes)
{
    /* value + 1 is the sum of two bits, "positive" and "not negative": one full adder into plane 0, half adders above. */
    uint64_t carry[64];
    for (uint64_t first = 0; first < n_words; first += 64) {
        uint64_t n = n_words - first < 64 ? n_words - first : 64;
        uint64_t *plane = planes + first;
        for (uint64_t w = 0; w < n; w++) {
            uint64_t negative = sign[first + w], positive = nonzero[first + w] & ~negative, old = plane[w];
            uint64_t odd = positive ^ ~negative;
            plane[w] = old ^ odd;
            carry[w] = (positive & ~negative) | (old & odd);
        }
        for (uint32_t j = 1; j < n_planes; j++) {
            plane += n_words;
            for (uint64_t w = 0; w < n; w++) {
                uint64_t old = plane[w];
                plane[w] = old ^ carry[w];
                carry[w] &= old;
            }
        }
    }
}
