/* Times MPI's all-reduce over a flat float32 tensor, for bench/exchange_net.py. Rank 0 prints the seconds of each run;
 * a run lasts as long as its slowest member. Usage: allreduce_mpi ELEMENTS RUNS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, elements = argc > 1 ? atoi(argv[1]) : 1 << 20, runs = argc > 2 ? atoi(argv[2]) : 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *work = malloc((size_t)elements * sizeof *work);
    for (int run = 0; work && run <= runs; run++) { /* the first run warms up */
        for (int i = 0; i < elements; i++)
            work[i] = (float)((i * 7 + rank) % 1000) * 1e-3f;
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, work, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < elements; i++)
            work[i] /= (float)size;
        double took = MPI_Wtime() - begin, most;
        MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0 && run > 0)
            printf("%s%.6f%s", run == 1 ? "[" : ", ", most, run == runs ? "]\n" : "");
    }
    free(work);
    MPI_Finalize();
    return 0;
}
