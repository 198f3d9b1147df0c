/* Writes the values of one chunk of a sparse frame and reads them back. Exponents are coded near their entropy; signs
 * and fractions are stored as they are. */
#include "codec/sparse/values.h"
#include "base/error.h"
#include "codec/select_kernels.h"
#include "codec/strings.h"

/* A value's bits: sign, exponent, fraction, as IEEE 754 has them. */
struct layout {
    unsigned exponent_bits, fraction_bits;
};

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

/* Exponents below the largest that are told apart by strings; what is smaller still, zeros too, is rare or not worth
 * it. */
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

/* Marks for n values, all set; bytes for what is past n in the last word of marks are never below any exponent. */
static uint32_t begin_marks(struct gw_sparse_exponents *memory, uint32_t n)
{
    uint32_t n_words = (n + 63) / 64;
    memset(memory->marks[0], 0xFF, 8 * (size_t)n_words);
    if (n % 64)
        memory->marks[0][n_words - 1] = (1ull << (n % 64)) - 1;
    memset(memory->exponents + n, 0xFF, 64 * (size_t)n_words - n);
    return n_words;
}

/* Writes the exponents: the largest, then of all how far they are below it: "is it below 0?", of those that are "is it
 * below 1?", ... False, with the writer to be set back, where that does not save anything. */
static bool put_exponents(struct gw_bit_writer *writer, struct layout layout, const float *values,
                          enum gw_value_type type, uint32_t n, struct gw_sparse_exponents *memory)
{
    uint64_t used = layout.exponent_bits, most = (uint64_t)n * layout.exponent_bits, *marks = memory->marks[0],
             *next = memory->marks[1];
    uint32_t n_words = begin_marks(memory, n), left = n;
    uint8_t top = 0;
    take_exponents(type, values, n, memory->exponents);
    for (uint32_t i = 0; i < n; i++)
        top = memory->exponents[i] > top ? memory->exponents[i] : top;
    gw_bits_put(writer, top, layout.exponent_bits);
    uint8_t last = top > LEVELS ? top - LEVELS : 0;
    for (uint8_t exponent = top; exponent > last && left; exponent--) {
        if (used + 2 + left > most)
            return false;
        uint32_t below;
        gw_select_kernels_now()->below(memory->exponents, n_words, exponent, next);
        used += gw_string_put(writer, marks, left, next, n_words, memory->string, &below);
        uint64_t *free = marks;
        marks = next;
        next = free;
        left = below;
    }
    if (!last)
        return true;
    if (used + (uint64_t)left * layout.exponent_bits > most)
        return false;
    for (uint32_t w = 0; w < n_words && left; w++)
        for (uint64_t bits = marks[w]; bits; bits &= bits - 1)
            gw_bits_put(writer, memory->exponents[64 * w + (uint32_t)__builtin_ctzll(bits)], layout.exponent_bits);
    return true;
}

/* The values as they are, n > 0 of them. */
static uint8_t *put_plain(enum gw_value_type type, const float *values, uint32_t n, uint8_t *at)
{
    if (type == GW_VALUE_F32)
        memcpy(at, values, 4 * (size_t)n);
    else
        for (uint32_t i = 0; i < n; i++)
            gw_put16(at + 2 * (size_t)i, (uint16_t)to_bits(type, values[i]));
    return at + gw_value_bits(type) / 8 * (size_t)n;
}

/* Fractions and signs. */
static uint8_t *put_rest(enum gw_value_type type, const float *values, uint32_t n, uint8_t *at, uint8_t *end)
{
    switch (type) {
    case GW_VALUE_F32:
        gw_select_kernels_now()->rests(values, n, at);
        return at + 3 * (size_t)n;
    case GW_VALUE_BF16:
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = gw_to_bf16(values[i]);
            at[i] = (uint8_t)((bits & 0x7Fu) | bits >> 15 << 7);
        }
        return at + n;
    default: {
        struct gw_bit_writer w = {.at = at, .end = end};
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = gw_to_f16(values[i]);
            gw_bits_put(&w, (bits & 0x3FFu) | bits >> 15 << 10, 11);
        }
        return gw_bits_finish(&w);
    }
    }
}

uint8_t *gw_sparse_put_values(struct gw_bit_writer *writer, enum gw_value_type type, const float *values, uint32_t n,
                              bool fast, struct gw_sparse_exponents *memory)
{
    if (!n)
        return gw_bits_finish(writer);
    struct gw_bit_writer plain = *writer;
    gw_bits_put(writer, 1, 1);
    if (!fast && put_exponents(writer, layout_of(type), values, type, n, memory))
        return put_rest(type, values, n, gw_bits_finish(writer), writer->end);
    *writer = plain;
    gw_bits_put(writer, 0, 1);
    return put_plain(type, values, n, gw_bits_finish(writer));
}

static gw_status get_exponents(struct gw_bit_reader *reader, struct layout layout, uint32_t n,
                               struct gw_sparse_exponents *memory)
{
    uint64_t *marks = memory->marks[0], *next = memory->marks[1];
    uint32_t n_words = begin_marks(memory, n), left = n, mask = (1u << layout.exponent_bits) - 1;
    uint32_t top = (uint32_t)gw_bits_peek(reader) & mask, last = top > LEVELS ? top - LEVELS : 0;
    reader->at += layout.exponent_bits;
    memset(memory->exponents, (int)top, n);
    for (uint32_t exponent = top; exponent > last && left; exponent--) {
        GW_TRY(gw_string_get(reader, marks, left, n_words, memory->string, next, &left));
        gw_select_kernels_now()->lower(next, n_words, memory->exponents);
        uint64_t *free = marks;
        marks = next;
        next = free;
    }
    for (uint32_t w = 0; last && w < n_words && left; w++)
        for (uint64_t bits = marks[w]; bits; bits &= bits - 1, reader->at += layout.exponent_bits) {
            uint32_t exponent = (uint32_t)gw_bits_peek(reader) & mask;
            if (exponent > last)
                return gw_fail(GW_ERR_FRAME_PAYLOAD, "a small value has exponent %u; it must be %u or less", exponent,
                               last);
            memory->exponents[64 * w + (uint32_t)__builtin_ctzll(bits)] = (uint8_t)exponent;
        }
    return GW_OK;
}

/* What stands after the strings: padding, then n times `width` bits, then padding, then nothing. */
static gw_status check_end(const struct gw_bit_reader *reader, unsigned width, uint32_t n)
{
    uint64_t strings = (reader->at + 7) / 8, bits = (uint64_t)width * n;
    if (reader->n_bits / 8 != strings + (bits + 7) / 8)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk has %llu bytes; its positions and %u values take %llu",
                       (unsigned long long)reader->n_bits / 8, n, (unsigned long long)(strings + (bits + 7) / 8));
    if ((reader->at % 8 && reader->src[reader->at / 8] >> (reader->at % 8)) ||
        (bits % 8 && reader->src[reader->n_bits / 8 - 1] >> (bits % 8)))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk is padded with bits that are not 0");
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

static void get_rest(enum gw_value_type type, const uint8_t *src, uint32_t n, const uint8_t *exponents, float *values)
{
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
        struct gw_bit_reader r = {.src = src, .n_bits = 8 * ((11 * (uint64_t)n + 7) / 8)};
        for (uint32_t i = 0; i < n; i++, r.at += 11) {
            uint32_t rest = (uint32_t)gw_bits_peek(&r) & 0x7FFu;
            values[i] = gw_from_f16((uint16_t)((rest & 0x3FFu) | (uint32_t)exponents[i] << 10 | rest >> 10 << 15));
        }
    }
    }
}

gw_status gw_sparse_get_values(struct gw_bit_reader *reader, enum gw_value_type type, uint32_t n,
                               struct gw_sparse_exponents *memory, float *values, uint64_t *value_bits)
{
    uint64_t begin = reader->at;
    bool apart = n && gw_bits_peek(reader) & 1;
    unsigned width = apart ? gw_value_rest_bits(type) : gw_value_bits(type);
    reader->at += n > 0;
    if (apart)
        GW_TRY(get_exponents(reader, layout_of(type), n, memory));
    GW_TRY(check_end(reader, width, n));
    *value_bits = reader->at - begin + (uint64_t)width * n;
    const uint8_t *src = reader->src + (reader->at + 7) / 8;
    if (apart)
        get_rest(type, src, n, memory->exponents, values);
    else
        get_plain(type, src, n, values);
    return GW_OK;
}
