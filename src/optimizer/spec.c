/* Reads and writes the text that names an update rule with its options. */
#include "base/error.h"
#include "optimizer/optimizer.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPTIONS 5

/* Numbers have a decimal point whatever the host's locale writes. */
struct plain {
    locale_t plain, host;
};

static struct plain plain_enter(void)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (struct plain){plain, uselocale(plain)};
}

static void plain_leave(struct plain before)
{
    uselocale(before.host);
    if (before.plain)
        freelocale(before.plain);
}

/* A number from `least` on, below `below` where that is finite. */
struct option {
    const char *name;
    float *value;
    double least, below;
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

/* The options of a rule, in the order of its text; returns how many. */
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
        out[n++] = (struct option){"epsilon", &o->adam.epsilon, 0, INFINITY};
    }
    return n;
}

/* One "key=value" of `length` characters. */
static gw_status parse_option(const char *text, size_t length, const char *rule, const struct option *options,
                              uint32_t n)
{
    char word[64], *end;
    if (length >= sizeof word)
        return gw_fail(GW_ERR_SPEC, "the optimizer's option \"%.40s...\" is too long", text);
    memcpy(word, text, length);
    word[length] = 0;
    char *value = strchr(word, '=');
    if (value)
        *value++ = 0;
    for (uint32_t i = 0; i < n && value; i++) {
        if (strcmp(word, options[i].name) != 0)
            continue;
        double x = strtod(value, &end);
        float narrow = (float)x;
        if (end == value || *end || !((double)narrow >= options[i].least && (double)narrow < options[i].below))
            return gw_fail(GW_ERR_SPEC, "the optimizer's %s is \"%s\", and must be a number %s", word, value,
                           isinf(options[i].below) ? "from 0 up" : "from 0 up and below 1");
        *options[i].value = narrow;
        return GW_OK;
    }
    char names[96];
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s=", i ? ", " : "", options[i].name);
    return gw_fail(GW_ERR_SPEC, "the optimizer %s has no option \"%s\"; right are %s", rule, word, names);
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
        return gw_fail(GW_ERR_SPEC, "the optimizer \"%.60s\" is unknown; right are sgd, momentum, adam and svrg", text);
    *out = rule->defaults;
    uint32_t n = options_of(out, options);
    if (!text[name])
        return GW_OK;
    for (text += name + 1;; text++) {
        size_t length = strcspn(text, ",");
        struct plain before = plain_enter();
        gw_status status = parse_option(text, length, rule->name, options, n);
        plain_leave(before);
        GW_TRY(status);
        text += length;
        if (!*text)
            return GW_OK;
    }
}

void gw_optimizer_text(const struct gw_optimizer *optimizer, char text[GW_OPTIMIZER_TEXT])
{
    struct gw_optimizer copy = *optimizer;
    struct option options[MOST_OPTIONS];
    uint32_t n = options_of(&copy, options);
    struct plain before = plain_enter();
    size_t used = (size_t)snprintf(text, GW_OPTIMIZER_TEXT, "%s:", rules[copy.rule].name);
    for (uint32_t i = 0; i < n; i++) /* 9 digits say which float it is */
        used += (size_t)snprintf(text + used, GW_OPTIMIZER_TEXT - used, "%s%s=%.9g", i ? "," : "", options[i].name,
                                 (double)*options[i].value);
    plain_leave(before);
}

uint32_t gw_optimizer_moments(const struct gw_optimizer *optimizer)
{
    return rules[optimizer->rule].moments;
}
