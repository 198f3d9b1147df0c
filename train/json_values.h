/* JSON of values that JSON does not have. The caller drops it. NULL: no memory. */
#ifndef GW_TRAIN_JSON_VALUES_H
#define GW_TRAIN_JSON_VALUES_H

#include "base/quote.h"

#include <jansson.h>
#include <math.h>

/* A number, or null if it is not finite: JSON has no NAN and no infinity. */
static inline json_t *gw_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A text from outside, such as a path. Bytes that are not UTF-8 become \xNN, because JSON has none. NULL: null. */
static inline json_t *gw_json_text(const char *text)
{
    char shown[4 * 4096];
    json_t *json = text ? json_string(text) : json_null();
    if (json)
        return json;
    gw_show(text, "", shown, sizeof shown);
    return json_string(shown);
}

#endif
