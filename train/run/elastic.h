/* A worker that meets the others only at parameter servers (--link servers). It joins a run that may be under way, and
 * admits workers that come later, which get parameters, moments and moving average from it through the servers. If it
 * was left out, because its connection was lost or its process was stopped for too long, it joins again. */
#ifndef GW_TRAIN_ELASTIC_H
#define GW_TRAIN_ELASTIC_H

#include "run/team.h"

/* Connects, joins, and gets the parameters of the others. *t: its first step. The worker's exchange is made here. */
gw_status gw_elastic_join(struct gw_worker *worker, uint64_t *t);

/* Called before step t: if the server has asked this worker, it admits those that wait. */
gw_status gw_elastic_admit(struct gw_worker *worker, uint64_t t);

/* True if it makes sense to join again after that error. Then it also tells the user. */
bool gw_elastic_goes_on(struct gw_worker *worker, gw_status status);

/* Called after the last step, if workers do not make it together: waits until all that take part have made it. */
gw_status gw_elastic_meet(struct gw_worker *worker);

/* Called after that: finds out whether all workers that take part have the same hash of parameters. */
gw_status gw_elastic_compare(struct gw_worker *worker, bool *identical);

/* Leaves the run. gw_elastic_join may follow. */
void gw_elastic_leave(struct gw_worker *worker);

#endif
