/* Writes and reads run.json, and tells data sets apart. */
#include "disk/run_file.h"
#include "base/error.h"
#include "disk/file.h"
#include "disk/folder.h"

#include <gradwire/context.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { MAX_RUN_FILE = 1 << 20 }; /* a run writes some kilobytes */

static uint64_t hash_samples(const struct gw_samples *s, size_t values, uint64_t hash)
{
    const struct gw_rows *rows = &s->rows;
    hash = XXH3_64bits_withSeed(s->labels, s->n, hash);
    if (s->pixels)
        return XXH3_64bits_withSeed(s->pixels, s->n * values, hash);
    hash = XXH3_64bits_withSeed(rows->begin, (s->n + (size_t)1) * sizeof *rows->begin, hash);
    hash = XXH3_64bits_withSeed(rows->index, rows->begin[s->n] * sizeof *rows->index, hash);
    return XXH3_64bits_withSeed(rows->value, rows->begin[s->n] * sizeof *rows->value, hash);
}

void gw_data_describe(const struct gw_data *data, char *text, size_t capacity)
{
    const size_t values = gw_data_raw_values(data);
    const uint64_t hash = hash_samples(&data->test, values, hash_samples(&data->train, values, 0));
    snprintf(text, capacity, "%u+%u samples of %zu values, hash %016llx", data->train.n, data->test.n, values,
             (unsigned long long)hash);
}

gw_status gw_run_file_write(const char *folder, json_t *options, const char *data)
{
    return gw_file_write_json(folder, GW_RUN_FILE,
                              json_pack("{s:s, s:s, s:O}", "gradwire", gw_version(), "data", data, "options", options));
}

/* Finds the path of the run.json that belongs to `from`, a folder or a file in it. */
static gw_status find(const char *from, char *path, size_t capacity)
{
    struct stat st;
    bool folder = stat(from, &st) == 0 && S_ISDIR(st.st_mode);
    const char *slash = strrchr(from, '/');
    size_t n = folder ? strlen(from) : slash ? (size_t)(slash - from) + 1 : 0;
    int length = snprintf(path, capacity, "%.*s%s" GW_RUN_FILE, (int)n, from, folder ? "/" : "");
    return (size_t)length < capacity ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is too long", from);
}

gw_status gw_run_file_read(const char *from, json_t **run)
{
    char path[4096];
    struct stat st;
    *run = NULL;
    GW_TRY(find(from, path, sizeof path));
    if (stat(path, &st) != 0)
        return GW_OK;
    GW_TRY(gw_file_read_json(path, MAX_RUN_FILE, "the file is as a run wrote it, or removed", run));
    if (json_is_object(json_object_get(*run, "options")))
        return GW_OK;
    json_decref(*run);
    *run = NULL;
    return gw_fail(GW_ERR_SYSTEM, "%s holds no options of a run", path);
}
