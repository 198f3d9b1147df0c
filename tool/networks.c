/* Lists the built-in networks for the help of commands that take one. */
#include "tool.h"
#include <stdio.h>

void tool_describe_networks(char *out, size_t capacity)
{
    const gw_network_info *network;
    gw_network_totals totals;
    size_t used = 0;
    for (size_t i = 0; (network = gw_network_list(i)) && used < capacity; i++) {
        if (gw_network_sum(network, &totals) < 0)
            continue;
        int n = snprintf(out + used, capacity - used, "%s%s (%.3g)", i ? ", " : "", network->name,
                         1e-6 * (double)totals.n_params);
        used += n > 0 ? (size_t)n : 0;
    }
}
