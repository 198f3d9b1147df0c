/* Reduces the pushes of one round to one value, by the table of methods. Long values are worked on block by block on
 * the context's threads. */
#include "pserver/store/reduce.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/codec.h"
#include "pserver/store/store.h"
#include "wire/float16.h"

#include <inttypes.h>
#include <math.h>

/* How many elements are worked on at a time, so that the sums stay in the cache. */
#define BLOCK 4096u

struct join;

/* One reduction under way. */
struct work {
    gw_context *context;
    gw_ps_method method;
    const struct join *join;
    bool divides; /* by the number of pushes */
    gw_ps_type type, result_type;
    uint64_t n_elems, n_results; /* elements of the key, and of a result that is made by blocks */
    const struct gw_ps_push *pushes;
    uint32_t n;
    const gw_codec *codec;
    const float *scale;
    uint8_t *out;
};

/* ---- numbers of any type ----------------------------------------------------------------------------- */

/* Turns float64 into float32. If something was lost, the last bit is set (round to odd). Rounding the result once more
 * to 16 bits then gives the same as rounding the float64 once. */
static float narrow_to_odd(double x)
{
    float f = (float)x;
    uint32_t bits = gw_float_bits(f);
    if (!isfinite(x) || (double)f == x)
        return f;
    if (fabs((double)f) > fabs(x))
        bits--;
    return gw_bits_float(bits | 1);
}

/* Unlike those of the codecs, these conversions keep NaN and infinities. What is too large becomes infinite. */
static uint16_t to_bf16(double x)
{
    uint32_t bits = gw_float_bits(narrow_to_odd(x));
    if (x != x)
        return 0x7FC0;
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(double x)
{
    float f = narrow_to_odd(x);
    uint16_t sign = (uint16_t)(gw_float_bits(f) >> 16 & 0x8000u);
    if (x != x)
        return 0x7E00;
    return fabsf(f) >= 65520.0f ? sign | 0x7C00 : gw_to_f16(f);
}

/* One conversion for each type: n elements, to or from a number that holds every type of its kind. */
#define CONVERSION(name, from, to, each)                                                                               \
    static void name(const from *src, to *out, uint64_t n)                                                             \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            each;                                                                                                      \
    }
CONVERSION(load_float32, uint8_t, double, out[i] = (double)gw_get_float(src + 4 * i))
CONVERSION(load_float16, uint8_t, double, out[i] = (double)gw_from_f16(gw_get16(src + 2 * i)))
CONVERSION(load_bfloat16, uint8_t, double, out[i] = (double)gw_from_bf16(gw_get16(src + 2 * i)))
CONVERSION(load_int32, uint8_t, int64_t, out[i] = (int32_t)gw_get32(src + 4 * i))
CONVERSION(load_int64, uint8_t, int64_t, out[i] = (int64_t)gw_get64(src + 8 * i))
CONVERSION(load_uint8, uint8_t, int64_t, out[i] = src[i])
/* which NaN a sum is depends on the processor, so all become one */
CONVERSION(store_float32, double, uint8_t,
           gw_put32(out + 4 * i, src[i] != src[i] ? 0x7FC00000u : gw_float_bits((float)src[i])))
CONVERSION(store_float16, double, uint8_t, gw_put16(out + 2 * i, to_f16(src[i])))
CONVERSION(store_bfloat16, double, uint8_t, gw_put16(out + 2 * i, to_bf16(src[i])))
CONVERSION(store_int32, int64_t, uint8_t, gw_put32(out + 4 * i, (uint32_t)src[i]))
CONVERSION(store_int64, int64_t, uint8_t, gw_put64(out + 8 * i, (uint64_t)src[i]))
CONVERSION(store_uint8, int64_t, uint8_t, out[i] = (uint8_t)src[i])
#undef CONVERSION

static const struct {
    void (*load)(const uint8_t *src, double *out, uint64_t n);
    void (*store)(const double *src, uint8_t *out, uint64_t n);
} floats[] = {[GW_PS_FLOAT32] = {load_float32, store_float32},
              [GW_PS_FLOAT16] = {load_float16, store_float16},
              [GW_PS_BFLOAT16] = {load_bfloat16, store_bfloat16}};

static const struct {
    void (*load)(const uint8_t *src, int64_t *out, uint64_t n);
    void (*store)(const int64_t *src, uint8_t *out, uint64_t n);
} integers[] = {[GW_PS_INT32] = {load_int32, store_int32},
                [GW_PS_INT64] = {load_int64, store_int64},
                [GW_PS_UINT8] = {load_uint8, store_uint8}};

/* The bytes of a push from its element `begin` on. */
static const uint8_t *pushed(const struct work *work, uint32_t push, uint64_t begin)
{
    return (const uint8_t *)work->pushes[push].bytes + begin * gw_ps_type_bytes(work->type);
}

/* ---- a block of elements ------------------------------------------------------------------------------ */

/* Wide enough for the sum of GW_MAX_WORKERS numbers of 64 bits, in any order. */
__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

/* sum / n, rounded once. The quotient gets 48 bits behind the point. If it has more, the last bit is set (round to
 * odd). These are more than 26 bits in all, so rounding to float32 gives the same as rounding the exact quotient. */
static float mean_of(wide sum, uint32_t n)
{
    const unsigned_wide magnitude = (unsigned_wide)(sum < 0 ? -sum : sum) << 48; /* below 2^(63 + 15 + 48) */
    unsigned_wide quotient = magnitude / n;
    quotient |= quotient * n != magnitude;
    const float mean = (float)quotient * 0x1p-48f;
    return sum < 0 ? -mean : mean;
}

/* How the pushes of a round are joined: one after the other, in the order of ranks, in a number type that is wide
 * enough for every type of its kind; or all numbers of a block together; or all pushes at once. */
struct join {
    void (*float_to)(double *all, const double *one, uint32_t n);
    void (*integer_to)(wide *all, const int64_t *one, uint32_t n);
    void (*floats)(const struct work *work, uint64_t begin, uint32_t n, double *all);
    gw_status (*at_once)(struct work *work, struct gw_ps_result *out);
};

#define JOIN(name, joined_floats, joined_integers)                                                                     \
    static void name##_float_to(double *all, const double *one, uint32_t n)                                            \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            all[i] = joined_floats;                                                                                    \
    }                                                                                                                  \
    static void name##_integer_to(wide *all, const int64_t *one, uint32_t n)                                           \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            all[i] = joined_integers;                                                                                  \
    }
/* Once there is a NaN, it stays. */
JOIN(max, one[i] > all[i] || one[i] != one[i] ? one[i] : all[i], one[i] > all[i] ? one[i] : all[i])
JOIN(min, one[i] < all[i] || one[i] != one[i] ? one[i] : all[i], one[i] < all[i] ? one[i] : all[i])
JOIN(add, all[i] + one[i], all[i] + one[i])
#undef JOIN

/* Turns a float into an integer, so that integers have the same order as the floats. -0 comes before 0. A NaN comes
 * after all numbers, whatever its bits are. */
static uint32_t place_of(float x)
{
    const uint32_t bits = gw_float_bits(x), place = bits >> 31 ? ~bits : bits | 0x80000000u;
    return x != x ? UINT32_MAX : place;
}

static float at_place(uint32_t place)
{
    return gw_bits_float(place >> 31 ? place & 0x7FFFFFFFu : ~place);
}

/* The mean of two numbers in float32, rounded once. If their sum is too large, this adds their halves, which are exact
 * then. */
static float mean_of_two(float low, float high)
{
    const float sum = low + high;
    return isinf(sum) && isfinite(low) && isfinite(high) ? low * 0.5f + high * 0.5f : sum * 0.5f;
}

/* So many numbers are sorted at a time. An L1 cache holds them. But if one element alone has more, all of its numbers
 * are sorted. */
#define SORTED_AT_ONCE 8192u

/* Exchanges low[i] and high[i] if they stand in the wrong order. A compiler turns this loop into minimums and maximums
 * of many numbers at a time. */
static void put_in_order(uint32_t *restrict low, uint32_t *restrict high, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t a = low[i], b = high[i];
        low[i] = a < b ? a : b;
        high[i] = a < b ? b : a;
    }
}

/* Sorts n_rows numbers of each of n elements; places[row * n + i] is one of element i. Batcher's merge exchange sort
 * (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): which rows it compares depends on n_rows alone. So no
 * values can make it slow, and all elements go through it together. */
static void sort_rows(uint32_t *places, uint32_t n_rows, uint32_t n)
{
    for (uint32_t size = 1; size < n_rows; size *= 2) /* sorted runs of this many rows are merged in pairs */
        for (uint32_t apart = size; apart > 0; apart /= 2)
            for (uint32_t first = apart % size; first + apart < n_rows; first += 2 * apart)
                for (uint32_t row = first; row < first + apart && row + apart < n_rows; row++)
                    if (row / (2 * size) == (row + apart) / (2 * size))
                        put_in_order(places + (size_t)row * n, places + (size_t)(row + apart) * n, n);
}

/* The coordinate-wise median. If there is an even number of pushes, it is the mean of the two in the middle. If fewer
 * than half of the pushes hold anything at all, the median still lies within the values of the others (Yin et al.,
 * Byzantine-Robust Distributed Learning, 2018, definition 1). A NaN counts as missing. The promise stays true: if
 * w < n/2 pushes are wrong, and k of these are NaNs, then w-k < (n-k)/2 of the n-k others are. */
static void middle_of_floats(const struct work *work, uint64_t begin, uint32_t n, double *all)
{
    uint32_t places[GW_MAX_WORKERS > SORTED_AT_ONCE ? GW_MAX_WORKERS : SORTED_AT_ONCE];
    const uint32_t at_once = work->n < SORTED_AT_ONCE ? SORTED_AT_ONCE / work->n : 1;
    for (uint32_t done = 0; done < n; done += at_once) {
        const uint32_t now = n - done < at_once ? n - done : at_once;
        double one[SORTED_AT_ONCE], *middle = all + done;
        uint32_t n_numbers[SORTED_AT_ONCE]; /* of each element: how many pushes are no NaN */
        for (uint32_t i = 0; i < now; i++) {
            n_numbers[i] = 0;
            middle[i] = (double)NAN; /* and so it stays if no push is finite */
        }
        for (uint32_t p = 0; p < work->n; p++) {
            floats[work->type].load(pushed(work, p, begin + done), one, now);
            for (uint32_t i = 0; i < now; i++) {
                places[(size_t)p * now + i] = place_of((float)one[i]);
                n_numbers[i] += one[i] == one[i];
                middle[i] = isfinite(one[i]) ? 0 : middle[i];
            }
        }
        sort_rows(places, work->n, now);
        for (uint32_t i = 0; i < now; i++)
            if (middle[i] == 0) {
                const uint32_t low = places[(size_t)((n_numbers[i] - 1) / 2) * now + i],
                               high = places[(size_t)(n_numbers[i] / 2) * now + i];
                middle[i] = (double)(n_numbers[i] % 2 ? at_place(low) : mean_of_two(at_place(low), at_place(high)));
            }
    }
}

static gw_status float_block(const struct work *work, uint64_t begin, uint32_t n)
{
    double all[BLOCK], one[BLOCK];
    if (work->join->floats)
        work->join->floats(work, begin, n, all);
    else
        floats[work->type].load(pushed(work, 0, begin), all, n);
    for (uint32_t p = 1; work->join->float_to && p < work->n; p++) {
        floats[work->type].load(pushed(work, p, begin), one, n);
        work->join->float_to(all, one, n);
    }
    for (uint32_t i = 0; work->divides && i < n; i++)
        all[i] /= work->n;
    floats[work->result_type].store(all, work->out + begin * gw_ps_type_bytes(work->result_type), n);
    return GW_OK;
}

/* Only the result must fit into the type. Sums on the way may be larger. */
static gw_status integer_block(const struct work *work, uint64_t begin, uint32_t n)
{
    wide all[BLOCK];
    int64_t one[BLOCK];
    integers[work->type].load(pushed(work, 0, begin), one, n);
    for (uint32_t i = 0; i < n; i++)
        all[i] = one[i];
    for (uint32_t p = 1; p < work->n; p++) {
        integers[work->type].load(pushed(work, p, begin), one, n);
        work->join->integer_to(all, one, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (work->divides) {
            gw_put_float(work->out + (begin + i) * sizeof(float), mean_of(all[i], work->n));
            continue;
        }
        if (all[i] < INT64_MIN || all[i] > INT64_MAX)
            return gw_fail(GW_ERR_ARGUMENT, "the %s of element %" PRIu64 " does not fit into int64",
                           gw_ps_method_name(work->method), begin + i);
        one[i] = (int64_t)all[i];
    }
    if (!work->divides)
        integers[work->result_type].store(one, work->out + begin * gw_ps_type_bytes(work->result_type), n);
    return GW_OK;
}

/* Sums of 2-bit codes, TernGrad's ternary values; `begin` and n count elements and are multiples of 4. */
static gw_status codes_block(const struct work *work, uint64_t begin, uint32_t n)
{
    int16_t sum[BLOCK] = {0}; /* wide enough for GW_MAX_WORKERS times -1 or 1 */
    for (uint32_t p = 0; p < work->n; p++) {
        const uint8_t *codes = (const uint8_t *)work->pushes[p].bytes + begin / 4;
        for (uint32_t b = 0; b < n / 4; b++) {
            uint32_t byte = codes[b];
            if (byte & byte >> 1 & 0x55)
                return gw_fail(GW_ERR_ARGUMENT,
                               "byte %" PRIu64
                               " of rank %u's push is 0x%02x and holds the code 11; 00, 01 and 10 are codes",
                               begin / 4 + b, work->pushes[p].rank, byte);
            for (uint32_t j = 0; j < 4; j++)
                sum[4 * b + j] = (int16_t)(sum[4 * b + j] + (int)(byte >> 2 * j & 3) - 1);
        }
    }
    /* S / N; with a scale s it is S * (s/N), with s/N rounded once, as in frames */
    const float by = work->divides ? (float)work->n : 1;
    uint8_t *out = work->out + begin * sizeof(float);
    for (uint32_t i = 0; i < n; i++)
        gw_put_float(out + i * sizeof(float), work->scale ? (float)sum[i] * (*work->scale / by) : (float)sum[i] / by);
    return GW_OK;
}

static gw_status block(uint64_t i, uint32_t slot, void *user)
{
    const struct work *work = user;
    const uint64_t begin = i * BLOCK;
    const uint32_t n = work->n_results - begin < BLOCK ? (uint32_t)(work->n_results - begin) : BLOCK;
    (void)slot;
    return work->join->at_once          ? codes_block(work, begin, n)
           : gw_ps_is_float(work->type) ? float_block(work, begin, n)
                                        : integer_block(work, begin, n);
}

/* ---- methods ------------------------------------------------------------------------------------------ */

static gw_status by_blocks(struct work *work, struct gw_ps_result *out)
{
    const size_t width = gw_ps_type_bytes(work->result_type);
    gw_ps_shape_elems(&out->shape, &work->n_results);
    out->n_bytes = (size_t)work->n_results * width;
    out->bytes = work->out = gw_alloc(work->context, (size_t)work->n_results, width);
    return out->bytes ? gw_parallel_try(work->context, gw_div_up(work->n_results, BLOCK), block, work) : GW_ERR_MEMORY;
}

/* Goes on to the next frame of every push. frames[p] is push p's frame, and has n_bytes[p] bytes; 0 before the first.
 * *more false: there is none. */
static gw_status next_frames(const struct work *work, const void **frames, size_t *n_bytes, bool *more)
{
    for (uint32_t p = 0; p < work->n; p++) {
        const struct gw_ps_push *push = &work->pushes[p];
        gw_frame_info info;
        frames[p] = (const char *)frames[p] + n_bytes[p];
        const size_t left = push->n_bytes - (size_t)((const char *)frames[p] - (const char *)push->bytes);
        *more = p > 0 ? *more : left > 0;
        if (*more != (left > 0))
            return gw_fail(GW_ERR_FRAME_MISMATCH, "the pushes of ranks %u and %u have not the same number of frames",
                           work->pushes[0].rank, push->rank);
        if (!*more)
            continue;
        GW_TRY(gw_frame_parse_unverified(frames[p], left, &info));
        n_bytes[p] = info.frame_bytes;
    }
    return GW_OK;
}

/* Writes the averages back to back. dst NULL: only counts the most bytes that they can take. */
static gw_status average_frames(const struct work *work, uint8_t *dst, size_t capacity, size_t *n_bytes)
{
    const gw_reduce_options options = {.struct_bytes = sizeof options, .codec = work->codec};
    const void **frames = gw_calloc(work->context, work->n, sizeof *frames);
    size_t *sizes = gw_calloc(work->context, work->n, sizeof *sizes);
    gw_status status = frames && sizes ? GW_OK : GW_ERR_MEMORY;
    bool more = true;
    *n_bytes = 0;
    for (uint32_t p = 0; p < work->n && status == GW_OK; p++)
        frames[p] = work->pushes[p].bytes;
    while (status == GW_OK && (status = next_frames(work, frames, sizes, &more)) == GW_OK && more) {
        size_t one = gw_reduce_bound(frames, sizes, work->n);
        if (dst)
            status =
                gw_reduce(work->context, frames, sizes, work->n, &options, dst + *n_bytes, capacity - *n_bytes, &one);
        *n_bytes += one;
    }
    gw_free(work->context, frames);
    gw_free(work->context, sizes);
    return status;
}

static gw_status frame_average(const struct work *work, struct gw_ps_result *out)
{
    size_t capacity;
    GW_TRY(average_frames(work, NULL, 0, &capacity));
    out->bytes = gw_alloc(work->context, capacity, 1);
    return out->bytes ? average_frames(work, out->bytes, capacity, &out->n_bytes) : GW_ERR_MEMORY;
}

gw_status gw_ps_decode_frames(gw_context *context, const void *bytes, size_t n_bytes, float *out)
{
    for (const char *at = bytes; n_bytes > 0;) {
        gw_frame_info info;
        GW_TRY(gw_frame_parse_unverified(at, n_bytes, &info));
        GW_TRY(gw_decode(context, at, info.frame_bytes, out, info.n_elems));
        out += info.n_elems;
        at += info.frame_bytes;
        n_bytes -= info.frame_bytes;
    }
    return GW_OK;
}

static gw_status frame_sum(const struct work *work, struct gw_ps_result *out)
{
    size_t n = (size_t)work->n_elems;
    double *sum = gw_calloc(work->context, n, sizeof *sum);
    float *one = gw_alloc(work->context, n, sizeof *one);
    out->bytes = gw_alloc(work->context, n, sizeof(float));
    out->n_bytes = n * sizeof(float);
    gw_status status = sum && one && out->bytes ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t p = 0; p < work->n && status == GW_OK; p++) {
        status = gw_ps_decode_frames(work->context, work->pushes[p].bytes, work->pushes[p].n_bytes, one);
        for (size_t i = 0; i < n && status == GW_OK; i++)
            sum[i] += (double)one[i];
    }
    if (status == GW_OK)
        store_float32(sum, out->bytes, n);
    gw_free(work->context, sum);
    gw_free(work->context, one);
    return status;
}

static gw_status decode(struct work *work, struct gw_ps_result *out)
{
    if (work->type == GW_PS_UINT8)
        return by_blocks(work, out);
    return work->divides ? frame_average(work, out) : frame_sum(work, out);
}

static const struct join largest = {.float_to = max_float_to, .integer_to = max_integer_to},
                         smallest = {.float_to = min_float_to, .integer_to = min_integer_to},
                         sum = {.float_to = add_float_to, .integer_to = add_integer_to},
                         middle = {.floats = middle_of_floats}, decoded = {.at_once = decode},
                         not_of_a_round = {.at_once = NULL};
enum { as_it_is, divided };

static const struct {
    const struct join *join;
    bool divides;
} methods[] = {
#define ENTRY(number, name, floats, integers, uint8, frames, joined_by, made_by, help)                                 \
    [number] = {.join = &joined_by, .divides = made_by},
    GW_PS_METHODS(ENTRY)
#undef ENTRY
};

gw_status gw_ps_reduce(gw_context *context, gw_ps_method method, gw_ps_type type, const gw_ps_shape *shape,
                       const struct gw_ps_push *pushes, uint32_t n, const gw_codec *codec, const float *scale,
                       struct gw_ps_result *out)
{
    GW_TRY(gw_ps_method_check(method, type));
    struct work work = {.context = context,
                        .method = method,
                        .join = methods[method].join,
                        .divides = methods[method].divides,
                        .type = type,
                        .result_type = gw_ps_result_type(method, type),
                        .pushes = pushes,
                        .n = n,
                        .codec = codec,
                        .scale = scale};
    gw_ps_shape_elems(shape, &work.n_elems);
    *out = (struct gw_ps_result){.type = work.result_type, .shape = gw_ps_result_shape(method, type, shape)};
    gw_status status = work.join->at_once ? work.join->at_once(&work, out) : by_blocks(&work, out);
    if (status < 0) {
        gw_free(context, out->bytes);
        out->bytes = NULL;
    }
    return status;
}

gw_status gw_ps_round_reduce(const struct gw_ps_store *store, const struct gw_ps_key *key,
                             const struct gw_ps_round *round, gw_ps_method method, const float *scale,
                             struct gw_ps_result *out, uint32_t *n_pushes)
{
    struct gw_ps_push *pushes = gw_alloc(store->context, round->n_in, sizeof *pushes);
    if (!pushes)
        return GW_ERR_MEMORY;
    uint32_t n = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_counts(store, key, round, r) && round->refusals[r] == GW_PS_NOT_REFUSED &&
            (store->options.mode == GW_PS_SYNC || store->present[r]))
            pushes[n++] = (struct gw_ps_push){r, round->pushes[r]->bytes, round->pushes[r]->n_bytes};
    *n_pushes = n;
    const gw_status status =
        n == 0 ? gw_fail(GW_ERR_ORDER, "all workers that have pushed to \"%s\" have left", key->name)
               : gw_ps_reduce(store->context, method, key->type, &key->shape, pushes, n, key->codec, scale, out);
    gw_free(store->context, pushes);
    return status;
}
