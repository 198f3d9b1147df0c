/* Tests histograms of gradients: counting, the lines, and their place in TensorBoard's event files. */
#include "checks.h"
#include "disk/histograms.h"
#include "disk/tensorboard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(every_value_is_in_its_bin)
{
    struct gw_histogram h;
    enum { N = 1000 };
    float values[N];
    uint64_t want[GW_HISTOGRAM_BINS] = {0};
    for (int i = 0; i < N; i++)
        values[i] = (float)(i - 300) / 700; /* from -0.43 to 699/700 */
    gw_histogram_count(&h, values, N);
    assert_int_equal(h.n, N);
    assert_true(h.max == (double)values[N - 1] && h.largest == h.max && h.least == (double)values[0]);
    for (int i = 0; i < N; i++) {
        int bin = 0;
        while (bin < GW_HISTOGRAM_BINS - 1 && (double)values[i] >= gw_histogram_limit(&h, (uint32_t)bin) - 1e-12)
            bin++;
        want[bin]++;
    }
    assert_memory_equal(h.counts, want, sizeof want);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++)
        sum += (double)values[i], squares += (double)values[i] * (double)values[i];
    assert_true(h.sum == sum && h.squares == squares);
}

TEST(the_ends_of_the_range)
{
    struct gw_histogram h;
    const float ends[] = {-3, 3, 0}, tiny[] = {1e-45f, -1e-45f}, huge[] = {3.4e38f, -3.4e38f};
    gw_histogram_count(&h, ends, 3);
    assert_true(h.counts[0] == 1 && h.counts[GW_HISTOGRAM_BINS - 1] == 1 && h.counts[GW_HISTOGRAM_BINS / 2] == 1);
    gw_histogram_count(&h, tiny, 2);
    assert_true(h.counts[0] == 1 && h.counts[GW_HISTOGRAM_BINS - 1] == 1);
    gw_histogram_count(&h, huge, 2);
    assert_true(h.counts[0] == 1 && h.counts[GW_HISTOGRAM_BINS - 1] == 1);
    const float zeros[4] = {0};
    gw_histogram_count(&h, zeros, 4);
    assert_true(h.n == 4 && h.max == 0 && h.counts[GW_HISTOGRAM_BINS / 2] == 4);
    const float bad[][2] = {{1, NAN}, {INFINITY, 0}, {0, -INFINITY}, {INFINITY, -INFINITY}};
    for (int i = 0; i < 4; i++) {
        gw_histogram_count(&h, bad[i], 2);
        assert_int_equal(h.n, 0);
    }
}

/* Makes histograms of one tensor at a step. The caller frees them. */
static struct gw_histograms *some(uint64_t step)
{
    struct gw_histograms *h = calloc(1, sizeof *h + sizeof *h->rows);
    const float values[] = {-1, 0, 0.5f};
    assert_non_null(h);
    h->step = step, h->n = 1;
    memset(h->rows[0].tensor, 'n', sizeof h->rows[0].tensor - 1); /* the longest name there is */
    h->rows[0].elements = 3;
    gw_histogram_count(&h->rows[0].kinds[GW_HISTOGRAM_RAW], values, 3);
    gw_histogram_count(&h->rows[0].kinds[GW_HISTOGRAM_AVERAGED], values, 1);
    return h;
}

/* Cuts a file after `cut` bytes. Of that file, the whole lines of steps below `before` must be kept. */
static void check_cut(const char *bytes, long cut, uint64_t before, const long *ends, const uint64_t *steps, int n)
{
    FILE *f = tmpfile();
    long want = 0;
    fwrite(bytes, 1, (size_t)cut, f);
    rewind(f);
    for (int i = 0; i < n && steps[i] < before && ends[i + 1] <= cut; i++)
        want = ends[i + 1];
    bool damaged;
    assert_int_equal(gw_histograms_end_before(f, before, &damaged), want);
    assert_false(damaged);
    fclose(f);
}

/* As many as asked for, the first and the last among them, and the gaps between two are alike. */
TEST(some_are_spread_over_all)
{
    for (uint64_t n = 0; n < 40; n++)
        for (uint64_t some = 0; some < 45; some++) {
            uint64_t count = 0, last = 0, least = UINT64_MAX, most = 0;
            for (uint64_t i = 0; i < n + 3; i++)
                if (gw_is_spread(i, n, some)) {
                    least = count && i - last < least ? i - last : least;
                    most = count && i - last > most ? i - last : most;
                    assert_true(count || i == 0);
                    count++, last = i;
                }
            CHECK(count == (some < n ? some : n) && (count < 2 || (last == n - 1 && most - least < 2)),
                  "%u of %u: %u, the last is %u", (unsigned)some, (unsigned)n, (unsigned)count, (unsigned)last);
        }
}

/* A run goes on with a file that was cut anywhere. A line without its end must not count. */
TEST(lines_are_gone_on_with)
{
    static const uint64_t steps[] = {0, 0, 3, 10};
    enum { N = sizeof steps / sizeof *steps };
    char bytes[4096];
    long ends[N + 1] = {0};
    FILE *f = tmpfile();
    for (int i = 0; i < N; i++) {
        struct gw_histograms *h = some(steps[i]);
        gw_histograms_write(f, h);
        ends[i + 1] = ftell(f);
        free(h);
    }
    rewind(f);
    const size_t n = fread(bytes, 1, sizeof bytes - 1, f);
    assert_true((long)n == ends[N]);
    fclose(f);
    bytes[n] = 0;
    assert_true(strstr(bytes, "\"raw\"") && strstr(bytes, "\"averaged\"") && !strstr(bytes, "\"sent\"")); /* empty */
    for (uint64_t before = 0; before < 12; before++)
        for (int end = 0; end <= N; end++)
            for (long cut = ends[end] > 2 ? ends[end] - 2 : 0; cut <= ends[end] + 1 && cut <= (long)n; cut++)
                check_cut(bytes, cut, before, ends, steps, N);
}

/* The longest event there is fits, has the limits of all bins, and is found again; an empty histogram writes none. */
TEST(events_hold_histograms)
{
    struct gw_histograms *h = some(1u << 31);
    const struct gw_histogram_row *row = &h->rows[0];
    FILE *f = tmpfile();
    gw_tensorboard_begin(f, 1.5);
    gw_tensorboard_scalar(f, 1.5, 7, "loss", 1);
    const long scalars = ftell(f);
    gw_tensorboard_histogram(f, 2.5, h->step, row->tensor, "averaged", &row->kinds[GW_HISTOGRAM_AVERAGED]);
    const long end = ftell(f);
    assert_true(end > scalars + 1024);
    gw_tensorboard_histogram(f, 2.5, h->step, row->tensor, "sent", &row->kinds[GW_HISTOGRAM_SENT]);
    assert_int_equal(ftell(f), end);
    uint8_t bytes[4096];
    double limits[GW_HISTOGRAM_BINS];
    for (uint32_t bin = 0; bin < GW_HISTOGRAM_BINS; bin++)
        limits[bin] = gw_histogram_limit(&row->kinds[GW_HISTOGRAM_AVERAGED], bin);
    rewind(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), end);
    long at = scalars;
    while (at + (long)sizeof limits <= end && memcmp(bytes + at, limits, sizeof limits) != 0) /* little-endian */
        at++;
    assert_true(at + (long)sizeof limits <= end);
    rewind(f);
    uint64_t next;
    assert_int_equal(gw_tensorboard_end_before(f, h->step + 1, &next), end);
    assert_int_equal(next, h->step + 1);
    rewind(f);
    assert_int_equal(gw_tensorboard_end_before(f, h->step, &next), scalars);
    fclose(f);
    free(h);
}

RUN_TESTS("histograms", NULL, NULL)
