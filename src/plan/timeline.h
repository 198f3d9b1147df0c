/* The arithmetic of a step's timeline. The timeline itself and the search for the exact plan share it, so that both
 * round in the same way. */
#ifndef GW_PLAN_TIMELINE_H
#define GW_PLAN_TIMELINE_H

#include <gradwire/plan.h>

/* One group of a step, in milliseconds from the step's begin. */
typedef struct gw_group_times {
    uint32_t first_layer, n_layers; /* layers first_layer .. first_layer + n_layers - 1 of the profile */
    uint64_t n_elems;
    double ready;                    /* its last gradient is there */
    double encode_begin, encode_end; /* its layers were measured before */
    double send_begin, send_end;     /* the link is busy with it */
    double arrived;                  /* its averages are there; that of the last group is the step's end */
} gw_group_times;

/* Works out the step that a plan gives. group_of: the group of each of n_layers layers. Groups are numbered in the
 * order in which backward finishes them: the last layer is in group 0, and each layer before it in the same group as
 * its successor or in the next one. times: has room for `capacity` groups, and is filled in that order. It may be NULL
 * if capacity is 0. *step_ms: the length of the step, with forward_ms. Errors: GW_ERR_ARGUMENT (the profile is not
 * legal, the codec's number is out of range, or group_of is not numbered like this), GW_ERR_CAPACITY. */
GW_MUST_CHECK gw_status gw_plan_timeline(const gw_profile *profile, uint32_t codec, gw_compress compress,
                                         const uint32_t *group_of, gw_group_times *times, uint32_t capacity,
                                         double *step_ms);

/* How far the lane that compresses has come, and how far the link. What follows depends on nothing else (docs/plan.md).
 */
struct gw_progress {
    double lane; /* backward and compression, or compression alone if it runs beside backward */
    double link; /* the time from which on it is free */
};

/* A profile with one of its codecs. */
struct gw_model {
    const gw_profile *profile;
    const gw_profile_codec *codec;
    bool beside;
    double send_ms_per_element;
    double busy_until; /* the processors are busy until then with all work of the step, so no plan ends earlier */
};

static inline double gw_later(double a, double b)
{
    return a > b ? a : b;
}

/* The time of the lane after layer l is measured. ready: the time when backward has finished the layer, if nothing
 * holds it up. */
static inline double gw_lane_measured(const struct gw_model *model, double lane, uint32_t l, double ready)
{
    const gw_profile_layer *layer = &model->profile->layers[l];
    const double measure_ms =
        model->codec->measure_ms_fixed + model->codec->measure_ms_per_element * (double)layer->n_elems;
    return (model->beside ? gw_later(lane, ready) : lane + layer->backward_ms) + measure_ms;
}

/* The time of the lane after a group of n_elems elements is encoded. */
static inline double gw_lane_encoded(const struct gw_model *model, double lane, double n_elems)
{
    return lane + model->codec->compress_ms_fixed + model->codec->compress_ms_per_element * n_elems;
}

static inline bool gw_has_runs(const struct gw_model *model, double n_elems)
{
    const double run = (double)model->profile->link.run_elements;
    return run > 0 && n_elems > run;
}

/* The time when the link begins with a group of n_elems elements, which the lane has measured and encoded at the times
 * given. */
static inline double gw_send_begin(const struct gw_model *model, double link, double measured, double encoded,
                                   double n_elems)
{
    const double run = (double)model->profile->link.run_elements;
    return gw_later(link, gw_has_runs(model, n_elems) ? gw_lane_encoded(model, measured, run) : encoded);
}

/* The time of the link after that group is sent. */
static inline double gw_link_sent(const struct gw_model *model, double link, double measured, double encoded,
                                  double n_elems)
{
    const double sent = gw_send_begin(model, link, measured, encoded, n_elems) + model->profile->link.alpha_ms +
                        model->send_ms_per_element * n_elems;
    if (!gw_has_runs(model, n_elems))
        return sent;
    return gw_later(sent, encoded + model->send_ms_per_element * (double)model->profile->link.run_elements);
}

/* The end of a step, if the link is free again at `link` after its last group. */
static inline double gw_step_end(const struct gw_model *model, double link)
{
    return gw_later(link + model->profile->link.latency_ms, model->busy_until);
}

/* Checks the arguments that all public functions have. */
gw_status gw_model_init(const gw_profile *profile, uint32_t codec, gw_compress compress, struct gw_model *out);

/* The length of the step with a plan that was checked before. times may be NULL; else it has room for all groups. */
double gw_step_of(const struct gw_model *model, const uint32_t *group_of, gw_group_times *times);

/* The exact plan (exact.c); *upper: the shortest step known so far. */
gw_status gw_merge_exactly(gw_context *context, const struct gw_model *model, double upper, uint32_t *group_of);

#endif
