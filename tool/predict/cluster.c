/* Reads the description of a cluster: a built-in one by its name, or a JSON file. */
#include "json_file.h"

#include <string.h>
#include <unistd.h>

enum { LONGEST_FILE = 64 << 10 };

static int read_file(const char *path, gw_cluster *out)
{
    double gpus = 0;
    uint64_t n_gpus = 0;
    *out = (gw_cluster){0};
    const tool_field fields[] = {{"gpus_per_machine", &gpus, NULL, false},
                                 {"gpu_bandwidth", &out->gpu_bandwidth, NULL, false},
                                 {"cpu_bandwidth", &out->cpu_bandwidth, NULL, false},
                                 {"network_latency_s", &out->network_latency_s, NULL, false},
                                 {"network_bandwidth", &out->network_bandwidth, NULL, false}};
    json_t *object = tool_read_json(path, "cluster", LONGEST_FILE);
    int status = object ? tool_read_fields(path, object, fields, sizeof fields / sizeof *fields) : TOOL_FAILED;
    json_decref(object);
    if (status == TOOL_DONE)
        status = tool_read_count(path, "gpus_per_machine", gpus, GW_MAX_GPUS_PER_MACHINE, &n_gpus);
    out->gpus_per_machine = (uint32_t)n_gpus;
    if (status == TOOL_DONE && gw_cluster_check(out) < 0)
        status = tool_fail("%s: %s", path, gw_last_error());
    return status;
}

int tool_read_cluster(const char *name, gw_cluster *out, const gw_cluster_info **info)
{
    *info = NULL;
    if (gw_cluster_find(name, info) == GW_OK) {
        *out = (*info)->cluster;
        return TOOL_DONE;
    }
    if (access(name, F_OK) == 0 || strchr(name, '/') || tool_has_suffix(name, ".json"))
        return read_file(name, out);
    return tool_wrong_use("%s; or name a file", gw_last_error());
}
