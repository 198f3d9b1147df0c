/* Measures how busy this machine's processors are. */
#ifndef GW_PROBE_BUSY_H
#define GW_PROBE_BUSY_H

/* Ticks of all processors since the machine began: those in which they worked, and all. */
struct gw_busy {
    double worked, all;
};

/* Reads the ticks. Both are 0 if the system does not tell them. A tick is a hundredth of a second, so only long times
 * can be measured. */
struct gw_busy gw_busy_now(void);

/* Adds what passed from begin to end. */
void gw_busy_add(struct gw_busy *sum, const struct gw_busy *begin, const struct gw_busy *end);

#endif
