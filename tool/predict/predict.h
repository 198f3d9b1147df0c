/* The data of `gradwire predict`, which the command (cmd_predict.c) and its reports (report.c) share. */
#ifndef GRADWIRE_TOOL_PREDICT_H
#define GRADWIRE_TOOL_PREDICT_H

#include "tool.h"

#define MOST_COUNTS 64

/* The gradient that is averaged. */
struct gradient {
    const gw_network_info *network; /* NULL: only its bytes are known */
    gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    size_t n_tensors;
    double n_elems;
};

/* One codec, on all numbers of GPUs. */
struct subject {
    const char *spec;
    gw_codec *codec;                 /* NULL: float32 */
    double float_elems, coded_elems; /* elements that the codec leaves in float, and the other elements */
    double seconds;                  /* the codec's time in a step */
    /* For each entry of `counts`. paper: by the paper's model alone. */
    gw_predict_codec costs[MOST_COUNTS];
    gw_prediction rows[MOST_COUNTS], paper[MOST_COUNTS];
};

/* The command line, and the predictions. */
struct prediction {
    const char *net, *cluster_name, *gpu, *scaling, *owners, *codec_time;
    tool_texts specs;
    uint64_t gradient_bytes;
    double ratio; /* 0: measured */

    gw_context *context;
    uint32_t n_threads;
    struct gradient gradient;
    const gw_cluster_info *cluster; /* NULL: from a file */
    gw_predict_options options, paper;
    uint32_t counts[MOST_COUNTS]; /* of GPUs */
    size_t n_counts;
    struct subject *subjects; /* `none` first */
    size_t n_subjects;
    json_t *assumptions; /* sentences */
};

/* Prints the rows and what is assumed, as a table or as JSON. */
int tool_predict_report(const struct prediction *p, bool json);

/* Draws throughput over the number of GPUs, a line for each codec, as in TernGrad's figure 5. */
int tool_predict_draw(const struct prediction *p, const char *path);

#endif
