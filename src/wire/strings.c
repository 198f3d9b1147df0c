/* Collects the strings of a chunk and codes them; reads them one by one. */
#include "wire/strings.h"
#include "base/clones.h"
#include "base/error.h"
#include "base/scratch.h"

#include <string.h>

#define LANES_BITS 2
#define LAST_BITS 3     /* bits of a string's largest class, less one */
#define EXPONENT_BITS 4 /* bits of a state's exponent. The state's leading one is 2^16 times 2 to this exponent */
#define STATE_MOST 35   /* bits of a state: an exponent, and what stands below the leading one */
/* An average lane takes in 28 raw bits. One that takes in none costs 20 bits. Lanes may cost a 160th of the chunk. */
#define LANE_FILL 28
#define LANE_COST 20
#define WORTH 160

static const uint32_t lanes_of[] = {0, 1, 8, GW_RANS_LANES};

static unsigned bit_length(uint32_t x)
{
    return x ? 32 - (unsigned)__builtin_clz(x) : 0;
}

/* Turns all bits over, if flip is 0xFF: then ones are the commoner value. Returns the most ones in a byte. */
GW_CLONES static uint32_t normalise(uint8_t *symbols, size_t n, uint8_t flip)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t x = symbols[i] ^ flip;
        symbols[i] = x;
        x = (uint8_t)(x - (x >> 1 & 0x55));
        x = (uint8_t)((x & 0x33) + (x >> 2 & 0x33));
        x = (uint8_t)((x + (x >> 4)) & 15);
        most = x > most ? x : most;
    }
    return most;
}

GW_CLONES static uint32_t flip_and_count(uint64_t *words, size_t n, uint64_t flip)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += (uint64_t)__builtin_popcountll(words[i]);
        words[i] ^= flip;
    }
    return (uint32_t)count;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

gw_status gw_strings_writer_init(gw_context *context, uint64_t max_bits, uint32_t max_strings, uint64_t max_field_bits,
                                 struct gw_strings_writer *writer)
{
    *writer = (struct gw_strings_writer){.capacity = (size_t)max_bits / 8 + 8 * (size_t)max_strings,
                                         /* places take less than an eighth of a string's bits */
                                         .head_bytes = (size_t)max_field_bits / 8 + (size_t)max_bits / 64 +
                                                       3 * (size_t)max_strings + 8,
                                         .max_notes = max_strings};
    writer->symbols = gw_scratch_take(context, writer->capacity + 8, 1); /* with a word past the last string */
    writer->words = gw_scratch_take(context, 2 * writer->capacity + 64, 1);
    writer->head = gw_scratch_take(context, writer->head_bytes, 1);
    writer->notes = gw_scratch_take(context, max_strings, sizeof *writer->notes);
    if (writer->symbols && writer->words && writer->head && writer->notes)
        return GW_OK;
    gw_strings_writer_fini(context, writer);
    return GW_ERR_MEMORY;
}

void gw_strings_writer_fini(gw_context *context, struct gw_strings_writer *writer)
{
    gw_scratch_give(context, writer->symbols);
    gw_scratch_give(context, writer->words);
    gw_scratch_give(context, writer->head);
    gw_scratch_give(context, writer->notes);
    *writer = (struct gw_strings_writer){0};
}

void gw_strings_begin(struct gw_strings_writer *writer)
{
    writer->used = 0;
    writer->n_notes = 0;
    writer->n_field_bits = writer->n_estimated = 0;
    writer->overfull = false;
    writer->fields = (struct gw_bit_writer){.at = writer->head, .end = writer->head + writer->head_bytes};
}

void gw_strings_field(struct gw_strings_writer *writer, uint32_t number, unsigned n_bits)
{
    writer->n_field_bits += n_bits;
    writer->overfull |= writer->n_field_bits > 8 * (uint64_t)writer->head_bytes;
    gw_bits_put(&writer->fields, number, n_bits);
}

uint64_t *gw_strings_room(struct gw_strings_writer *writer, uint32_t m)
{
    const size_t words = ((size_t)m + 63) / 64;
    if (writer->n_notes < writer->max_notes && 8 * words <= writer->capacity - writer->used)
        return (uint64_t *)(void *)(writer->symbols + writer->used);
    writer->overfull = true;
    return NULL;
}

uint64_t gw_strings_estimate(uint32_t m, uint32_t ones)
{
    const uint32_t rarer = ones < m - ones ? ones : m - ones;
    return rarer ? (uint64_t)rarer * (bit_length(m / rarer) + 1) : 0;
}

/* If one of so many bits, or fewer, has the rarer value, the places of these bits are sent. The lanes would take as
 * long for them as for a string that says much more. */
#define RARE 128

static bool is_sparse(uint32_t m, uint32_t rarer)
{
    return (uint64_t)rarer * RARE <= m;
}

/* How many of a gap's bits are sent as they are: the binary logarithm of 31/32 of the average gap (Golomb 1966, with
 * Rice's restriction to powers of two). */
static unsigned gap_bits(uint32_t m, uint32_t rarer)
{
    return bit_length((uint32_t)(m * 31ull / (rarer * 32ull))) - 1;
}

/* Writes the gap before each bit of the rarer value: how often 2^k goes into it, in unary, and k bits of the rest. */
static void put_places(struct gw_strings_writer *writer, const uint64_t *string, uint32_t m, uint32_t rarer, bool flip)
{
    const unsigned k = gap_bits(m, rarer);
    uint32_t next = 0; /* behind the last place */
    for (uint32_t w = 0; w < (m + 63) / 64; w++) {
        uint64_t bits = flip ? ~string[w] : string[w];
        bits &= m - 64 * w < 64 ? (1ull << (m - 64 * w)) - 1 : ~0ull;
        for (; bits; bits &= bits - 1) {
            const uint32_t place = 64 * w + (uint32_t)__builtin_ctzll(bits), gap = place - next;
            uint32_t times = gap >> k;
            for (; times >= 32; times -= 32)
                gw_strings_field(writer, 0, 32);
            gw_strings_field(writer, 1u << times, times + 1);
            gw_strings_field(writer, gap & ((1u << k) - 1), k);
            next = place + 1;
        }
    }
}

void gw_strings_add(struct gw_strings_writer *writer, uint32_t m, uint32_t ones)
{
    gw_strings_field(writer, ones, bit_length(m));
    if (!ones || ones == m)
        return;
    const uint32_t n = (m + 7) / 8;
    const bool flip = ones > m - ones;
    const uint32_t rarer = flip ? m - ones : ones;
    uint8_t *symbols = writer->symbols + writer->used;
    if (is_sparse(m, rarer)) {
        put_places(writer, (const uint64_t *)(const void *)symbols, m, rarer, flip);
        return;
    }
    if (flip && m % 8) /* so that the padding is 0 afterwards */
        symbols[n - 1] |= (uint8_t)(0xFF << (m % 8));
    struct gw_string_note note = {.at = writer->used,
                                  .m = m,
                                  .rarer = rarer,
                                  .last = normalise(symbols, n, flip ? 0xFF : 0)};
    gw_strings_field(writer, note.last - 1, LAST_BITS);
    writer->notes[writer->n_notes++] = note;
    writer->n_estimated += gw_strings_estimate(m, ones);
    writer->used += ((size_t)m + 63) / 64 * 8;
}

void gw_strings_put(struct gw_strings_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones)
{
    if (ones && ones < m) {
        uint64_t *room = gw_strings_room(writer, m);
        if (!room)
            return;
        memcpy(room, string, ((size_t)m + 63) / 64 * 8);
    }
    gw_strings_add(writer, m, ones);
}

/* Reads the bits [at, at + n) of a string. n <= 32. */
static uint32_t bits_at(const uint8_t *raw, uint64_t at, unsigned n)
{
    const size_t byte = (size_t)(at / 8), last = (size_t)((at + n + 7) / 8);
    return (uint32_t)(gw_get_partial(raw + byte, last - byte) >> (at % 8) & ((1ull << n) - 1));
}

/* A lane's state before it codes anything. It is made of bits from the end of raw, as long as there are enough for any
 * state. */
static uint32_t first_state(const uint8_t *raw, uint64_t *left)
{
    if (*left < STATE_MOST)
        return 1u << 16;
    *left -= EXPONENT_BITS;
    const unsigned n = 16 + bits_at(raw, *left, EXPONENT_BITS);
    *left -= n;
    return 1u << n | bits_at(raw, *left, n);
}

static void code_all(const struct gw_strings_writer *writer, uint32_t n_lanes, struct gw_rans_states *states,
                     uint8_t **words)
{
    const struct gw_rans *kernels = n_lanes == GW_RANS_LANES ? gw_rans_for(gw_cpu()) : NULL;
    for (uint32_t i = writer->n_notes; i-- > 0;) {
        const struct gw_string_note *note = &writer->notes[i];
        const uint8_t *symbols = writer->symbols + note->at;
        const uint32_t n = (note->m + 7) / 8, rows = kernels ? n / GW_RANS_LANES : 0, done = rows * GW_RANS_LANES;
        struct gw_rans_table table;
        gw_rans_table_make(&table, note->m, note->rarer, note->last);
        *words = gw_rans_encode(&table, symbols + done, n - done, n_lanes, states, *words);
        if (rows)
            *words = kernels->encode(&table, symbols, rows, states, *words);
    }
}

/* Chooses the largest number of lanes that costs little. Returns an index of lanes_of. */
static uint32_t choose_lanes(const struct gw_strings_writer *writer, uint64_t n_raw)
{
    if (!writer->n_notes)
        return 0;
    for (uint32_t code = 3; code > 1; code--) {
        const uint64_t filled = n_raw / LANE_FILL, empty = filled < lanes_of[code] ? lanes_of[code] - filled : 0;
        if (empty * LANE_COST * WORTH <= n_raw + writer->n_estimated)
            return code;
    }
    return 1;
}

size_t gw_strings_finish(struct gw_strings_writer *writer, const void *raw, uint64_t n_raw, uint8_t *dst, size_t limit)
{
    if (writer->overfull)
        return SIZE_MAX;
    gw_bits_finish(&writer->fields);
    const uint32_t code = choose_lanes(writer, n_raw), n_lanes = lanes_of[code];
    struct gw_rans_states states = {{0}, {0}};
    uint64_t left = n_raw, head_bits = LANES_BITS + writer->n_field_bits;
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t x = first_state(raw, &left);
        states.low[lane] = (uint16_t)x;
        states.high[lane] = (uint16_t)(x >> 16);
    }
    uint8_t *words_end = writer->words;
    code_all(writer, n_lanes, &states, &words_end);
    for (uint32_t lane = 0; lane < n_lanes; lane++)
        head_bits += EXPONENT_BITS + 15 + bit_length(states.high[lane]);
    const size_t head = (size_t)((head_bits + 7) / 8), plain = (size_t)((left + 7) / 8),
                 coded = (size_t)(words_end - writer->words), size = head + plain + coded;
    if (size > limit)
        return size;
    struct gw_bit_writer to = {.at = dst, .end = dst + head};
    gw_bits_put(&to, code, LANES_BITS);
    for (uint32_t lane = 0; lane < n_lanes; lane++) {
        const uint32_t x = (uint32_t)states.high[lane] << 16 | states.low[lane], n = bit_length(x) - 1;
        gw_bits_put(&to, (uint64_t)(x - (1u << n)) << EXPONENT_BITS | (n - 16), EXPONENT_BITS + n);
    }
    for (uint64_t at = 0; at < writer->n_field_bits; at += 32) {
        const unsigned n = writer->n_field_bits - at < 32 ? (unsigned)(writer->n_field_bits - at) : 32;
        gw_bits_put(&to, bits_at(writer->head, at, n), n);
    }
    gw_bits_finish(&to);
    if (plain) {
        memcpy(dst + head, raw, plain);
        if (left % 8)
            dst[head + plain - 1] &= (uint8_t)((1u << (left % 8)) - 1);
    }
    memcpy(dst + head + plain, writer->words, coded);
    return size;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

uint32_t gw_strings_number(struct gw_strings_reader *reader, unsigned n_bits)
{
    const uint32_t number = (uint32_t)(gw_bits_peek(&reader->fields) & ((1ull << n_bits) - 1));
    reader->fields.at += n_bits;
    return number;
}

void gw_strings_open(struct gw_strings_reader *reader, const uint8_t *src, size_t n_bytes)
{
    *reader = (struct gw_strings_reader){.fields = {.src = src, .n_bits = 8 * (uint64_t)n_bytes},
                                         .begin = src,
                                         .end = src + n_bytes};
    reader->words = reader->end;
    reader->n_lanes = lanes_of[gw_strings_number(reader, LANES_BITS)];
    for (uint32_t lane = 0; lane < reader->n_lanes; lane++) {
        const unsigned n = 16 + gw_strings_number(reader, EXPONENT_BITS);
        const uint32_t x = 1u << n | gw_strings_number(reader, n);
        reader->states.low[lane] = (uint16_t)x;
        reader->states.high[lane] = (uint16_t)(x >> 16);
    }
}

uint64_t gw_strings_used(const struct gw_strings_reader *reader)
{
    return reader->fields.at + 8 * (uint64_t)(reader->end - reader->words);
}

/* Sets all m bits of a string to a value. */
static void fill(uint64_t *string, uint32_t m, bool value)
{
    const size_t n_words = ((size_t)m + 63) / 64;
    memset(string, value ? 0xFF : 0, 8 * n_words);
    if (value && m % 64)
        string[n_words - 1] = (1ull << (m % 64)) - 1;
}

static gw_status no_string(uint32_t m)
{
    return gw_fail(GW_ERR_FRAME_PAYLOAD, "a coded string of %u bits is cut, or altered", m);
}

/* Reads what put_places writes. */
static bool get_places(struct gw_strings_reader *reader, uint32_t m, uint32_t rarer, bool flip, uint64_t *string)
{
    const unsigned k = gap_bits(m, rarer);
    uint64_t next = 0;
    fill(string, m, flip);
    for (uint32_t i = 0; i < rarer; i++) {
        uint64_t times = 0, bits;
        while (!(bits = gw_bits_peek(&reader->fields) & UINT32_MAX)) {
            reader->fields.at += 32;
            times += 32;
            if (times << k >= m)
                return false;
        }
        const unsigned more = (unsigned)__builtin_ctzll(bits);
        reader->fields.at += more + 1;
        next += ((times + more) << k) + gw_strings_number(reader, k);
        if (next >= m)
            return false;
        string[next / 64] ^= 1ull << (next % 64);
        next++;
    }
    return true;
}

/* A string that is being read: what its head says, and where its symbols come from. */
struct coming {
    uint32_t m, rarer, n; /* m: bits; rarer: how many have the rarer value; n: symbols left */
    bool flip, is_coded;
    struct gw_rans_table table;
    struct gw_rans_source source;
};

static gw_status come(struct gw_strings_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones,
                      struct coming *coming)
{
    const uint32_t count = gw_strings_number(reader, bit_length(m));
    *ones = count;
    coming->is_coded = false;
    if (count == 0 || count == m) {
        fill(string, m, count);
        return GW_OK;
    }
    if (count > m)
        return no_string(m);
    coming->m = m;
    coming->n = (m + 7) / 8;
    coming->flip = count > m - count;
    coming->rarer = coming->flip ? m - count : count;
    if (is_sparse(m, coming->rarer))
        return get_places(reader, m, coming->rarer, coming->flip, string) ? GW_OK : no_string(m);
    if (!reader->n_lanes)
        return no_string(m);
    coming->is_coded = true;
    gw_rans_table_make(&coming->table, m, coming->rarer, 1 + gw_strings_number(reader, LAST_BITS));
    string[((size_t)m + 63) / 64 - 1] = 0;
    coming->source =
        (struct gw_rans_source){&coming->table, (uint8_t *)string, &reader->states, reader->begin, reader->words};
    return GW_OK;
}

/* Reads what is left of a string. */
static gw_status arrive(struct gw_strings_reader *reader, struct coming *coming, uint64_t *string)
{
    if (!coming->is_coded)
        return GW_OK;
    const struct gw_rans *kernels = reader->n_lanes == GW_RANS_LANES ? gw_rans_for(gw_cpu()) : NULL;
    const uint32_t m = coming->m;
    const size_t n_words = ((size_t)m + 63) / 64;
    if (kernels)
        coming->n -= GW_RANS_LANES * kernels->decode(&coming->source, coming->n / GW_RANS_LANES);
    if (!gw_rans_decode(&coming->source, coming->n, reader->n_lanes))
        return no_string(m);
    reader->words = coming->source.words;
    /* Check the count, because callers trust it. */
    const uint64_t tail = m % 64 ? (1ull << (m % 64)) - 1 : ~0ull;
    if (string[n_words - 1] & ~tail || flip_and_count(string, n_words, coming->flip ? ~0ull : 0) != coming->rarer)
        return no_string(m);
    string[n_words - 1] &= tail;
    return GW_OK;
}

/* Reads several strings together, as far as the shortest of them goes. This needs strings that are coded on as many
 * lanes as the kernels have. */
static void come_together(const struct gw_strings_reader *readers, uint32_t n, struct coming *coming)
{
    const struct gw_rans *kernels = gw_rans_for(gw_cpu());
    struct gw_rans_source sources[GW_RANS_TOGETHER];
    uint32_t least = UINT32_MAX;
    if (n < 2 || !kernels || !kernels->decode_many)
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (!coming[i].is_coded || readers[i].n_lanes != GW_RANS_LANES)
            return;
        sources[i] = coming[i].source;
        least = coming[i].n < least ? coming[i].n : least;
    }
    const uint32_t rows = kernels->decode_many(sources, n, least / GW_RANS_LANES);
    for (uint32_t i = 0; i < n; i++) {
        coming[i].source = sources[i];
        coming[i].n -= GW_RANS_LANES * rows;
    }
}

gw_status gw_strings_get_many(struct gw_strings_reader *readers, uint32_t n, const uint32_t *m,
                              uint64_t *const *strings, uint32_t *ones)
{
    struct coming coming[GW_RANS_TOGETHER];
    for (uint32_t i = 0; i < n; i++)
        GW_TRY(come(&readers[i], m[i], strings[i], &ones[i], &coming[i]));
    come_together(readers, n, coming);
    for (uint32_t i = 0; i < n; i++)
        GW_TRY(arrive(&readers[i], &coming[i], strings[i]));
    return GW_OK;
}

gw_status gw_strings_get(struct gw_strings_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones)
{
    return gw_strings_get_many(reader, 1, &m, &string, ones);
}

/* Puts n <= 32 bits at [at, at + n) of a string whose bits are 0 there. */
static void put_at(uint64_t *raw, uint64_t at, uint32_t bits, unsigned n)
{
    raw[at / 64] |= (uint64_t)bits << (at % 64);
    if (at % 64 + n > 64)
        raw[at / 64 + 1] |= (uint64_t)bits >> (64 - at % 64);
}

static gw_status no_end(void)
{
    return gw_fail(GW_ERR_FRAME_PAYLOAD,
                   "a chunk of coded strings does not end where it should: it is cut, or altered");
}

/* Takes back the bits that a lane's first state was made of. */
static bool give_back(uint32_t x, uint64_t *left, uint64_t *raw)
{
    const unsigned n = bit_length(x) - 1;
    if (*left < STATE_MOST)
        return x == 1u << 16;
    *left -= EXPONENT_BITS;
    put_at(raw, *left, n - 16, EXPONENT_BITS);
    *left -= n;
    put_at(raw, *left, x & ((1u << n) - 1), n);
    return true;
}

gw_status gw_strings_close(struct gw_strings_reader *reader, uint64_t n_raw, uint64_t *raw)
{
    const size_t head = (size_t)((reader->fields.at + 7) / 8);
    uint64_t left = n_raw;
    bool fits = reader->fields.at <= reader->fields.n_bits &&
                (reader->fields.at % 8 == 0 || reader->begin[head - 1] >> (reader->fields.at % 8) == 0);
    memset(raw, 0, (size_t)((n_raw + 63) / 64) * 8);
    for (uint32_t lane = 0; lane < reader->n_lanes && fits; lane++)
        fits = give_back((uint32_t)reader->states.high[lane] << 16 | reader->states.low[lane], &left, raw);
    const size_t plain = (size_t)((left + 7) / 8);
    if (!fits || (size_t)(reader->words - reader->begin) != head + plain)
        return no_end();
    const uint8_t *src = reader->begin + head;
    if (left % 8 == 0) {
        memcpy(raw, src, plain);
        return GW_OK;
    }
    /* The last byte may also hold bits of a state. */
    memcpy(raw, src, plain - 1);
    put_at(raw, 8 * (uint64_t)(plain - 1), src[plain - 1], 8);
    return src[plain - 1] >> (left % 8) ? no_end() : GW_OK;
}
