/* Reads the text of a learning rate schedule, and computes the rate of a step. */
#include "run/schedule.h"
#include "base/numbers.h"

#include <math.h>
#include <string.h>

static gw_status wrong(const char *text)
{
    return gw_fail(
        GW_ERR_ARGUMENT,
        "the schedule \"%s\" is unknown; right are const, poly:P with P above 0 (poly:0.5), "
        "step:E1,E2,... with ascending epochs (step:80,120), and inverse:T0 with T0 above 0, in steps (inverse:1000)",
        text);
}

/* Reads the number after the colon. It must be above 0. */
static gw_status parse_number(const char *text, double *value)
{
    return gw_parse_decimal(strchr(text, ':') + 1, value) && *value > 0 ? GW_OK : wrong(text);
}

gw_status gw_schedule_parse(const char *text, struct gw_schedule *schedule)
{
    *schedule = (struct gw_schedule){.kind = GW_SCHEDULE_CONST};
    if (strcmp(text, "const") == 0)
        return GW_OK;
    if (strncmp(text, "poly:", 5) == 0) {
        schedule->kind = GW_SCHEDULE_POLY;
        return parse_number(text, &schedule->power);
    }
    if (strncmp(text, "inverse:", 8) == 0) {
        schedule->kind = GW_SCHEDULE_INVERSE;
        return parse_number(text, &schedule->half_step);
    }
    if (strncmp(text, "step:", 5) != 0)
        return wrong(text);
    schedule->kind = GW_SCHEDULE_STEP;
    const char *at = text + 4;
    do {
        uint64_t epoch;
        const uint32_t n = schedule->n_drops;
        at++;
        if (!gw_read_whole(&at, UINT32_MAX, &epoch) || n == GW_SCHEDULE_MAX_DROPS ||
            (n > 0 && epoch <= schedule->drops[n - 1]))
            return wrong(text);
        schedule->drops[schedule->n_drops++] = (uint32_t)epoch;
    } while (*at == ',');
    return *at ? wrong(text) : GW_OK;
}

double gw_schedule_rate(const struct gw_schedule *schedule, double base, uint64_t t, uint64_t n_steps,
                        uint64_t steps_per_epoch)
{
    switch (schedule->kind) {
    case GW_SCHEDULE_POLY:
        return base * pow(1 - (double)t / (double)n_steps, schedule->power);
    case GW_SCHEDULE_STEP:
        for (uint32_t i = 0; i < schedule->n_drops; i++)
            if (t / steps_per_epoch >= schedule->drops[i])
                base /= 10;
        return base;
    case GW_SCHEDULE_INVERSE:
        return base / (1 + (double)t / schedule->half_step);
    case GW_SCHEDULE_CONST:
        break;
    }
    return base;
}
