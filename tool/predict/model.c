/* Predicts the time of a training step on a cluster, by TernGrad's performance model and by additions to it. */
#include "base/append.h"
#include "base/error.h"
#include "model.h"
#include "networks.h"

#include <math.h>
#include <string.h>

/* ---- clusters ------------------------------------------------------------------------------------------ */

/* From TernGrad's figures 5a and 5b: 128 machines with four GPUs each. The GTX 1080 are behind one PCI switch, and
 * NVLink connects the P100. PCIe 3.0 x16 carries 15.75 GB/s; large copies commonly get 12 GB/s of it. */
static const gw_cluster_info clusters[] = {
    {"eth-1g-gtx1080",
     "gtx1080",
     "four GPUs behind a PCI switch and 1 Gbit/s stand in TernGrad's figure 5; 12 GB/s over PCIe 3.0 x16 and 50 us a "
     "message are assumed",
     {4, 12e9, 12e9, 50e-6, 125e6}},
    {"ib-100g-p100",
     "p100",
     "four GPUs with NVLink and 100 Gbit/s stand in TernGrad's figure 5, and 20 GB/s of an NVLink in NVIDIA's paper on "
     "the P100; one link between two GPUs, 12 GB/s over PCIe 3.0 x16 and 2 us a message are assumed",
     {4, 20e9, 12e9, 2e-6, 12.5e9}},
};
enum { N_CLUSTERS = sizeof clusters / sizeof *clusters };

#define JOHNSON "Johnson's cnn-benchmarks, Torch with cuDNN 5, batch 16: "
#define TENSORFLOW "TensorFlow's benchmarks of May 2017, DGX-1, synthetic data: "

/* Scaled figures follow multiply-adds: VGG-A has 7.61 G, VGG16 15.47 G, GoogLeNet 1.58 G, InceptionV3 5.72 G. */
static const gw_gpu_speed speeds[] = {
    {"alexnet", "gtx1080", 128, 16 / 23.18e-3, JOHNSON "23.18 ms"},
    {"googlenet", "gtx1080", 64, 16 / (1.4 * 39.14e-3),
     JOHNSON "39.14 ms on a Pascal Titan X, which it finds 1.4 times faster than a GTX 1080"},
    {"vgg-a", "gtx1080", 32, 16 / 232.55e-3 * (15.47 / 7.61),
     JOHNSON "232.55 ms for VGG16, scaled by multiply-adds (15.47 G and 7.61 G)"},
    {"vgg16-imagenet", "gtx1080", 32, 16 / 232.55e-3, JOHNSON "232.55 ms"},
    {"resnet50", "gtx1080", 64, 16 / 153.90e-3, JOHNSON "153.90 ms"},
    {"alexnet", "p100", 128, 2987, TENSORFLOW "2987 a second with batch 512"},
    {"googlenet", "p100", 64, 142 * (5.72 / 1.58),
     TENSORFLOW "142 a second for InceptionV3, scaled by multiply-adds (5.72 G and 1.58 G)"},
    {"vgg-a", "p100", 32, 144 * (15.47 / 7.61),
     TENSORFLOW "144 a second for VGG16 with batch 32, scaled by multiply-adds (15.47 G and 7.61 G)"},
    {"vgg16-imagenet", "p100", 32, 144, TENSORFLOW "144 a second with batch 32"},
    {"resnet50", "p100", 64, 219, TENSORFLOW "219 a second"},
};
enum { N_SPEEDS = sizeof speeds / sizeof *speeds };

gw_status gw_cluster_find(const char *name, const gw_cluster_info **out)
{
    const char *names[N_CLUSTERS];
    size_t nth;
    for (size_t i = 0; i < N_CLUSTERS; i++)
        names[i] = clusters[i].name;
    const gw_status status = gw_find_name("cluster", name, names, N_CLUSTERS, &nth);
    if (status == GW_OK)
        *out = &clusters[nth];
    return status;
}

gw_status gw_gpu_speed_find(const char *network, const char *gpu, const gw_gpu_speed **out)
{
    for (size_t i = 0; i < N_SPEEDS; i++)
        if (strcmp(network, speeds[i].network) == 0 && strcmp(gpu, speeds[i].gpu) == 0) {
            *out = &speeds[i];
            return GW_OK;
        }
    char list[512] = "";
    for (size_t i = 0; i < N_SPEEDS; i++)
        gw_append(list, sizeof list, "%s%s on %s", i ? ", " : "", speeds[i].network, speeds[i].gpu);
    return gw_fail(GW_ERR_ARGUMENT, "how fast a '%s' trains '%s' is not known; known are %s", gpu, network, list);
}

/* ---- checks -------------------------------------------------------------------------------------------- */

/* A number that is not finite is outside, too. */
static gw_status check_range(const char *what, double value, double most)
{
    if (value >= 0 && value <= most && isfinite(value))
        return GW_OK;
    if (isinf(most))
        return gw_fail(GW_ERR_ARGUMENT, "%s is %g, and must be a number of 0 or more", what, value);
    return gw_fail(GW_ERR_ARGUMENT, "%s is %g, and must be a number from 0 to %g", what, value, most);
}

static gw_status check_above_zero(const char *what, double value)
{
    if (value > 0 && isfinite(value))
        return GW_OK;
    return gw_fail(GW_ERR_ARGUMENT, "%s is %g, and must be a number above 0", what, value);
}

gw_status gw_cluster_check(const gw_cluster *cluster)
{
    if (cluster->gpus_per_machine < 1 || cluster->gpus_per_machine > GW_MAX_GPUS_PER_MACHINE)
        return gw_fail(GW_ERR_ARGUMENT, "gpus_per_machine is %u, and must be from 1 to %u", cluster->gpus_per_machine,
                       GW_MAX_GPUS_PER_MACHINE);
    GW_TRY(check_above_zero("gpu_bandwidth", cluster->gpu_bandwidth));
    GW_TRY(check_above_zero("cpu_bandwidth", cluster->cpu_bandwidth));
    GW_TRY(check_range("network_latency_s", cluster->network_latency_s, INFINITY));
    return check_above_zero("network_bandwidth", cluster->network_bandwidth);
}

/* Checks all options but batch_seconds. */
static gw_status check_options(const gw_predict_options *o, const gw_predict_codec *codec)
{
    GW_TRY(gw_cluster_check(&o->cluster));
    GW_TRY(check_above_zero("gradient_bytes", o->gradient_bytes));
    GW_TRY(check_above_zero("batch", o->batch));
    GW_TRY(check_range("--overlap", o->overlap, 1));
    GW_TRY(check_range("--stragglers", o->straggler_cv, GW_MAX_STRAGGLER_CV));
    if (!codec)
        return GW_OK;
    GW_TRY(check_range("bytes_up", codec->bytes_up, INFINITY));
    GW_TRY(check_range("bytes_down", codec->bytes_down, INFINITY));
    return check_range("the codec's time", codec->seconds, INFINITY);
}

/* Computes how many GPUs each machine has, and how many machines there are: the paper's i and j. */
static gw_status place(const gw_cluster *cluster, uint32_t gpus, gw_prediction *out)
{
    const uint32_t each = cluster->gpus_per_machine;
    if (gpus < 1 || gpus > GW_MAX_GPUS)
        return gw_fail(GW_ERR_ARGUMENT, "the number of GPUs is %u, and must be from 1 to %u", gpus, GW_MAX_GPUS);
    if (gpus > each && gpus % each)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%u GPUs do not fill machines of %u; the number must be below %u or a multiple of it", gpus,
                       each, each);
    *out = (gw_prediction){.gpus = gpus, .gpus_each = gpus < each ? gpus : each};
    out->machines = gpus / out->gpus_each;
    return GW_OK;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

/* E[max of n]/mean of lognormal numbers whose standard deviation is cv times their mean. With X = exp(s*Z - s^2/2),
 * mean 1, the expected maximum is the integral of exp(s*z - s^2/2) * n * phi(z) * Phi(z)^(n-1). Simpson's rule sums it
 * over every z that counts. Far below, Phi^(n-1) vanishes. Far above, exp(s*z)*phi(z) vanishes; its peak is at s. */
static double slowest_by_mean(double cv, uint32_t n)
{
    enum { STEPS = 8192 };
    if (n < 2 || cv <= 0)
        return 1;
    const double s2 = log1p(cv * cv), s = sqrt(s2), from = -12, to = 12 + s, h = (to - from) / STEPS;
    double sum = 0;
    for (int k = 0; k <= STEPS; k++) {
        const double z = from + h * k, above = 0.5 * erfc(z * M_SQRT1_2);
        const double log_density = -0.5 * (z - s) * (z - s) + (n - 1.0) * log1p(-above);
        sum += (k == 0 || k == STEPS ? 1 : k % 2 ? 4 : 2) * exp(log_density);
    }
    return sum * h / 3 * n / sqrt(2 * M_PI);
}

static double between_machines(const gw_predict_options *o, double up, double down, uint32_t machines)
{
    const gw_cluster *c = &o->cluster;
    const double j = machines, servers = o->servers ? o->servers : 1;
    if (machines == 1)
        return 0;
    switch (o->owners) {
    case GW_OWNERS_PAPER:
        break;
    case GW_OWNERS_SERVERS:
        return 2 * c->network_latency_s + fmax(j / servers, 1) * (up + down) / c->network_bandwidth;
    case GW_OWNERS_RING:
        return 2 * (j - 1) * c->network_latency_s + (j - 1) / j * (up + down) / c->network_bandwidth;
    case GW_OWNERS_SHARDED:
        return 2 * c->network_latency_s + (j - 1) / j * (up + down) / c->network_bandwidth;
    }
    return (c->network_latency_s + 0.5 * (up + down) / c->network_bandwidth) * log2(j);
}

/* Computes equation 27 and the codec: all parts that do not depend on T(1,1,K). */
static void communicate(const gw_predict_options *o, const gw_predict_codec *codec, gw_prediction *p)
{
    const double g = o->gradient_bytes;
    p->gpu_seconds = g / o->cluster.gpu_bandwidth * log2(p->gpus_each);
    p->cpu_seconds = g / o->cluster.cpu_bandwidth;
    p->network_seconds = between_machines(o, codec ? codec->bytes_up : g, codec ? codec->bytes_down : g, p->machines);
    p->codec_seconds = codec && p->machines > 1 ? codec->seconds : 0;
}

/* How many times as long computing takes on one GPU as in a step of `gpus` GPUs. */
static double spread_over(const gw_predict_options *o, uint32_t gpus)
{
    return o->scaling == GW_SCALING_STRONG ? gpus : 1;
}

gw_status gw_predict(const gw_predict_options *o, const gw_predict_codec *codec, uint32_t gpus, gw_prediction *out)
{
    GW_TRY(check_options(o, codec));
    GW_TRY(check_above_zero("batch_seconds", o->batch_seconds));
    GW_TRY(place(&o->cluster, gpus, out));
    communicate(o, codec, out);
    const double compute = o->batch_seconds - out->cpu_seconds;
    if (compute < 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "batch_seconds is %g; to copy the gradient to the processor alone takes %g, so a step cannot be "
                       "shorter",
                       o->batch_seconds, out->cpu_seconds);
    out->compute_seconds = compute / spread_over(o, gpus);
    /* the integral's rounding may bring it below 1 */
    out->waiting_seconds = out->compute_seconds * fmax(0, slowest_by_mean(o->straggler_cv, gpus) - 1);
    out->hidden_seconds =
        fmin(o->overlap * (2.0 / 3) * out->compute_seconds, out->network_seconds + out->codec_seconds);
    out->seconds = out->compute_seconds + (out->gpu_seconds + out->cpu_seconds + out->network_seconds) +
                   out->codec_seconds + out->waiting_seconds - out->hidden_seconds;
    const double samples = o->scaling == GW_SCALING_STRONG ? (double)o->batch : (double)gpus * o->batch;
    out->samples_per_second = samples / out->seconds;
    if (!isfinite(out->seconds) || !isfinite(out->samples_per_second) || !(out->samples_per_second > 0))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "a step on %u GPUs would take %g seconds: a bandwidth, a latency, or another number is out of all "
            "proportion",
            gpus, out->seconds);
    return GW_OK;
}

gw_status gw_predict_implied(const gw_predict_options *options, const gw_predict_codec *codec, uint32_t gpus,
                             double gain, double *batch_seconds)
{
    gw_prediction plain, coded;
    GW_TRY(check_options(options, codec));
    GW_TRY(place(&options->cluster, gpus, &plain));
    if (options->overlap > 0)
        return gw_fail(GW_ERR_ARGUMENT, "overlap is %g; what a gain implies is known only without overlap",
                       options->overlap);
    coded = plain;
    communicate(options, NULL, &plain);
    communicate(options, codec, &coded);
    /* (C*w + a)/(C*w + b) = gain is solved for C*w, the time of computing with the wait for the slowest. a and b are
     * what a step takes besides. */
    const double same = plain.gpu_seconds + plain.cpu_seconds;
    const double a = same + plain.network_seconds, b = same + coded.network_seconds + coded.codec_seconds;
    const double compute = (a - gain * b) / (gain - 1);
    if (!isfinite(gain) || !isfinite(compute) || compute <= 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "on %u GPUs no T(1,1,K) gives a gain of %g; it lies between 1 and %.3g, which a GPU that takes "
                       "no time would have",
                       gpus, gain, a / b);
    *batch_seconds =
        compute / slowest_by_mean(options->straggler_cv, gpus) * spread_over(options, gpus) + plain.cpu_seconds;
    return GW_OK;
}
