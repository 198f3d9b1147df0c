/* Reads the options of a specification. */
#include "base/spec.h"
#include "base/append.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/numbers.h"

#include <locale.h>
#include <string.h>

enum { MOST_CHARS = 2048 + 64 }; /* of an option: a key, and a text of names */

struct gw_plain gw_plain_enter(void)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (struct gw_plain){plain, uselocale(plain)};
}

void gw_plain_leave(struct gw_plain before)
{
    uselocale(before.host);
    if (before.plain)
        freelocale(before.plain);
}

bool gw_spec_number(const char *text, double min, double max, double *out)
{
    double x;
    if (!gw_parse_decimal(text, &x) || x < min || x > max)
        return false;
    *out = x + 0.0; /* -0 and 0 are one number, and must have one text */
    return true;
}

bool gw_spec_count(const char *text, double min, double max, uint64_t *out)
{
    uint64_t x;
    if (!gw_parse_whole(text, UINT64_MAX, &x) || (double)x < min || (double)x > max)
        return false;
    *out = x;
    return true;
}

static gw_status unknown(const struct gw_spec *spec, const char *key)
{
    char keys[256] = "";
    for (size_t k = 0; k < spec->n_keys; k++)
        gw_append(keys, sizeof keys, "%s%s", k ? ", " : "", spec->keys[k]);
    const char *nearest = gw_nearest(key, spec->keys, spec->n_keys, NULL);
    return gw_fail(GW_ERR_SPEC, "%s has no option '%s'; it has %s%s%s%s", spec->what, key, *keys ? keys : "none",
                   nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* Reads one option. `item` is key, or key=value. */
static gw_status read_option(const struct gw_spec *spec, char *item, uint64_t *given)
{
    char *equals = strchr(item, '=');
    if (equals)
        *equals = 0;
    else if (!spec->has_words)
        return gw_fail(GW_ERR_SPEC, "%s: option '%s' has no value; write key=value", spec->what, item);
    size_t k = 0;
    while (k < spec->n_keys && strcmp(spec->keys[k], item) != 0)
        k++;
    if (k == spec->n_keys)
        return unknown(spec, item);
    if (*given >> k & 1)
        return gw_fail(GW_ERR_SPEC, "%s: option '%s' is given twice", spec->what, item);
    *given |= 1ull << k;
    return spec->take(spec->user, k, equals ? equals + 1 : NULL);
}

gw_status gw_spec_parse(const struct gw_spec *spec, const char *text)
{
    const char between[] = {spec->between ? spec->between : ',', 0};
    uint64_t given = 0;
    for (bool more = text && *text; more;) {
        char item[MOST_CHARS];
        size_t length = strcspn(text, between);
        more = text[length] != 0;
        if (length == 0)
            return gw_fail(GW_ERR_SPEC,
                           "%s: an option is empty; write key=value%skey=value, with %s between options only",
                           spec->what, between, spec->between ? between : "commas");
        if (length >= sizeof item)
            return gw_fail(GW_ERR_SPEC, "%s: an option of %zu characters is too long; %d are possible", spec->what,
                           length, MOST_CHARS - 1);
        memcpy(item, text, length);
        item[length] = 0;
        text += length + more;
        struct gw_plain before = gw_plain_enter();
        gw_status status = read_option(spec, item, &given);
        gw_plain_leave(before);
        GW_TRY(status);
    }
    return GW_OK;
}
