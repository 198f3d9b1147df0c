#include "schedule.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gw_status wrong(const char *text)
{
    return gw_fail(GW_ERR_ARGUMENT, "the schedule \"%s\" is unknown; right are const, poly:P with P above 0 (poly:0.5), and "
                   "step:E1,E2,... with ascending epochs (step:80,120)", text);
}

gw_status gw_schedule_parse(const char *text, struct gw_schedule *schedule)
{
    *schedule = (struct gw_schedule){.kind = GW_SCHEDULE_CONST};
    if (strcmp(text, "const") == 0)
        return GW_OK;
    char *end;
    if (strncmp(text, "poly:", 5) == 0) {
        schedule->kind = GW_SCHEDULE_POLY;
        schedule->power = strtod(text + 5, &end);
        return end == text + 5 || *end || !(schedule->power > 0) || !isfinite(schedule->power) ? wrong(text) : GW_OK;
    }
    if (strncmp(text, "step:", 5) != 0)
        return wrong(text);
    schedule->kind = GW_SCHEDULE_STEP;
    const char *at = text + 4;
    do {
        at++;
        unsigned long epoch = strtoul(at, &end, 10);
        uint32_t n = schedule->n_drops;
        if (*at < '0' || *at > '9' || epoch > UINT32_MAX || n == GW_SCHEDULE_MAX_DROPS ||
            (n > 0 && epoch <= schedule->drops[n - 1]))
            return wrong(text);
        schedule->drops[schedule->n_drops++] = (uint32_t)epoch;
        at = end;
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
    case GW_SCHEDULE_CONST:
        break;
    }
    return base;
}
