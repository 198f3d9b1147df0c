/* Averages a gradient over the ranks of a communicator, TernGrad's way: every value travels as -1, 0 or +1 times a
 * scaler that all share. First in one call, then by an exchange, as a program does that averages in every step.
 *
 *     mpicc mpi_average.c $(pkg-config --cflags --libs gradwire-mpi) && mpiexec -n 3 ./a.out
 *
 * Ternary values are drawn at random and right on average, so the mean over many steps comes close to the true average.
 */
#include <gradwire/gradwire.h>
#include <gradwire/link_mpi.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { ELEMENTS = 100000, STEPS = 50 };

static float gradient[ELEMENTS];
static double sum[ELEMENTS]; /* the sum of the averages of all steps */

/* The gradient that a rank finds in its share of the batch. It is the same in every step, so that the program can
 * compare the averages with the mean. */
static float value(int rank, int i)
{
    return sinf(0.001f * (float)i) + 0.1f * (float)rank;
}

static gw_status average(gw_context *context, gw_codec *codec, gw_link link, gw_step_result *result)
{
    gw_tensor tensor = {.name = "weights", .id = 0, .n_elems = ELEMENTS};
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = link, .seed = 1};
    gw_exchange *exchange;
    gw_status status = gw_exchange_create(context, &options, &exchange);
    if (status < 0)
        return status;
    for (uint32_t step = 0; step < STEPS && status == GW_OK; step++) {
        for (int i = 0; i < ELEMENTS; i++) /* backward would do this */
            gradient[i] = value((int)link.rank, i);
        status = gw_exchange_begin(exchange, step);
        if (status == GW_OK)
            status = gw_exchange_submit(exchange, 0, gradient);
        if (status == GW_OK)
            status = gw_exchange_wait(exchange, result);
        for (int i = 0; i < ELEMENTS && status == GW_OK; i++) /* an optimizer would do this */
            sum[i] += gradient[i];
    }
    gw_exchange_destroy(exchange);
    return status;
}

int main(int argc, char **argv)
{
    int granted, rank, n;
    gw_codec *codec;
    gw_link link;
    gw_step_result result;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted); /* the exchange has a thread of its own */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    float few[3] = {(float)rank, 1, -1};
    if (gw_average_mpi(NULL, "none", MPI_COMM_WORLD, 0, few, 3, NULL) < 0 ||
        gw_average_mpi(NULL, "none", MPI_COMM_WORLD, 1, few, 3, NULL) < 0 ||
        fabsf(few[0] - 0.5f * (float)(n - 1)) > 0 || gw_codec_parse(NULL, "ternary", &codec) < 0 ||
        gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link) < 0 || average(NULL, codec, link, &result) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, gw_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double worst = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        double want = 0;
        for (int r = 0; r < n; r++)
            want += value(r, i) / (double)n;
        worst = fmax(worst, fabs(sum[i] / STEPS - want));
    }
    printf("rank %d of %d: %llu bytes up a step, %llu as float32; largest error of the mean %.2f\n", rank, n,
           (unsigned long long)result.bytes_up, (unsigned long long)result.dense_bytes, worst);
    gw_link_destroy(&link); /* this must come before MPI ends */
    gw_codec_destroy(codec);
    MPI_Finalize();
    return worst > 0.8;
}
