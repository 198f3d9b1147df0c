/* Writes the values of one chunk of a sparse frame and reads them back. Exponents are coded near their entropy; signs
 * and fractions are stored as they are. */
#include "codec/sparse/values.h"
#include "base/error.h"
#include "codec/select_kernels.h"
#include "codec/marked.h"

/* A value's bits are sign, exponent and fraction, as in IEEE 754. */
struct layout {
    unsigned exponent_bits, fraction_bits;
};

/* Bits of one value as it is. */
static unsigned value_bits(enum gw_value_type type)
{
    return type == GW_VALUE_F32 ? 32 : 16;
}

static struct layout layout_of(enum gw_value_type type)
{
    return type == GW_VALUE_F32    ? (struct layout){8, 23}
           : type == GW_VALUE_BF16 ? (struct layout){8, 7}
                                   : (struct layout){5, 10};
}

static uint32_t to_bits(enum gw_value_type type, float x)
{
    return type == GW_VALUE_F32 ? gw_float_bits(x) : type == GW_VALUE_BF16 ? gw_to_bf16(x) : gw_to_f16(x);
}

static float from_bits(enum gw_value_type type, uint32_t bits)
{
    return type == GW_VALUE_F32    ? gw_bits_float(bits)
           : type == GW_VALUE_BF16 ? gw_from_bf16((uint16_t)bits)
                                   : gw_from_f16((uint16_t)bits);
}

uint32_t gw_value_exponent(enum gw_value_type type, float x)
{
    struct layout layout = layout_of(type);
    return to_bits(type, x) >> layout.fraction_bits & ((1u << layout.exponent_bits) - 1);
}

unsigned gw_value_rest_bits(enum gw_value_type type)
{
    return layout_of(type).fraction_bits + 1;
}

/* How many questions the strings ask at most. So they tell apart this many exponents: the largest, and those just
 * below it. Values with smaller exponents, zeros among them, are rare, or not worth a string. */
#define LEVELS 16

static void take_exponents(enum gw_value_type type, const float *values, uint32_t n, uint8_t *exponents)
{
    switch (type) {
    case GW_VALUE_F32:
        for (uint32_t i = 0; i < n; i++)
            exponents[i] = (uint8_t)gw_value_exponent(GW_VALUE_F32, values[i]);
        break;
    case GW_VALUE_BF16:
        for (uint32_t i = 0; i < n; i++)
            exponents[i] = (uint8_t)gw_value_exponent(GW_VALUE_BF16, values[i]);
        break;
    default:
        for (uint32_t i = 0; i < n; i++)
            exponents[i] = (uint8_t)gw_value_exponent(GW_VALUE_F16, values[i]);
    }
}

/* Begins with marks on all n values. The last word of marks may go past n. The bytes for that part get the largest
 * exponent, so that they are never below a level. */
static uint32_t begin_marks(struct gw_sparse_exponents *memory, uint32_t n)
{
    uint32_t n_words = (n + 63) / 64;
    memset(memory->marks[0], 0xFF, 8 * (size_t)n_words);
    if (n % 64)
        memory->marks[0][n_words - 1] = (1ull << (n % 64)) - 1;
    memset(memory->exponents + n, 0xFF, 64 * (size_t)n_words - n);
    return n_words;
}

/* How many exponents there are of each size, and the largest. */
struct census {
    uint32_t counts[256];
    uint8_t top, last; /* strings ask whether an exponent is below top, below top - 1, ..., below last + 1 */
};

static void take_census(const uint8_t *exponents, uint32_t n, struct census *census)
{
    *census = (struct census){.top = 0};
    for (uint32_t i = 0; i < n; i++)
        census->counts[exponents[i]]++;
    for (uint32_t e = 0; e < 256; e++)
        census->top = census->counts[e] ? (uint8_t)e : census->top;
    census->last = census->top > LEVELS ? census->top - LEVELS : 0;
}

/* True if exponents take fewer bits in strings than beside their values. This is an estimate. */
static bool saves(struct layout layout, uint32_t n, const struct census *census)
{
    uint64_t used = layout.exponent_bits;
    uint32_t left = n;
    for (uint32_t x = census->top; x > census->last && left; x--) {
        const uint32_t below = left - census->counts[x];
        used += gw_strings_estimate(left, below) + 32; /* 32: what the head has of a string */
        left = below;
    }
    used += census->last ? (uint64_t)left * layout.exponent_bits : 0;
    return used < (uint64_t)n * layout.exponent_bits;
}

/* Puts the largest exponent. Then a string asks of all values: is the exponent below the largest? Of those that said
 * yes, the next string asks: is it below the largest less 1? And so on. Returns the marks of those that said yes to all
 * questions. *n_left becomes their number, if their exponents must be sent as they are. */
static const uint64_t *put_exponents(struct gw_strings_writer *writer, struct layout layout, uint32_t n,
                                     const struct census *census, struct gw_sparse_exponents *memory, uint32_t *n_left)
{
    uint64_t *marks = memory->marks[0], *next = memory->marks[1];
    uint32_t n_words = begin_marks(memory, n), left = n;
    gw_strings_field(writer, census->top, layout.exponent_bits);
    for (uint32_t x = census->top; x > census->last && left; x--) {
        const uint32_t below = left - census->counts[x];
        gw_select_kernels_now()->below(memory->exponents, n_words, (uint8_t)x, next);
        gw_marked_put(writer, marks, left, next, n_words, below);
        gw_marks_swap(&marks, &next);
        left = below;
    }
    *n_left = census->last ? left : 0;
    return marks;
}

static void put_plain(enum gw_value_type type, const float *values, uint32_t n, uint8_t *at)
{
    if (type == GW_VALUE_F32)
        memcpy(at, values, 4 * (size_t)n);
    else
        for (uint32_t i = 0; i < n; i++)
            gw_put16(at + 2 * (size_t)i, (uint16_t)to_bits(type, values[i]));
}

/* Puts fractions and signs. */
static void put_rest(enum gw_value_type type, const float *values, uint32_t n, struct gw_bit_writer *writer)
{
    switch (type) {
    case GW_VALUE_F32:
        gw_select_kernels_now()->rests(values, n, writer->at);
        writer->at += 3 * (size_t)n;
        break;
    case GW_VALUE_BF16:
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = gw_to_bf16(values[i]);
            *writer->at++ = (uint8_t)((bits & 0x7Fu) | bits >> 15 << 7);
        }
        break;
    default:
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = gw_to_f16(values[i]);
            gw_bits_put(writer, (bits & 0x3FFu) | bits >> 15 << 10, 11);
        }
    }
}

uint64_t gw_sparse_put_values(struct gw_strings_writer *writer, enum gw_value_type type, const float *values,
                              uint32_t n, bool as_they_are, struct gw_sparse_exponents *memory, uint8_t *raw)
{
    const struct layout layout = layout_of(type);
    struct census census;
    if (!n)
        return 0;
    if (!as_they_are) {
        take_exponents(type, values, n, memory->exponents);
        take_census(memory->exponents, n, &census);
    }
    const bool apart = !as_they_are && saves(layout, n, &census);
    gw_strings_field(writer, apart, 1);
    if (!apart) {
        put_plain(type, values, n, raw);
        return (uint64_t)n * value_bits(type);
    }
    uint32_t n_left;
    const uint64_t *left = put_exponents(writer, layout, n, &census, memory, &n_left);
    struct gw_bit_writer rest = {.at = raw, .end = raw + 4 * (size_t)n + 8};
    put_rest(type, values, n, &rest);
    for (uint32_t w = 0; n_left && w < (n + 63) / 64; w++)
        for (uint64_t bits = left[w]; bits; bits &= bits - 1)
            gw_bits_put(&rest, memory->exponents[64 * w + (uint32_t)__builtin_ctzll(bits)], layout.exponent_bits);
    gw_bits_finish(&rest);
    return (uint64_t)n * gw_value_rest_bits(type) + (uint64_t)n_left * layout.exponent_bits;
}

gw_status gw_sparse_get_exponents(struct gw_strings_reader *reader, enum gw_value_type type, uint32_t n,
                                  struct gw_sparse_exponents *memory, struct gw_sparse_coming *coming, uint64_t *n_raw)
{
    const struct layout layout = layout_of(type);
    *coming = (struct gw_sparse_coming){.type = type,
                                        .n = n,
                                        .apart = n && gw_strings_number(reader, 1),
                                        .exponents = memory->exponents};
    *n_raw = (uint64_t)n * value_bits(type);
    if (!coming->apart)
        return GW_OK;
    uint64_t *marks = memory->marks[0], *next = memory->marks[1];
    const uint32_t n_words = begin_marks(memory, n), top = gw_strings_number(reader, layout.exponent_bits),
                   last = top > LEVELS ? top - LEVELS : 0;
    uint32_t left = n;
    memset(memory->exponents, (int)top, n);
    for (uint32_t x = top; x > last && left; x--) {
        GW_TRY(gw_marked_get(reader, marks, left, n_words, memory->string, next, &left));
        gw_select_kernels_now()->lower(next, n_words, memory->exponents);
        gw_marks_swap(&marks, &next);
    }
    coming->small = marks;
    coming->n_small = last ? left : 0;
    coming->last = last;
    *n_raw = (uint64_t)n * gw_value_rest_bits(type) + (uint64_t)coming->n_small * layout.exponent_bits;
    return GW_OK;
}

static void get_plain(enum gw_value_type type, const uint8_t *src, uint32_t n, float *values)
{
    if (type == GW_VALUE_F32)
        memcpy(values, src, 4 * (size_t)n);
    else
        for (uint32_t i = 0; i < n; i++)
            values[i] = from_bits(type, gw_get16(src + 2 * (size_t)i));
}

static void get_rest(enum gw_value_type type, struct gw_bit_reader *reader, uint32_t n, const uint8_t *exponents,
                     float *values)
{
    const uint8_t *src = reader->src;
    switch (type) {
    case GW_VALUE_F32:
        gw_select_kernels_now()->join(src, exponents, n, values);
        break;
    case GW_VALUE_BF16:
        for (uint32_t i = 0; i < n; i++)
            values[i] =
                gw_from_bf16((uint16_t)((src[i] & 0x7Fu) | (uint32_t)exponents[i] << 7 | (uint32_t)src[i] >> 7 << 15));
        break;
    default: {
        struct gw_bit_reader r = *reader;
        for (uint32_t i = 0; i < n; i++, r.at += 11) {
            uint32_t rest = (uint32_t)gw_bits_peek(&r) & 0x7FFu;
            values[i] = gw_from_f16((uint16_t)((rest & 0x3FFu) | (uint32_t)exponents[i] << 10 | rest >> 10 << 15));
        }
    }
    }
}

gw_status gw_sparse_get_values(const struct gw_sparse_coming *coming, const uint8_t *raw, uint64_t n_raw, float *values)
{
    if (!coming->apart) {
        get_plain(coming->type, raw, coming->n, values);
        return GW_OK;
    }
    const struct layout layout = layout_of(coming->type);
    struct gw_bit_reader reader = {.src = raw, .n_bits = 8 * ((n_raw + 7) / 8)}, small = reader;
    small.at = (uint64_t)coming->n * gw_value_rest_bits(coming->type);
    for (uint32_t w = 0; coming->n_small && w < (coming->n + 63) / 64; w++)
        for (uint64_t bits = coming->small[w]; bits; bits &= bits - 1, small.at += layout.exponent_bits) {
            const uint32_t exponent = (uint32_t)gw_bits_peek(&small) & ((1u << layout.exponent_bits) - 1);
            if (exponent > coming->last)
                return gw_fail(GW_ERR_FRAME_PAYLOAD, "a small value has exponent %u; it must be %u or less", exponent,
                               coming->last);
            coming->exponents[64 * w + (uint32_t)__builtin_ctzll(bits)] = (uint8_t)exponent;
        }
    get_rest(coming->type, &reader, coming->n, coming->exponents, values);
    return GW_OK;
}
