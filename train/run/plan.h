/* Reads --plan: which tensors of a network travel together. */
#ifndef GW_TRAIN_PLAN_H
#define GW_TRAIN_PLAN_H

#include "net/network.h"

/* `plan`: none (a group for each layer), single (one group), fixed:BYTES (a group ends with the tensor that brings it
 * to so many bytes of float32, last layer first), or a file that `gradwire plan --json` wrote for this network; exact
 * and paper (live_plan.h) begin as none. group_of has room for all tensors. Errors: GW_ERR_ARGUMENT (no such plan, or
 * the file's groups are not of this network's tensors), GW_ERR_SYSTEM (the file cannot be read). */
gw_status gw_plan_read(const struct gw_network *network, const char *plan, uint32_t *group_of);

#endif
