/* Reads --plan: a method that needs no measurement, or a plan that was made from a profile. */
#include "base/error.h"
#include "base/numbers.h"
#include "base/quote.h"
#include "disk/file.h"
#include "run/live_plan.h"

#include <gradwire/plan.h>
#include <jansson.h>
#include <string.h>

static gw_status by_bytes(const struct gw_network *network, uint64_t bytes, uint32_t *group_of)
{
    gw_profile_layer layers[GW_MAX_TENSORS];
    const gw_profile_codec codec = {.spec = "none"}; /* groups by bytes do not depend on what a codec costs */
    for (uint32_t t = 0; t < network->n_tensors; t++)
        layers[t] = (gw_profile_layer){network->tensors[t].name, network->tensors[t].n_elems, 0};
    const gw_profile profile = {.struct_bytes = sizeof profile,
                                .layers = layers,
                                .n_layers = network->n_tensors,
                                .link = {.members = 1},
                                .codecs = &codec,
                                .n_codecs = 1};
    return gw_plan_merge(NULL, &profile, 0, GW_COMPRESS_BESIDE, GW_MERGE_FIXED, bytes, group_of, NULL, NULL);
}

static gw_status take_groups(const struct gw_network *network, const char *path, const json_t *root, uint32_t *group_of)
{
    const json_t *groups = json_object_get(root, "groups");
    size_t g, i;
    json_t *group, *name;
    if (!json_is_array(groups))
        return gw_fail(GW_ERR_ARGUMENT, "%s has no \"groups\"; a plan is what gradwire plan --json prints", path);
    for (uint32_t t = 0; t < network->n_tensors; t++)
        group_of[t] = UINT32_MAX;
    json_array_foreach (groups, g, group) {
        if (!json_is_array(group) || json_array_size(group) == 0)
            return gw_fail(GW_ERR_ARGUMENT, "%s: group %zu is no list of names, or is empty", path, g);
        json_array_foreach (group, i, name) {
            const char *text = json_string_value(name);
            uint32_t t = text ? 0 : network->n_tensors;
            while (t < network->n_tensors && strcmp(network->tensors[t].name, text) != 0)
                t++;
            if (t == network->n_tensors)
                return gw_fail(GW_ERR_ARGUMENT,
                               "%s: group %zu has \"%s\", which is no tensor of %s; a plan is of one network", path, g,
                               text ? gw_quote(text).text : "?", network->name);
            if (group_of[t] != UINT32_MAX)
                return gw_fail(GW_ERR_ARGUMENT, "%s has %s twice", path, text);
            group_of[t] = (uint32_t)g;
        }
    }
    for (uint32_t t = 0; t < network->n_tensors; t++)
        if (group_of[t] == UINT32_MAX)
            return gw_fail(GW_ERR_ARGUMENT, "%s says nothing of %s; a plan has every tensor of the network", path,
                           network->tensors[t].name);
    return GW_OK;
}

enum { MAX_PLAN_FILE = 1 << 20 }; /* a tensor takes a line or two */

static gw_status from_file(const struct gw_network *network, const char *path, uint32_t *group_of)
{
    json_t *root;
    GW_TRY(gw_file_read_json(path, MAX_PLAN_FILE, "a plan is what gradwire plan --json prints", &root));
    gw_status status = take_groups(network, path, root, group_of);
    json_decref(root);
    return status;
}

gw_status gw_plan_read(const struct gw_network *network, const char *plan, uint32_t *group_of)
{
    uint64_t bytes;
    const bool single = strcmp(plan, "single") == 0;
    if (single || strcmp(plan, "none") == 0 || gw_live_plan_is(plan)) {
        for (uint32_t t = 0; t < network->n_tensors; t++)
            group_of[t] = single ? 0 : network->tensors[t].layer;
        return GW_OK;
    }
    if (strncmp(plan, "fixed:", 6) == 0 && gw_parse_bytes(plan + 6, &bytes) && bytes > 0)
        return by_bytes(network, bytes, group_of);
    if (strchr(plan, '/') || strstr(plan, ".json"))
        return from_file(network, plan, group_of);
    return gw_fail(
        GW_ERR_ARGUMENT,
        "--plan is \"%s\", and must be none (a group for each layer), single (one group), fixed:BYTES, exact "
        "or paper (measured while the run trains), or a file FILE.json that gradwire plan --json wrote",
        plan);
}
