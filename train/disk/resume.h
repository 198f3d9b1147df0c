/* Goes on with an interrupted run: finds the newest complete checkpoint, and checks that this run has the same options.
 *
 * A checkpoint is complete if its parameter file is there. If the codec keeps something between steps, one state file
 * of each worker must be there too. The parameter file gets its name last, when all workers' files and the lines of
 * metrics before it are on disk. */
#ifndef GW_TRAIN_RESUME_H
#define GW_TRAIN_RESUME_H

#include "disk/checkpoint.h"
#include "data/data.h"
#include "disk/rank_state.h"
#include "types.h"

#include <dirent.h>

struct gw_resume {
    struct gw_checkpoint checkpoint; /* without GW_PARAMS: the run begins anew */
    struct gw_rank_state *states;    /* [checkpoint.n_state_files]; NULL: there are none */
    char path[4096 + 64];            /* the path of the parameter file */
};

/* The options that decide what a run computes, each a line "key value". They do not hold the length of the run, which
 * may grow. They do not hold the number of workers (codec states can be merged) or of computing threads, or options
 * that only change speed. transform: of pictures; NULL: none, or the plain one. */
gw_status gw_resume_options(const struct gw_train_options *options, const gw_codec *codec, const struct gw_data *data,
                            const char *transform, char *text, size_t capacity);

/* Reads the newest complete checkpoint of a locked folder. If a newer one is not complete, callbacks->note gets a
 * sentence about it. */
gw_status gw_resume_find(const char *folder, DIR *lock, const struct gw_train_callbacks *callbacks,
                         struct gw_resume *resume);

/* Refuses options that are not the checkpoint's; the sentence names the first that differs. */
gw_status gw_resume_check(const struct gw_resume *resume, const char *options);
void gw_resume_free(struct gw_resume *resume);

/* The transform in the options of a checkpoint's run, copied to `text`. NULL: there are no options, or no transform of
 * pictures is known. */
const char *gw_resume_transform(const char *options, char *text, size_t capacity);

/* Gives one sentence for people to callbacks->note, if there is such a function. */
void gw_train_note(const struct gw_train_callbacks *callbacks, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
