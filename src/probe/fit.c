/* Fits the model of a step to the times that were measured of a codec. The time beyond that of the link and of encoding
 * is divided among decoding, each group, and each tensor. */
#include "plan/timeline.h"
#include "probe/probe.h"

#include <math.h>
#include <stdio.h>

void gw_probe_line(double small_ms, double large_ms, double *fixed, double *per_element)
{
    *per_element = fmax(0, (large_ms - small_ms) / (GW_PROBE_LARGE - GW_PROBE_SMALL));
    *fixed = fmax(0, small_ms - *per_element * GW_PROBE_SMALL);
}

/* What the model predicts for a point. 0: it cannot say. */
static double model_ms(const struct gw_probe *p, const gw_profile_codec *codec, const struct gw_probe_point *point)
{
    char names[GW_PROBE_MOST_TENSORS][12];
    gw_profile_layer layers[GW_PLAN_MAX_LAYERS];
    uint32_t group_of[GW_PLAN_MAX_LAYERS] = {0};
    const uint32_t n = point->whole ? p->n_layers : (uint32_t)(point->groups * point->tensors);
    double ms;
    for (uint32_t t = 0; t < n && point->whole; t++)
        layers[t] = (gw_profile_layer){p->layers[t].name, p->layers[t].n_elems, 0};
    for (uint32_t t = 0; t < n && !point->whole; t++) {
        snprintf(names[t], sizeof names[t], "%u", t);
        layers[t] = (gw_profile_layer){names[t], point->size, 0};
        group_of[t] = (uint32_t)(point->groups - 1 - t / point->tensors);
    }
    const gw_profile profile = {.struct_bytes = sizeof profile,
                                .layers = layers,
                                .n_layers = n,
                                .link = p->link,
                                .codecs = codec,
                                .n_codecs = 1};
    return gw_plan_timeline(&profile, 0, GW_COMPRESS_BESIDE, group_of, NULL, 0, &ms) < 0 ? 0 : ms;
}

/* Fits *cost, which belongs to p->link or to codec. The model then predicts what was measured at this point. *cost is
 * at least `least`. */
static void fit_cost(double *cost, double least, const struct gw_probe *p, const gw_profile_codec *codec,
                     const struct gw_probe_point *point)
{
    double low = least, high = least + point->measured_ms;
    for (int i = 0; i < 50; i++) {
        *cost = (low + high) / 2;
        if (model_ms(p, codec, point) < point->measured_ms)
            low = *cost;
        else
            high = *cost;
    }
    *cost = low;
}

/* Fits what decoding costs: to the network's own tensors if they were measured, else to all points. Relative deviations
 * count. */
static void fit_decoding(const struct gw_probe *p, gw_profile_codec *codec, const struct gw_probe_sweep *sweep)
{
    enum { TRIALS = 240 };
    double best = INFINITY, best_ms = 0;
    const bool whole = sweep->points[sweep->n - 1].whole;
    for (int i = 0; i <= TRIALS; i++) { /* 0, and then from a hundredth of a nanosecond to a hundred */
        double deviation = 0;
        codec->decompress_ms_per_element = i ? 1e-8 * pow(10, 4.0 * (i - 1) / TRIALS) : 0;
        for (size_t k = whole ? sweep->n - 1 : GW_PROBE_N_SMALL; k < sweep->n; k++)
            deviation += fabs(model_ms(p, codec, &sweep->points[k]) / sweep->points[k].measured_ms - 1);
        if (deviation < best) {
            best = deviation;
            best_ms = codec->decompress_ms_per_element;
        }
    }
    codec->decompress_ms_per_element = best_ms;
}

void gw_probe_fit(struct gw_probe *p, size_t k)
{
    gw_profile_codec *codec = &p->costs[k];
    struct gw_probe_sweep *sweep = &p->sweeps[k];
    const double encode_ms = codec->compress_ms_fixed, measure_ms = codec->measure_ms_fixed;
    for (int round = 0; round < 4; round++) { /* each cost depends a little on the others */
        fit_decoding(p, codec, sweep);
        fit_cost(&codec->measure_ms_fixed, measure_ms, p, codec, &sweep->points[GW_PROBE_MANY]);
        if (k == 0) {
            fit_cost(&p->link.alpha_ms, 0, p, codec, &sweep->points[GW_PROBE_MORE]);
            fit_cost(&p->link.latency_ms, 0, p, codec, &sweep->points[GW_PROBE_FEW]);
        } else {
            fit_cost(&codec->compress_ms_fixed, encode_ms, p, codec, &sweep->points[GW_PROBE_MORE]);
        }
    }
    for (size_t i = 0; i < sweep->n; i++)
        sweep->points[i].fitted_ms = model_ms(p, codec, &sweep->points[i]);
}
