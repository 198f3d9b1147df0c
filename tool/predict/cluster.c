/* Reads the description of a cluster: a built-in one by its name, or a JSON file. */
#include "base/lines.h"
#include "base/nearest.h"
#include "base/quote.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_FILE = 64 << 10 };

/* The fields are numbers above 0. A latency may be 0, too. */
static const char *const fields[] = {"gpus_per_machine", "gpu_bandwidth", "cpu_bandwidth", "network_latency_s",
                                     "network_bandwidth"};
enum { GPUS_PER_MACHINE, GPU_BANDWIDTH, CPU_BANDWIDTH, NETWORK_LATENCY, NETWORK_BANDWIDTH, N_FIELDS };

static int check_names(const char *path, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) {
        bool known = false;
        for (int i = 0; i < N_FIELDS; i++)
            known |= strcmp(key, fields[i]) == 0;
        if (known)
            continue;
        const char *nearest = gw_nearest(key, fields, N_FIELDS, NULL);
        if (nearest)
            return tool_fail("%s: there is no field '%s'; did you mean '%s'?", path, gw_quote(key).text, nearest);
        return tool_fail("%s: there is no field '%s'; the fields are %s, %s, %s, %s and %s", path, gw_quote(key).text,
                         fields[0], fields[1], fields[2], fields[3], fields[4]);
    }
    return TOOL_DONE;
}

static int read_field(const char *path, const json_t *object, int field, double *out)
{
    const json_t *value = json_object_get(object, fields[field]);
    if (!value)
        return tool_fail("%s: the field '%s' is missing", path, fields[field]);
    if (!json_is_number(value))
        return tool_fail("%s: '%s' must be a number", path, fields[field]);
    *out = json_number_value(value);
    if (*out < 0 || (*out == 0 && field != NETWORK_LATENCY))
        return tool_fail("%s: '%s' is %g, and must be %s", path, fields[field], *out,
                         field == NETWORK_LATENCY ? "0 or more" : "above 0");
    if (field == GPUS_PER_MACHINE && (!json_is_integer(value) || *out > GW_MAX_GPUS_PER_MACHINE))
        return tool_fail("%s: '%s' is %g, and must be a whole number from 1 to %u", path, fields[field], *out,
                         GW_MAX_GPUS_PER_MACHINE);
    return TOOL_DONE;
}

static int read_object(const char *path, json_t *object, gw_cluster *out)
{
    double values[N_FIELDS];
    if (!json_is_object(object))
        return tool_fail("%s: a cluster is one JSON object with the fields %s, %s, %s, %s and %s", path, fields[0],
                         fields[1], fields[2], fields[3], fields[4]);
    int status = check_names(path, object);
    for (int i = 0; i < N_FIELDS && status == TOOL_DONE; i++)
        status = read_field(path, object, i, &values[i]);
    if (status != TOOL_DONE)
        return status;
    *out = (gw_cluster){.gpus_per_machine = (uint32_t)values[GPUS_PER_MACHINE],
                        .gpu_bandwidth = values[GPU_BANDWIDTH],
                        .cpu_bandwidth = values[CPU_BANDWIDTH],
                        .network_latency_s = values[NETWORK_LATENCY],
                        .network_bandwidth = values[NETWORK_BANDWIDTH]};
    return TOOL_DONE;
}

static int read_file(const char *path, gw_cluster *out)
{
    uint64_t n_bytes;
    int fd = tool_open_file(path, &n_bytes);
    if (fd < 0)
        return TOOL_FAILED;
    int status = TOOL_DONE;
    char *bytes = NULL;
    if (n_bytes > LONGEST_FILE)
        status = tool_fail("%s has %llu bytes; a cluster's description has at most %d", path,
                           (unsigned long long)n_bytes, LONGEST_FILE);
    else if (!(bytes = tool_alloc(n_bytes, 1)) || tool_read_exact(fd, path, bytes, n_bytes) != 0)
        status = TOOL_FAILED;
    close(fd);
    if (status == TOOL_DONE) {
        json_error_t error;
        const size_t mark = gw_lines_mark(bytes, n_bytes);
        json_t *object = json_loadb(bytes + mark, n_bytes - mark, JSON_REJECT_DUPLICATES, &error);
        status = object ? read_object(path, object, out)
                        : tool_fail("%s, line %d: this is no JSON: %s", path, error.line, error.text);
        json_decref(object);
    }
    free(bytes);
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
