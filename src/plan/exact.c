/* Finds the plan with the shortest step, exactly.
 *
 * Layers are closed into groups from the last to the first. Of all ways to group the layers from l on, what follows
 * sees two numbers only: when the lane that compresses is free, and when the link is. Both only ever delay what
 * follows. So a way that is later in both than another one never leads to a shorter step, and is dropped. What is left
 * of each l is a front: the later the lane, the earlier the link. docs/plan.md has the proof, and a bound on a front's
 * length. */
#include "base/error.h"
#include "base/memory.h"
#include "plan/timeline.h"

#include <string.h>

/* The rounding errors of sums of GW_PLAN_MAX_LAYERS numbers are far below this. */
#define ROUNDING 1e-9

/* One way to group the layers from some layer to the last one. */
struct way {
    struct gw_progress at;
    uint32_t n_groups;
    uint32_t parent_layer, parent; /* the way without its last group: its layer, and its number in that layer's front */
};

struct front {
    struct way *ways; /* sorted: lane ascending, link descending */
    uint32_t n, capacity;
};

static gw_status make_room(gw_context *context, struct front *front)
{
    if (front->n < front->capacity)
        return GW_OK;
    const uint32_t capacity = front->capacity ? 2 * front->capacity : 8;
    struct way *ways = gw_alloc(context, capacity, sizeof *ways);
    if (!ways)
        return GW_ERR_MEMORY;
    if (front->n)
        memcpy(ways, front->ways, front->n * sizeof *ways);
    gw_free(context, front->ways);
    front->ways = ways;
    front->capacity = capacity;
    return GW_OK;
}

/* True if a is as good as b for all that follows. */
static bool covers(const struct way *a, const struct way *b)
{
    return a->at.lane <= b->at.lane && a->at.link <= b->at.link &&
           (a->at.lane < b->at.lane || a->at.link < b->at.link || a->n_groups <= b->n_groups);
}

static gw_status add_way(gw_context *context, struct front *front, const struct way *way)
{
    uint32_t low = 0, high = front->n; /* low: the first way whose lane is later than that of the new way */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (front->ways[middle].at.lane <= way->at.lane)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && covers(&front->ways[low - 1], way))
        return GW_OK;
    /* The ways that the new one covers stand side by side. */
    uint32_t first = low, end = low;
    while (first > 0 && covers(way, &front->ways[first - 1]))
        first--;
    while (end < front->n && covers(way, &front->ways[end]))
        end++;
    if (first == end) {
        GW_TRY(make_room(context, front));
        memmove(front->ways + first + 1, front->ways + first, (front->n - first) * sizeof *way);
        front->n++;
    } else {
        memmove(front->ways + first + 1, front->ways + end, (front->n - end) * sizeof *way);
        front->n -= end - first - 1;
    }
    front->ways[first] = *way;
    return GW_OK;
}

/* What is still to be done if the layers from l on are grouped. */
struct rest {
    double ready;   /* the time when backward has finished layer l, if nothing holds it up */
    double n_elems; /* elements of the layers before l */
    double lane_ms; /* the least time that the lane takes for these layers */
};

struct search {
    gw_context *context;
    const struct gw_model *model;
    const struct rest *rest; /* of each layer */
    double upper;            /* the length of a known step; a way to a longer one is not followed */
    struct front *fronts;    /* fronts[l]: the ways in which the layers from l on are grouped */
    double last_ms;          /* the least time that the link takes after all is encoded */
};

/* Puts one more group after a way: the layers from l to `from` - 1, for every l. */
static gw_status extend(struct search *search, uint32_t from, uint32_t nth)
{
    const struct gw_model *model = search->model;
    const gw_profile *p = model->profile;
    const struct way before = search->fronts[from].ways[nth];
    double lane = before.at.lane, n_elems = 0;
    for (uint32_t l = from; l-- > 0;) {
        const struct rest *rest = &search->rest[l];
        lane = gw_lane_measured(model, lane, l, rest->ready);
        n_elems += (double)p->layers[l].n_elems;
        struct way way = {.n_groups = before.n_groups + 1, .parent_layer = from, .parent = nth};
        way.at.lane = gw_lane_encoded(model, lane, n_elems);
        way.at.link = gw_link_sent(model, before.at.link, lane, way.at.lane, n_elems);
        /* All other elements must be sent as well, in whatever groups. So a larger group cannot be shorter. */
        const double begin = gw_send_begin(model, before.at.link, lane, way.at.lane, n_elems);
        if (begin + p->link.alpha_ms + model->send_ms_per_element * (n_elems + rest->n_elems) + p->link.latency_ms >
            search->upper)
            return GW_OK;
        if (l == 0)
            way.at.lane = 0; /* nothing follows that would wait for the lane */
        else if (way.at.link + p->link.alpha_ms + model->send_ms_per_element * rest->n_elems + p->link.latency_ms >
                     search->upper ||
                 way.at.lane + rest->lane_ms + search->last_ms + p->link.latency_ms > search->upper)
            continue;
        GW_TRY(add_way(search->context, &search->fronts[l], &way));
    }
    return GW_OK;
}

static void fill_rest(const struct gw_model *model, struct rest *rest)
{
    const gw_profile *p = model->profile;
    double ready = p->forward_ms, n_elems = 0, measure_ms = 0;
    for (uint32_t l = p->n_layers; l-- > 0;)
        rest[l].ready = ready += p->layers[l].backward_ms;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        rest[l].n_elems = n_elems;
        rest[l].lane_ms =
            model->codec->compress_ms_fixed + model->codec->compress_ms_per_element * n_elems + measure_ms;
        n_elems += (double)p->layers[l].n_elems;
        measure_ms = gw_lane_measured(model, measure_ms, l, 0);
    }
}

/* Follows the best way back, and numbers its groups. */
static void number_layers(const struct search *search, uint32_t *group_of)
{
    uint32_t layer = 0, nth = 0;
    uint32_t group = search->fronts[0].ways[0].n_groups;
    while (layer < search->model->profile->n_layers) {
        const struct way *way = &search->fronts[layer].ways[nth];
        group--;
        for (uint32_t l = layer; l < way->parent_layer; l++)
            group_of[l] = group;
        layer = way->parent_layer;
        nth = way->parent;
    }
}

gw_status gw_merge_exactly(gw_context *context, const struct gw_model *model, double upper, uint32_t *group_of)
{
    const gw_profile *p = model->profile;
    const uint32_t n = p->n_layers;
    struct rest *rest = gw_alloc(context, n, sizeof *rest);
    struct front *fronts = gw_calloc(context, (size_t)n + 1, sizeof *fronts);
    /* What a way still needs is added up in another order than the length of its step. So it is rounded differently. */
    struct search search = {
        .context = context, .model = model, .rest = rest, .upper = upper * (1 + ROUNDING), .fronts = fronts};
    const double first_layer = (double)p->layers[0].n_elems, run = (double)p->link.run_elements;
    search.last_ms = model->send_ms_per_element * (run > 0 && run < first_layer ? run : first_layer);
    gw_status status = rest && fronts ? make_room(context, &fronts[n]) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        fill_rest(model, rest);
        fronts[n].ways[fronts[n].n++] = (struct way){.at = {.lane = model->beside ? 0 : p->forward_ms}};
        for (uint32_t from = n; from > 0 && status == GW_OK; from--)
            for (uint32_t nth = 0; nth < fronts[from].n && status == GW_OK; nth++)
                status = extend(&search, from, nth);
    }
    if (status == GW_OK)
        number_layers(&search, group_of);
    for (uint32_t l = 0; fronts && l <= n; l++)
        gw_free(context, fronts[l].ways);
    gw_free(context, fronts);
    gw_free(context, rest);
    return status;
}
