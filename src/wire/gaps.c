#include "wire/gaps.h"
#include "base/error.h"
#include "wire/bits.h"

/* Calls body with `gap` set for every nonzero in order. */
#define FOR_EACH_GAP(nz, n, gap, body)                              \
    do {                                                            \
        uint32_t next_ = 0; /* first position not yet accounted */  \
        for (uint32_t w_ = 0; w_ < ((n) + 63) / 64; w_++) {         \
            for (uint64_t bits_ = (nz)[w_]; bits_; bits_ &= bits_ - 1) { \
                uint32_t at_ = 64 * w_ + (uint32_t)__builtin_ctzll(bits_); \
                uint32_t gap = at_ - next_;                         \
                next_ = at_ + 1;                                    \
                body                                                \
            }                                                       \
        }                                                           \
    } while (0)

struct gw_gaps_plan gw_gaps_measure(const uint64_t *nz, uint32_t n, uint32_t count)
{
    struct gw_gaps_plan plan = {.count = count};
    if (!count) {
        plan.bytes = GW_GAPS_HEAD;
        return plan;
    }
    /* The geometric distribution's best k is near log2(mean * ln 2); the three around it are costed exactly. */
    uint64_t aim = (uint64_t)(n - count) * 45426 / ((uint64_t)65536 * count);
    uint32_t k0 = aim ? 63 - (uint32_t)__builtin_clzll(aim) : 0;
    uint64_t unary[3] = {0, 0, 0};
    FOR_EACH_GAP(nz, n, gap, {
        unary[0] += gap >> k0;
        unary[1] += gap >> (k0 + 1);
        unary[2] += gap >> (k0 + 2);
    });
    uint64_t best = UINT64_MAX;
    for (uint32_t j = 0; j < 3 && k0 + j <= GW_GAPS_MAX_K; j++) {
        uint64_t bits = unary[j] + (uint64_t)count * (k0 + j + 1);
        if (bits < best) {
            best = bits;
            plan.k = (uint8_t)(k0 + j);
        }
    }
    plan.bytes = GW_GAPS_HEAD + (size_t)((best + 7) / 8);
    return plan;
}

void gw_gaps_write(const struct gw_gaps_plan *plan, const uint64_t *nz, uint32_t n, uint8_t *dst)
{
    gw_put32(dst, plan->k | plan->count << 8);
    struct gw_bit_writer w = {.at = dst + GW_GAPS_HEAD, .end = dst + plan->bytes};
    uint32_t k = plan->k, low = (1u << k) - 1;
    FOR_EACH_GAP(nz, n, gap, {
        uint32_t q = gap >> k;
        for (; q > 32; q -= 32)
            gw_bits_put(&w, 0, 32);
        /* q zeros, a one, k low bits: at most 32 + 1 + 16 bits */
        gw_bits_put(&w, ((uint64_t)(gap & low) << 1 | 1) << q, q + 1 + k);
    });
    gw_bits_finish(&w);
}

gw_status gw_gaps_read(const uint8_t *src, size_t src_bytes, uint32_t n, uint64_t *nz, uint32_t *count, size_t *used)
{
    if (src_bytes < GW_GAPS_HEAD)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "gap codes need a head of %d bytes; %zu are left", GW_GAPS_HEAD, src_bytes);
    uint32_t head = gw_get32(src), k = head & 255, left = head >> 8;
    if (k > GW_GAPS_MAX_K || left > n)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "gap codes claim k = %u and %u nonzeros of %u elements", k, left, n);
    *count = left;
    struct gw_bit_reader r = {.src = src + GW_GAPS_HEAD, .n_bits = 8 * (uint64_t)(src_bytes - GW_GAPS_HEAD)};
    memset(nz, 0, (n + 63) / 64 * sizeof *nz);
    uint32_t at = 0, low = (1u << k) - 1;
    for (; left; left--) {
        uint64_t bits = gw_bits_peek(&r);
        uint64_t gap = 0;
        /* 40 zeros in a row: unary codes longer than one look. Position checks below end every loop. */
        while (!(bits & 0xFFFFFFFFFFull)) {
            gap += 40;
            r.at += 40;
            if (r.at >= r.n_bits || gap << k > n)
                return gw_fail(GW_ERR_FRAME_PAYLOAD, "gap codes end early or run past element %u", n);
            bits = gw_bits_peek(&r);
        }
        uint32_t zeros = (uint32_t)__builtin_ctzll(bits);
        bits >>= zeros + 1; /* 57 - 40 bits are left: enough for k */
        gap = (gap + zeros) << k | (bits & low);
        r.at += zeros + 1 + k;
        if (r.at > r.n_bits || gap >= n - at)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "gap codes end early or run past element %u", n);
        at += (uint32_t)gap;
        nz[at / 64] |= 1ull << (at % 64);
        at++;
    }
    if (r.at % 8 && r.src[r.at / 8] >> (r.at % 8))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "gap codes are padded with bits that are not 0");
    *used = GW_GAPS_HEAD + (size_t)((r.at + 7) / 8);
    return GW_OK;
}
