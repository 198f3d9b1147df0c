/* topk sends the largest magnitudes of gradient plus residual, with error feedback (DLGS: layer-wise Top-K with reused
 * thresholds; LAGS: refresh=1; global Top-K: scope=global). The rest of a step waits in the residual.
 *
 * A step: measure selects, and writes gradient plus residual into a second buffer; encode packs slices of what was
 * selected; commit makes the second buffer the residual, or leaves all as it was, if some worker's gradient was not
 * finite. A bitmap beside each buffer says what of it was sent. The next step's pass leaves that out as it reads, so no
 * pass is needed to take it out. */
#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "codec/kernels.h"
#include "codec/measure.h"
#include "codec/sparse/sparse.h"
#include "codec/topk/select.h"
#include "wire/bytes.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

enum { SCOPE_LAYER, SCOPE_GLOBAL };

struct topk_options {
    double ratio, bound, over;
    uint64_t refresh, dense;
    int scope, value;
    struct gw_momentum_options momentum;
};

/* What stays between steps besides the residual. */
struct memory {
    float threshold;
    uint32_t age;    /* steps since the threshold was taken, counting that step; 0: there is none */
    uint32_t steps;  /* committed steps, counted up to the number of dense ones */
    bool rested;     /* in the last step this tensor had no gradient */
    uint64_t n_sent; /* how many of this tensor's elements the last step sent */
};

/* How a tensor is selected from in this step. With scope=global, `decide` says it for all tensors of the network. */
enum how { UNDECIDED, ALONE, TOGETHER };

/* The residual still contains what was sent; settle takes that out. Its notes are a bitmap of what was sent. */
struct topk_state {
    struct memory now, next; /* next becomes now when the step is committed */
    float *values; /* of this tensor, or of all that are selected from together. It grows to what selection may give */
    uint64_t capacity;
    const float *selected;                /* this tensor's values */
    uint64_t most;                        /* if it is selected from alone: the most elements */
    enum how how;                         /* scope=global */
    bool many;                            /* the last selection took more than half of its bound */
    bool pending;                         /* `next` and the other residual belong to a step that is not committed yet */
    const float *g;                       /* the measured gradient, for combine to select from */
    uint64_t cursor_begin, cursor_values; /* how many values stand before element cursor_begin */
};

static const struct topk_options *options_of(const gw_encoder *encoder)
{
    return encoder->options;
}

static void topk_close(gw_encoder *encoder)
{
    struct topk_state *s = encoder->state;
    gw_free(encoder->context, s->values);
}

/* ---- what was sent --------------------------------------------------------------------------- */

static size_t topk_sent_bytes(const gw_encoder *encoder)
{
    return (size_t)gw_div_up(encoder->tensor.n_elems, 64) * sizeof(uint64_t);
}

/* Takes what was sent out of the residual. */
static void settle(const gw_encoder *encoder)
{
    const struct topk_options *o = options_of(encoder);
    float *residual = gw_residual_now(&encoder->residual);
    uint64_t *sent = gw_residual_sent(&encoder->residual);
    for (uint64_t w = 0; w < gw_div_up(encoder->tensor.n_elems, 64); w++, residual += 64) {
        for (uint64_t bits = sent[w]; bits; bits &= bits - 1) {
            float *left = residual + __builtin_ctzll(bits);
            *left = gw_select_left((enum gw_value_type)o->value, (float)o->over, *left);
        }
        sent[w] = 0;
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

static uint64_t count_of(double ratio, uint64_t n)
{
    double k = ceil(ratio * (double)n);
    return n == 0 ? 0 : k < 1 ? 1 : k > (double)n ? n : (uint64_t)k;
}

/* The most elements of n that a threshold may let through, if a new one sends k. */
static uint64_t bound_of(const struct topk_options *o, uint64_t k, uint64_t n)
{
    const double most = ceil(o->bound * (double)k);
    return most < (double)n ? (uint64_t)most : n;
}

static bool is_dense(const gw_encoder *encoder)
{
    return ((const struct topk_state *)encoder->state)->now.steps < options_of(encoder)->dense;
}

/* What is sent for a, before it is rounded. */
static float more_than(const struct topk_options *o, float a)
{
    return a * (1 + (float)o->over);
}

static struct gw_select_part part_of(const gw_encoder *encoder)
{
    const struct topk_options *o = options_of(encoder);
    const struct topk_state *s = encoder->state;
    return (struct gw_select_part){.g = s->g,
                                   .residual = gw_residual_now(&encoder->residual),
                                   .sent = gw_residual_sent(&encoder->residual),
                                   .n = encoder->rests ? 0 : encoder->tensor.n_elems,
                                   .value = (enum gw_value_type)o->value,
                                   .over = (float)o->over,
                                   .next = gw_residual_next(&encoder->residual),
                                   .kept = gw_residual_sent_next(&encoder->residual)};
}

/* Makes room for n selected values. */
static gw_status take_room(gw_encoder *encoder, uint64_t n)
{
    struct topk_state *s = encoder->state;
    const uint64_t needed = n + GW_SELECT_SLACK;
    if (s->capacity >= needed)
        return GW_OK;
    gw_free(encoder->context, s->values);
    s->values = gw_alloc(encoder->context, needed, sizeof *s->values);
    s->capacity = s->values ? needed : 0;
    return s->values ? GW_OK : GW_ERR_MEMORY;
}

/* Takes over what was selected of a tensor. False: it has an element for which no finite value could be sent. */
static bool take_selected(gw_encoder *encoder, const struct gw_select_part *part, const float *values)
{
    struct topk_state *s = encoder->state;
    const float max_abs = gw_bits_float(part->max_bits);
    s->selected = values;
    s->next.n_sent = part->n_kept;
    s->next.rested = encoder->rests;
    s->cursor_begin = s->cursor_values = 0;
    s->pending = true;
    encoder->info.max_abs = (double)max_abs;
    return isfinite(more_than(options_of(encoder), max_abs));
}

/* Selects the k largest of all tensors together, and takes a new threshold. *bad becomes the first tensor that has an
 * element for which no finite value could be sent. */
static gw_status select_together(gw_encoder *const *encoders, uint32_t n_encoders, uint32_t *bad)
{
    gw_encoder *first = encoders[0];
    struct topk_state *lead = first->state;
    struct gw_select_part *parts = gw_calloc(first->context, n_encoders, sizeof *parts);
    uint64_t n = 0;
    float threshold = 0;
    *bad = n_encoders;
    if (!parts)
        return GW_ERR_MEMORY;
    for (uint32_t t = 0; t < n_encoders; t++) {
        parts[t] = part_of(encoders[t]);
        n += parts[t].n;
    }
    const uint64_t k = count_of(options_of(first)->ratio, n);
    gw_status status = take_room(first, k);
    if (status == GW_OK && n)
        status = gw_select_exact(first->context, parts, n_encoders, k, lead->values, &threshold);
    const float *values = lead->values;
    for (uint32_t t = 0; t < n_encoders && status == GW_OK; t++) {
        struct topk_state *s = encoders[t]->state;
        s->next.threshold = threshold;
        s->next.age = n > 0;
        if (!take_selected(encoders[t], &parts[t], values) && *bad == n_encoders)
            *bad = t;
        values += parts[t].n_kept;
    }
    gw_free(first->context, parts);
    return status;
}

/* Selects what is above the threshold. An old threshold may let too many through. Then the largest of those are
 * selected, and the threshold does not change. */
static gw_status select_alone(gw_encoder *encoder, bool *finite)
{
    struct topk_state *s = encoder->state;
    struct gw_select_part part = part_of(encoder);
    GW_TRY(take_room(encoder, s->most));
    if (part.n)
        GW_TRY(gw_select_above(encoder->context, &part, 1, s->next.threshold, s->most, s->many, s->values));
    s->many = part.n_kept > s->most / 2;
    *finite = take_selected(encoder, &part, s->values);
    return GW_OK;
}

/* ---- one threshold for the network ----------------------------------------------------------- */

/* The threshold that follows one with which `sent` of n elements were sent, and not k.
 *
 * The share that is sent falls with the square of the threshold (topk_run_in), but only after many steps. At once it
 * falls much faster: near the threshold H, residuals get fewer linearly over a distance of H, so a step that moves H by
 * a small part of the width of one gradient, sigma, moves the count by 1.4 times that part, and H / sigma is
 * 1 / sqrt(share). So the threshold may follow the count with a power of sqrt(share) * 0.7 at most, and overshoots and
 * swings with twice that. Momentum in the gradients makes walks smoother, and the count moves 4 times as fast with
 * M = 0.9. A power of sqrt(share) / 4 holds the count within some percent of k in either case, and follows gradients
 * that change by a tenth of a percent in each step. The power is written as a quotient, because pow differs between
 * machines. Few may be sent by chance, or because the gradient has become small: half of k counts as the least. */
static float next_threshold(float threshold, uint64_t sent, uint64_t k, uint64_t n)
{
    if (n == 0)
        return threshold;
    const double goal = (double)k, count = fmax((double)sent, goal / 2);
    const double change = sqrt(fmax(count, goal) / (double)n) / 4 * (count - goal);
    return (float)fmin((double)threshold * (count + goal + change) / (count + goal - change), (double)FLT_MAX);
}

/* Decides for all tensors of the network, at the beginning of a step, whether they are selected from together, with a
 * new threshold, or each by itself with the threshold that follows the last one. True: together. */
static bool decide(gw_encoder *const *encoders, uint32_t n_encoders)
{
    const struct topk_options *o = options_of(encoders[0]);
    struct memory next = ((const struct topk_state *)encoders[0]->state)->now;
    uint64_t n = 0, n_last = 0, n_sent = 0;
    if (o->scope == SCOPE_LAYER || is_dense(encoders[0]))
        return false;
    for (uint32_t t = 0; t < n_encoders; t++) {
        const struct memory *last = &((const struct topk_state *)encoders[t]->state)->now;
        n += encoders[t]->tensor.n_elems;
        n_last += last->rested ? 0 : encoders[t]->tensor.n_elems;
        n_sent += last->n_sent;
    }
    const uint64_t k = count_of(o->ratio, n_last);
    /* A threshold that let through as much as the bound is far too old. */
    const bool together =
        next.age == 0 || next.age >= o->refresh || (n_last > 0 && (double)n_sent >= ceil(o->bound * (double)k));
    next.age = together ? 1 : next.age + 1;
    if (!together)
        next.threshold = next_threshold(next.threshold, n_sent, k, n_last);
    next.n_sent = 0;
    for (uint32_t t = 0; t < n_encoders; t++) {
        struct topk_state *s = encoders[t]->state;
        s->next = next;
        s->most = bound_of(o, count_of(o->ratio, n), encoders[t]->tensor.n_elems);
        s->how = together ? TOGETHER : ALONE;
        s->pending = false;
    }
    return together;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Reports the first element that is not finite. If all are, it is the first one for which more than the largest float
 * would be sent. */
static void find_bad(gw_encoder *encoder, const float *g, gw_measure *info)
{
    settle(encoder);
    const float *residual = gw_residual_now(&encoder->residual);
    uint64_t bad = gw_residual_find_bad(&encoder->residual, g);
    while (bad + 1 < encoder->residual.n && isfinite(more_than(options_of(encoder), g[bad] + residual[bad])))
        bad++;
    *info = (gw_measure){.finite = false, .bad_index = bad};
}

static gw_status topk_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    const struct topk_options *o = options_of(encoder);
    struct topk_state *s = encoder->state;
    uint64_t n = encoder->tensor.n_elems;
    uint32_t bad = 1;
    bool finite = true;
    (void)shared;
    s->pending = false;
    s->g = g;
    if (is_dense(encoder) || (o->scope == SCOPE_GLOBAL && s->how == UNDECIDED)) {
        gw_measure_tensor(encoder->context, g, n, info);
        s->next = s->now;
        s->pending = is_dense(encoder);
        return GW_OK;
    }
    if (o->scope == SCOPE_GLOBAL && s->how == TOGETHER) /* combine selects */
        return GW_OK;
    if (o->scope == SCOPE_LAYER) {
        s->next = s->now;
        s->most = bound_of(o, count_of(o->ratio, n), n);
    }
    if (o->scope == SCOPE_LAYER && (s->now.age == 0 || s->now.age >= o->refresh)) {
        GW_TRY(select_together(&encoder, 1, &bad));
        finite = bad > 0;
    } else {
        s->next.age += o->scope == SCOPE_LAYER;
        GW_TRY(select_alone(encoder, &finite));
    }
    if (!finite)
        find_bad(encoder, g, info);
    return GW_OK;
}

static gw_status topk_combine(gw_encoder *const *encoders, uint32_t n, uint32_t *bad)
{
    *bad = n;
    if (n == 0 || options_of(encoders[0])->scope == SCOPE_LAYER || is_dense(encoders[0]))
        return GW_OK;
    const struct topk_state *lead = encoders[0]->state;
    if (lead->how == UNDECIDED)
        decide(encoders, n);
    if (lead->how == TOGETHER)
        GW_TRY(select_together(encoders, n, bad));
    for (uint32_t t = 0; t < n && lead->how == ALONE; t++) {
        bool finite = true;
        if (!((const struct topk_state *)encoders[t]->state)->pending)
            GW_TRY(select_alone(encoders[t], &finite));
        if (!finite && *bad == n)
            *bad = t;
    }
    if (*bad < n)
        find_bad(encoders[*bad], ((const struct topk_state *)encoders[*bad]->state)->g, &encoders[*bad]->info);
    return GW_OK;
}

static bool is_global(const void *raw)
{
    return ((const struct topk_options *)raw)->scope == SCOPE_GLOBAL;
}

/* With refresh=1 every step waits for all tensors, and groups would gain nothing. */
static bool is_one_group(const void *raw)
{
    const struct topk_options *o = raw;
    return o->scope == SCOPE_GLOBAL && o->refresh == 1;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static gw_status topk_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                             uint8_t *dst, struct gw_frame *frame)
{
    struct topk_state *s = encoder->state;
    (void)shared;
    (void)draw;
    if (is_dense(encoder)) {
        frame->codec = GW_WIRE_NONE;
        frame->payload_bytes = 4 * (size_t)frame->count;
        memcpy(dst + GW_HEADER_BYTES, g + frame->begin, frame->payload_bytes);
        return GW_OK;
    }
    if (!s->pending)
        return gw_fail(GW_ERR_ORDER,
                       "tensor '%s': with scope=global gw_encoders_combine comes between measure and encode",
                       encoder->shown);
    if (frame->begin < s->cursor_begin)
        s->cursor_begin = s->cursor_values = 0;
    const uint64_t *kept = gw_residual_sent_next(&encoder->residual);
    s->cursor_values += gw_kernels_now()->count(kept + s->cursor_begin / 64, (frame->begin - s->cursor_begin) / 64);
    s->cursor_begin = frame->begin;
    frame->code = (uint8_t)options_of(encoder)->value;
    static const float nothing; /* C adds no number to NULL, not even 0 */
    struct gw_sparse_source source = {.kept = kept + frame->begin / 64,
                                      .values = s->selected ? s->selected + s->cursor_values : &nothing,
                                      .fast = encoder->push_wire == GW_WIRE_FAST};
    struct gw_sparse_scratch *scratch;
    GW_TRY(gw_sparse_scratch_create(encoder->context, 0, true, &scratch));
    gw_sparse_write(&source, scratch, dst, frame);
    gw_sparse_scratch_destroy(encoder->context, scratch);
    return GW_OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

static bool topk_commit(gw_encoder *encoder, bool committed)
{
    struct topk_state *s = encoder->state;
    const bool counts = s->pending && committed, dense = is_dense(encoder);
    if (counts && dense)
        s->now.steps++;
    else if (counts)
        s->now = s->next;
    s->how = UNDECIDED;
    s->pending = false;
    return counts && !dense;
}

/* With scope=global, the threshold goes on with those of the other tensors. */
static bool topk_rest(gw_encoder *encoder)
{
    struct topk_state *s = encoder->state;
    if (is_dense(encoder)) /* all workers count the dense steps together */
        return false;
    memset(gw_residual_sent_next(&encoder->residual), 0, topk_sent_bytes(encoder));
    s->cursor_begin = s->cursor_values = 0;
    s->selected = NULL;
    if (s->how == UNDECIDED)
        s->next = s->now;
    s->next.n_sent = 0;
    s->next.rested = true;
    s->pending = true;
    return true;
}

static void topk_scale(gw_encoder *encoder, float factor)
{
    struct topk_state *s = encoder->state;
    s->now.threshold = fminf(s->now.threshold * factor, FLT_MAX);
    s->how = UNDECIDED;
}

/* The head of a saved state: the threshold, its age, how many dense steps were done, whether the tensor rested in the
 * last step, and how many elements that step sent. */
#define STATE_HEAD 24

static void topk_save(const gw_encoder *encoder, uint8_t *dst)
{
    const struct topk_state *s = encoder->state;
    gw_put_float(dst, s->now.threshold);
    gw_put32(dst + 4, s->now.age);
    gw_put32(dst + 8, s->now.steps);
    gw_put32(dst + 12, s->now.rested);
    gw_put64(dst + 16, s->now.n_sent);
}

static gw_status topk_load(gw_encoder *encoder, const uint8_t *src)
{
    struct topk_state *s = encoder->state;
    struct memory now = {.threshold = gw_get_float(src),
                         .age = gw_get32(src + 4),
                         .steps = gw_get32(src + 8),
                         .rested = gw_get32(src + 12),
                         .n_sent = gw_get64(src + 16)};
    if (gw_get32(src + 12) > 1 || now.n_sent > encoder->residual.n)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the saved state of tensor '%s' is not one of topk's: its last step sent %llu "
                       "of %llu elements",
                       encoder->shown, (unsigned long long)now.n_sent, (unsigned long long)encoder->residual.n);
    if (!(now.threshold >= 0) || !isfinite(now.threshold))
        return gw_fail(GW_ERR_ARGUMENT, "the saved state of tensor '%s' is not one of topk's: its threshold is %g",
                       encoder->shown, (double)now.threshold);
    s->now = now;
    s->how = UNDECIDED;
    s->pending = false;
    return GW_OK;
}

/* The merged state has no threshold. The next step takes a new one. */
static void topk_merge(const uint8_t *one, uint8_t *dst)
{
    memset(dst, 0, STATE_HEAD);
    memcpy(dst + 8, one + 8, 4);
}

static void topk_describe(const gw_encoder *encoder, gw_encoder_condition *condition)
{
    const struct topk_state *s = encoder->state;
    condition->threshold = s->now.age ? (double)s->now.threshold : 0;
    condition->threshold_age = s->now.age;
}

/* ---- for measurements ------------------------------------------------------------------------ */

/* The standard deviation of most elements, from the median of magnitudes. A few very large elements do not move the
 * median. */
static double sigma_of(const float *g, uint64_t n)
{
    enum { SAMPLES = 1023 };
    float samples[SAMPLES];
    const uint32_t count = n < SAMPLES ? (uint32_t)n : SAMPLES;
    for (uint32_t i = 0; i < count; i++) {
        const float x = fabsf(g[i * (n / count)]);
        uint32_t at = i;
        for (; at > 0 && samples[at - 1] > x; at--)
            samples[at] = samples[at - 1];
        samples[at] = x;
    }
    return samples[count / 2] / 0.6745; /* for a normal distribution */
}

/* An element's residual walks at random, with a step of sigma, until it passes the threshold H. Then it is sent, and
 * begins at 0 again. On average it passes H by 0.583 sigma. So a walk takes (H / sigma + 0.583)^2 steps, and a step
 * sends a share of 1 / (H / sigma + 0.583)^2 (Siegmund, Sequential Analysis, 1985, chapter X). That share is k / n. The
 * residuals of all elements then have the density of a triangle over [-H, H].
 *
 * With over = b an element begins again at -b times what it had reached, which is nearer to the other end: a walk takes
 * only 1 - b^2 of those steps. The density is then flat from -bH to bH, and falls to 0 at both ends: that of a sum of
 * two uniform numbers, one of which has (1 + b) / (1 - b) times the range of the other. */
static float walked(double threshold, double over, const uint32_t words[2])
{
    const double wide = (1 + over) * (double)words[0], narrow = (1 - over) * (double)words[1];
    return (float)(threshold * 0x1p-32 * (wide - narrow - over * 0x1p32));
}

static void topk_run_in(gw_encoder *encoder, const float *g, uint32_t rank)
{
    const struct topk_options *o = options_of(encoder);
    struct topk_state *s = encoder->state;
    const uint64_t n = encoder->tensor.n_elems;
    const double share = (double)count_of(o->ratio, n) / (double)n;
    const double over = (double)(float)o->over;
    const double threshold = sigma_of(g, n) * (1 / sqrt(share * (1 - over * over)) - 0.583);
    float *residual = gw_residual_now(&encoder->residual);
    s->now.steps = (uint32_t)o->dense;
    if (!(threshold > 0) || !isfinite((float)threshold)) /* most elements are 0, or most are sent */
        return;
    for (uint64_t i = 0; i < n; i += 2) {
        uint32_t counter[4], words[4];
        gw_philox_counter(counter, (uint32_t)(i / 2), (uint32_t)(i >> 33), GW_PURPOSE_RUN_IN, rank, encoder->tensor.id);
        gw_philox(counter, 0, words);
        residual[i] = walked(threshold, over, words);
        if (i + 1 < n)
            residual[i + 1] = walked(threshold, over, words + 2);
    }
    s->now.threshold = (float)threshold;
    s->now.age = 1;
    s->now.n_sent = count_of(o->ratio, n);
}

/* ---- options --------------------------------------------------------------------------------- */

static const char *const scopes[] = {"layer", "global", NULL}, *const values[] = {"f32", "bf16", "f16", NULL};

static const gw_codec_option options[] = {
    {"ratio", "0.01", "above 0 and at most 1",
     "a new threshold sends k = max(1, ceil(ratio*n)) elements; an old one sends up to bound*k"},
    {"refresh", "100", "1 to 10^9", "a threshold serves for so many steps; then the exact one is taken again; 1: LAGS"},
    {"scope", "global", "layer|global",
     "global: one threshold for the whole network, which follows what it lets through"},
    {"value", "f32", "f32|bf16|f16", "how values are sent; what rounding loses goes to the residual"},
    {"over", "0.5", "0 to 0.75",
     "the value that is sent is 1 + over times the element; what is too much goes off the residual"},
    {"bound", "4", "1 to 10^6",
     "while a threshold is reused, at most bound*k elements are sent; with scope=global, of each tensor"},
    {"dense", "0", "0 to 10^9", "the first steps send everything"},
    GW_MOMENTUM_OPTIONS,
};

#define AT(field) offsetof(struct topk_options, field)
static const struct gw_option_rule rules[] = {
    {GW_OPTION_NUMBER, AT(ratio), 1e-12, 1, NULL}, {GW_OPTION_COUNT, AT(refresh), 1, 1e9, NULL},
    {GW_OPTION_WORD, AT(scope), 0, 0, scopes},     {GW_OPTION_WORD, AT(value), 0, 0, values},
    {GW_OPTION_NUMBER, AT(over), 0, 0.75, NULL},   {GW_OPTION_NUMBER, AT(bound), 1, 1e6, NULL},
    {GW_OPTION_COUNT, AT(dense), 0, 1e9, NULL},    GW_MOMENTUM_RULES(AT(momentum)),
};

static const char *const examples[] = {"topk",
                                       "topk:ratio=0.05,refresh=1,momentum=0.9,value=bf16",
                                       "topk:ratio=0.1,refresh=3,momentum=0.9,output=velocity,value=f16",
                                       "topk:ratio=0.05,scope=layer,refresh=3,over=0,bound=2",
                                       "topk:ratio=0.9,scope=layer,over=0,dense=1",
                                       NULL};

const struct gw_codec_record gw_codec_topk = {
    .info = {.name = "topk",
             .summary = "the largest magnitudes; the rest waits in a residual",
             .source =
                 "DLGS: Ju, Kang, Liu, Huo, 2024 (layer-wise Top-K, reused thresholds); refresh=1 is LAGS: Shi et al.",
             .options = options,
             .n_options = sizeof options / sizeof *options,
             .losses = gw_losses_topk,
             .examples = examples,
             .wire_id = GW_WIRE_SPARSE,
             .lossy = true},
    .rules = rules,
    .options_bytes = sizeof(struct topk_options),
    .momentum_at = AT(momentum),
    .is_global = is_global,
    .is_one_group = is_one_group,
    .has_wire_choice = gw_sparse_has_wire_choice,
    .state_bytes = sizeof(struct topk_state),
    .close = topk_close,
    .payload_bound = gw_sparse_payload_bound,
    .measure = topk_measure,
    .decide = decide,
    .combine = topk_combine,
    .encode = topk_encode,
    .settle = settle,
    .sent_bytes = topk_sent_bytes,
    .commit = topk_commit,
    .rest = topk_rest,
    .head_bytes = STATE_HEAD,
    .scale = topk_scale,
    .save = topk_save,
    .load = topk_load,
    .merge = topk_merge,
    .describe = topk_describe,
    .run_in = topk_run_in,
};
