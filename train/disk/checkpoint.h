/* Parameter files (.gwp): the tensors of a network under their names, and what belongs to them. The final parameters of
 * a run and its checkpoints have this form. Optimizer state and averages are further tensors: "momentum.NAME",
 * "ema.NAME", "variance.NAME". Running statistics of batch norm follow the parameters, and also the averages.
 *
 * All numbers are little-endian:
 *     8 bytes   "GWPARAM1"
 *     8         step: updates made so far
 *     4         number of tensors
 *     4 + n     network: length, text
 *     each tensor: 4 + n name, 4 rank (1 to 4), 8 for each dimension
 *     each tensor: its elements, float32
 *     in checkpoints, what a resumed run needs besides:
 *         4 + n     the run's options (resume.h)
 *         8         steps the run was to have
 *         4         workers
 *         4         state files (rank_state.h) that belong to it: one of each worker, or 0 if the codec keeps nothing
 *         4         computing threads of each worker
 *     8         XXH3 (64 bit) of everything before */
#ifndef GW_TRAIN_CHECKPOINT_H
#define GW_TRAIN_CHECKPOINT_H

#include "disk/file.h"
#include "net/network.h"

/* What a run keeps of its network: flat arrays. svrg has its snapshot in GW_MOMENTUM. adam has its m there, and its v
 * in GW_VARIANCE. */
enum gw_array { GW_PARAMS, GW_MOMENTUM, GW_EMA, GW_VARIANCE, GW_ARRAYS };
extern const char *const gw_array_prefixes[GW_ARRAYS]; /* what stands before the names of an array's tensors */

/* How many tensors the array has, with batch norm's statistics. The parameters and their average have these. What an
 * optimizer keeps has none. */
uint32_t gw_array_tensors(const struct gw_network *network, enum gw_array array);
/* The ith of them. */
const struct gw_param *gw_array_tensor(const struct gw_network *network, uint32_t i);

#define GW_MAX_STEPS UINT32_MAX  /* of a run: messages have 32 bits for a step */
#define GW_MAX_TRAIN_THREADS 256 /* computing threads of a worker */

struct gw_checkpoint {
    struct gw_network network;
    uint64_t step;
    float *arrays[GW_ARRAYS]; /* NULL: it is not there. GW_PARAMS always is */
    char options[1024];       /* "": only parameters, from which no run can be resumed */
    uint64_t steps;
    uint32_t workers, n_state_files, threads;
};

/* Writes FOLDER/NAME, whole or not at all. All arrays except GW_PARAMS may be NULL. */
gw_status gw_checkpoint_write(const char *folder, const char *name, const struct gw_checkpoint *checkpoint);

/* Writes the file without its final name. gw_file_commit(file) gives it the name. */
gw_status gw_checkpoint_begin(const char *folder, const char *name, const struct gw_checkpoint *checkpoint,
                              struct gw_file *file);

/* A number that shows which state files belong to a checkpoint. It is a hash of the things that all workers share:
 * step, options, workers, parameters and moments. */
uint64_t gw_checkpoint_identity(const struct gw_checkpoint *checkpoint);

/* `from` is a file, or a folder that holds parameters.gwp. A file that is cut or altered, or does not fit the network
 * that it names, is refused before memory is taken for it. */
gw_status gw_checkpoint_read(const char *from, struct gw_checkpoint *checkpoint);
void gw_checkpoint_free(struct gw_checkpoint *checkpoint);

#endif
