/* How the loops share work among threads. Without OpenMP there is one thread. */
#ifndef DEEPBENCH_THREADS_H
#define DEEPBENCH_THREADS_H

#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Threads of a parallel region: Python compares them with those of the case. */
int64_t deepbench_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Inside a parallel region: the number of the calling thread, and how many there are. */
static inline int64_t thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static inline int64_t thread_count(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Inside a parallel region: the first of n items of the calling thread's part, and its length. Parts are multiples of
 * `unit`: with a unit of a cache line, no two threads write to the same one. */
static inline int64_t thread_part(int64_t n, int64_t unit, int64_t *begin)
{
    const int64_t part = thread_number(), parts = thread_count();
    const int64_t length = ((n + parts - 1) / parts + unit - 1) / unit * unit;
    *begin = length * part < n ? length * part : n;
    return *begin + length > n ? n - *begin : length;
}

#endif
