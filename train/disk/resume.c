/* Finds the newest whole checkpoint of a run and loads it. It refuses options that differ from those the run began
 * with. */
#include "disk/resume.h"
#include "base/error.h"
#include "base/lines.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "disk/folder.h"
#include "disk/run_file.h"

#include <stdarg.h>
#include <string.h>

void gw_train_note(const struct gw_train_callbacks *callbacks, const char *format, ...)
{
    char text[8192];
    va_list arguments;
    if (!callbacks || !callbacks->note)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    callbacks->note(text, callbacks->user);
}

#define TRANSFORM "transform " /* begins the last line, if that is the transform's */

/* ---- options -------------------------------------------------------------------------------- */

gw_status gw_resume_options(const struct gw_train_options *o, const gw_codec *codec, const struct gw_data *data,
                            const char *transform, char *text, size_t capacity)
{
    char about[GW_DATA_TEXT];
    gw_data_describe(data, about, sizeof about);
    int n =
        snprintf(text, capacity,
                 "net %s\ncodec %s\ndata %s\nbatch %u\noptimizer %s\nlr %s\n"
                 "momentum %s\nschedule %s\nweight-decay %s\nema %s\nseed %llu\n",
                 o->net, gw_codec_traits_of(codec).canonical, about, o->batch, o->optimizer, gw_decimal_of(o->lr).text,
                 gw_decimal_of(strcmp(o->optimizer, "momentum") == 0 ? o->momentum : 0).text, o->schedule,
                 gw_decimal_of(isnan(o->l2) ? o->weight_decay : 2 * o->l2).text, gw_decimal_of(o->ema).text,
                 (unsigned long long)o->seed);
    if (transform && strcmp(transform, "scale") != 0 && (size_t)n < capacity) /* runs of older versions only scaled */
        n += snprintf(text + n, capacity - (size_t)n, TRANSFORM "%s\n", transform);
    return (size_t)n < capacity ? GW_OK
                                : gw_fail(GW_ERR_ARGUMENT, "the run's options take more than %zu bytes", capacity - 1);
}

const char *gw_resume_transform(const char *options, char *text, size_t capacity)
{
    if (!*options)
        return NULL;
    const char *line = strstr(options, "\n" TRANSFORM);
    const char *value = line ? line + strlen("\n" TRANSFORM) : "scale"; /* runs without this line only scaled */
    snprintf(text, capacity, "%.*s", (int)strcspn(value, "\n"), value);
    return text;
}

gw_status gw_resume_check(const struct gw_resume *r, const char *options)
{
    const char *theirs = r->checkpoint.options, *key = TRANSFORM;
    struct gw_lines_difference d;
    if (!gw_lines_differ(options, strlen(options), theirs, strlen(theirs), &d))
        return GW_OK;
    const char *mine = d.first, *other = d.second;
    size_t name = gw_lines_name(&d);
    char of_mine[GW_LINES_SHOWN], of_theirs[GW_LINES_SHOWN];
    if (name > 0) {
        key = d.first, mine += name + 1, other += name + 1;
    } else if (strncmp(d.first, TRANSFORM, strlen(TRANSFORM)) == 0 ||
               strncmp(d.second, TRANSFORM, strlen(TRANSFORM)) ==
                   0) { /* this line is the last one, and only there if its value is not the default */
        name = strlen(TRANSFORM) - 1;
        mine = gw_resume_transform(options, of_mine, sizeof of_mine);
        other = gw_resume_transform(theirs, of_theirs, sizeof of_theirs);
    } else {
        return gw_fail(GW_ERR_SYSTEM, "%s is of a version with other options: %s", r->path, d.second);
    }
    return gw_fail(GW_ERR_ARGUMENT,
                   "--%.*s is %s, and the run of %s has %s; a run goes on with the options that it began with",
                   (int)name, key, mine, r->path, other);
}

/* ---- files ---------------------------------------------------------------------------------- */

static gw_status load(const char *folder, uint64_t step, struct gw_resume *r)
{
    struct gw_checkpoint *c = &r->checkpoint;
    if (snprintf(r->path, sizeof r->path, "%s/" GW_CHECKPOINT_FILE, folder, (unsigned long long)step) >=
        (int)sizeof r->path)
        return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is too long", folder);
    GW_TRY(gw_checkpoint_read(r->path, c));
    if (!*c->options || c->step != step)
        return gw_fail(GW_ERR_SYSTEM, "%s holds no checkpoint after %llu steps", r->path, (unsigned long long)step);
    if (c->n_state_files == 0)
        return GW_OK;
    uint64_t identity = gw_checkpoint_identity(c);
    if (!(r->states = gw_calloc(NULL, c->n_state_files, sizeof *r->states)))
        return GW_ERR_MEMORY;
    for (uint32_t i = 0; i < c->n_state_files; i++) {
        r->states[i] = (struct gw_rank_state){.identity = identity, .step = step, .rank = i, .workers = c->workers};
        GW_TRY(gw_rank_state_read(folder, &r->states[i]));
        if (r->states[i].state_bytes != r->states[0].state_bytes)
            return gw_fail(GW_ERR_SYSTEM, "%s: the states of workers 0 and %u have different lengths", r->path, i);
    }
    return GW_OK;
}

gw_status gw_resume_find(const char *folder, DIR *lock, const struct gw_train_callbacks *callbacks, struct gw_resume *r)
{
    uint64_t step = UINT64_MAX;
    bool any = false;
    while (gw_folder_newest_checkpoint(lock, step, &step)) {
        gw_status status = load(folder, step, r);
        if (status == GW_OK || status == GW_ERR_MEMORY)
            return status;
        gw_resume_free(r);
        any = true;
        gw_train_note(callbacks, "the checkpoint after %llu steps is not whole (%s)", (unsigned long long)step,
                      gw_last_error());
    }
    return gw_fail(GW_ERR_SYSTEM, "%s holds nothing to resume: %s", folder,
                   any ? "none of its checkpoints is whole"
                       : "it has no checkpoint: it had no --checkpoint-every K, or ended before the first");
}

void gw_resume_free(struct gw_resume *r)
{
    for (uint32_t i = 0; r->states && i < r->checkpoint.n_state_files; i++)
        gw_rank_state_free(&r->states[i]);
    gw_free(NULL, r->states);
    r->states = NULL;
    gw_checkpoint_free(&r->checkpoint);
}
