/* How busy this machine's processors are. */
#ifndef GW_PROBE_BUSY_H
#define GW_PROBE_BUSY_H

/* Ticks of all processors since the machine began: those in which they worked, and all. */
struct gw_busy {
    double worked, all;
};

/* Both 0 if the system does not say. Ticks are hundredths of a second, so only long times can be told. */
struct gw_busy gw_busy_now(void);

/* Adds what passed from begin to end. */
void gw_busy_add(struct gw_busy *sum, const struct gw_busy *begin, const struct gw_busy *end);

#endif
