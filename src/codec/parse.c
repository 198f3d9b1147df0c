/* Reads codec specifications: NAME[:key=value,...]. */
#include "base/append.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include "base/spec.h"
#include "codec/codec.h"
#include "codec/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct target {
    const struct gw_codec_record *record;
    void *options;
};

static gw_status read_value(void *user, size_t i, const char *value)
{
    const struct target *to = user;
    const gw_codec_option *option = &to->record->info.options[i];
    const struct gw_option_rule *rule = &to->record->rules[i];
    char *at = (char *)to->options + rule->offset;
    switch (rule->kind) {
    case GW_OPTION_NUMBER: {
        double x = INFINITY;
        if (!(rule->words && strcmp(rule->words[0], value) == 0) && !gw_spec_number(value, rule->min, rule->max, &x))
            break;
        memcpy(at, &x, sizeof x);
        return GW_OK;
    }
    case GW_OPTION_COUNT: {
        uint64_t count;
        if (!gw_spec_count(value, rule->min, rule->max, &count))
            break;
        memcpy(at, &count, sizeof count);
        return GW_OK;
    }
    case GW_OPTION_WORD:
        for (int w = 0; rule->words[w]; w++)
            if (strcmp(rule->words[w], value) == 0) {
                memcpy(at, &w, sizeof w);
                return GW_OK;
            }
        break;
    case GW_OPTION_TEXT:
        if (strlen(value) >= GW_OPTION_TEXT_BYTES)
            return gw_fail(GW_ERR_SPEC, "%s: %s=%.40s... has a text of %zu bytes; at most %d are possible",
                           to->record->info.name, option->key, value, strlen(value), GW_OPTION_TEXT_BYTES - 1);
        strcpy(at, value);
        return GW_OK;
    }
    return gw_fail(GW_ERR_SPEC, "%s: %s=%s is not legal; %s takes %s (default %s)", to->record->info.name, option->key,
                   value, option->key, option->values, *option->default_value ? option->default_value : "none");
}

/* NULL: the codec has no momentum=. */
static const struct gw_momentum_options *momentum_of(const struct gw_codec_record *record, const void *options)
{
    return record->momentum_at ? (const void *)((const char *)options + record->momentum_at) : NULL;
}

/* Fills record->options_bytes bytes with defaults, then with `text` ("k=v,k=v" or NULL). */
static gw_status parse_options(const struct gw_codec_record *record, const char *text, void *options)
{
    enum { MOST_OPTIONS = 64 };
    const gw_codec_info *info = &record->info;
    const char *keys[MOST_OPTIONS];
    struct target to = {record, options};
    for (size_t i = 0; i < info->n_options; i++) {
        keys[i] = info->options[i].key;
        GW_TRY(read_value(&to, i, info->options[i].default_value));
    }
    const struct gw_spec spec = {
        .what = info->name, .keys = keys, .n_keys = info->n_options, .take = read_value, .user = &to};
    GW_TRY(gw_spec_parse(&spec, text));
    const struct gw_momentum_options *momentum = momentum_of(record, options);
    if (momentum && momentum->output != GW_OUTPUT_GRADIENT && !(momentum->factor > 0))
        return gw_fail(GW_ERR_SPEC, "%s: output= says what momentum= gives back; without momentum= leave it out",
                       info->name);
    return record->check_options ? record->check_options(options) : GW_OK;
}

/* No codec has two options that are texts. */
#define CANONICAL_BYTES (2 * GW_OPTION_TEXT_BYTES)

/* Writes "name:key=value,..." with every option. */
static void print_options(const struct gw_codec_record *record, const void *options, char text[CANONICAL_BYTES])
{
    snprintf(text, CANONICAL_BYTES, "%s", record->info.name);
    for (size_t i = 0; i < record->info.n_options; i++) {
        const struct gw_option_rule *rule = &record->rules[i];
        const char *at = (const char *)options + rule->offset;
        double number;
        uint64_t count;
        int word;
        gw_append(text, CANONICAL_BYTES, "%c%s=", i ? ',' : ':', record->info.options[i].key);
        switch (rule->kind) {
        case GW_OPTION_NUMBER:
            memcpy(&number, at, sizeof number);
            gw_append(text, CANONICAL_BYTES, "%s", isinf(number) ? rule->words[0] : gw_decimal_of(number).text);
            break;
        case GW_OPTION_COUNT:
            memcpy(&count, at, sizeof count);
            gw_append(text, CANONICAL_BYTES, "%llu", (unsigned long long)count);
            break;
        case GW_OPTION_WORD:
            memcpy(&word, at, sizeof word);
            gw_append(text, CANONICAL_BYTES, "%s", rule->words[word]);
            break;
        case GW_OPTION_TEXT:
            gw_append(text, CANONICAL_BYTES, "%s", at);
            break;
        }
    }
}

/* Names that papers and other programs have for codecs. */
static const struct gw_synonym synonyms[] = {
    {"terngrad", "ternary"}, {"tern", "ternary"}, {"gsparse", "gspar"},   {"dlgs", "topk"},     {"lags", "topk"},
    {"dgc", "topk"},         {"top-k", "topk"},   {"randomk", "uniform"}, {"randk", "uniform"}, {"random", "uniform"},
    {"bfloat16", "bf16"},    {"float16", "f16"},  {"fp16", "f16"},        {"half", "f16"},      {"float32", "none"},
    {"fp32", "none"},        {"f32", "none"},     {"float", "none"},      {"dense", "none"},    {NULL, NULL}};

static gw_status no_such_codec(const char *spec, size_t length)
{
    enum { MOST = 40 };
    char names[256] = "", word[MOST + 1];
    const char *list[16];
    size_t n = 0;
    for (; gw_codec_records[n] && n < sizeof list / sizeof *list; n++) {
        list[n] = gw_codec_records[n]->info.name;
        gw_append(names, sizeof names, "%s%s", n ? ", " : "", list[n]);
    }
    size_t shown = length < MOST ? length : MOST;
    for (size_t i = 0; i < shown; i++) /* names are in lower case; papers write some of them in upper case */
        word[i] = (char)(spec[i] >= 'A' && spec[i] <= 'Z' ? spec[i] - 'A' + 'a' : spec[i]);
    word[shown] = 0;
    const char *nearest = gw_nearest(word, list, n, synonyms);
    return gw_fail(GW_ERR_SPEC, "there is no codec '%.*s'; there are %s%s%s%s", (int)shown, spec, names,
                   nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

gw_status gw_codec_parse(gw_context *context, const char *spec, gw_codec **out)
{
    if (out)
        *out = NULL;
    if (!spec || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_codec_parse: spec or out is NULL");
    size_t length = strcspn(spec, ":");
    const struct gw_codec_record *record = NULL;
    for (size_t i = 0; gw_codec_records[i] && !record; i++)
        if (strlen(gw_codec_records[i]->info.name) == length &&
            strncmp(gw_codec_records[i]->info.name, spec, length) == 0)
            record = gw_codec_records[i];
    if (!record)
        return no_such_codec(spec, length);
    gw_codec *codec = gw_calloc(context, 1, sizeof *codec);
    if (!codec)
        return GW_ERR_MEMORY;
    codec->context = context;
    codec->record = record;
    codec->options = gw_calloc(context, 1, record->options_bytes);
    struct gw_plain before = gw_plain_enter();
    gw_status status =
        codec->options ? parse_options(record, spec[length] ? spec + length + 1 : NULL, codec->options) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        char canonical[CANONICAL_BYTES];
        print_options(record, codec->options, canonical);
        codec->canonical = gw_strdup(context, canonical);
        status = codec->canonical ? GW_OK : GW_ERR_MEMORY;
    }
    gw_plain_leave(before);
    if (status < 0) {
        gw_codec_destroy(codec);
        return status;
    }
    *out = codec;
    return GW_OK;
}

void gw_codec_destroy(gw_codec *codec)
{
    if (!codec)
        return;
    gw_free(codec->context, codec->canonical);
    gw_free(codec->context, codec->options);
    gw_free(codec->context, codec);
}

gw_codec_traits gw_codec_traits_of(const gw_codec *codec)
{
    if (!codec)
        return (gw_codec_traits){.name = NULL};
    const struct gw_codec_record *record = codec->record;
    const struct gw_momentum_options *momentum = momentum_of(record, codec->options);
    const bool may_keep = record->keeps_state && record->keeps_state(codec->options);
    return (gw_codec_traits){.name = record->info.name,
                             .canonical = codec->canonical,
                             .lossy = record->info.lossy,
                             .unbiased = record->info.unbiased && !may_keep, /* a residual is a bias of one step */
                             .global = record->is_global && record->is_global(codec->options),
                             .one_group = record->is_one_group && record->is_one_group(codec->options),
                             .momentum = momentum ? momentum->factor : 0,
                             .velocity = momentum && momentum->output == GW_OUTPUT_VELOCITY};
}

gw_status gw_codec_lost(const gw_codec *codec, double *points)
{
    *points = NAN;
    for (const gw_codec_loss *loss = codec->record->info.losses; loss && loss->spec; loss++) {
        gw_codec *trained;
        GW_TRY(gw_codec_parse(codec->context, loss->spec, &trained));
        if (strcmp(trained->canonical, codec->canonical) == 0)
            *points = fmax(*points, loss->points);
        gw_codec_destroy(trained);
    }
    return GW_OK;
}

/* Compares the n characters of `pattern` with the whole name. If they differ somewhere, only the last star can take
 * more characters. What stands before that star has already found its first place. */
static bool glob(const char *pattern, size_t n, const char *name)
{
    const char *end = pattern + n, *after_star = NULL, *taken = name;
    for (;;) {
        if (pattern < end && *pattern == '*') {
            after_star = ++pattern;
            taken = name;
        } else if (pattern < end && *name && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (pattern == end && !*name) {
            return true;
        } else if (after_star && *taken) {
            pattern = after_star;
            name = ++taken;
        } else {
            return false;
        }
    }
}

static bool fits(const char *pattern, size_t n, const gw_tensor *tensor)
{
    return (n == 4 && strncmp(pattern, "last", 4) == 0 && tensor->last_layer) ||
           glob(pattern, n, tensor->name ? tensor->name : "");
}

bool gw_pattern_matches(const char *pattern, const gw_tensor *tensor)
{
    while (*pattern) {
        size_t n = strcspn(pattern, "+");
        if (fits(pattern, n, tensor))
            return true;
        pattern += n + (pattern[n] == '+');
    }
    return false;
}

gw_status gw_codec_check_skip(const gw_codec *codec, const gw_tensor *tensors, uint32_t n_tensors)
{
    if (!codec || (n_tensors && !tensors))
        return gw_fail(GW_ERR_ARGUMENT, "gw_codec_check_skip: codec or tensors is NULL");
    const char *pattern = codec->record->skip_at ? (const char *)codec->options + codec->record->skip_at : "";
    for (size_t n; *pattern; pattern += n + (pattern[n] == '+')) {
        n = strcspn(pattern, "+");
        uint32_t t = 0;
        while (t < n_tensors && n > 0 && !fits(pattern, n, &tensors[t]))
            t++;
        if (n == 0 || t < n_tensors)
            continue;
        char names[200] = "";
        for (t = 0; t < n_tensors; t++)
            gw_append(names, sizeof names, "%s%s", t ? ", " : "", tensors[t].name ? tensors[t].name : "");
        return gw_fail(GW_ERR_SPEC, "%s: skip=%.*s fits no name here (%s); several names are joined by +",
                       codec->record->info.name, (int)n, pattern, names);
    }
    return GW_OK;
}
