/* Lists the built-in networks for the help of commands that take one. */
#include "tool.h"
#include "base/append.h"
#include <stdio.h>

void tool_describe_networks(char *out, size_t capacity)
{
    const gw_network_info *network;
    for (size_t i = 0; (network = gw_network_list(i)); i++)
        gw_append(out, capacity, "%s%s (%.3g)", i ? ", " : "", network->name,
                  1e-6 * (double)gw_network_sum(network).n_params);
}
