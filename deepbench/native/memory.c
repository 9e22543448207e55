/* Read, gather, copy and triad: four measures of memory. Built with OpenMP if the compiler supports it.
 *
 * Each thread works on one part, the same in every call. The arrays were filled by one thread, which decides in which
 * NUMA node their pages are.
 *
 * Reading and gathering may repeat: one call passes over the same data many times. Starting the threads takes a
 * microsecond or more, in which a core reads a first-level cache several times.
 *
 * Large arrays are written with non-temporal stores if the CPU has them. Otherwise each cache line would be read before
 * it is written, and that traffic is not counted (McCalpin's rule: count the bytes that the program reads and writes).
 */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "threads.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* The sum of n words, `passes` times over, modulo 2^64: depends on every word and every pass, but not on the order.
 *
 * 32 sums, because a core adds several vectors per cycle and each waits for the one before it in its own sum. */
#define SUMS 32

#ifdef __GNUC__
/* The compiler must assume that memory has changed, so that it reads it again in every pass. */
#define NEXT_PASS() __asm__ volatile("" ::: "memory")
#else
#define NEXT_PASS()
#endif

WIDEST static uint64_t read_words(const uint64_t *a, int64_t n, int64_t passes)
{
    uint64_t sums[SUMS] = {0}, sum = 0;
    for (int64_t pass = 0; pass < passes; pass++) {
        int64_t i = 0;
        for (; i + SUMS <= n; i += SUMS)
            for (int j = 0; j < SUMS; j++)
                sums[j] += a[i + j];
        for (; i < n; i++)
            sum += a[i];
        NEXT_PASS();
    }
    for (int j = 0; j < SUMS; j++)
        sum += sums[j];
    return sum;
}

/* One number at a time: compilers make slower code of gather instructions, of which few CPUs have fast ones. */
#if defined(__GNUC__) && !defined(__clang__)
#define ONE_BY_ONE __attribute__((optimize("no-tree-vectorize")))
#else
#define ONE_BY_ONE
#endif

/* The sum of table[at[i]] for n positions, `passes` times over, modulo 2^32. Each position is read, too. */
ONE_BY_ONE static uint32_t gather_words(const uint32_t *table, const int32_t *at, int64_t n, int64_t passes)
{
    uint32_t sums[4] = {0};
    for (int64_t pass = 0; pass < passes; pass++) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; j++)
                sums[j % 4] += table[at[i + j]];
        for (; i < n; i++)
            sums[0] += table[at[i]];
        NEXT_PASS();
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

WIDEST static void triad_floats(const float *restrict a, const float *restrict b, float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = a[i] + 3.0f * b[i];
}

/* Floats in 128 MiB. Larger arrays measure the memory, even if a cache of a gigabyte would hold them. */
#define BEYOND_CACHES (INT64_C(1) << 25)

/* c = a, or a + 3 b, with non-temporal stores of four floats; c must be aligned to 16 bytes. */
static void copy_uncached(const float *restrict a, float *restrict c, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(c + i, _mm_loadu_ps(a + i));
    _mm_sfence();
#endif
    for (; i < n; i++)
        c[i] = a[i];
}

static void triad_uncached(const float *restrict a, const float *restrict b, float *restrict c, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    const __m128 three = _mm_set1_ps(3.0f);
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(c + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_mul_ps(three, _mm_loadu_ps(b + i))));
    _mm_sfence();
#endif
    for (; i < n; i++)
        c[i] = a[i] + 3.0f * b[i];
}

/* Floats, or twice as many bytes, in a cache line: no two threads write to the same one. */
#define CACHE_LINE 16

int64_t deepbench_read(const uint64_t *a, uint64_t *result, int64_t n, int64_t passes)
{
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        sum += read_words(a + begin, count, passes);
    }
    *result = sum;
    return 0;
}

/* All threads read from the whole table, each at its own part of the positions. */
int64_t deepbench_gather(const uint32_t *table, const int32_t *at, uint32_t *result, int64_t n, int64_t passes)
{
    uint32_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        sum += gather_words(table, at + begin, count, passes);
    }
    *result = sum;
    return 0;
}

int64_t deepbench_copy(const float *a, float *c, int64_t n)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        if (n > BEYOND_CACHES)
            copy_uncached(a + begin, c + begin, count);
        else
            memcpy(c + begin, a + begin, (size_t)count * sizeof *a);
    }
    return 0;
}

int64_t deepbench_triad(const float *a, const float *b, float *c, int64_t n)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        if (n > BEYOND_CACHES)
            triad_uncached(a + begin, b + begin, c + begin, count);
        else
            triad_floats(a + begin, b + begin, c + begin, count);
    }
    return 0;
}
