/* Elementwise functions, sums, embedding bags, optimizers and CTC in f32: yardsticks for operations that the memory
 * limits. Built with OpenMP if the compiler supports it. Each thread works on one part, the same in every call.
 *
 * Large results are written with non-temporal stores, as in memory.c: otherwise each cache line would be read before it
 * is written. */
#include <math.h>
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
/* Floats that are computed in a first-level cache before they are written to memory. */
#define BLOCK 1024

/* Floats in a cache line. */
#define CACHE_LINE 16

/* exp for |x| < 87, after Cephes (Moshier, expf): 2^n times a polynomial of the remainder, wrong by two roundoffs. */
static inline float exponential(float x)
{
    const float n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* rounds to a whole number */
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    union { int32_t bits; float value; } scale;
    scale.bits = ((int32_t)n + 127) << 23;
    return y * scale.value;
}

static inline float bounded(float x) { return x < -86.0f ? -86.0f : x > 86.0f ? 86.0f : x; }

static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(bounded(-x))); }

/* The normal distribution, after Abramowitz and Stegun 7.1.26: wrong by at most 1e-7. */
static inline float normal(float x)
{
    const float z = (x < 0 ? -x : x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.3275911f * z);
    float q = 1.061405429f;
    q = q * t - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    q = 0.5f * q * t * exponential(bounded(-z * z));
    return x < 0 ? q : 1.0f - q;
}

/* After Cephes (tanhf). */
static inline float hyperbolic_tangent(float x)
{
    const float size = x < 0 ? -x : x, z = x * x;
    float small = -5.70498872745e-3f;
    small = small * z + 2.06390887954e-2f;
    small = small * z - 5.37397155531e-2f;
    small = small * z + 1.33314422036e-1f;
    small = small * z - 3.33332819422e-1f;
    small = small * z * x + x;
    const float large = 1.0f - 2.0f / (exponential(bounded(2.0f * size)) + 1.0f);
    return size < 0.625f ? small : x < 0 ? -large : large;
}

static void write_uncached(const float *restrict from, float *restrict to, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    if ((uintptr_t)to % 16 == 0)
        for (; i + 4 <= n; i += 4)
            _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
    for (; i < n; i++)
        to[i] = from[i];
}

#define ELEMENTWISE(name, expression)                                                                                  \
    WIDEST static void name##_block(const float *restrict pa, const float *restrict pb, const float *restrict pc,      \
                                    float *restrict y, int64_t n)                                                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = pa[i], b = pb[i], c = pc[i];                                                               \
            (void)b, (void)c;                                                                                          \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    /* b and c may be a, where they are not used */                                                                    \
    int64_t deepbench_##name(const float *a, const float *b, const float *c, float *y, int64_t n)                      \
    {                                                                                                                  \
        _Pragma("omp parallel")                                                                                        \
        {                                                                                                              \
            int64_t begin, count = thread_part(n, CACHE_LINE, &begin);                                                 \
            const float *pa = a + begin, *pb = b + begin, *pc = c + begin;                                             \
            if (n <= BEYOND_CACHES)                                                                                    \
                name##_block(pa, pb, pc, y + begin, count);                                                            \
            else {                                                                                                     \
                float block[BLOCK];                                                                                    \
                for (int64_t i = 0; i < count; i += BLOCK) {                                                           \
                    const int64_t some = count - i < BLOCK ? count - i : BLOCK;                                        \
                    name##_block(pa + i, pb + i, pc + i, block, some);                                                 \
                    write_uncached(block, y + begin + i, some);                                                        \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

ELEMENTWISE(relu, a > 0 ? a : 0)
ELEMENTWISE(relu6, a < 0 ? 0 : a > 6 ? 6 : a)
ELEMENTWISE(gelu, a *normal(a))
ELEMENTWISE(gelu_tanh, a *sigmoid(1.5957691216057308f * (a + 0.044715f * a * a * a)))
ELEMENTWISE(silu, a *sigmoid(a))
ELEMENTWISE(elu, a > 0 ? a : exponential(bounded(a)) - 1)
ELEMENTWISE(sigmoid, sigmoid(a))
ELEMENTWISE(tanh, hyperbolic_tangent(a))
ELEMENTWISE(add, a + b)
ELEMENTWISE(multiply, a *b)
ELEMENTWISE(multiply_add, a *b + c)
ELEMENTWISE(add_relu, a + b > 0 ? a + b : 0)
ELEMENTWISE(swiglu, a *sigmoid(a) * b)

/* ---- sums */

/* 32 sums, because a core adds several vectors per cycle and each waits for the one before it in its own sum. */
#define SUMS 32

WIDEST static float sum_of(const float *a, int64_t n)
{
    float sums[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++)
            sums[j] += a[i + j];
    for (; i < n; i++)
        sum += a[i];
    for (int j = 0; j < SUMS; j++)
        sum += sums[j];
    return sum;
}

/* The sum of each row. */
int64_t deepbench_sum_columns(const float *x, float *y, int64_t rows, int64_t columns)
{
#pragma omp parallel for
    for (int64_t i = 0; i < rows; i++)
        y[i] = sum_of(x + i * columns, columns);
    return 0;
}

WIDEST static void add_row(const float *restrict row, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += row[i];
}

/* The sum of each column: each thread has some of the columns, and reads them row by row. */
int64_t deepbench_sum_rows(const float *x, float *y, int64_t rows, int64_t columns)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(columns, CACHE_LINE, &begin);
        memset(y + begin, 0, (size_t)count * sizeof *y);
        for (int64_t i = 0; i < rows; i++)
            add_row(x + i * columns + begin, y + begin, count);
    }
    return 0;
}

/* ---- embedding bag */

/* Rows that are asked for before they are needed: the memory takes longer than adding a row. */
#define AHEAD 8

/* Sums of the rows of a table; bag i has the rows indices[offsets[i]] and the following ones. */
int64_t deepbench_embedding_bag(const float *table, const int32_t *indices, const int32_t *offsets, float *y,
                                int64_t bags, int64_t bag, int64_t dim)
{
    const int64_t lookups = bags * bag;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < bags; i++) {
        float *sum = y + i * dim;
        for (int64_t j = offsets[i]; j < offsets[i] + bag; j++) {
            const float *row = table + indices[j] * dim;
#ifdef __GNUC__
            if (j + AHEAD < lookups)
                for (int64_t k = 0; k < dim; k += 16)
                    __builtin_prefetch(table + indices[j + AHEAD] * dim + k);
#endif
            if (j == offsets[i])
                memcpy(sum, row, (size_t)dim * sizeof *sum);
            else
                add_row(row, sum, dim);
        }
    }
    return 0;
}

/* ---- optimizers */

WIDEST static void sgd_part(const float *restrict g, float *restrict p, float *restrict v, int64_t n, float rate,
                            float momentum)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] = momentum * v[i] + g[i];
        p[i] -= rate * v[i];
    }
}

/* `factors`: rate, momentum */
int64_t deepbench_sgd(const float *g, float *p, float *v, int64_t n, const float *factors)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        sgd_part(g + begin, p + begin, v + begin, count, factors[0], factors[1]);
    }
    return 0;
}

WIDEST static void adam_part(const float *restrict g, float *restrict p, float *restrict m, float *restrict v,
                             int64_t n, const float *factors)
{
    const float beta1 = factors[0], rest1 = factors[1], beta2 = factors[2], rest2 = factors[3], rate = factors[4],
                correction = factors[5], epsilon = factors[6], keep = factors[7];
    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + rest1 * g[i];
        v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
        p[i] = keep * p[i] - rate * m[i] / (__builtin_sqrtf(v[i]) * correction + epsilon);
    }
}

/* `factors`: beta1, 1 - beta1, beta2, 1 - beta2 (which is inexact if computed in f32), the rate over 1 - beta1^t, one over
 * the root of 1 - beta2^t, epsilon, and what the decay of the weights leaves */
int64_t deepbench_adam(const float *g, float *p, float *m, float *v, int64_t n, const float *factors)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        adam_part(g + begin, p + begin, m + begin, v + begin, count, factors);
    }
    return 0;
}

/* ---- connectionist temporal classification: see ops/ctc.py */

#define IMPOSSIBLE (-1e30f)
/* The exponentials of these would underflow, which is slow, or not change a sum. */
#define NOTHING (-60.0f)
#define NEGLIGIBLE (-20.0f)

static inline float log_add(float a, float b)
{
    const float large = a > b ? a : b, small = a > b ? b : a;
    return small < large + NEGLIGIBLE ? large : large + log1pf(expf(small - large));
}

static inline int32_t label(const int32_t *transcript, int64_t i) { return i % 2 ? transcript[i / 2] : 0; }

static inline int skips(const int32_t *transcript, int64_t i)
{
    return i % 2 && i > 1 && transcript[i / 2] != transcript[i / 2 - 1];
}

/* Logarithms of alpha (time, states) of one sequence; `stride` floats from one time step to the next. Returns the loss. */
static float alphas(const float *log_y, int64_t stride, const int32_t *transcript, int64_t time, int64_t states,
                    float *alpha)
{
    for (int64_t i = 0; i < states; i++)
        alpha[i] = i < 2 ? log_y[label(transcript, i)] : IMPOSSIBLE;
    for (int64_t t = 1; t < time; t++) {
        const float *before = alpha + (t - 1) * states, *y = log_y + t * stride;
        float *now = alpha + t * states;
        for (int64_t i = 0; i < states; i++) {
            float sum = before[i];
            if (i > 0)
                sum = log_add(sum, before[i - 1]);
            if (skips(transcript, i))
                sum = log_add(sum, before[i - 2]);
            now[i] = sum <= IMPOSSIBLE ? IMPOSSIBLE : sum + y[label(transcript, i)];
        }
    }
    const float *last = alpha + (time - 1) * states;
    return -log_add(last[states - 1], last[states - 2]);
}

/* `scratch`: time · (2 · labels + 1) floats per sequence. `sizes`: batch, time, labels, classes */
int64_t deepbench_ctc(const float *log_y, const int32_t *transcripts, const int32_t *steps, const int32_t *lengths,
                      float *loss, float *scratch, const int64_t *sizes)
{
    const int64_t batch = sizes[0], time = sizes[1], labels = sizes[2], classes = sizes[3];
#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < batch; b++)
        loss[b] = alphas(log_y + b * classes, batch * classes, transcripts + b * labels, steps[b], 2 * lengths[b] + 1,
                         scratch + b * time * (2 * labels + 1));
    return 0;
}

/* The gradient; `scratch` has alpha and `loss` the losses of a forward pass. `row`: 2 · labels + 1 floats per sequence,
 * twice */
int64_t deepbench_ctc_backward(const float *log_y, const int32_t *transcripts, const int32_t *steps,
                               const int32_t *lengths, const float *loss, const float *scratch, const float *dloss,
                               float *gradient, float *row, const int64_t *sizes)
{
    const int64_t batch = sizes[0], time = sizes[1], labels = sizes[2], classes = sizes[3], most = 2 * labels + 1;
#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < batch; b++) {
        const int32_t *transcript = transcripts + b * labels;
        const int64_t states = 2 * lengths[b] + 1;
        float *beta = row + b * 2 * most, *after = beta + most;
        for (int64_t t = time - 1; t >= 0; t--) {
            const float *y = log_y + (t * batch + b) * classes;
            float *out = gradient + (t * batch + b) * classes;
            if (t >= steps[b]) {
                memset(out, 0, (size_t)classes * sizeof *out);
                continue;
            }
            /* beta without y(t), after with it */
            for (int64_t i = 0; i < states; i++) {
                float sum = IMPOSSIBLE;
                if (t == steps[b] - 1)
                    sum = i >= states - 2 ? 0 : IMPOSSIBLE;
                else {
                    sum = after[i];
                    if (i + 1 < states)
                        sum = log_add(sum, after[i + 1]);
                    if (i + 2 < states && skips(transcript, i + 2))
                        sum = log_add(sum, after[i + 2]);
                }
                beta[i] = sum;
            }
            for (int64_t k = 0; k < classes; k++)
                out[k] = expf(y[k]);
            const float *alpha = scratch + b * time * most + t * states;
            for (int64_t i = 0; i < states; i++) {
                const int32_t k = label(transcript, i);
                after[i] = beta[i] <= IMPOSSIBLE ? IMPOSSIBLE : beta[i] + y[k];
                const float share = alpha[i] + beta[i] + loss[b];
                if (share > NOTHING)
                    out[k] -= expf(share);
            }
            for (int64_t k = 0; k < classes; k++)
                out[k] *= dloss[b];
        }
    }
    return 0;
}
