/* Tests sparse chunks: what is written is read back, in every code. Owners' sums are compared with a plain reference,
 * and what must be refused is refused. */
#include "codec/parts.h"
#include "codec/sparse/sparse.h"
#include "codecs.h"
#include "wire/bytes.h"
#include "wire/float16.h"
#include "checks.h"

/* A slice, and its values as they must come back. */
struct slice {
    uint64_t n;
    uint64_t *kept, *exact, *negative;
    float *values, *expected, q;
    uint64_t n_kept, n_values;
};

static uint64_t words_of(uint64_t n)
{
    return n / 64 + 2;
}

/* Every element is sent with probability `share`. With codec gspar one in five of these has its own value. If many are
 * sent, one element in 64 is tiny, and one in 64 is 0. */
static struct slice slice_of(uint8_t codec, uint8_t code, uint64_t n, double share, uint64_t seed)
{
    struct slice s = {.n = n, .q = 0.625f};
    struct numbers numbers = numbers_from(seed);
    s.kept = room_for(words_of(n), 8);
    s.exact = room_for(words_of(n), 8);
    s.negative = room_for(words_of(n), 8);
    memset(s.kept, 0, 8 * words_of(n));
    memset(s.exact, 0, 8 * words_of(n));
    memset(s.negative, 0, 8 * words_of(n));
    s.values = room_for(n + 1, sizeof(float));
    s.expected = room_for(n + 1, sizeof(float));
    for (uint64_t i = 0; i < n; i++) {
        s.expected[i] = 0;
        if ((double)numbers_word(&numbers) >= share * 0x1p32)
            continue;
        s.kept[i / 64] |= 1ull << (i % 64);
        s.n_kept++;
        bool own = codec == GW_WIRE_SPARSE || numbers_below(&numbers, 5) == 0;
        float x = numbers_bell(&numbers);
        if (share >= 0.3 && i % 32 == 7)
            x = i % 64 == 7 ? 0 : 0x1p-20f * x;
        if (own) {
            x = codec == GW_WIRE_SPARSE && code == GW_VALUE_BF16  ? gw_from_bf16(gw_to_bf16(x))
                : codec == GW_WIRE_SPARSE && code == GW_VALUE_F16 ? gw_from_f16(gw_to_f16(x))
                                                                  : x;
            s.exact[i / 64] |= 1ull << (i % 64);
            s.values[s.n_values++] = x;
        } else {
            s.negative[i / 64] |= (uint64_t)(x < 0) << (i % 64);
            x = x < 0 ? -s.q : s.q;
        }
        s.expected[i] = x;
    }
    return s;
}

static void slice_free(struct slice s)
{
    free(s.kept);
    free(s.exact);
    free(s.negative);
    free(s.values);
    free(s.expected);
}

static struct whole_frame frame_of_slice(uint8_t codec, uint8_t code, const struct slice *s, uint32_t rank)
{
    struct gw_sparse_scratch *scratch;
    assert_int_equal(gw_sparse_scratch_create(NULL, 0, true, &scratch), GW_OK);
    struct gw_frame frame = {.codec = codec,
                             .code = code,
                             .flags = codec == GW_WIRE_GSPAR ? GW_FLAG_PRIVATE : 0,
                             .workers = 1,
                             .rank = rank,
                             .tensor_id = 3,
                             .step = 8,
                             .begin = 2048,
                             .count = s->n,
                             .n_scalers = codec == GW_WIRE_GSPAR};
    size_t bound = gw_frame_head_bytes(frame.n_scalers) + gw_sparse_bound(codec, s->n);
    uint8_t *bytes = room_for(bound, 1);
    if (frame.n_scalers)
        gw_put_float(bytes + GW_HEADER_BYTES, s->q);
    gw_sparse_write(&(struct gw_sparse_source){s->kept, s->exact, s->negative, s->values, false}, scratch, bytes,
                    &frame);
    gw_frame_seal(bytes, &frame);
    assert_true(frame.frame_bytes <= bound);
    gw_sparse_scratch_destroy(NULL, scratch);
    struct whole_frame whole = frame_of(bytes, frame.frame_bytes); /* a copy of exactly that size */
    free(bytes);
    return whole;
}

static const struct {
    uint8_t codec, code;
} kinds[] = {{GW_WIRE_SPARSE, GW_VALUE_F32},
             {GW_WIRE_SPARSE, GW_VALUE_BF16},
             {GW_WIRE_SPARSE, GW_VALUE_F16},
             {GW_WIRE_GSPAR, 0}};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static const uint64_t lengths[] = {0, 1, 2, 63, 64, 65, 1000, 65537, 262143, 262144, 262145, 600001};
static const double shares[] = {0, 0.001, 0.02, 0.3, 0.7, 1};

static double entropy_of(double p)
{
    return p > 0 && p < 1 ? -p * log2(p) - (1 - p) * log2(1 - p) : 0;
}

/* What `inspect --json` calls entropy_bits_per_element: bits for the presence of an element (absent, sent without a
 * value of its own, sent with one), and for the signs of those without. */
static double expected_entropy(const struct slice *s)
{
    double n = (double)s->n, kept = (double)s->n_kept, without = kept - (double)s->n_values, negative = 0;
    for (uint64_t w = 0; w < words_of(s->n); w++)
        negative += __builtin_popcountll(s->negative[w]);
    if (s->n_kept == 0)
        return 0;
    return entropy_of(kept / n) +
           (kept * entropy_of(without / kept) + (without > 0 ? without * entropy_of(negative / without) : 0)) / n;
}

TEST(slices_come_back)
{
    uint64_t seed = 1;
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t p = 0; p < sizeof shares / sizeof *shares; p++, seed++) {
                /* Each kind of a long slice meets a third of the shares, and each share a third of the kinds. */
                if (lengths[l] > 1000 && (k + l + p) % 3)
                    continue;
                struct slice s = slice_of(kinds[k].codec, kinds[k].code, lengths[l], shares[p], seed);
                struct whole_frame frame = frame_of_slice(kinds[k].codec, kinds[k].code, &s, 5);
                float *out = room_for(s.n, sizeof *out);
                assert_int_equal(gw_decode(NULL, frame.bytes, frame.size, out, s.n), GW_OK);
                assert_memory_equal(out, s.expected, s.n * sizeof *out);
                uint64_t counts[3], nonzero;
                double entropy;
                assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, counts, 3, &nonzero, &entropy), GW_OK);
                uint64_t signs[3] = {0, 0, 0};
                for (uint64_t i = 0; i < s.n; i++)
                    signs[1 + (out[i] > 0) - (out[i] < 0)]++;
                assert_memory_equal(counts, signs, sizeof signs);
                assert_int_equal(nonzero, signs[0] + signs[2]);
                CHECK(fabs(entropy - expected_entropy(&s)) < 1e-9, "entropy %g, and should be %g", entropy,
                      expected_entropy(&s));
                gw_frame_info info;
                assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
                assert_int_equal(info.n_elems, s.n);
                assert_string_equal(info.codec, kinds[k].codec == GW_WIRE_GSPAR ? "gspar" : "sparse");
                free(out);
                free(frame.bytes);
                slice_free(s);
            }
}

/* Positions (absent, A, B) cost at most 5 % more than their entropy. So do exponents, apart from the largest one and
 * the heads of their strings. */
TEST(positions_are_near_their_entropy)
{
    const double densities[] = {0.001, 0.002, 0.005, 0.01, 0.03, 0.1};
    for (size_t k = 0; k < N_KINDS; k += 3)
        for (size_t d = 0; d < 6; d++)
            for (uint64_t n = 65536; n <= 1048576; n *= 4) {
                struct slice s = slice_of(kinds[k].codec, 0, n, densities[d], d + n);
                struct whole_frame frame = frame_of_slice(kinds[k].codec, 0, &s, 0);
                gw_frame_info info;
                assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
                gw_frame_parts parts;
                assert_int_equal(gw_frame_read_parts(NULL, frame.bytes, frame.size, &parts), GW_OK);
                assert_true(parts.sparse && parts.n_sent == s.n_kept && parts.n_values == s.n_values);
                assert_int_equal(parts.head_bits + parts.position_bits + parts.sign_bits + parts.value_bits,
                                 8 * frame.size);
                double p = (double)s.n_kept / (double)n, a = (double)s.n_values / (double)s.n_kept;
                double least = (double)n * entropy_of(p) + (double)s.n_kept * entropy_of(a);
                double bits = (double)parts.position_bits;
                CHECK(fabs(parts.position_entropy_bits - least) < 1e-6 * least, "entropy %g",
                      parts.position_entropy_bits);
                /* With a share below 0.003 the heads of two strings are a few percent of so few bits. */
                const double heads = densities[d] < 0.003 ? (double)n / GW_SPARSE_CHUNK * 48 + 48 : 0;
                CHECK(bits < 1.05 * least + heads,
                      "%s, %llu elements, %g of them: %g bits of positions, entropy %g, %.2f %% over", info.codec,
                      (unsigned long long)n, densities[d], bits, least, 100 * (bits / least - 1));
                double exponents = (double)parts.value_bits - 24.0 * (double)s.n_values,
                       chunks = (double)n / GW_SPARSE_CHUNK + 1, levels = 9 + 16.0 * 10,
                       information = parts.value_entropy_bits - 24.0 * (double)s.n_values;
                CHECK(exponents < 1.05 * information + chunks * levels,
                      "%s, %llu values: %g bits of exponents, entropy %g", info.codec, (unsigned long long)s.n_values,
                      exponents, information);
                free(frame.bytes);
                slice_free(s);
            }
}

/* ---- the owner's sum --------------------------------------------------------------------------------- */

static uint32_t n_averages[2];  /* sparse, dense */
static gw_context *contexts[2]; /* of 2 and 3 threads */

static void check_average(uint8_t codec, uint32_t n_workers, uint64_t n, double share, uint64_t seed)
{
    struct whole_frame frames[8];
    float *sum = room_for(n, sizeof *sum), *out = room_for(n, sizeof *out);
    for (uint64_t i = 0; i < n; i++)
        sum[i] = 0;
    for (uint32_t r = 0; r < n_workers; r++) {
        uint8_t code = codec == GW_WIRE_SPARSE ? (uint8_t)(r % 3) : 0; /* codes may differ */
        struct slice s = slice_of(codec, code, n, share, seed + r);
        if (r == 1 && n_workers == 2) /* two workers whose values cancel out */
            for (uint64_t i = 0; i < s.n_values; i++)
                s.values[i] = 0;
        frames[r] = frame_of_slice(codec, code, &s, r);
        assert_int_equal(gw_decode(NULL, frames[r].bytes, frames[r].size, s.expected, n), GW_OK);
        for (uint64_t i = 0; i < n; i++)
            sum[i] += s.expected[i];
        slice_free(s);
    }
    struct whole_frame average = reduce_frames(NULL, frames, n_workers, NULL);
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
    assert_int_equal(info.workers, n_workers);
    assert_int_equal(info.step, 8);
    assert_int_equal(info.begin, 2048);
    assert_true(info.average && info.rank == 0 && info.tensor_id == 3);
    assert_true(info.payload_bytes <= 4 * n);
    if (share <= 0.1 && n >= 64)
        assert_string_equal(info.codec, "sparse");
    n_averages[strcmp(info.codec, "none") == 0]++;
    assert_int_equal(gw_decode(NULL, average.bytes, average.size, out, n), GW_OK);
    for (uint64_t i = 0; i < n; i++) {
        float expected = n_workers > 1 ? sum[i] / (float)n_workers : sum[i];
        CHECK(out[i] == expected && !signbit(out[i]) >= (expected == 0), "%u workers, element %llu of %llu: %a, not %a",
              n_workers, (unsigned long long)i, (unsigned long long)n, (double)out[i], (double)expected);
    }
    for (int c = 0; n > GW_SPARSE_CHUNK && n_workers < 8 && seed % 20 < 10 && c < 2;
         c++) { /* more threads give the same */
        struct whole_frame same = reduce_frames(contexts[c], frames, n_workers, NULL);
        assert_int_equal(same.size, average.size);
        assert_memory_equal(same.bytes, average.bytes, same.size);
        assert_int_equal(gw_decode(contexts[c], average.bytes, average.size, sum, n), GW_OK);
        assert_memory_equal(sum, out, n * sizeof *out);
        free(same.bytes);
    }
    free(average.bytes);
    for (uint32_t r = 0; r < n_workers; r++)
        free(frames[r].bytes);
    free(sum);
    free(out);
}

TEST(averages_are_exact)
{
    uint64_t seed = 1;
    for (uint32_t c = 0; c < 2; c++)
        contexts[c] = context_of(c + 2);
    for (uint8_t codec = GW_WIRE_SPARSE; codec <= GW_WIRE_GSPAR; codec++)
        for (uint32_t n_workers = 1; n_workers <= 8; n_workers += n_workers < 3 ? 1 : 5)
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                for (size_t p = 0; p < sizeof shares / sizeof *shares; p++, seed += 10)
                    if (lengths[l] <= 1000 || (n_workers + l + p) % 3 == 0)
                        check_average(codec, n_workers, lengths[l], shares[p], seed);
    assert_true(n_averages[0] > 50 && n_averages[1] > 20);
    for (uint32_t c = 0; c < 2; c++)
        gw_context_destroy(contexts[c]);
}

TEST(frames_that_disagree_are_refused)
{
    struct slice a = slice_of(GW_WIRE_SPARSE, 0, 1000, 0.1, 1), b = slice_of(GW_WIRE_GSPAR, 0, 1000, 0.1, 2),
                 c = slice_of(GW_WIRE_SPARSE, 0, 999, 0.1, 3);
    struct whole_frame first = frame_of_slice(GW_WIRE_SPARSE, 0, &a, 0);
    struct whole_frame others[] = {frame_of_slice(GW_WIRE_GSPAR, 0, &b, 1), frame_of_slice(GW_WIRE_SPARSE, 0, &c, 1),
                                   frame_of_slice(GW_WIRE_SPARSE, 0, &a, 0)};
    for (int i = 0; i < 3; i++) {
        const void *frames[] = {first.bytes, others[i].bytes};
        const size_t sizes[] = {first.size, others[i].size};
        static uint8_t dst[20000];
        size_t n_bytes;
        assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, dst, sizeof dst, &n_bytes), GW_ERR_FRAME_MISMATCH);
        free(others[i].bytes);
    }
    free(first.bytes);
    slice_free(a);
    slice_free(b);
    slice_free(c);
}

/* ---- hostile frames ---------------------------------------------------------------------------------- */

/* Calls all functions that read a frame, on a block of the frame's size. They must agree. */
static gw_status readers_say(struct whole_frame frame, uint64_t n)
{
    float *out = room_for(n, sizeof *out);
    gw_status decoded = gw_decode(NULL, frame.bytes, frame.size, out, n), counted, added = GW_OK;
    uint64_t nonzero;
    counted = gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, 0, &nonzero, NULL);
    assert_int_equal(decoded, counted);
    gw_frame_info info;
    if (gw_frame_parse(frame.bytes, frame.size, &info) == GW_OK && !info.average) {
        const void *frames[] = {frame.bytes};
        size_t bound = gw_reduce_bound(frames, &frame.size, 1), n_bytes;
        uint8_t *dst = room_for(bound, 1);
        added = gw_reduce(NULL, frames, &frame.size, 1, NULL, dst, bound, &n_bytes);
        assert_int_equal(decoded, added);
        free(dst);
    }
    free(out);
    return decoded;
}

TEST(altered_frames_do_no_harm)
{
    uint32_t tally[2] = {0, 0};
    const uint64_t sizes[] = {5, 300, 262150};
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t l = 0; l < 3; l++) {
            struct slice s = slice_of(kinds[k].codec, kinds[k].code, sizes[l], 0.1, k + l);
            struct whole_frame frame = frame_of_slice(kinds[k].codec, kinds[k].code, &s, 0);
            for (uint64_t seed = 1; seed <= (l < 2 ? 1500 : 100); seed++) {
                struct numbers numbers = numbers_from(seed);
                struct whole_frame altered = frame_of(frame.bytes, frame.size);
                uint32_t span = (uint32_t)frame.size - 56, near = span < 16 ? span : 16;
                for (uint32_t j = numbers_below(&numbers, 3) + 1; j; j--)
                    altered.bytes[56 + (numbers_below(&numbers, 2) ? numbers_below(&numbers, near)
                                                                   : numbers_below(&numbers, span))] ^=
                        (uint8_t)(1u << numbers_below(&numbers, 8));
                if (seed % 7 == 0)
                    altered.bytes[4] = (uint8_t)numbers_below(&numbers, 4);
                if (seed % 11 == 0)
                    altered.bytes[5] = (uint8_t)numbers_below(&numbers, 8);
                gw_frame_reseal(altered.bytes, altered.size);
                gw_status status = readers_say(altered, s.n);
                CHECK(status == GW_OK || status == GW_ERR_FRAME_PAYLOAD || status == GW_ERR_FRAME_FIELD,
                      "seed %llu: %d", (unsigned long long)seed, status);
                tally[status == GW_OK]++;
                free(altered.bytes);
            }
            free(frame.bytes);
            slice_free(s);
        }
    CHECK(tally[0] > 1000 && tally[1] > 1000, "%u refused, %u accepted", tally[0], tally[1]);
}

/* A frame crafted by hand. Elements 1 and 3 are sent. */
struct craft {
    struct gw_frame frame; /* codec, code, flags, bucket, workers, count */
    uint32_t n_raw;        /* bits */
    float q;               /* for gspar, whose second sent element has a value of its own */
    uint32_t top, n_below; /* top: 1 + the largest exponent, if exponents are apart; n_below: how many strings there
                            * are */
    uint64_t below[3];     /* each string has two bits, or one if the string before it is not 3 */
};

static gw_status crafted(struct craft craft)
{
    static uint8_t raw[64];
    struct gw_strings_writer writer;
    struct gw_frame frame = craft.frame;
    uint8_t *bytes = room_for(200, 1), payload[100];
    const uint64_t kept = 10, exact = 2;
    uint32_t n_values = 2;
    assert_int_equal(gw_strings_writer_init(NULL, 1000, 10, 100, &writer), GW_OK);
    gw_strings_begin(&writer);
    gw_strings_put(&writer, &kept, (uint32_t)frame.count, 2);
    if (frame.codec == GW_WIRE_GSPAR) {
        gw_strings_put(&writer, &exact, 2, 1);
        n_values = 1;
        if (frame.flags & GW_FLAG_AVERAGE)
            gw_strings_put(&writer, &exact, 1, 0);
        else
            gw_strings_field(&writer, 0, 1); /* its sign is the last raw bit */
    }
    gw_strings_field(&writer, craft.top > 0, 1);
    if (craft.top)
        gw_strings_field(&writer, craft.top - 1, frame.code == GW_VALUE_F16 ? 5 : 8);
    for (uint32_t i = 0; i < craft.n_below; i++) {
        const uint32_t ones = (uint32_t)__builtin_popcountll(craft.below[i]);
        gw_strings_put(&writer, &craft.below[i], n_values, ones);
        n_values = ones;
    }
    const size_t n_bytes = gw_strings_finish(&writer, raw, craft.n_raw, payload, sizeof payload);
    assert_true(n_bytes <= sizeof payload);
    gw_strings_writer_fini(NULL, &writer);
    frame.workers = frame.workers ? frame.workers : 1;
    frame.n_scalers = frame.codec == GW_WIRE_GSPAR;
    frame.payload_bytes = n_bytes;
    if (frame.n_scalers)
        gw_put_float(bytes + GW_HEADER_BYTES, craft.q);
    memcpy(bytes + gw_frame_head_bytes(frame.n_scalers), payload, n_bytes);
    gw_frame_seal(bytes, &frame);
    struct whole_frame whole = frame_of(bytes, frame.frame_bytes);
    gw_status status = readers_say(whole, frame.count);
    free(whole.bytes);
    free(bytes);
    return status;
}

/* Frames that tests/wire/hostile.py does not try. */
TEST(what_no_encoder_writes_is_refused)
{
    const gw_status no = GW_ERR_FRAME_PAYLOAD, field = GW_ERR_FRAME_FIELD;
    const struct gw_frame sparse = {.codec = GW_WIRE_SPARSE, .count = 5}, gspar = {.codec = GW_WIRE_GSPAR, .count = 5};
    struct gw_frame bf16 = sparse, f16 = sparse, other = sparse;
    bf16.code = GW_VALUE_BF16;
    f16.code = GW_VALUE_F16;
    assert_int_equal(crafted((struct craft){.frame = sparse, .n_raw = 64}), GW_OK);
    assert_int_equal(crafted((struct craft){.frame = sparse, .n_raw = 56}), no);
    assert_int_equal(crafted((struct craft){.frame = sparse, .n_raw = 72}), no);
    assert_int_equal(crafted((struct craft){.frame = f16, .n_raw = 32}), GW_OK);
    assert_int_equal(crafted((struct craft){.frame = bf16, .n_raw = 32}), GW_OK);
    assert_int_equal(crafted((struct craft){.frame = bf16, .n_raw = 64}), no);
    other.code = 3;
    assert_int_equal(crafted((struct craft){.frame = other, .n_raw = 64}), field);
    other = sparse;
    other.flags = GW_FLAG_PRIVATE;
    assert_int_equal(crafted((struct craft){.frame = other, .n_raw = 64}), field);
    other.flags = GW_FLAG_AVERAGE;
    other.workers = 3;
    assert_int_equal(crafted((struct craft){.frame = other, .n_raw = 64}), GW_OK);
    other.code = GW_VALUE_F16;
    assert_int_equal(crafted((struct craft){.frame = other, .n_raw = 32}), field);
    other = sparse;
    other.bucket = 1;
    assert_int_equal(crafted((struct craft){.frame = other, .n_raw = 64}), field);
    /* Exponents are apart. The largest is 1, and one exponent is below it; then the largest is 0; then it is 2. */
    const struct craft apart = {.frame = sparse, .n_raw = 48, .top = 2, .n_below = 1, .below = {2}};
    struct craft craft = apart;
    assert_int_equal(crafted(craft), GW_OK);
    craft.n_raw = 40;
    assert_int_equal(crafted(craft), no);
    craft.n_raw = 56;
    assert_int_equal(crafted(craft), no);
    assert_int_equal(crafted((struct craft){.frame = sparse, .n_raw = 48, .top = 1}), GW_OK);
    assert_int_equal(crafted((struct craft){.frame = sparse, .n_raw = 48, .top = 3, .n_below = 2, .below = {3, 1}}),
                     GW_OK);
    craft = apart;
    craft.frame = bf16;
    craft.n_raw = 16;
    assert_int_equal(crafted(craft), GW_OK);
    craft.frame = f16;
    craft.n_raw = 22;
    assert_int_equal(crafted(craft), GW_OK);
    craft.n_raw = 23;
    assert_int_equal(crafted(craft), GW_OK); /* a bit of padding */
    craft.n_raw = 25;
    assert_int_equal(crafted(craft), no);
    /* For gspar there is one value and one sign. */
    const struct craft parts = {.frame = gspar, .n_raw = 33};
    static const float slopes[] = {0, 1, -1, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        craft = parts;
        craft.q = slopes[i];
        assert_int_equal(crafted(craft), i < 2 ? GW_OK : no);
    }
    craft = parts;
    craft.n_raw = 32;
    assert_int_equal(crafted(craft), no);
    craft.n_raw = 65;
    assert_int_equal(crafted(craft), no);
    craft = parts;
    craft.frame.code = 1;
    assert_int_equal(crafted(craft), field);
    craft = parts;
    craft.frame.flags = GW_FLAG_AVERAGE;
    craft.frame.workers = 1;
    craft.n_raw = 32;
    assert_int_equal(crafted(craft), GW_OK);
    craft.frame.workers = 1025;
    assert_int_equal(crafted(craft), field);
}

RUN_TESTS("sparse", NULL, NULL)
