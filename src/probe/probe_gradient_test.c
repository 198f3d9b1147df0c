/* Tests what measurements work with: the gradient that is drawn, how it is turned, how codecs are run in, medians,
 * deviations, ticks, and that links and codecs are measured with what was asked for. No time is asserted, but that a
 * part is no longer than the whole. */
#include "probe/gradient.h"
#include "checks.h"
#include "base/clock.h"
#include "probe/probe.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Any part of the sequence is as it is in the whole. */
TEST(parts_are_of_one_sequence)
{
    enum { N = 5000 };
    static float all[N], part[N];
    gw_draw_gradient(all, 0, N);
    for (uint64_t first = 0; first < 2100; first += 1 + first / 3)
        for (uint64_t n = 0; first + n <= N; n += 1 + n) {
            part[n < N ? n : 0] = 77;
            gw_draw_gradient(part, first, n);
            CHECK(memcmp(part, all + first, n * sizeof *part) == 0, "%llu elements from %llu", (unsigned long long)n,
                  (unsigned long long)first);
            CHECK(n == N || part[n] == 77, "%llu elements from %llu: one more", (unsigned long long)n,
                  (unsigned long long)first);
        }
}

/* A million of them: mean 0, deviation 1e-3, and one in a thousand is 50 times as large. The bounds are five standard
 * deviations of each figure: of the mean of n numbers, 1e-3 / sqrt(n); of their mean square, 1e-6 * sqrt(2 / n). */
TEST(it_is_drawn_as_it_says)
{
    enum { N = 1000000, BLOCK = 1000 };
    static float g[N];
    double sum = 0, squares = 0, outliers = 0;
    uint64_t places = 0;
    gw_draw_gradient(g, 0, N);
    for (uint32_t b = 0; b < N / BLOCK; b++) {
        uint32_t largest = b * BLOCK;
        for (uint32_t i = b * BLOCK; i < (b + 1) * BLOCK; i++)
            largest = fabsf(g[i]) > fabsf(g[largest]) ? i : largest;
        places += largest % BLOCK;
        for (uint32_t i = b * BLOCK; i < (b + 1) * BLOCK; i++)
            if (fabsf(g[i]) < 6e-3f) {
                sum += (double)g[i];
                squares += (double)g[i] * (double)g[i];
            } else {
                CHECK(i == largest, "block %u has two outliers", b);
                outliers += (double)g[i] * (double)g[i];
            }
    }
    assert_int_equal(places, 498896); /* on every machine; if it changes, so does what is measured */
    CHECK(fabs(sum / N) < 5e-3 / sqrt(N), "%g", sum / N);
    /* Of each thousand one is an outlier, which the mean square then lacks. */
    CHECK(fabs(squares / (N - N / BLOCK) - 1e-6) < 5e-6 * sqrt(2.0 / N) + 1e-9, "%g", squares / N);
    CHECK(fabs(outliers / (N / BLOCK) - 2.5e-3) < 5 * 2.5e-3 * sqrt(2.0 * BLOCK / N), "%g", outliers / (N / BLOCK));
}

TEST(turned_by_the_step)
{
    static const uint64_t sizes[] = {0, 1, 2, 7, 7919, 7920};
    static float from[8000], to[8000];
    for (uint32_t i = 0; i < 8000; i++)
        from[i] = (float)i;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t step = 0; step < 4; step++) {
            const uint64_t n = sizes[s];
            to[n] = -1;
            gw_turn_gradient(to, from, n, step);
            for (uint64_t i = 0; i < n; i++)
                CHECK(to[i] == (float)((i + step * 7919) % n), "element %u of %u, step %u", (unsigned)i, (unsigned)n,
                      (unsigned)step);
            CHECK(to[n] == -1, "beyond %u elements", (unsigned)n);
        }
}

TEST(medians)
{
    double one[] = {3}, two[] = {5, 2}, three[] = {9, 1, 4}, four[] = {8, 1, 2, 100}, five[] = {5, 1, 9, 2, 7};
    assert_true(gw_median(one, 1) == 3);
    assert_true(gw_median(two, 2) == 3.5);
    assert_true(gw_median(three, 3) == 4);
    assert_true(gw_median(four, 4) == 5);
    assert_true(gw_median(five, 5) == 5);
    struct gw_probe_sweep sweep = {.n = 0};
    assert_true(gw_probe_deviation(&sweep) == 0);
    for (; sweep.n < 3; sweep.n++)
        sweep.points[sweep.n] = (struct gw_probe_point){.measured_ms = 2, .fitted_ms = (double[]){1, 2, 2.5}[sweep.n]};
    assert_true(gw_probe_deviation(&sweep) == 0.25);
}

/* Small messages do not count, and one that took too long counts little. */
TEST(slopes)
{
    static const double x[] = {1, 2, 16, 32, 64}, line[] = {9, 9, 18, 26, 42}, late[] = {9, 9, 18, 42, 42},
                        falling[] = {9, 8, 7, 6, 5};
    assert_true(gw_probe_slope(x, line, 5) == 0.5);
    assert_true(gw_probe_slope(x, late, 5) == 0.5); /* the three slopes are 1.5, 0.5 and 0 */
    assert_true(gw_probe_slope(x, falling, 5) == falling[4] / x[4]);
    assert_true(gw_probe_slope(x + 3, line + 3, 2) == 0.5);
    assert_true(gw_probe_slope(x, line, 1) == line[0] / x[0]);
    assert_true(gw_probe_slope(x, line, 0) == 0);
}

/* Idle processors, and those that wait for disks, do not work. */
TEST(ticks_are_read)
{
    static const struct {
        const char *text;
        double worked, all;
    } cases[] = {{"cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 231, 255},
                 {"cpu  1 2 4 8 16 32 64\n", 0, 0},
                 {"", 0, 0}};
    char path[] = GW_BINARY_DIR "/probe_gradient_test.XXXXXX";
    assert_int_equal(close(mkstemp(path)), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(cases[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        const struct gw_probe_busy busy = gw_probe_busy(path);
        CHECK(busy.worked == cases[i].worked && busy.all == cases[i].all, "%s: %g of %g", cases[i].text, busy.worked,
              busy.all);
    }
    unlink(path);
    assert_true(gw_probe_busy(path).all == 0);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

enum { MEMBERS = 3, RUNS = 4, WARM_UP = 2 };

/* A link that counts what is sent, of each size 64 * 4^i. */
struct counted {
    gw_link_ops ops;
    gw_link true_link;
    uint32_t n_of[GW_PROBE_MOST_POINTS];
};

static struct counted counted[MEMBERS];

static gw_status counting_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    for (uint32_t r = 0; r < MEMBERS; r++)
        if (counted[r].true_link.self == self)
            for (size_t i = 0, size = 64; i < GW_PROBE_MOST_POINTS; i++, size *= 4)
                counted[r].n_of[i] += n_bytes == size;
    return counted[0].true_link.ops->send(self, to, bytes, n_bytes, timeout_ms);
}

/* How often rank 1 reports to rank 0: all members meet before and after whatever is measured. */
static gw_link_ops reporting;
static const gw_link_ops *local_ops;
static uint32_t n_reports;

static gw_status report_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    n_reports++;
    return local_ops->send(self, to, bytes, n_bytes, timeout_ms);
}

static void *measure(void *member)
{
    gw_status status = gw_meeting_begin(&((struct gw_probe_member *)member)->meeting);
    return (void *)(intptr_t)(status < 0 ? status : gw_probe_all(member));
}

/* All members measure. Returns for how many milliseconds. */
static double measure_together(struct gw_probe *probe, const gw_link *links)
{
    gw_link meeting[MEMBERS];
    struct gw_probe_member members[MEMBERS];
    pthread_t threads[MEMBERS];
    const double begin = gw_clock_seconds();
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, meeting), GW_OK);
    local_ops = meeting[1].ops;
    reporting = *local_ops;
    reporting.send = report_send;
    meeting[1].ops = &reporting;
    n_reports = 0;
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r] = (struct gw_probe_member){.probe = probe,
                                              .link = links[r],
                                              .meeting = {.link = meeting[r], .timeout_ms = 60000}};
        assert_int_equal(pthread_create(&threads[r], NULL, measure, &members[r]), 0);
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        void *status;
        pthread_join(threads[r], &status);
        assert_int_equal((intptr_t)status, GW_OK);
    }
    for (uint32_t r = 0; r < MEMBERS; r++)
        gw_link_destroy(&meeting[r]);
    return 1e3 * (gw_clock_seconds() - begin);
}

/* Notes what is measured next. */
static void note(void *said, const char *what)
{
    strcat(strcat(said, " "), what);
}

TEST(every_size_is_sent_as_often_as_asked)
{
    gw_link links[MEMBERS], counting[MEMBERS];
    char said[64] = "";
    struct gw_probe probe = {.runs = RUNS, .most_elements = 1024, .next = note, .user = said};
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, links), GW_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        counted[r] = (struct counted){.ops = *links[r].ops, .true_link = links[r]};
        counted[r].ops.send = counting_send;
        counting[r] = links[r];
        counting[r].ops = &counted[r].ops;
    }
    const double spent_ms = measure_together(&probe, counting);
    assert_string_equal(said, " messages");
    /* 64, 256, 1024, 4096 and, the first beyond 1024 floats, 16384 bytes; fewer if a round takes 0.4 s. */
    CHECK_IN_RANGE(probe.messages.n, 1, 5);
    assert_true(probe.messages.n == 5 || probe.messages.points[probe.messages.n - 1].measured_ms > 400);
    for (size_t i = 0; i < GW_PROBE_MOST_POINTS; i++)
        for (uint32_t r = 0; r < MEMBERS; r++)
            CHECK(counted[r].n_of[i] == (i < probe.messages.n ? (RUNS + WARM_UP) * (MEMBERS - 1) : 0u),
                  "rank %u sent %u messages of size %zu", r, counted[r].n_of[i], i);
    for (size_t i = 0; i < probe.messages.n; i++) {
        const struct gw_probe_point *point = &probe.messages.points[i];
        assert_int_equal(point->size, (MEMBERS - 1) * ((uint64_t)64 << 2 * i));
        assert_true(point->groups == 1 && point->tensors == 1 && !point->whole);
        CHECK(point->measured_ms > 0 && point->measured_ms < spent_ms, "%g of %g ms", point->measured_ms, spent_ms);
        const double fitted = probe.link.alpha_ms + probe.link.ms_per_byte * (double)point->size;
        assert_true(fabs(point->fitted_ms - fitted) <= 1e-12 * fitted);
    }
    assert_true(probe.link.alpha_ms == probe.messages.points[0].measured_ms);
    assert_int_equal(probe.link.members, MEMBERS);
    for (uint32_t r = 0; r < MEMBERS; r++)
        gw_link_destroy(&links[r]);
}

/* Small points, larger ones up to what is asked for, and the network itself, however large it is. */
TEST(codecs_are_measured_at_the_points_asked_for)
{
    static const gw_profile_layer layers[] = {{"a", 5000, 0}, {"b", 1, 0}, {"c", 70000, 0}};
    static const uint64_t elements[] = {4096, 12 << 10, 48 << 10, 64 << 10, 1 << 16, 75001};
    enum { N_POINTS = sizeof elements / sizeof *elements, PINGS = 15, TURNS = 3 + 2, LENGTHS = 2 };
    gw_link links[MEMBERS];
    char said[64] = "";
    struct gw_probe probe = {.runs = 2,
                             .most_elements = 1 << 16,
                             .next = note,
                             .user = said,
                             .n_codecs = 1,
                             .specs = {"none"},
                             .layers = layers,
                             .n_layers = 3,
                             .link.run_elements = GW_PROBE_RUN_ELEMENTS};
    assert_int_equal(gw_codec_parse(NULL, "none", &probe.codecs[0]), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, links), GW_OK);
    const double spent_ms = measure_together(&probe, links);
    assert_string_equal(said, " messages none");
    const struct gw_probe_sweep *sweep = &probe.sweeps[0];
    /* The network is left out if it would take two seconds. */
    const bool slow = sweep->points[N_POINTS - 2].measured_ms * elements[N_POINTS - 1] > 2e3 * elements[N_POINTS - 2];
    assert_int_equal(sweep->n, slow ? N_POINTS - 1 : N_POINTS);
    /* to begin, and to agree; for each turn of messages, of the codec alone, and of each point; and at a point's end */
    assert_int_equal(n_reports, 1 + PINGS + 1 + 2 * (WARM_UP + 2) * probe.messages.n + 2 * TURNS * LENGTHS +
                                    (2 * TURNS + 2) * sweep->n);
    for (size_t i = 0; i < sweep->n; i++) {
        const struct gw_probe_point *point = &sweep->points[i];
        assert_true(point->whole == (i == N_POINTS - 1));
        if (!point->whole)
            assert_int_equal(point->groups * point->tensors * point->size, elements[i]);
        CHECK(point->measured_ms > 0 && point->measured_ms < spent_ms, "%g of %g ms", point->measured_ms, spent_ms);
        CHECK(point->busy >= 0 && point->busy <= 1, "point %zu: busy %g", i, point->busy);
    }
    for (uint32_t r = 0; r < MEMBERS; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(probe.codecs[0]);
}

/* Each tensor gets its own part of the gradients, wherever that lies. */
TEST(every_tensor_is_run_in)
{
    enum { N = 4096, TENSORS = 3 };
    static float gradients[TENSORS * N];
    static const uint64_t offsets[TENSORS] = {N, 2 * N, 0};
    const gw_tensor tensors[TENSORS] = {{.id = 0, .n_elems = N}, {.id = 1, .n_elems = N}, {.id = 2, .n_elems = N}};
    gw_encoder_condition conditions[TENSORS];
    gw_codec *codec;
    gw_link link;
    gw_exchange *exchange;
    gw_draw_gradient(gradients, 0, N);
    for (uint32_t i = 0; i < N; i++)
        gradients[N + i] = 2 * gradients[i], gradients[2 * N + i] = 4 * gradients[i];
    assert_int_equal(gw_codec_parse(NULL, "topk", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = tensors, .n_tensors = TENSORS, .link = link};
    assert_int_equal(gw_exchange_create(NULL, &options, &exchange), GW_OK);
    gw_exchange_run_in(exchange, gradients, offsets);
    for (uint32_t t = 0; t < TENSORS; t++) {
        assert_int_equal(gw_exchange_stats(exchange, &(gw_stats){.tensor = t, .condition = &conditions[t]}), GW_OK);
        assert_true(conditions[t].residual_norm > 0 && conditions[t].threshold_age == 1);
    }
    assert_true(conditions[2].threshold > 0);
    assert_true(conditions[0].threshold == 2 * conditions[2].threshold);
    assert_true(conditions[1].threshold == 4 * conditions[2].threshold);
    gw_exchange_destroy(exchange);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
}

RUN_TESTS("probe gradient", NULL, NULL)
