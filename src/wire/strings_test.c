/* Tests the coder of bitmaps: what is written is read, at a size near the entropy, with the same bytes on every
 * instruction set; and bytes that no encoder can have written are refused. */
#include "places.h"
#include "wire/strings.h"

#include <gradwire/status.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BITS = 1 << 18, MOST_STRINGS = 40, MOST_BYTES = 1 << 20 };

static uint64_t seed = 1;

static uint32_t number(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33);
}

static uint32_t draw(uint64_t *string, uint32_t m, double share)
{
    uint32_t ones = 0;
    memset(string, 0, (m + 63) / 64 * 8);
    for (uint32_t i = 0; i < m; i++)
        if (number() < share * 0x1p31) {
            string[i / 64] |= 1ull << (i % 64);
            ones++;
        }
    return ones;
}

static double entropy_bits(uint32_t m, uint32_t ones)
{
    const double p = m ? (double)ones / m : 0;
    return p > 0 && p < 1 ? -(double)m * (p * log2(p) + (1 - p) * log2(1 - p)) : 0;
}

struct scene {
    uint32_t n, m[MOST_STRINGS], ones[MOST_STRINGS];
    uint64_t *string[MOST_STRINGS], n_raw, *raw;
    struct gw_strings_writer writer;
    uint8_t *bytes;
    size_t n_bytes;
};

static void scene_init(struct scene *s)
{
    *s = (struct scene){0};
    assert_int_equal(gw_strings_writer_init(NULL, 4 * MOST_BITS, MOST_STRINGS, 64, &s->writer), GW_OK);
    s->bytes = malloc(MOST_BYTES);
    s->raw = calloc(MOST_BITS / 64 + 1, 8);
    for (uint32_t i = 0; i < MOST_STRINGS; i++)
        s->string[i] = malloc(MOST_BITS / 8 + 8);
}

static void scene_fini(struct scene *s)
{
    gw_strings_writer_fini(NULL, &s->writer);
    for (uint32_t i = 0; i < MOST_STRINGS; i++)
        free(s->string[i]);
    free(s->raw);
    free(s->bytes);
}

static void write_scene(struct scene *s)
{
    gw_strings_begin(&s->writer);
    gw_strings_field(&s->writer, 5, 3);
    for (uint32_t i = 0; i < s->n; i++)
        gw_strings_put(&s->writer, s->string[i], s->m[i], s->ones[i]);
    gw_strings_field(&s->writer, 0xDEADBEEF, 32);
    s->n_bytes = gw_strings_finish(&s->writer, s->raw, s->n_raw, s->bytes, MOST_BYTES);
    assert_true(s->n_bytes <= MOST_BYTES);
}

/* Reads n_bytes of the scene's bytes. They stand at the end of memory of just that size. */
static gw_status read_scene(const struct scene *s, size_t n_bytes, bool compare)
{
    static uint64_t string[MOST_BITS / 64 + 1];
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    struct gw_strings_reader reader;
    gw_status status = GW_OK;
    memcpy(copy, s->bytes, n_bytes);
    gw_strings_open(&reader, copy, n_bytes);
    bool right = gw_strings_number(&reader, 3) == 5;
    for (uint32_t i = 0; i < s->n && status == GW_OK; i++) {
        uint32_t ones;
        status = gw_strings_get(&reader, s->m[i], string, &ones);
        right = right && ones == s->ones[i] && memcmp(string, s->string[i], (s->m[i] + 63) / 64 * 8) == 0;
    }
    right = right && gw_strings_number(&reader, 32) == 0xDEADBEEF;
    if (status == GW_OK)
        status = gw_strings_close(&reader, s->n_raw, string);
    right = right && memcmp(string, s->raw, (s->n_raw + 63) / 64 * 8) == 0;
    free(copy);
    if (compare)
        assert_true(status < 0 || right);
    return status;
}

TEST(what_is_written_is_read)
{
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1000, 8191, 65536, 65533, MOST_BITS};
    static const double shares[] = {0, 0.0003, 0.003, 0.02, 0.3, 0.5, 0.8, 0.97, 1};
    static const uint32_t raws[] = {0, 1, 34, 35, 36, 300, 1119, 1120, 4001};
    struct scene s;
    scene_init(&s);
    for (size_t a = 0; a < sizeof sizes / sizeof *sizes; a++)
        for (size_t b = 0; b < sizeof shares / sizeof *shares; b++) {
            s.n = 1 + (uint32_t)(a + b) % 3;
            for (uint32_t i = 0; i < s.n; i++) {
                s.m[i] = sizes[i ? (a + 5 * i + b) % (sizeof sizes / sizeof *sizes - 1) : a];
                s.ones[i] = draw(s.string[i], s.m[i], shares[(b + i) % (sizeof shares / sizeof *shares)]);
            }
            s.n_raw = raws[(a + b) % (sizeof raws / sizeof *raws)];
            draw(s.raw, (uint32_t)s.n_raw, 0.5);
            write_scene(&s);
            assert_int_equal(read_scene(&s, s.n_bytes, true), GW_OK);
        }
    scene_fini(&s);
}

/* Few bits: their places are sent. All but one stand at the beginning, so the gap before the last is many times the
 * average: as many as a word has bits, and more. */
TEST(far_places_are_read)
{
    enum { M = 12800, ONES = 100, LEAST_GAP = 1 << 6 };
    struct scene s;
    scene_init(&s);
    s.n = 1;
    s.m[0] = M;
    for (uint32_t flip = 0; flip < 2; flip++)
        for (uint32_t place = ONES + 30 * LEAST_GAP; place < M; place += LEAST_GAP / 2 + 1) {
            memset(s.string[0], flip ? 0xFF : 0, M / 8);
            for (uint32_t i = 0; i < ONES; i++)
                s.string[0][(i ? i : place) / 64] ^= 1ull << ((i ? i : place) % 64);
            s.ones[0] = flip ? M - ONES : ONES;
            write_scene(&s);
            CHECK(read_scene(&s, s.n_bytes, true) == GW_OK, "flip %u, place %u", flip, place);
        }
    scene_fini(&s);
}

/* Reads the first strings of n scenes together, and then the rest of each scene by itself. n_bytes[i] bytes stand at a
 * page that must not be touched. */
static gw_status read_together(const struct scene *scenes, uint32_t n, const size_t *n_bytes, enum side side)
{
    static uint64_t string[GW_RANS_TOGETHER][MOST_BITS / 64 + 1];
    uint64_t *strings[GW_RANS_TOGETHER];
    uint8_t *copy[GW_RANS_TOGETHER];
    struct gw_strings_reader readers[GW_RANS_TOGETHER];
    uint32_t ones[GW_RANS_TOGETHER], m[GW_RANS_TOGETHER];
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = buffer((int)i, side, n_bytes[i], 1);
        memcpy(copy[i], scenes[i].bytes, n_bytes[i]);
        gw_strings_open(&readers[i], copy[i], n_bytes[i]);
        gw_strings_number(&readers[i], 3);
        strings[i] = string[i];
        m[i] = scenes[i].m[0];
    }
    gw_status status = gw_strings_get_many(readers, n, m, strings, ones);
    bool right = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct scene *s = &scenes[i];
        right = right && ones[i] == s->ones[0] && memcmp(string[i], s->string[0], (m[i] + 63) / 64 * 8) == 0;
        if (status == GW_OK)
            status = gw_strings_get(&readers[i], s->m[1], string[i], &ones[i]);
        right = right && memcmp(string[i], s->string[1], (s->m[1] + 63) / 64 * 8) == 0;
        gw_strings_number(&readers[i], 32);
        if (status == GW_OK)
            status = gw_strings_close(&readers[i], s->n_raw, string[i]);
    }
    assert_true(status < 0 || right);
    return status;
}

TEST(several_are_read_together)
{
    static const uint32_t sizes[] = {65536, 65536, 8191, 30000, 65536, MOST_BITS};
    static const double shares[] = {0.3, 0.02, 0.8, 0.1, 0.0003, 1};
    struct scene scenes[GW_RANS_TOGETHER];
    for (uint32_t k = 0; k < GW_RANS_TOGETHER; k++)
        scene_init(&scenes[k]);
    for (uint32_t round = 0; round < 150; round++) {
        size_t n_bytes[GW_RANS_TOGETHER];
        const uint32_t n = 1 + round % GW_RANS_TOGETHER;
        for (uint32_t k = 0; k < n; k++) {
            struct scene *s = &scenes[k];
            s->n = 2;
            s->m[0] = sizes[number() % 6];
            s->m[1] = 1000;
            s->ones[0] = draw(s->string[0], s->m[0], shares[number() % (round % 2 ? 4 : 6)]);
            s->ones[1] = draw(s->string[1], s->m[1], 0.4);
            s->n_raw = s->ones[0] % 5000;
            draw(s->raw, (uint32_t)s->n_raw, 0.5);
            write_scene(s);
            n_bytes[k] = s->n_bytes;
        }
        const size_t whole = n_bytes[round % n], less = 1 + number() % whole;
        for (enum side side = AT_BEGIN; side <= AT_END; side++) {
            n_bytes[round % n] = whole;
            assert_int_equal(read_together(scenes, n, n_bytes, side), GW_OK);
            n_bytes[round % n] -= less;
            assert_true(read_together(scenes, n, n_bytes, side) < 0);
        }
    }
    for (uint32_t k = 0; k < GW_RANS_TOGETHER; k++)
        scene_fini(&scenes[k]);
}

/* The coder's promise (docs/wire-format.md): within 1 % of the entropy at shares from 0.02 to 0.97, and within 5 % from
 * 0.003 up. Signs are raw here. */
TEST(sizes_are_near_the_entropy)
{
    static const double shares[] = {0.003, 0.005, 0.0077, 0.0079, 0.01, 0.015, 0.02, 0.03,
                                    0.05,  0.1,   0.2,    0.3,    0.5,  0.7,   0.9,  0.97};
    struct scene s;
    scene_init(&s);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        s.n = 1;
        s.m[0] = 65536;
        s.n_raw = s.ones[0] = draw(s.string[0], 65536, shares[i]);
        draw(s.raw, (uint32_t)s.n_raw, 0.5);
        write_scene(&s);
        const double entropy = (entropy_bits(65536, s.ones[0]) + (double)s.n_raw) / 8;
        const double table = 4, fields = 35.0 / 8; /* table: a chunk's entry; fields: this test's own */
        const double over = ((double)s.n_bytes - fields + table) / entropy - 1;
        if (getenv("GW_TEST_LOG"))
            fprintf(stderr, "share %.4f: %.2f %% over\n", shares[i], 100 * over);
        CHECK(over < (shares[i] < 0.02 ? 0.05 : 0.01), "share %g: %g over the entropy", shares[i], over);
    }
    scene_fini(&s);
}

/* No signs are sent as they are. Several strings share the states. */
TEST(strings_share_states)
{
    struct scene s;
    scene_init(&s);
    double entropy = 0;
    s.n = 20;
    for (uint32_t i = 0; i < s.n; i++) {
        s.m[i] = 65536 >> (i / 2);
        s.ones[i] = draw(s.string[i], s.m[i], 0.3);
        entropy += entropy_bits(s.m[i], s.ones[i]) / 8;
    }
    write_scene(&s);
    CHECK((double)s.n_bytes < 1.01 * entropy + 4 * 20, "%zu bytes; the entropy is %g", s.n_bytes, entropy);
    assert_int_equal(read_scene(&s, s.n_bytes, true), GW_OK);
    scene_fini(&s);
}

/* Kernels make and read the same bytes and states as the coder that takes a symbol at a time. */
TEST(kernels_agree)
{
    enum { ROWS = 300, N = ROWS * GW_RANS_LANES };
    static const double shares[] = {0.0005, 0.01, 0.1, 0.3, 0.5};
    static uint8_t words[2][2 * N + 64], symbols[N], read[N];
    static uint64_t string[N / 8];
    for (enum gw_cpu cpu = GW_CPU_SCALAR; cpu <= GW_CPU_NEON; cpu++) {
        const struct gw_rans *kernels = gw_rans_for(cpu);
        if (!kernels || (gw_cpu_best() != GW_CPU_NEON && cpu > gw_cpu_best()))
            continue;
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
            for (uint32_t n_rows = 1; n_rows <= ROWS; n_rows += n_rows < 4 ? 1 : 37) {
                const uint32_t n = n_rows * GW_RANS_LANES;
                uint32_t ones = draw(string, 8 * n, shares[i]), last = 1;
                ones = ones ? ones : 1;
                ones = ones > 4 * n ? 4 * n : ones;
                memcpy(symbols, string, n);
                for (uint32_t j = 0; j < n; j++)
                    last = (uint32_t)__builtin_popcount(symbols[j]) > last ? (uint32_t)__builtin_popcount(symbols[j])
                                                                           : last;
                struct gw_rans_table table;
                struct gw_rans_states begin, states[2];
                gw_rans_table_make(&table, 8 * n, ones, last);
                for (uint32_t lane = 0; lane < GW_RANS_LANES; lane++) {
                    begin.low[lane] = (uint16_t)number();
                    begin.high[lane] = (uint16_t)(1 + number() % 65535);
                }
                states[0] = states[1] = begin;
                uint8_t *end0 = gw_rans_encode(&table, symbols, n, GW_RANS_LANES, &states[0], words[0]);
                uint8_t *end1 = kernels->encode(&table, symbols, n_rows, &states[1], words[1]);
                assert_int_equal(end0 - words[0], end1 - words[1]);
                assert_memory_equal(words[0], words[1], (size_t)(end0 - words[0]));
                assert_memory_equal(&states[0], &states[1], sizeof begin);
                struct gw_rans_source source = {&table, read, &states[1], words[1], end1};
                uint32_t rows = kernels->decode(&source, n_rows);
                assert_true(rows <= n_rows);
                assert_true(gw_rans_decode(&source, n - rows * GW_RANS_LANES, GW_RANS_LANES));
                assert_ptr_equal(source.words, words[1]);
                assert_memory_equal(read, symbols, n);
                assert_memory_equal(&states[1], &begin, sizeof begin);
            }
    }
}

/* For all tables that counts can name, frequencies add up to 2^16 and none is 0. */
TEST(tables_add_up)
{
    static const uint32_t members[9] = {1, 8, 28, 56, 70, 56, 28, 8, 1},
                          sizes[] = {2, 3, 8, 100, 65536, 65535, 1 << 18};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t ones = 1; ones <= sizes[i] / 2; ones += 1 + ones / 50)
            for (uint32_t last = 1; last <= 8; last++) {
                struct gw_rans_table t;
                uint32_t sum = 0;
                gw_rans_table_make(&t, sizes[i], ones, last);
                for (uint32_t class = 0; class <= last; class ++) {
                    assert_true(t.each[class] > 0);
                    if (class > 0 && ones == 1 && sizes[i] == 1 << 18) /* rarer than 2^-16, but possible */
                        assert_int_equal(t.each[class], 1);
                    assert_int_equal(t.first[class], sum);
                    sum += members[class] * t.each[class];
                }
                assert_int_equal(sum, 65536);
            }
}

/* Each cut is refused or read as something else. So is each flipped bit of the head and of a sample of the rest.
 * Nothing is read or written outside (under ASan). */
TEST(damage_is_refused)
{
    struct scene s;
    uint32_t refused = 0, n = 0;
    scene_init(&s);
    s.n = 3;
    for (uint32_t i = 0; i < s.n; i++) { /* the last one is sparse: its places are sent */
        s.m[i] = 5000 >> i % 2;
        s.ones[i] = draw(s.string[i], s.m[i], i < 2 ? 0.1 + 0.3 * i : 0.005);
    }
    s.n_raw = 1500;
    draw(s.raw, 1500, 0.5);
    write_scene(&s);
    for (size_t cut = 0; cut < s.n_bytes; cut++)
        assert_true(read_scene(&s, cut, false) < 0);
    for (size_t bit = 0; bit < 8 * s.n_bytes; bit += bit < 1600 ? 1 : 7) {
        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused += read_scene(&s, s.n_bytes, false) < 0;
        n++;
        s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK(refused > n / 2, "%u of %u altered chunks were refused", refused, n); /* raw bits may be anything */
    /* One byte more. Then all zeros, all ones, and noise. */
    s.bytes[s.n_bytes] = 0;
    assert_true(read_scene(&s, s.n_bytes + 1, false) < 0);
    for (uint32_t fill = 0; fill < 200; fill++) {
        for (size_t i = 0; i < 300; i++)
            s.bytes[i] = fill == 0 ? 0 : fill == 1 ? 0xFF : (uint8_t)number();
        read_scene(&s, number() % 300, false);
    }
    scene_fini(&s);
}

/* If a writer has no memory for something, it says so, and does not cut it. */
TEST(overfull_is_told)
{
    struct gw_strings_writer writer;
    uint64_t string[16];
    uint8_t bytes[256];
    assert_int_equal(gw_strings_writer_init(NULL, 1024, 2, 0, &writer), GW_OK);
    uint32_t ones = draw(string, 1000, 0.5);
    gw_strings_begin(&writer);
    gw_strings_put(&writer, string, 1000, ones);
    assert_true(gw_strings_finish(&writer, NULL, 0, bytes, sizeof bytes) <= sizeof bytes);
    assert_true(gw_strings_finish(&writer, NULL, 0, bytes, 100) > 100);
    gw_strings_begin(&writer);
    for (int i = 0; i < 3; i++)
        gw_strings_put(&writer, string, 1000, ones);
    assert_int_equal(gw_strings_finish(&writer, NULL, 0, bytes, sizeof bytes), SIZE_MAX);
    gw_strings_writer_fini(NULL, &writer);
}

int main(void)
{
    make_places();
    return run_noted_tests("coded strings", NULL, NULL);
}
