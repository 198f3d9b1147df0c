/* Goes on with an interrupted run: it finds the newest whole checkpoint, and checks that this run's options are those
 * the run began with.
 *
 * A checkpoint is whole when its parameter file is, and with it one state file of each worker where the codec keeps
 * something between steps. The parameter file gets its name last, when all workers' files and the lines of metrics
 * before it are on disk. */
#ifndef GW_TRAIN_RESUME_H
#define GW_TRAIN_RESUME_H

#include "disk/checkpoint.h"
#include "data/data.h"
#include "disk/rank_state.h"
#include "run/train.h"

#include <dirent.h>

struct gw_resume {
    struct gw_checkpoint checkpoint; /* params NULL: a run from the beginning */
    struct gw_rank_state *states;    /* [checkpoint.n_state_files] */
    char path[4096 + 64];            /* of the parameter file */
};

/* The options that decide what a run computes, a line "key value" each. Neither the length (it may grow), nor the
 * number of workers (codec states move onto another) or of computing threads, nor what only changes speed. transform:
 * of pictures; NULL: none or the plain one. */
gw_status gw_resume_options(const struct gw_train_options *options, const gw_codec *codec, const struct gw_data *data,
                            const char *transform, char *text, size_t capacity);

/* Reads the newest checkpoint of a locked folder that is whole. Each newer one that is not is told to callbacks->note.
 */
gw_status gw_resume_find(const char *folder, DIR *lock, const struct gw_train_callbacks *callbacks,
                         struct gw_resume *resume);

/* Refuses options that are not the checkpoint's; the sentence names the first that differs. */
gw_status gw_resume_check(const struct gw_resume *resume, const char *options);
void gw_resume_free(struct gw_resume *resume);

/* One sentence for people; nothing where there is nobody to hear it. */
/* The transform in the options of a checkpoint's run, copied to `text`. NULL: there are no options, or no transform of
 * pictures is known. */
const char *gw_resume_transform(const char *options, char *text, size_t capacity);

void gw_train_note(const struct gw_train_callbacks *callbacks, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
