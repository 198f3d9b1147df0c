/* A worker that meets the others at parameter servers only (--link servers). It joins a run that may be under way and
 * lets in those who come later. If it was left out, because its connection was lost for too long or it was stopped, it
 * joins again.
 *
 * Who joins gets parameters, moments and moving average from a worker that takes part, through the servers. */
#ifndef GW_TRAIN_ELASTIC_H
#define GW_TRAIN_ELASTIC_H

#include "run/team.h"

/* Connects, joins, and takes over what the others have. *t: its first step. The worker's exchange is made here. */
gw_status gw_elastic_join(struct gw_worker *worker, uint64_t *t);

/* Before step t: lets in those who wait, where this worker was asked to. */
gw_status gw_elastic_admit(struct gw_worker *worker, uint64_t t);

/* Whether it makes sense to join again after that error; says so. */
bool gw_elastic_goes_on(struct gw_worker *worker, gw_status status);

/* After the last step, where workers do not make it together: waits until all that take part have made it. */
gw_status gw_elastic_meet(struct gw_worker *worker);

/* After that: whether all workers that take part have the same hash of parameters. */
gw_status gw_elastic_compare(struct gw_worker *worker, bool *identical);

/* Leaves; gw_elastic_join can follow. */
void gw_elastic_leave(struct gw_worker *worker);

#endif
