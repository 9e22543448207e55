/* MPI_Allreduce as a C program times it: a barrier, one call, its nanoseconds. Built with the MPI's own compiler. */
#include <mpi.h>
#include <stdint.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void plain_allreduce(const float *send, float *receive, int n, int calls, int64_t *times)
{
    for (int i = 0; i < calls; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t start = now();
        MPI_Allreduce(send, receive, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = now() - start;
    }
}
