/* Reading, copying and triad, the three ways to ask how fast memory is. Built with OpenMP where the compiler has it.
 *
 * Each thread takes one stretch, the same in every call. Pages lie where they were first written, by one thread.
 */
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

int64_t deepbench_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Bits that occur an odd number of times in n words: every word counts, in whatever order. */
WIDEST static uint64_t read_words(const uint64_t *a, int64_t n)
{
    uint64_t bits[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            bits[j] ^= a[i + j];
    for (; i < n; i++)
        bits[0] ^= a[i];
    return bits[0] ^ bits[1] ^ bits[2] ^ bits[3] ^ bits[4] ^ bits[5] ^ bits[6] ^ bits[7];
}

WIDEST static void triad_floats(const float *restrict a, const float *restrict b, float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = a[i] + 3.0f * b[i];
}

/* The stretch of the calling thread: where it begins, and how long it is. */
static int64_t stretch(int64_t n, int64_t *begin)
{
    int64_t part = 0, parts = 1;
#ifdef _OPENMP
    part = omp_get_thread_num(), parts = omp_get_num_threads();
#endif
    *begin = n / parts * part + (part < n % parts ? part : n % parts);
    return n / parts + (part < n % parts);
}

int64_t deepbench_read(const uint64_t *a, uint64_t *bits, int64_t n)
{
    uint64_t all = 0;
#pragma omp parallel reduction(^ : all)
    {
        int64_t begin, count = stretch(n, &begin);
        all ^= read_words(a + begin, count);
    }
    *bits = all;
    return 0;
}

int64_t deepbench_copy(const float *a, float *c, int64_t n)
{
#pragma omp parallel
    {
        int64_t begin, count = stretch(n, &begin);
        memcpy(c + begin, a + begin, (size_t)count * sizeof *a);
    }
    return 0;
}

int64_t deepbench_triad(const float *a, const float *b, float *c, int64_t n)
{
#pragma omp parallel
    {
        int64_t begin, count = stretch(n, &begin);
        triad_floats(a + begin, b + begin, c + begin, count);
    }
    return 0;
}
