/* Reads PROFILE.json, and the names of methods that commands about plans share. */
#include "plan/profile.h"
#include "profile.h"
#include "base/lines.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include "base/quote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A profile with as many layers as possible takes a few hundred kilobytes. */
#define MOST_BYTES (64u << 20)

/* ---- fields ------------------------------------------------------------------------------------------ */

/* One field of an object. It is a number if `text` is NULL. */
struct field {
    const char *name;
    double *number;
    const char **text;
    bool optional;
};

static int unknown_field(const char *where, const char *name, const struct field *fields, size_t n)
{
    const char *names[16];
    for (size_t i = 0; i < n; i++)
        names[i] = fields[i].name;
    const char *nearest = gw_nearest(name, names, n, NULL);
    return tool_fail("%s has a field \"%s\", which no profile has%s%s%s", where, gw_quote(name).text,
                     nearest ? "; is \"" : "", nearest ? nearest : "", nearest ? "\" meant?" : "");
}

/* Reads all fields of an object. It refuses other fields, because a misspelt one would look as if it were missing. */
static int read_fields(const char *where, const json_t *object, const struct field *fields, size_t n)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return tool_fail("%s must be an object { ... }", where);
    json_object_foreach ((json_t *)object, name, value) {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == n)
            return unknown_field(where, name, fields, n);
        if (fields[i].text ? !json_is_string(value) : !json_is_number(value))
            return tool_fail("%s: \"%s\" must be a %s", where, name, fields[i].text ? "text" : "number");
        if (fields[i].text)
            *fields[i].text = json_string_value(value);
        else
            *fields[i].number = json_number_value(value);
    }
    for (size_t i = 0; i < n; i++)
        if (!fields[i].optional && !json_object_get(object, fields[i].name))
            return tool_fail("%s has no \"%s\"", where, fields[i].name);
    return 0;
}

/* Reads a whole number that is at most `most`. */
static int read_count(const char *where, const char *name, double value, double most, uint64_t *out)
{
    if (!(value >= 0 && value <= most) || value != (double)(uint64_t)value)
        return tool_fail("%s: \"%s\" is %g, and must be a whole number from 1 to %.0f", where, name, value, most);
    *out = (uint64_t)value;
    return 0;
}

static int read_layer(const char *path, size_t i, const json_t *object, gw_profile_layer *layer)
{
    *layer = (gw_profile_layer){.name = NULL};
    char where[4200];
    double elements = 0;
    const struct field fields[] = {{"name", NULL, &layer->name, false},
                                   {"elements", &elements, NULL, false},
                                   {"backward_ms", &layer->backward_ms, NULL, false}};
    snprintf(where, sizeof where, "%s: layer %zu", path, i);
    if (read_fields(where, object, fields, sizeof fields / sizeof *fields) != 0)
        return -1;
    return read_count(where, "elements", elements, (double)GW_MAX_ELEMENTS, &layer->n_elems) == 0 ? 0 : -1;
}

static int read_codec(const char *path, size_t i, const json_t *object, gw_profile_codec *codec, double *off_by)
{
    *codec = (gw_profile_codec){.spec = NULL};
    *off_by = NAN;
    char where[4200];
    const struct field fields[] = {
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
    if (read_fields(where, object, fields, sizeof fields / sizeof *fields) != 0)
        return -1;
    return *off_by < 0 ? tool_fail("%s: \"off_by\" is %g, and must be 0 or more", where, *off_by) : 0;
}

static int read_link(const char *path, const json_t *object, gw_profile_link *link)
{
    char where[4200];
    double members = 0, run_elements = 0;
    uint64_t n = 0;
    const struct field fields[] = {{"alpha_ms", &link->alpha_ms, NULL, false},
                                   {"ms_per_byte", &link->ms_per_byte, NULL, false},
                                   {"latency_ms", &link->latency_ms, NULL, true},
                                   {"run_elements", &run_elements, NULL, true},
                                   {"members", &members, NULL, false}};
    snprintf(where, sizeof where, "%s: \"link\"", path);
    if (read_fields(where, object, fields, sizeof fields / sizeof *fields) != 0 ||
        read_count(where, "run_elements", run_elements, (double)GW_MAX_ELEMENTS, &link->run_elements) != 0 ||
        read_count(where, "members", members, UINT32_MAX, &n) != 0)
        return -1;
    link->members = (uint32_t)n;
    return 0;
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
    const json_t *forward = json_object_get(out->root, "forward_ms");
    gw_profile *p = &out->profile;
    if (!layers)
        return -1;
    if (!json_is_number(forward)) {
        tool_fail("%s has no \"forward_ms\" that is a number", path);
        return -1;
    }
    p->forward_ms = json_number_value(forward);
    p->n_layers = (uint32_t)json_array_size(layers);
    p->layers = out->layers = tool_alloc(p->n_layers, sizeof *out->layers);
    for (uint32_t l = 0; out->layers && l < p->n_layers; l++)
        if (read_layer(path, l, json_array_get(layers, l), &out->layers[l]) != 0)
            return -1;
    return out->layers ? 0 : -1;
}

static int read_all_codecs(const char *path, tool_profile *out)
{
    const json_t *codecs = list_of(path, out->root, "codecs", GW_PLAN_MAX_CODECS);
    gw_profile *p = &out->profile;
    if (!codecs)
        return -1;
    p->n_codecs = (uint32_t)json_array_size(codecs);
    p->codecs = out->codecs = tool_alloc(p->n_codecs, sizeof *out->codecs);
    out->off_by = tool_alloc(p->n_codecs, sizeof *out->off_by);
    if (!out->codecs || !out->off_by)
        return -1;
    for (uint32_t c = 0; c < p->n_codecs; c++)
        if (read_codec(path, c, json_array_get(codecs, c), &out->codecs[c], &out->off_by[c]) != 0)
            return -1;
    return 0;
}

static int read_profile(const char *path, tool_profile *out)
{
    const json_t *link = json_object_get(out->root, "link"), *compress = json_object_get(out->root, "compress");
    if (read_all_layers(path, out) != 0 || read_all_codecs(path, out) != 0)
        return -1;
    if (!link) {
        tool_fail("%s has no \"link\"", path);
        return -1;
    }
    if (compress && !json_is_string(compress)) {
        tool_fail("%s: \"compress\" must be \"inline\" or \"beside\"", path);
        return -1;
    }
    if (read_link(path, link, &out->profile.link) != 0)
        return -1;
    if (compress && tool_parse_compress(json_string_value(compress), &out->compress) != 0)
        return -1;
    return 0;
}

/* A file of layers has no codecs. This stands in for one, so that the same check serves. */
static const gw_profile_codec no_codec = {.spec = "none"};

static int read_file(const char *path, bool layers_only, tool_profile *out)
{
    *out = (tool_profile){.profile = {.struct_bytes = sizeof out->profile}, .compress = GW_COMPRESS_INLINE};
    uint64_t length;
    int fd = tool_open_file(path, &length);
    if (fd < 0)
        return -1;
    char *text = NULL;
    int status = -1;
    if (length > MOST_BYTES)
        tool_fail("%s has %llu bytes; a profile has %u at most", path, (unsigned long long)length, MOST_BYTES);
    else if ((text = tool_alloc(length, 1)) && tool_read_exact(fd, path, text, length) == 0)
        status = 0;
    close(fd);
    json_error_t error;
    const size_t mark = status == 0 ? gw_lines_mark(text, length) : 0;
    if (status == 0 && !(out->root = json_loadb(text + mark, length - mark, JSON_REJECT_DUPLICATES, &error))) {
        tool_fail("%s is no profile: line %d: %s", path, error.line, error.text);
        status = -1;
    }
    free(text);
    if (status == 0)
        status = layers_only ? read_all_layers(path, out) : read_profile(path, out);
    if (status == 0 && layers_only) {
        out->profile.link.members = 1;
        out->profile.codecs = &no_codec;
        out->profile.n_codecs = 1;
    }
    if (status == 0 && gw_profile_check(&out->profile) < 0) {
        tool_fail("%s: %s", path, gw_last_error());
        status = -1;
    }
    if (status != 0)
        tool_profile_free(out);
    return status;
}

int tool_profile_read(const char *path, tool_profile *out)
{
    return read_file(path, false, out);
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
    gw_status status = gw_codec_parse(NULL, spec, &asked);
    if (status < 0)
        return tool_fail_status(status, "--codec");
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

int tool_parse_compress(const char *text, gw_compress *compress)
{
    for (*compress = GW_COMPRESS_INLINE; gw_compress_name(*compress); ++*compress)
        if (strcmp(text, gw_compress_name(*compress)) == 0)
            return 0;
    return tool_wrong_use("--compress is '%s', and must be inline or beside", text);
}
