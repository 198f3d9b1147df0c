/* Reads PROFILE.json, and the names of methods that commands about plans share. */
#include "plan/profile.h"
#include "json_file.h"
#include "profile.h"
#include "base/numbers.h"
#include "base/quote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A profile with as many layers as possible takes a few hundred kilobytes. */
#define MOST_BYTES (64u << 20)

static int read_layer(const char *path, size_t i, const json_t *object, gw_profile_layer *layer)
{
    *layer = (gw_profile_layer){.name = NULL};
    char where[4200];
    double elements = 0;
    const tool_field fields[] = {{"name", NULL, &layer->name, false},
                                 {"elements", &elements, NULL, false},
                                 {"backward_ms", &layer->backward_ms, NULL, false}};
    snprintf(where, sizeof where, "%s: layer %zu", path, i);
    TOOL_TRY(tool_read_fields(where, object, fields, sizeof fields / sizeof *fields));
    return tool_read_count(where, "elements", elements, (double)GW_MAX_ELEMENTS, &layer->n_elems);
}

static int read_codec(const char *path, size_t i, const json_t *object, gw_profile_codec *codec, double *off_by)
{
    *codec = (gw_profile_codec){.spec = NULL};
    *off_by = NAN;
    char where[4200];
    const tool_field fields[] = {
        {"spec", NULL, &codec->spec, false},
        {"compress_ms_fixed", &codec->compress_ms_fixed, NULL, false},
        {"compress_ms_per_element", &codec->compress_ms_per_element, NULL, false},
        {"decompress_ms_per_element", &codec->decompress_ms_per_element, NULL, false},
        {"bytes_per_element", &codec->bytes_per_element, NULL, false},
        {"measure_ms_fixed", &codec->measure_ms_fixed, NULL, true},
        {"measure_ms_per_element", &codec->measure_ms_per_element, NULL, true},
        {"busy_ms_per_element", &codec->busy_ms_per_element, NULL, true},
        {"off_by", off_by, NULL, true},
    };
    snprintf(where, sizeof where, "%s: codec %zu", path, i);
    TOOL_TRY(tool_read_fields(where, object, fields, sizeof fields / sizeof *fields));
    return *off_by < 0 ? tool_fail("%s: \"off_by\" is %g, and must be 0 or more", where, *off_by) : TOOL_DONE;
}

static int read_link(const char *path, const json_t *object, gw_profile_link *link)
{
    char where[4200];
    double members = 0, run_elements = 0;
    uint64_t n = 0;
    const tool_field fields[] = {{"alpha_ms", &link->alpha_ms, NULL, false},
                                 {"ms_per_byte", &link->ms_per_byte, NULL, false},
                                 {"latency_ms", &link->latency_ms, NULL, true},
                                 {"run_elements", &run_elements, NULL, true},
                                 {"members", &members, NULL, false}};
    snprintf(where, sizeof where, "%s: \"link\"", path);
    TOOL_TRY(tool_read_fields(where, object, fields, sizeof fields / sizeof *fields));
    TOOL_TRY(tool_read_count(where, "run_elements", run_elements, (double)GW_MAX_ELEMENTS, &link->run_elements));
    TOOL_TRY(tool_read_count(where, "members", members, UINT32_MAX, &n));
    link->members = (uint32_t)n;
    return TOOL_DONE;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Takes a list of 1 to `most` entries. Returns NULL with the message printed if there is none. */
static const json_t *list_of(const char *path, const json_t *root, const char *name, size_t most)
{
    const json_t *list = json_object_get(root, name);
    if (!list)
        tool_fail("%s has no \"%s\"; a profile is made by gradwire probe", path, name);
    else if (!json_is_array(list))
        tool_fail("%s: \"%s\" must be a list [ ... ]", path, name);
    else if (json_array_size(list) == 0 || json_array_size(list) > most)
        tool_fail("%s has %zu %s, and must have 1 to %zu", path, json_array_size(list), name, most);
    else
        return list;
    return NULL;
}

static int read_all_layers(const char *path, tool_profile *out)
{
    const json_t *layers = list_of(path, out->root, "layers", GW_PLAN_MAX_LAYERS);
    gw_profile *p = &out->profile;
    if (!layers)
        return TOOL_FAILED;
    TOOL_TRY(tool_read_number(path, "forward_ms", json_object_get(out->root, "forward_ms"), &p->forward_ms));
    p->n_layers = (uint32_t)json_array_size(layers);
    p->layers = out->layers = tool_alloc(p->n_layers, sizeof *out->layers);
    for (uint32_t l = 0; out->layers && l < p->n_layers; l++)
        TOOL_TRY(read_layer(path, l, json_array_get(layers, l), &out->layers[l]));
    return out->layers ? TOOL_DONE : TOOL_FAILED;
}

static int read_all_codecs(const char *path, tool_profile *out)
{
    const json_t *codecs = list_of(path, out->root, "codecs", GW_PLAN_MAX_CODECS);
    gw_profile *p = &out->profile;
    if (!codecs)
        return TOOL_FAILED;
    p->n_codecs = (uint32_t)json_array_size(codecs);
    p->codecs = out->codecs = tool_alloc(p->n_codecs, sizeof *out->codecs);
    out->off_by = tool_alloc(p->n_codecs, sizeof *out->off_by);
    if (!out->codecs || !out->off_by)
        return TOOL_FAILED;
    for (uint32_t c = 0; c < p->n_codecs; c++)
        TOOL_TRY(read_codec(path, c, json_array_get(codecs, c), &out->codecs[c], &out->off_by[c]));
    return TOOL_DONE;
}

static int parse_compress(const char *text, gw_compress *compress)
{
    for (*compress = GW_COMPRESS_INLINE; gw_compress_name(*compress); ++*compress)
        if (strcmp(text, gw_compress_name(*compress)) == 0)
            return 0;
    return tool_wrong_use("--compress is '%s', and must be inline or beside", text);
}

static int read_profile(const char *path, tool_profile *out)
{
    const json_t *link = json_object_get(out->root, "link"), *compress = json_object_get(out->root, "compress");
    TOOL_TRY(read_all_layers(path, out));
    TOOL_TRY(read_all_codecs(path, out));
    if (!link)
        return tool_fail("%s has no \"link\"", path);
    if (compress && !json_is_string(compress))
        return tool_fail("%s: \"compress\" must be \"inline\" or \"beside\"", path);
    TOOL_TRY(read_link(path, link, &out->profile.link));
    return !compress || parse_compress(json_string_value(compress), &out->compress) == TOOL_DONE ? TOOL_DONE
                                                                                                 : TOOL_FAILED;
}

/* A file of layers has no codecs. This stands in for one, so that the same check serves. */
static const gw_profile_codec no_codec = {.spec = "none"};

static int read_file(const char *path, bool layers_only, tool_profile *out)
{
    *out = (tool_profile){.profile = {.struct_bytes = sizeof out->profile}, .compress = GW_COMPRESS_INLINE};
    out->root = tool_read_json(path, "profile", MOST_BYTES);
    int status = !out->root ? TOOL_FAILED : layers_only ? read_all_layers(path, out) : read_profile(path, out);
    if (layers_only) {
        out->profile.link.members = 1;
        out->profile.codecs = &no_codec;
        out->profile.n_codecs = 1;
    }
    if (status == TOOL_DONE && gw_profile_check(&out->profile) < 0)
        status = tool_fail("%s: %s", path, gw_last_error());
    if (status != TOOL_DONE)
        tool_profile_free(out);
    return status;
}

int tool_profile_read(const char *path, const char *compress, tool_profile *out)
{
    gw_compress given = GW_COMPRESS_INLINE;
    if (compress)
        TOOL_TRY(parse_compress(compress, &given));
    TOOL_TRY(read_file(path, false, out));
    if (compress)
        out->compress = given;
    return TOOL_DONE;
}

int tool_profile_read_layers(const char *path, tool_profile *out)
{
    return read_file(path, true, out);
}

void tool_profile_free(tool_profile *profile)
{
    free(profile->layers);
    free(profile->codecs);
    free(profile->off_by);
    json_decref(profile->root);
    *profile = (tool_profile){.root = NULL};
}

/* ---- options ----------------------------------------------------------------------------------------- */

bool tool_profile_has_codec(const tool_profile *profile, const char *spec, uint32_t *codec)
{
    gw_codec *asked, *one;
    for (*codec = 0; *codec < profile->profile.n_codecs; ++*codec)
        if (strcmp(profile->codecs[*codec].spec, spec) == 0)
            return true;
    if (gw_codec_parse(NULL, spec, &asked) < 0)
        return false;
    bool same = false;
    for (*codec = 0; *codec < profile->profile.n_codecs && !same; *codec += !same)
        if (gw_codec_parse(NULL, profile->codecs[*codec].spec, &one) >= 0) {
            same = strcmp(gw_codec_traits_of(asked).canonical, gw_codec_traits_of(one).canonical) == 0;
            gw_codec_destroy(one);
        }
    gw_codec_destroy(asked);
    return same;
}

int tool_profile_codec(const tool_profile *profile, const char *spec, uint32_t *codec)
{
    gw_codec *asked;
    if (tool_profile_has_codec(profile, spec, codec))
        return 0;
    TOOL_TRY(tool_exit_status(gw_codec_parse(NULL, spec, &asked), "--codec"));
    gw_codec_destroy(asked);
    return tool_fail("the profile has no codec \"%s\"; it has %u, the first is \"%s\" (gradwire probe --codec measures "
                     "another)",
                     spec, profile->profile.n_codecs, gw_quote(profile->codecs[0].spec).text);
}

int tool_parse_merge(const char *option, const char *text, gw_merge *method, uint64_t *fixed_bytes)
{
    const size_t name_bytes = strcspn(text, ":");
    *fixed_bytes = 0;
    for (gw_merge m = GW_MERGE_EXACT; gw_merge_name(m); m++) {
        const char *name = gw_merge_name(m);
        if (strlen(name) != name_bytes || strncmp(name, text, name_bytes) != 0)
            continue;
        *method = m;
        if (m != GW_MERGE_FIXED && text[name_bytes] == 0)
            return 0;
        if (m == GW_MERGE_FIXED && text[name_bytes] == ':' && gw_parse_bytes(text + name_bytes + 1, fixed_bytes) &&
            *fixed_bytes > 0)
            return 0;
        break;
    }
    return tool_wrong_use("%s is '%s', and must be exact, paper, none, single, or fixed:BYTES (as in fixed:25MB)",
                          option, text);
}
