/* Tests that the costs of a codec are found again in times that the model itself has made of known costs. */
#include "plan/timeline.h"
#include "probe/probe.h"

#include "checks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 3 };

static const gw_profile_layer layers[LAYERS] = {{"a", 500000, 0}, {"b", 10, 0}, {"c", 2400000, 0}};
static const struct gw_probe_point points[] = {
    [GW_PROBE_ONE] = {.groups = 1, .tensors = 1, .size = 4096},
    [GW_PROBE_FEW] = {.groups = 12, .tensors = 1, .size = 1024},
    [GW_PROBE_MORE] = {.groups = 48, .tensors = 1, .size = 1024},
    [GW_PROBE_MANY] = {.groups = 1, .tensors = GW_PROBE_MOST_TENSORS, .size = 1024},
    [GW_PROBE_N_SMALL] = {.groups = 1, .tensors = 1, .size = 1 << 16},
    {.groups = 16, .tensors = 1, .size = 1 << 16},
    {.groups = 4, .tensors = 1, .size = 1 << 20},
    {.groups = 1, .whole = true},
};
enum { N_POINTS = sizeof points / sizeof *points };

/* A decoding cost is one of 60 for each factor of 10. */
#define STEP (pow(10, 1.0 / 60) - 1)

static double model_ms(const gw_profile_link *link, const gw_profile_codec *codec, const struct gw_probe_point *point)
{
    char names[GW_PROBE_MOST_TENSORS][12];
    gw_profile_layer own[GW_PROBE_MOST_TENSORS];
    uint32_t group_of[GW_PROBE_MOST_TENSORS] = {0};
    const uint32_t n = point->whole ? LAYERS : (uint32_t)(point->groups * point->tensors);
    double ms = 0;
    for (uint32_t t = 0; t < n && !point->whole; t++) {
        snprintf(names[t], sizeof names[t], "%u", t);
        own[t] = (gw_profile_layer){names[t], point->size, 0};
        group_of[t] = point->groups > 1 ? n - 1 - t : 0;
    }
    const gw_profile profile = {.struct_bytes = sizeof profile,
                                .layers = point->whole ? layers : own,
                                .n_layers = n,
                                .link = *link,
                                .codecs = codec,
                                .n_codecs = 1};
    assert_int_equal(gw_plan_timeline(&profile, 0, GW_COMPRESS_BESIDE, group_of, NULL, 0, &ms), GW_OK);
    return ms;
}

static void near(const char *what, double found, double truth, double most)
{
    CHECK(fabs(found - truth) <= most * truth, "%s: %g, and %g is right", what, found, truth);
}

static void measure(struct gw_probe *p, size_t k, const gw_profile_link *link, const gw_profile_codec *truth, size_t n)
{
    p->sweeps[k] = (struct gw_probe_sweep){.n = n};
    for (size_t i = 0; i < n; i++) {
        p->sweeps[k].points[i] = points[i];
        p->sweeps[k].points[i].measured_ms = model_ms(link, truth, &points[i]);
    }
}

static void check_sweep(const struct gw_probe_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n; i++)
        near("a point", sweep->points[i].fitted_ms, sweep->points[i].measured_ms, STEP);
}

/* n: with or without the network's own point. decode_ms: what ternary takes to decode an element. */
static void costs_are_found_again(size_t n, double decode_ms)
{
    const gw_profile_link link = {
        .alpha_ms = 0.03, .ms_per_byte = 1e-5, .latency_ms = 0.2, .run_elements = GW_PROBE_RUN_ELEMENTS, .members = 3};
    const gw_profile_codec floats = {.spec = "none",
                                     .compress_ms_fixed = 0.002,
                                     .compress_ms_per_element = 2e-7,
                                     .decompress_ms_per_element = 3e-6,
                                     .bytes_per_element = 5.33,
                                     .measure_ms_fixed = 0.004};
    const gw_profile_codec ternary = {.spec = "ternary",
                                      .compress_ms_fixed = 0.08,
                                      .compress_ms_per_element = 1e-6,
                                      .decompress_ms_per_element = decode_ms,
                                      .bytes_per_element = 0.4,
                                      .measure_ms_fixed = 0.01,
                                      .measure_ms_per_element = 4e-7};
    struct gw_probe p = {.layers = layers, .n_layers = LAYERS, .link = link};
    p.link.alpha_ms = p.link.latency_ms = 0;
    p.costs[0] = floats;
    p.costs[0].measure_ms_fixed = 0.001; /* by itself it costs less */
    measure(&p, 0, &link, &floats, n);
    gw_probe_fit(&p, 0);
    near("alpha", p.link.alpha_ms, link.alpha_ms, STEP);
    near("latency", p.link.latency_ms, link.latency_ms, STEP);
    near("measuring", p.costs[0].measure_ms_fixed, floats.measure_ms_fixed, STEP);
    near("decoding", p.costs[0].decompress_ms_per_element, floats.decompress_ms_per_element, STEP);
    assert_true(p.costs[0].compress_ms_fixed == floats.compress_ms_fixed);
    check_sweep(&p.sweeps[0]);

    const gw_profile_link fitted = p.link;
    p.costs[1] = ternary;
    p.costs[1].measure_ms_fixed = p.costs[1].compress_ms_fixed = 0.001;
    measure(&p, 1, &link, &ternary, n);
    gw_probe_fit(&p, 1);
    assert_memory_equal(&p.link, &fitted, sizeof fitted);
    near("encoding", p.costs[1].compress_ms_fixed, ternary.compress_ms_fixed, STEP);
    near("measuring", p.costs[1].measure_ms_fixed, ternary.measure_ms_fixed, STEP);
    near("decoding", p.costs[1].decompress_ms_per_element, ternary.decompress_ms_per_element, STEP);
    check_sweep(&p.sweeps[1]);
}

TEST(costs_are_found_again_in_times)
{
    costs_are_found_again(N_POINTS, 6e-6);
    costs_are_found_again(N_POINTS - 1, 6e-6);
    costs_are_found_again(N_POINTS, 2e-5);
    costs_are_found_again(N_POINTS, 0);
}

TEST(a_line_passes_through_two_times)
{
    double fixed, per_element;
    gw_probe_line(5.0 + 3e-5 * GW_PROBE_SMALL, 5.0 + 3e-5 * GW_PROBE_LARGE, &fixed, &per_element);
    near("fixed", fixed, 5, 1e-9);
    near("per element", per_element, 3e-5, 1e-9);
    gw_probe_line(2, 1, &fixed, &per_element); /* by chance the long one took less */
    assert_true(fixed == 2 && per_element == 0);
    gw_probe_line(0, 1, &fixed, &per_element);
    assert_true(fixed == 0 && per_element > 0);
}

RUN_TESTS("probe fit", NULL, NULL)
