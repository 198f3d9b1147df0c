/* Lists the built-in networks for the help of commands that take one. */
#include "tool.h"
#include "base/append.h"
#include <stdio.h>

void tool_describe_networks(char *out, size_t capacity)
{
    const gw_network_info *network;
    gw_network_totals totals;
    for (size_t i = 0; (network = gw_network_list(i)); i++) {
        if (gw_network_sum(network, &totals) < 0)
            continue;
        gw_append(out, capacity, "%s%s (%.3g)", i ? ", " : "", network->name, 1e-6 * (double)totals.n_params);
    }
}
