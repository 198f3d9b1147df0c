/* Reads from the system how busy the processors are, with all processes of the machine. */
#include "probe/busy.h"

#include <stdio.h>

struct gw_busy gw_busy_now(void)
{
    /* user, nice, system, idle, waiting for disks (which is idle, too), interrupts, soft interrupts, stolen by another
     * machine */
    double ticks[8];
    struct gw_busy now = {0, 0};
    FILE *file = fopen("/proc/stat", "r");
    if (!file)
        return now;
    if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
               &ticks[5], &ticks[6], &ticks[7]) == 8) {
        for (int i = 0; i < 8; i++)
            now.all += ticks[i];
        now.worked = now.all - ticks[3] - ticks[4];
    }
    fclose(file);
    return now;
}

void gw_busy_add(struct gw_busy *sum, const struct gw_busy *begin, const struct gw_busy *end)
{
    sum->worked += end->worked - begin->worked;
    sum->all += end->all - begin->all;
}
