/* Reads codec specifications: NAME[:key=value,...]. */
#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "codec/codec.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gw_status read_value(const char *codec, const gw_codec_option *option, const struct gw_option_rule *rule,
                            const char *value, void *options)
{
    char *at = (char *)options + rule->offset;
    char *end = NULL;
    switch (rule->kind) {
    case GW_OPTION_NUMBER: {
        double x = strtod(value, &end);
        if (end == value || *end || !isfinite(x) || x < rule->min || x > rule->max)
            break;
        memcpy(at, &x, sizeof x);
        return GW_OK;
    }
    case GW_OPTION_COUNT: {
        unsigned long long x = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || (double)x < rule->min || (double)x > rule->max)
            break;
        uint64_t count = x;
        memcpy(at, &count, sizeof count);
        return GW_OK;
    }
    case GW_OPTION_WORD:
        for (int i = 0; rule->words[i]; i++)
            if (strcmp(rule->words[i], value) == 0) {
                memcpy(at, &i, sizeof i);
                return GW_OK;
            }
        break;
    case GW_OPTION_TEXT:
        if (strlen(value) >= GW_OPTION_TEXT_BYTES)
            break;
        strcpy(at, value);
        return GW_OK;
    }
    return gw_fail(GW_ERR_SPEC, "%s: %s=%s is not legal; %s takes %s (default %s)", codec, option->key, value,
                   option->key, option->values, *option->default_value ? option->default_value : "none");
}

gw_status gw_options_parse(const struct gw_codec_record *record, const char *text, void *options)
{
    const gw_codec_info *info = &record->info;
    for (size_t i = 0; i < info->n_options; i++)
        GW_TRY(read_value(info->name, &info->options[i], &record->rules[i], info->options[i].default_value, options));
    uint64_t given = 0;
    for (bool more = text && *text; more;) {
        char item[32 + GW_OPTION_TEXT_BYTES];
        size_t length = strcspn(text, ",");
        more = text[length] == ',';
        if (length == 0)
            return gw_fail(GW_ERR_SPEC,
                           "%s: an option is empty; write key=value,key=value, with commas between options only",
                           info->name);
        if (length >= sizeof item)
            return gw_fail(GW_ERR_SPEC, "%s: an option of %zu characters is too long", info->name, length);
        memcpy(item, text, length);
        item[length] = 0;
        text += length + more;
        char *equals = strchr(item, '=');
        if (!equals)
            return gw_fail(GW_ERR_SPEC, "%s: option '%s' has no value; write key=value", info->name, item);
        *equals = 0;
        size_t i = 0;
        while (i < info->n_options && strcmp(info->options[i].key, item) != 0)
            i++;
        if (i == info->n_options) {
            char keys[256] = "";
            for (size_t j = 0, used = 0; j < info->n_options; j++)
                used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", j ? ", " : "", info->options[j].key);
            return gw_fail(GW_ERR_SPEC, "%s has no option '%s'; it has %s", info->name, item, *keys ? keys : "none");
        }
        if (given >> i & 1)
            return gw_fail(GW_ERR_SPEC, "%s: option '%s' is given twice", info->name, item);
        given |= 1ull << i;
        GW_TRY(read_value(info->name, &info->options[i], &record->rules[i], equals + 1, options));
    }
    return record->check_options ? record->check_options(options) : GW_OK;
}

size_t gw_options_print(const struct gw_codec_record *record, const void *options, char *dst, size_t capacity)
{
    size_t used = 0;
#define PRINT(...) used += (size_t)snprintf(dst ? dst + used : NULL, dst ? capacity - used : 0, __VA_ARGS__)
    PRINT("%s", record->info.name);
    for (size_t i = 0; i < record->info.n_options; i++) {
        const struct gw_option_rule *rule = &record->rules[i];
        const char *at = (const char *)options + rule->offset;
        PRINT("%c%s=", i ? ',' : ':', record->info.options[i].key);
        switch (rule->kind) {
        case GW_OPTION_NUMBER: {
            double x;
            memcpy(&x, at, sizeof x);
            PRINT("%.17g", x);
            break;
        }
        case GW_OPTION_COUNT: {
            uint64_t x;
            memcpy(&x, at, sizeof x);
            PRINT("%llu", (unsigned long long)x);
            break;
        }
        case GW_OPTION_WORD: {
            int x;
            memcpy(&x, at, sizeof x);
            PRINT("%s", rule->words[x]);
            break;
        }
        case GW_OPTION_TEXT:
            PRINT("%s", at);
            break;
        }
    }
#undef PRINT
    return used;
}

/* What papers and other programs call them. */
static const struct gw_synonym synonyms[] = {
    {"terngrad", "ternary"}, {"tern", "ternary"}, {"gsparse", "gspar"},   {"dlgs", "topk"},     {"lags", "topk"},
    {"dgc", "topk"},         {"top-k", "topk"},   {"randomk", "uniform"}, {"randk", "uniform"}, {"random", "uniform"},
    {"bfloat16", "bf16"},    {"float16", "f16"},  {"fp16", "f16"},        {"half", "f16"},      {"float32", "none"},
    {"fp32", "none"},        {"f32", "none"},     {"float", "none"},      {"dense", "none"},    {NULL, NULL}};

static gw_status no_such_codec(const char *spec, size_t length)
{
    enum { MOST = 40 };
    char names[160] = "", word[MOST + 1];
    const char *list[16];
    size_t n = 0;
    for (size_t used = 0; gw_codec_records[n] && n < sizeof list / sizeof *list; n++) {
        list[n] = gw_codec_records[n]->info.name;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", n ? ", " : "", list[n]);
    }
    size_t shown = length < MOST ? length : MOST;
    for (size_t i = 0; i < shown; i++) /* names are lower case, and papers' are not */
        word[i] = (char)(spec[i] >= 'A' && spec[i] <= 'Z' ? spec[i] - 'A' + 'a' : spec[i]);
    word[shown] = 0;
    const char *nearest = gw_nearest(word, list, n, synonyms);
    return gw_fail(GW_ERR_SPEC, "there is no codec '%.*s'; there are %s%s%s%s", (int)shown, spec, names,
                   nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

gw_status gw_codec_parse(gw_context *context, const char *spec, gw_codec **out)
{
    if (!spec || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_codec_parse: spec or out is NULL");
    *out = NULL;
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
    /* Numbers have a decimal point whatever the host's locale writes. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), host = uselocale(plain);
    gw_status status = codec->options
                           ? gw_options_parse(record, spec[length] ? spec + length + 1 : NULL, codec->options)
                           : GW_ERR_MEMORY;
    if (status == GW_OK) {
        size_t bytes = gw_options_print(record, codec->options, NULL, 0) + 1;
        codec->canonical = gw_alloc(context, bytes, 1);
        if (codec->canonical)
            gw_options_print(record, codec->options, codec->canonical, bytes);
        else
            status = GW_ERR_MEMORY;
    }
    uselocale(host);
    freelocale(plain);
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

const char *gw_codec_name(const gw_codec *codec)
{
    return codec->record->info.name;
}

const char *gw_codec_canonical(const gw_codec *codec)
{
    return codec->canonical;
}

bool gw_codec_is_global(const gw_codec *codec)
{
    return codec->record->is_global && codec->record->is_global(codec->options);
}

/* The n characters of `pattern` against the whole name. Only the last star met can still take more: what stands before
 * it has found its earliest place already. */
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

bool gw_pattern_matches(const char *pattern, const gw_tensor *tensor)
{
    while (*pattern) {
        size_t n = strcspn(pattern, "+");
        if ((n == 4 && strncmp(pattern, "last", 4) == 0 && tensor->last_layer) || glob(pattern, n, tensor->name))
            return true;
        pattern += n + (pattern[n] == '+');
    }
    return false;
}
