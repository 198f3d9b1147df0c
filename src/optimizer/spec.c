/* Reads and writes the text that names an update rule with its options. */
#include "base/append.h"
#include "base/error.h"
#include "base/spec.h"
#include "optimizer/optimizer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_OPTIONS 5

/* An option takes a float from `least` on. If `below` is finite, the number must be below it. */
struct option {
    const char *name;
    float *value, least, below;
};

struct rule {
    const char *name;
    uint32_t moments;
    struct gw_optimizer defaults;
};

static const struct rule rules[] = {
    [GW_RULE_SGD] = {"sgd", 0, {.rule = GW_RULE_SGD, .lr = 0.01f}},
    [GW_RULE_MOMENTUM] = {"momentum", 1, {.rule = GW_RULE_MOMENTUM, .lr = 0.01f, .momentum = 0.9f}},
    [GW_RULE_ADAM] = {"adam",
                      2,
                      {.rule = GW_RULE_ADAM, .lr = 0.001f, .adam = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f}}},
    [GW_RULE_SVRG] = {"svrg", 0, {.rule = GW_RULE_SVRG, .lr = 0.01f}},
};

/* Lists the options of a rule, in the order of its text. Returns how many there are. */
static uint32_t options_of(struct gw_optimizer *o, struct option out[MOST_OPTIONS])
{
    uint32_t n = 0;
    out[n++] = (struct option){"lr", &o->lr, 0, INFINITY};
    out[n++] = (struct option){"weight-decay", &o->decay, 0, INFINITY};
    if (o->rule == GW_RULE_MOMENTUM)
        out[n++] = (struct option){"momentum", &o->momentum, 0, 1};
    if (o->rule == GW_RULE_ADAM) {
        out[n++] = (struct option){"beta1", &o->adam.beta1, 0, 1};
        out[n++] = (struct option){"beta2", &o->adam.beta2, 0, 1};
        out[n++] =
            (struct option){"epsilon", &o->adam.epsilon, FLT_MIN, INFINITY}; /* with 0, a gradient of 0 gives 0/0 */
    }
    return n;
}

struct target {
    const char *rule;
    const struct option *options;
};

static gw_status take(void *user, size_t key, const char *value)
{
    const struct target *to = user;
    const struct option *option = &to->options[key];
    double x;
    if (!gw_spec_number(value, 0, DBL_MAX, &x) || (float)x < option->least || !((float)x < option->below))
        return gw_fail(GW_ERR_SPEC, "the optimizer %s: %s=%s is not legal; %s takes a number from %g %s", to->rule,
                       option->name, value, option->name, (double)option->least,
                       isinf(option->below) ? "up that a float holds" : "up and below 1");
    *option->value = (float)x;
    return GW_OK;
}

gw_status gw_optimizer_parse(const char *text, struct gw_optimizer *out)
{
    struct option options[MOST_OPTIONS];
    const size_t name = strcspn(text, ":");
    const struct rule *rule = NULL;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        if (strlen(rules[r].name) == name && strncmp(rules[r].name, text, name) == 0)
            rule = &rules[r];
    if (!rule)
        return gw_fail(GW_ERR_SPEC, "the optimizer \"%.60s%s\" is unknown; right are sgd, momentum, adam and svrg",
                       text, strlen(text) > 60 ? "..." : "");
    *out = rule->defaults;
    const char *keys[MOST_OPTIONS];
    const uint32_t n = options_of(out, options);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = options[i].name;
    char what[32];
    snprintf(what, sizeof what, "the optimizer %s", rule->name);
    struct target to = {rule->name, options};
    const struct gw_spec spec = {.what = what, .keys = keys, .n_keys = n, .take = take, .user = &to};
    return gw_spec_parse(&spec, text[name] ? text + name + 1 : NULL);
}

void gw_optimizer_text(const struct gw_optimizer *optimizer, char text[GW_OPTIMIZER_TEXT])
{
    struct gw_optimizer copy = *optimizer;
    struct option options[MOST_OPTIONS];
    uint32_t n = options_of(&copy, options);
    struct gw_plain before = gw_plain_enter();
    snprintf(text, GW_OPTIMIZER_TEXT, "%s:", rules[copy.rule].name);
    for (uint32_t i = 0; i < n; i++) /* 9 digits tell one float from every other */
        gw_append(text, GW_OPTIMIZER_TEXT, "%s%s=%.9g", i ? "," : "", options[i].name, (double)*options[i].value);
    gw_plain_leave(before);
}

uint32_t gw_optimizer_moments(const struct gw_optimizer *optimizer)
{
    return rules[optimizer->rule].moments;
}
