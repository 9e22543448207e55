/* Rows of numbers that are copied or added at positions that other data decide, and images that become larger, in f32:
 * yardsticks for operations that mostly move data. Built with OpenMP if the compiler supports it.
 *
 * Large results are written with non-temporal stores, as in memory.c. */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "threads.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define WIDEST
#endif

/* Floats in 128 MiB, as in memory.c. */
#define BEYOND_CACHES (INT64_C(1) << 25)

/* Copy floats. `far`: they will not be read again soon, so they go to memory past the caches. */
static void write_floats(const float *restrict from, float *restrict to, int64_t n, int far)
{
    int64_t i = 0;
    if (!far) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
#ifdef __SSE2__
    for (; i < n && (uintptr_t)(to + i) % 16; i++)
        to[i] = from[i];
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
    for (; i < n; i++)
        to[i] = from[i];
}

/* ---- tokens of a mixture of experts: see ops/permute_tokens.py */

/* `sizes` of all four: tokens, active, hidden */
int64_t deepbench_dispatch(const float *x, const int32_t *sources, float *y, const int64_t *sizes)
{
    const int64_t rows = sizes[0] * sizes[1], hidden = sizes[2];
    const int far = rows * hidden > BEYOND_CACHES;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < rows; j++)
        write_floats(x + sources[j] * hidden, y + j * hidden, hidden, far);
    return 0;
}

/* y = the sum over some rows, each times a weight; without weights the plain sum */
WIDEST static void add_rows(const float *restrict x, const int32_t *places, const float *weights, float *restrict y,
                            int64_t count, int64_t hidden)
{
    for (int64_t i = 0; i < count; i++) {
        const float w = weights ? weights[i] : 1.0f, *row = x + places[i] * hidden;
        if (i == 0)
            for (int64_t k = 0; k < hidden; k++)
                y[k] = w * row[k];
        else
            for (int64_t k = 0; k < hidden; k++)
                y[k] += w * row[k];
    }
}

int64_t deepbench_combine(const float *x, const float *w, const int32_t *places, float *y, const int64_t *sizes)
{
    const int64_t tokens = sizes[0], active = sizes[1], hidden = sizes[2];
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        add_rows(x, places + t * active, w + t * active, y + t * hidden, active, hidden);
    return 0;
}

int64_t deepbench_dispatch_backward(const float *dy, const int32_t *places, float *dx, const int64_t *sizes)
{
    const int64_t tokens = sizes[0], active = sizes[1], hidden = sizes[2];
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        add_rows(dy, places + t * active, 0, dx + t * hidden, active, hidden);
    return 0;
}

/* Sums side by side, because each addition waits for the one before it in its own sum. */
#define SUMS 32

/* dx = w · dy; returns the product of dy and x. */
WIDEST static float combine_row_backward(const float *restrict dy, const float *restrict x, float w, float *restrict dx,
                                         int64_t hidden)
{
    float sums[SUMS] = {0}, sum = 0;
    int64_t k = 0;
    for (; k + SUMS <= hidden; k += SUMS)
        for (int64_t j = 0; j < SUMS; j++) {
            dx[k + j] = w * dy[k + j];
            sums[j] += dy[k + j] * x[k + j];
        }
    for (; k < hidden; k++) {
        dx[k] = w * dy[k];
        sum += dy[k] * x[k];
    }
    for (int64_t j = 0; j < SUMS; j++)
        sum += sums[j];
    return sum;
}

int64_t deepbench_combine_backward(const float *dy, const float *x, const float *w, const int32_t *places, float *dx,
                                   float *dw, const int64_t *sizes)
{
    const int64_t tokens = sizes[0], active = sizes[1], hidden = sizes[2];
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = t * active; i < (t + 1) * active; i++) {
            const int64_t row = places[i] * hidden;
            dw[i] = combine_row_backward(dy + t * hidden, x + row, w[i], dx + row, hidden);
        }
    return 0;
}

/* ---- upsampling: see ops/upsample.py. An image is n · outer planes of h × w pixels of `inner` numbers each. */

/* Each pixel of a row `scale` times. */
WIDEST static void widen(const float *restrict x, float *restrict y, int64_t w, int64_t inner, int64_t scale)
{
    if (inner == 1 && scale == 2)
        for (int64_t j = 0; j < w; j++)
            y[2 * j] = y[2 * j + 1] = x[j];
    else
        for (int64_t j = 0; j < w; j++)
            for (int64_t k = 0; k < scale; k++)
                memcpy(y + (j * scale + k) * inner, x + j * inner, (size_t)inner * sizeof *y);
}

WIDEST static void add_floats(const float *restrict a, const float *restrict b, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

WIDEST static void add_to(const float *restrict a, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a[i];
}

/* The sum of each `scale` pixels of a row. */
WIDEST static void narrow(const float *restrict y, float *restrict x, int64_t w, int64_t inner, int64_t scale)
{
    if (inner == 1 && scale == 2)
        for (int64_t j = 0; j < w; j++)
            x[j] = y[2 * j] + y[2 * j + 1];
    else
        for (int64_t j = 0; j < w; j++) {
            memcpy(x + j * inner, y + j * scale * inner, (size_t)inner * sizeof *x);
            for (int64_t k = 1; k < scale; k++)
                for (int64_t c = 0; c < inner; c++)
                    x[j * inner + c] += y[(j * scale + k) * inner + c];
        }
}

/* `sizes`: rows of all planes of x, w, inner, scale. `space`: two rows of y for each thread. `z` may be null. */
int64_t deepbench_upsample(const float *x, const float *z, float *y, float *space, const int64_t *sizes)
{
    const int64_t rows = sizes[0], w = sizes[1], inner = sizes[2], scale = sizes[3], wide = w * scale * inner;
    const int far = rows * scale * wide > BEYOND_CACHES;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *copies = space + 2 * thread_number() * wide, *sum = copies + wide;
        widen(x + row * w * inner, copies, w, inner, scale);
        for (int64_t k = row * scale; k < (row + 1) * scale; k++) {
            if (z)
                add_floats(copies, z + k * wide, far ? sum : y + k * wide, wide);
            if (!z || far)
                write_floats(z ? sum : copies, y + k * wide, wide, far);
        }
    }
    return 0;
}

/* `space` and `sizes` as above. */
int64_t deepbench_upsample_backward(const float *dy, float *dx, float *space, const int64_t *sizes)
{
    const int64_t rows = sizes[0], w = sizes[1], inner = sizes[2], scale = sizes[3], wide = w * scale * inner;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float *sum = space + 2 * thread_number() * wide;
        memcpy(sum, dy + row * scale * wide, (size_t)wide * sizeof *sum);
        for (int64_t k = 1; k < scale; k++)
            add_to(dy + (row * scale + k) * wide, sum, wide);
        narrow(sum, dx + row * w * inner, w, inner, scale);
    }
    return 0;
}
