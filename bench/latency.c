/* Times the steps of small models: one member of an exchange over the tcp or the mpi link, or of MPI's own all-reduce.
 * bench/latency.py starts it, and Gloo's all-reduce beside it. Rank 0 prints the seconds of each step as a JSON list.
 *
 *     latency tcp HOST:PORT RANK SIZE CODEC TENSORS GROUPS ELEMENTS STEPS
 *     mpirun latency mpi CODEC TENSORS GROUPS ELEMENTS STEPS
 *     mpirun latency allreduce TENSORS ELEMENTS STEPS */
#include "base/numbers.h"

#include <gradwire/gradwire.h>
#if defined(GW_HAVE_MPI)
#include <gradwire/link_mpi.h>
#endif

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 20, MOST_TENSORS = 4096 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print(const double *took, int n_steps)
{
    for (int i = 0; i < n_steps; i++)
        printf("%s%.9f%s", i ? ", " : "[", took[i], i + 1 < n_steps ? "" : "]\n");
}

static uint32_t number(const char *text)
{
    uint64_t n;
    if (!gw_parse_whole(text, UINT32_MAX, &n)) {
        fprintf(stderr, "latency: \"%s\" is no whole number\n", text);
        exit(2);
    }
    return (uint32_t)n;
}

/* words: CODEC TENSORS GROUPS ELEMENTS STEPS. Steps follow each other without a pause. */
static gw_status exchange_steps(gw_link link, char **words)
{
    static gw_tensor tensors[MOST_TENSORS];
    static uint32_t group_of[MOST_TENSORS];
    uint32_t n = number(words[1]), n_groups = number(words[2]), n_elems = number(words[3]), n_steps = number(words[4]);
    float *gradient = calloc((size_t)n * n_elems, sizeof *gradient);
    double *took = calloc(n_steps, sizeof *took);
    gw_codec *codec = NULL;
    gw_exchange *exchange = NULL;
    gw_status status = gradient && took && n <= MOST_TENSORS ? gw_codec_parse(NULL, words[0], &codec) : GW_ERR_MEMORY;
    for (uint32_t t = 0; t < n && t < MOST_TENSORS; t++) {
        tensors[t] = (gw_tensor){.id = t, .n_elems = n_elems};
        group_of[t] = t % n_groups;
    }
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = codec,
                                   .tensors = tensors,
                                   .n_tensors = n,
                                   .group_of = group_of,
                                   .link = link,
                                   .seed = 1};
    if (status == GW_OK)
        status = gw_exchange_create(NULL, &options, &exchange);
    for (uint32_t step = 0; step < WARM_UP + n_steps && status == GW_OK; step++) {
        for (size_t i = 0; i < (size_t)n * n_elems; i++)
            gradient[i] = (float)((i + link.rank) % 17) - 8;
        double begin = seconds();
        status = gw_exchange_begin(exchange, step);
        for (uint32_t t = n; t-- > 0 && status == GW_OK;)
            status = gw_exchange_submit(exchange, t, gradient + (size_t)t * n_elems);
        if (status == GW_OK)
            status = gw_exchange_wait(exchange, NULL);
        if (step >= WARM_UP)
            took[step - WARM_UP] = seconds() - begin;
    }
    if (status == GW_OK && link.rank == 0)
        print(took, (int)n_steps);
    if (status < 0)
        fprintf(stderr, "rank %u: %s\n", link.rank, gw_last_error());
    gw_exchange_destroy(exchange);
    gw_codec_destroy(codec);
    free(took);
    free(gradient);
    return status;
}

static int over_tcp(char **words)
{
    gw_link link;
    const char *spin = getenv("SPIN_US");
    char address[400];
    snprintf(address, sizeof address, "tcp://%s?rank=%s&size=%s&spin_us=%s&insecure=1", words[0], words[1], words[2],
             spin ? spin : "0");
    gw_status status = gw_link_open(NULL, address, NULL, 1, &link);
    if (status < 0) {
        fprintf(stderr, "%s\n", gw_last_error());
        return 1;
    }
    status = exchange_steps(link, words + 3);
    gw_link_destroy(&link);
    return status < 0;
}

#if defined(GW_HAVE_MPI)
static int over_mpi(char **words)
{
    gw_link link;
    gw_status status = gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link);
    if (status < 0)
        return 1;
    status = exchange_steps(link, words);
    gw_link_destroy(&link);
    return status < 0;
}

/* words: TENSORS ELEMENTS STEPS. All tensors are under way at once, as an exchange's groups are. */
static int allreduce(char **words)
{
    int rank, size, n = (int)number(words[0]), n_elems = (int)number(words[1]), n_steps = (int)number(words[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *gradient = calloc((size_t)n * (size_t)n_elems, sizeof *gradient);
    double *took = calloc((size_t)n_steps, sizeof *took);
    MPI_Request *requests = calloc((size_t)n, sizeof(MPI_Request));
    if (!gradient || !took || !requests)
        return 1;
    for (int step = 0; step < WARM_UP + n_steps; step++) {
        for (int i = 0; i < n * n_elems; i++)
            gradient[i] = (float)((i + rank) % 17) - 8;
        double begin = seconds();
        if (n == 1)
            MPI_Allreduce(MPI_IN_PLACE, gradient, n_elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int t = 0; t < n && n > 1; t++)
            MPI_Iallreduce(MPI_IN_PLACE, gradient + (size_t)t * (size_t)n_elems, n_elems, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD, &requests[t]);
        if (n > 1)
            MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < n * n_elems; i++)
            gradient[i] /= (float)size;
        if (step >= WARM_UP)
            took[step - WARM_UP] = seconds() - begin;
    }
    if (rank == 0)
        print(took, n_steps);
    free(requests);
    free(took);
    free(gradient);
    return 0;
}

static int with_mpi(int argc, char **argv)
{
    int granted, failed = 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
    if (argc == 7 && strcmp(argv[1], "mpi") == 0)
        failed = over_mpi(argv + 2);
    else if (argc == 5 && strcmp(argv[1], "allreduce") == 0)
        failed = allreduce(argv + 2);
    MPI_Finalize();
    return failed;
}
#endif

int main(int argc, char **argv)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* like the tool: memory that codecs take in a step stays with the process */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (argc == 10 && strcmp(argv[1], "tcp") == 0)
        return over_tcp(argv + 2);
#if defined(GW_HAVE_MPI)
    return with_mpi(argc, argv);
#else
    fprintf(stderr, "this build has no MPI, or the arguments are not those at the top of bench/latency.c\n");
    return 2;
#endif
}
