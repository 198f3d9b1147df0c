/* Predicts how long a training step takes on a cluster, with and without a codec, before anybody builds the cluster.
 *
 * The model is that of TernGrad (Wen et al., NIPS 2017), equations 27 to 30. It knows three ways that a gradient
 * travels: between the GPUs of a machine, between a GPU and the processor, and between machines. |g| is the gradient's
 * bytes in float32. There are j machines with i GPUs each, so N = i*j GPUs. T(1,1,K) is the measured time of a step of
 * K samples on one GPU:
 *
 *     T_comm = |g|/C_gwd * log2(i) + |g|/C_cwd + (C_ncost + |g|/C_nwd) * log2(j)         (27)
 *     strong scaling, K samples in all:         T = (T(1,1,K) - |g|/C_cwd)/N + T_comm     (28), (29)
 *     weak scaling, K samples for each GPU:     T =  T(1,1,K) - |g|/C_cwd    + T_comm     (30)
 *
 * With a codec, |g| between machines becomes the mean of the codec's bytes up and down, and the codec's time is added.
 * Codecs run on the processor. So the other two ways carry float32 as before. What the paper leaves out can be chosen:
 * other ways to average between machines, communication beside backward, and workers that are not equally fast. */
#ifndef GRADWIRE_TOOL_PREDICT_MODEL_H
#define GRADWIRE_TOOL_PREDICT_MODEL_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

#define GW_MAX_GPUS 100000u /* of a prediction */
#define GW_MAX_GPUS_PER_MACHINE 1024u
#define GW_MAX_STRAGGLER_CV 10.0

/* ---- clusters -------------------------------------------------------------------------------- */

/* A cluster of equal machines. Bandwidths are in bytes per second, above 0. */
typedef struct gw_cluster {
    uint32_t gpus_per_machine; /* 1 .. GW_MAX_GPUS_PER_MACHINE */
    double gpu_bandwidth;      /* C_gwd: between two GPUs of a machine */
    double cpu_bandwidth;      /* C_cwd: between a GPU and the processor */
    double network_latency_s;  /* C_ncost: what a message between machines costs beside its bytes; 0 or more */
    double network_bandwidth;  /* C_nwd: of a machine's link, in each direction */
} gw_cluster;

/* One built-in cluster, for listings. All strings are static. */
typedef struct gw_cluster_info {
    const char *name;    /* "eth-1g-gtx1080" */
    const char *gpu;     /* as gw_gpu_speed_find takes it */
    const char *assumed; /* which of its figures are documented and which are assumed */
    gw_cluster cluster;
} gw_cluster_info;

/* Finds a cluster by its name. Errors: GW_ERR_ARGUMENT (there is none of this name; the sentence lists the names). */
GW_MUST_CHECK gw_status gw_cluster_find(const char *name, const gw_cluster_info **out);

/* Errors: GW_ERR_ARGUMENT (the sentence names a number that is not in its range). */
GW_MUST_CHECK gw_status gw_cluster_check(const gw_cluster *cluster);

/* How fast one GPU trains a built-in network when nothing is exchanged, by published numbers. */
typedef struct gw_gpu_speed {
    const char *network; /* as gw_network_find takes it */
    const char *gpu;     /* "gtx1080", "p100" */
    uint32_t batch;      /* samples of a step on one GPU: those of TernGrad's figure 5, if the network is in it */
    double images_per_second;
    const char *source;
} gw_gpu_speed;

/* Errors: GW_ERR_ARGUMENT (it is not known; the sentence says what is). */
GW_MUST_CHECK gw_status gw_gpu_speed_find(const char *network, const char *gpu, const gw_gpu_speed **out);

/* ---- predictions ----------------------------------------------------------------------------- */

typedef enum gw_scaling {
    GW_SCALING_WEAK,  /* the batch is of each GPU: N*batch samples a step */
    GW_SCALING_STRONG /* the batch is of all GPUs together */
} gw_scaling;

/* How machines average. `up` and `down` are the bytes that one machine sends and gets; without a codec both are |g|. j
 * > 1 is the number of machines. A single machine exchanges nothing, so the network's time is 0. */
typedef enum gw_owners {
    /* Equation 27: (C_ncost + (up+down)/2/C_nwd) * log2(j). */
    GW_OWNERS_PAPER,
    /* `servers` machines beside the workers keep the sums, in equal shares. All that the machines send passes the
     * servers' links (incast), and so does all that they get: 2*C_ncost + max(j/servers, 1)*(up+down)/C_nwd. */
    GW_OWNERS_SERVERS,
    /* A ring of machines: 2*(j-1) messages one after another, first parts of sums, then parts of the average:
     * 2*(j-1)*C_ncost + (j-1)/j*(up+down)/C_nwd (Patarasu and Yuan, 2009), if a part of a sum is like one of a push. */
    GW_OWNERS_RING,
    /* Each machine owns one j-th of the gradient, as in Gradwire's exchange. All pushes leave at the same time, and all
     * averages do: 2*C_ncost + (j-1)/j*(up+down)/C_nwd. */
    GW_OWNERS_SHARDED
} gw_owners;

/* What to predict. With zeros it is the paper's model. */
typedef struct gw_predict_options {
    gw_cluster cluster;
    double gradient_bytes; /* |g| in float32, above 0 */
    uint32_t batch;        /* K, above 0 */
    double batch_seconds;  /* T(1,1,K). It includes one copy of the gradient to the processor, |g|/C_cwd */
    gw_scaling scaling;
    gw_owners owners;
    uint32_t servers; /* GW_OWNERS_SERVERS: how many, 0 is 1; else 0 */

    /* The share of backward, 0 to 1, during which the network and the codec work as well. Computing takes C = T(1,1,K)
     * - |g|/C_cwd, divided by N for strong scaling. Backward is two thirds of C. The step becomes shorter by
     * min(overlap * 2/3 * C, network + codec). */
    double overlap;

    /* The spread of the GPUs' computing times: the standard deviation divided by the mean, 0 to GW_MAX_STRAGGLER_CV.
     * All GPUs wait for the slowest. Times are lognormal and independent. The step becomes longer by C * (E[max of
     * N]/mean - 1). The expected maximum is integrated numerically, within 1e-9. */
    double straggler_cv;
} gw_predict_options;

/* What a codec makes of one machine's gradient. The bytes include layers that the codec leaves in float. An average
 * over more machines needs more bits, so bytes_down may depend on the number of machines. */
typedef struct gw_predict_codec {
    double bytes_up, bytes_down; /* 0 or more */
    double seconds;              /* to encode a gradient and decode an average, once a step; 0 or more */
} gw_predict_codec;

typedef struct gw_prediction {
    uint32_t gpus, machines, gpus_each; /* N, j, i */
    /* The parts of a step. */
    double compute_seconds;
    double gpu_seconds;     /* |g|/C_gwd * log2(i) */
    double cpu_seconds;     /* |g|/C_cwd */
    double network_seconds; /* between machines */
    double codec_seconds;   /* 0 on one machine */
    double waiting_seconds; /* for the slowest */
    double hidden_seconds;  /* of network and codec, beside backward */
    /* compute + gpu + cpu + network + codec + waiting - hidden */
    double seconds;
    double samples_per_second;
} gw_prediction;

/* Predicts one step on `gpus` GPUs: up to gpus_per_machine are on one machine, more must be a multiple of it. codec
 * NULL: float32. Errors: GW_ERR_ARGUMENT (the sentence names the number that is not in its range). */
GW_MUST_CHECK gw_status gw_predict(const gw_predict_options *options, const gw_predict_codec *codec, uint32_t gpus,
                                   gw_prediction *out);

/* Tells which T(1,1,K) makes the codec `gain` times faster than float32 on `gpus` GPUs, by the same model, without
 * options->batch_seconds. Errors: GW_ERR_ARGUMENT (as gw_predict; overlap is above 0, or no time gives this gain). */
GW_MUST_CHECK gw_status gw_predict_implied(const gw_predict_options *options, const gw_predict_codec *codec,
                                           uint32_t gpus, double gain, double *batch_seconds);

#endif
