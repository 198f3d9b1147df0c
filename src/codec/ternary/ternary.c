/* Reads the options of the ternary codec, and gives its record to the table of codecs. */
#include "codec/ternary/ternary.h"
#include "base/error.h"

#include <stddef.h>

const char *const ternary_code_names[] = {"2bit", "base3", "mask", "packed", "rans", "mixed", NULL};

static const char *const on_off[] = {"on", "off", NULL};
static const char *const off_on[] = {"off", "on", NULL};
static const char *const levels[] = {"max", NULL};
static const char *const scopes[] = {"layer", "global", NULL};
static const char *const codes[] = {
    [PUSH_AUTO] = "auto", [PUSH_2BIT] = "2bit", [PUSH_BASE3] = "base3", [PUSH_MASK] = "mask", NULL};
static const char *const pulls[] = {[PULL_AUTO] = "auto", [PULL_PACKED] = "packed", NULL};
static const char *const entropies[] = {[ENTROPY_AUTO] = "auto", [ENTROPY_ON] = "on", [ENTROPY_OFF] = "off", NULL};

/* The defaults of options that go with only one of the two forms. */
#define CLIP 2.5
#define LEVEL 3

static const gw_codec_option options[] = {
    {"clip", GW_TEXT(CLIP), "0 to 1e30; 0 switches clipping off",
     "limits gradients to so many standard deviations (eq. 21), unless that is below |mean|"},
    {"share", "on", "on|off",
     "on: workers share the largest scaler (eq. 4); off: each has its own, and the average is float"},
    {"bucket", "0", "0 or a number of elements up to 2^30; 0 is one scaler for a tensor",
     "each bucket has its own sigma and scaler"},
    {"scope", "layer", "layer|global", "global: one scaler for the whole network"},
    {"skip", "", "tensor names with * and ?, or last; several joined by +",
     "leaves these tensors in float32; last means the last layer"},
    {"min", "0", "a number of elements up to 10^18", "leaves tensors with fewer elements in float32"},
    {"code", "auto", "auto|2bit|base3|mask", "how pushed values are packed; auto takes the smallest"},
    {"pull", "auto", "auto|packed", "how sums are packed; auto takes the smallest"},
    {"entropy", "auto", "auto|on|off",
     "the entropy coder: auto takes it for what has code=auto, pull=auto, if that is smaller; on always"},
    {"residual", "off", "off|on",
     "on: rounds to the nearest in place of drawing; what is not sent waits for later steps"},
    {"level", GW_TEXT(LEVEL), "0 to 100, or max",
     "residual=on: the scaler is level * rms, at least a quarter of the largest magnitude; max: the largest"},
    GW_MOMENTUM_OPTIONS,
};

#define AT(field) offsetof(struct ternary_options, field)
static const struct gw_option_rule rules[] = {
    {GW_OPTION_NUMBER, AT(clip), 0, 1e30, NULL},
    {GW_OPTION_WORD, AT(share), 0, 0, on_off},
    {GW_OPTION_COUNT, AT(bucket), 0, 1 << 30, NULL},
    {GW_OPTION_WORD, AT(scope), 0, 0, scopes},
    {GW_OPTION_TEXT, AT(skip), 0, 0, NULL},
    {GW_OPTION_COUNT, AT(min), 0, 1e18, NULL},
    {GW_OPTION_WORD, AT(packing.code), 0, 0, codes},
    {GW_OPTION_WORD, AT(packing.pull), 0, 0, pulls},
    {GW_OPTION_WORD, AT(packing.entropy), 0, 0, entropies},
    {GW_OPTION_WORD, AT(residual), 0, 0, off_on},
    {GW_OPTION_NUMBER, AT(level), 0, 100, levels},
    GW_MOMENTUM_RULES(AT(momentum)),
};

static gw_status check_options(const void *raw)
{
    const struct ternary_options *o = raw;
    if (o->scope == SCOPE_GLOBAL && o->bucket)
        return gw_fail(GW_ERR_SPEC,
                       "ternary: scope=global has one scaler for the whole network; bucket=%llu cannot go with it",
                       (unsigned long long)o->bucket);
    if (o->scope == SCOPE_GLOBAL && o->share == SHARE_OFF)
        return gw_fail(GW_ERR_SPEC, "ternary: scope=global shares its scaler; share=off cannot go with it");
    if (o->residual == RESIDUAL_ON && o->clip != CLIP)
        return gw_fail(GW_ERR_SPEC, "ternary: clip= limits what is drawn, and residual=on draws nothing; its scaler is "
                                    "level=");
    if (o->residual == RESIDUAL_OFF && (o->level != LEVEL || o->momentum.factor > 0))
        return gw_fail(GW_ERR_SPEC, "ternary: level= and momentum= go with residual=on");
    return GW_OK;
}

static bool leaves_float(const void *raw, const gw_tensor *tensor)
{
    const struct ternary_options *o = raw;
    return tensor->n_elems < o->min || gw_pattern_matches(o->skip, tensor);
}

static bool keeps_state(const void *raw)
{
    return ((const struct ternary_options *)raw)->residual == RESIDUAL_ON;
}

static bool is_global(const void *raw)
{
    return ((const struct ternary_options *)raw)->scope == SCOPE_GLOBAL;
}

static const char *const examples[] = {"ternary",
                                       "ternary:residual=on",
                                       "ternary:residual=on,level=max,momentum=0.9",
                                       "ternary:residual=on,bucket=2048,momentum=0.9,output=velocity",
                                       "ternary:code=2bit,pull=packed,entropy=off",
                                       "ternary:code=base3,entropy=on",
                                       "ternary:code=mask,clip=0",
                                       "ternary:entropy=on,skip=last",
                                       "ternary:share=off,bucket=512",
                                       "ternary:scope=global,min=1000",
                                       NULL};

const struct gw_codec_record gw_codec_ternary = {
    .info = {.name = "ternary",
             .summary = "gradients as -1, 0, +1 times a scaler: drawn without bias, or rounded; then the rest waits",
             .source = "TernGrad: Wen et al., NIPS 2017; residual=on: error feedback; level=max: 3LC: Lim et al., 2019",
             .options = options,
             .n_options = sizeof options / sizeof *options,
             .losses = gw_losses_ternary,
             .examples = examples,
             .wire_id = GW_WIRE_TERNARY,
             .lossy = true,
             .unbiased = true},
    .rules = rules,
    .options_bytes = sizeof(struct ternary_options),
    .check_options = check_options,
    .leaves_float = leaves_float,
    .skip_at = AT(skip),
    .is_global = is_global,
    .is_one_group = is_global,
    .keeps_state = keeps_state,
    .momentum_at = AT(momentum),
    .has_wire_choice = ternary_has_wire_choice,
    .state_bytes = sizeof(struct ternary_state),
    .open = ternary_open,
    .close = ternary_close,
    .shared_count = ternary_shared_count,
    .bucket = ternary_bucket,
    .payload_bound = ternary_payload_bound,
    .measure = ternary_measure,
    .encode = ternary_encode,
    .settle = ternary_settle,
    .sent_bytes = ternary_sent_bytes,
    .rest = ternary_rest,
};

const struct gw_wire_codec gw_wire_ternary = {
    .name = "ternary",
    .id = GW_WIRE_TERNARY,
    .code_names = ternary_code_names,
    .n_scalers = gw_n_buckets,
    .check_frame = ternary_check_frame,
    .decode = ternary_decode,
    .symbols = ternary_symbols,
    .disagreement = ternary_disagreement,
    .reduce_bound = ternary_reduce_bound,
    .reduce = ternary_reduce,
    .reduce_verifies = true,
    .adds_averages = true,
    .codes_symbols = true,
    .always_finite = true,
};
