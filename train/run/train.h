/* The reference trainer: real training on oneDNN, gradients averaged through Gradwire's exchange. Every worker is a
 * thread with its own replica of the parameters, in this process or in another one. Only gradients travel. Errors are a
 * status and a sentence in gw_last_error(), as in the library: GW_ERR_ARGUMENT and GW_ERR_SPEC are wrong use; a file
 * that is missing, cut or malformed is GW_ERR_SYSTEM. */
#ifndef GW_TRAIN_TRAIN_H
#define GW_TRAIN_TRAIN_H

#include "types.h"

/* A run that `stop` ended returns GW_ERR_CLOSED. callbacks NULL: none. If there are several processes, that of rank 0
 * shows progress and fills the summary. In the others summary->workers is 0, and nothing else of it is set. */
gw_status gw_train_run(const struct gw_train_options *options, const struct gw_train_callbacks *callbacks,
                       struct gw_train_summary *summary);

/* How large a share of a set saved parameters get right, or their moving average if that was saved. */
struct gw_eval_options {
    const char *net;         /* NULL: the file's network */
    const char *data, *test; /* data.h; test NULL: not given */
    const char *transform;   /* data/transform.h; NULL: the network's */
    const char *from;        /* a run's folder, or a parameter file */
    const char *data_are;    /* the data must be these (gw_data_describe); NULL: any */
    bool training_set;
    uint32_t threads;
};
struct gw_eval_result {
    char net[64];
    uint64_t step;
    uint32_t samples;
    double accuracy, loss;
};
gw_status gw_train_eval(const struct gw_eval_options *options, struct gw_eval_result *result);

#endif
