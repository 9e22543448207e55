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

/* gelu_tanh(a) = a · (1 + tanh(z))/2 = a · sigmoid(2 · z): this is 2 · z. */
static inline float tanh_argument(float a) { return 1.5957691216057308f * (a + 0.044715f * a * a * a); }

/* Derivatives. */
static inline float gelu_slope(float a)
{
    return normal(a) + a * 0.39894228040143268f * exponential(bounded(-0.5f * a * a));
}

static inline float gelu_tanh_slope(float a)
{
    const float s = sigmoid(tanh_argument(a));
    return s + a * s * (1 - s) * 1.5957691216057308f * (1 + 0.134145f * a * a);
}

static inline float silu_slope(float a)
{
    const float s = sigmoid(a);
    return s * (1 + a * (1 - s));
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
ELEMENTWISE(gelu_tanh, a *sigmoid(tanh_argument(a)))
ELEMENTWISE(silu, a *sigmoid(a))
ELEMENTWISE(elu, a > 0 ? a : exponential(bounded(a)) - 1)
ELEMENTWISE(sigmoid, sigmoid(a))
ELEMENTWISE(tanh, hyperbolic_tangent(a))
ELEMENTWISE(add, a + b)
ELEMENTWISE(multiply, a *b)
ELEMENTWISE(multiply_add, a *b + c)
ELEMENTWISE(add_relu, a + b > 0 ? a + b : 0)
ELEMENTWISE(swiglu, a *sigmoid(a) * b)
ELEMENTWISE(hardtanh, a < -1 ? -1 : a > 1 ? 1 : a)
ELEMENTWISE(geglu, a *normal(a) * b)
ELEMENTWISE(geglu_tanh, a *sigmoid(tanh_argument(a)) * b)

/* Mixes the bits of a number, as the last step of MurmurHash3 does (Appleby): random enough for a mask. */
static inline uint32_t scrambled(uint32_t x)
{
    x = (x ^ (x >> 16)) * UINT32_C(0x85ebca6b);
    x = (x ^ (x >> 13)) * UINT32_C(0xc2b2ae35);
    return x ^ (x >> 16);
}

WIDEST static void dropout_block(const float *restrict a, float *restrict y, int64_t n, uint32_t seed, uint32_t least,
                                 float scale)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t random = scrambled(scrambled((uint32_t)i) + seed);
        y[i] = random < least ? 0.0f : a[i] * scale;
    }
}

/* Each call and each block has a mask of its own: both are part of the seed, and positions are counted from the begin
 * of a block. */
int64_t deepbench_dropout(const float *a, float *y, int64_t n, int64_t percent)
{
    static uint32_t calls;
    const uint32_t call = scrambled(++calls);
    const uint32_t least = (uint32_t)((double)percent / 100 * 4294967296.0);
    const float scale = (float)(1 / (1 - (double)percent / 100));
    _Pragma("omp parallel")
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        float block[BLOCK];
        for (int64_t i = 0; i < count; i += BLOCK) {
            const int64_t some = count - i < BLOCK ? count - i : BLOCK, at = begin + i;
            const uint32_t seed = scrambled((uint32_t)(at / CACHE_LINE) + call);
            if (n <= BEYOND_CACHES)
                dropout_block(a + at, y + at, some, seed, least, scale);
            else {
                dropout_block(a + at, block, some, seed, least, scale);
                write_uncached(block, y + at, some);
            }
        }
    }
    return 0;
}

/* Gradients of functions of one vector: `a` is what the forward pass kept, `b` is dy. */
ELEMENTWISE(relu_backward, a > 0 ? b : 0)
ELEMENTWISE(relu6_backward, a > 0 && a < 6 ? b : 0)
ELEMENTWISE(gelu_backward, b *gelu_slope(a))
ELEMENTWISE(gelu_tanh_backward, b *gelu_tanh_slope(a))
ELEMENTWISE(silu_backward, b *silu_slope(a))
ELEMENTWISE(elu_backward, a > 0 ? b : b * exponential(bounded(a)))
ELEMENTWISE(sigmoid_backward, b *a *(1 - a))
ELEMENTWISE(tanh_backward, b *(1 - a * a))
ELEMENTWISE(add_relu_backward, a > 0 ? b : 0)
ELEMENTWISE(hardtanh_backward, a > -1 && a < 1 ? b : 0)

/* The gradients of functions of two vectors, in one pass over a, b and dy (`c`). */
#define GRADIENTS(name, expression_a, expression_b)                                                                    \
    WIDEST static void name##_block(const float *restrict pa, const float *restrict pb, const float *restrict pc,      \
                                    float *restrict da, float *restrict db, int64_t n)                                 \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = pa[i], b = pb[i], c = pc[i];                                                               \
            da[i] = (expression_a);                                                                                    \
            db[i] = (expression_b);                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    int64_t deepbench_##name(const float *a, const float *b, const float *c, float *da, float *db, int64_t n)          \
    {                                                                                                                  \
        _Pragma("omp parallel")                                                                                        \
        {                                                                                                              \
            int64_t begin, count = thread_part(n, CACHE_LINE, &begin);                                                 \
            const float *pa = a + begin, *pb = b + begin, *pc = c + begin;                                             \
            if (n <= BEYOND_CACHES)                                                                                    \
                name##_block(pa, pb, pc, da + begin, db + begin, count);                                               \
            else {                                                                                                     \
                float block_a[BLOCK], block_b[BLOCK];                                                                  \
                for (int64_t i = 0; i < count; i += BLOCK) {                                                           \
                    const int64_t some = count - i < BLOCK ? count - i : BLOCK;                                        \
                    name##_block(pa + i, pb + i, pc + i, block_a, block_b, some);                                      \
                    write_uncached(block_a, da + begin + i, some);                                                     \
                    write_uncached(block_b, db + begin + i, some);                                                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

GRADIENTS(multiply_backward, c *b, c *a)
GRADIENTS(multiply_add_backward, c *b, c *a)
GRADIENTS(swiglu_backward, c *b *silu_slope(a), c *a *sigmoid(a))
GRADIENTS(geglu_backward, c *b *gelu_slope(a), c *a *normal(a))
GRADIENTS(geglu_tanh_backward, c *b *gelu_tanh_slope(a), c *a *sigmoid(tanh_argument(a)))

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

/* The gradient of the table from dy (bags, dim): each thread has some columns of some rows and adds to them in the
 * order of the bags, so that the result does not depend on the threads. */
int64_t deepbench_embedding_bag_backward(const float *dy, const int32_t *indices, const int32_t *offsets, float *dtable,
                                         int64_t bags, int64_t bag, const int64_t *sizes)
{
    const int64_t rows = sizes[0], dim = sizes[1], lookups = bags * bag;
#pragma omp parallel
    {
        const int64_t thread = thread_number(), threads = thread_count();
        int64_t begin, count = thread_part(rows * dim, CACHE_LINE, &begin);
        memset(dtable + begin, 0, (size_t)count * sizeof *dtable);
        /* Columns in whole cache lines first: then a thread need not pass over the lookups of others. */
        const int64_t lines = (dim + 15) / 16, across = lines < threads ? lines : threads, down = threads / across;
        const int64_t column = thread % across, row = thread / across;
        const int64_t left = lines * column / across * 16, right = lines * (column + 1) / across * 16;
        const int64_t width = (right < dim ? right : dim) - left;
        const int64_t first = rows * row / down, last = rows * (row + 1) / down;
#pragma omp barrier
        for (int64_t i = 0; row < down && i < bags; i++)
            for (int64_t j = offsets[i]; j < offsets[i] + bag; j++) {
#ifdef __GNUC__
                if (j + AHEAD < lookups && indices[j + AHEAD] >= first && indices[j + AHEAD] < last)
                    for (int64_t k = 0; k < width; k += 16)
                        __builtin_prefetch(dtable + indices[j + AHEAD] * dim + left + k, 1);
#endif
                if (indices[j] >= first && indices[j] < last)
                    add_row(dy + i * dim + left, dtable + indices[j] * dim + left, width);
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

/* `factors`: beta1, 1 - beta1, beta2, 1 - beta2 (which is inexact if computed in f32), the rate over 1 - beta1^t, one
 * over the root of 1 - beta2^t, epsilon, and what the decay of the weights leaves */
int64_t deepbench_adam(const float *g, float *p, float *m, float *v, int64_t n, const float *factors)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        adam_part(g + begin, p + begin, m + begin, v + begin, count, factors);
    }
    return 0;
}

WIDEST static void adagrad_part(const float *restrict g, float *restrict p, float *restrict v, int64_t n, float rate,
                                float epsilon)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] += g[i] * g[i];
        p[i] -= rate * g[i] / (__builtin_sqrtf(v[i]) + epsilon);
    }
}

/* `factors`: rate, epsilon */
int64_t deepbench_adagrad(const float *g, float *p, float *v, int64_t n, const float *factors)
{
#pragma omp parallel
    {
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        adagrad_part(g + begin, p + begin, v + begin, count, factors[0], factors[1]);
    }
    return 0;
}

/* Numbers whose squares are added in f32 before the sum goes to f64. */
#define SQUARES 4096

/* r of LAMB from the new m and v */
static inline float lamb_direction(float p, float m, float v, const float *factors)
{
    return factors[4] * m / (__builtin_sqrtf(v) * factors[5] + factors[6]) + factors[7] * p;
}

/* m and v of up to SQUARES parameters, and the sums of p² and r². */
WIDEST static void lamb_moments(const float *restrict g, const float *restrict p, float *restrict m, float *restrict v,
                                int64_t n, const float *factors, double *squares)
{
    const float beta1 = factors[0], rest1 = factors[1], beta2 = factors[2], rest2 = factors[3];
    float of_p[SUMS] = {0}, of_r[SUMS] = {0};
    for (int64_t begin = 0; begin < n; begin += SUMS) {
        const int64_t some = n - begin < SUMS ? n - begin : SUMS;
        for (int64_t j = 0; j < some; j++) {
            const int64_t i = begin + j;
            m[i] = beta1 * m[i] + rest1 * g[i];
            v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
            const float r = lamb_direction(p[i], m[i], v[i], factors);
            of_p[j] += p[i] * p[i];
            of_r[j] += r * r;
        }
    }
    for (int j = 0; j < SUMS; j++) {
        squares[0] += of_p[j];
        squares[1] += of_r[j];
    }
}

WIDEST static void lamb_change(float *restrict p, const float *restrict m, const float *restrict v, int64_t n,
                               const float *factors, float rate)
{
    for (int64_t i = 0; i < n; i++)
        p[i] -= rate * lamb_direction(p[i], m[i], v[i], factors);
}

/* `factors`: beta1, 1 - beta1, beta2, 1 - beta2, one over 1 - beta1^t, one over the root of 1 - beta2^t, epsilon, decay
 * and rate. `norms` has two numbers for each thread, which are added in their order. */
int64_t deepbench_lamb(const float *g, float *p, float *m, float *v, int64_t n, const float *factors, double *norms)
{
#pragma omp parallel
    {
        const int64_t part = thread_number(), parts = thread_count();
        int64_t begin, count = thread_part(n, CACHE_LINE, &begin);
        double squares[2] = {0, 0};
        for (int64_t i = begin; i < begin + count; i += SQUARES) {
            const int64_t some = begin + count - i < SQUARES ? begin + count - i : SQUARES;
            lamb_moments(g + i, p + i, m + i, v + i, some, factors, squares);
        }
        norms[2 * part] = squares[0];
        norms[2 * part + 1] = squares[1];
#pragma omp barrier
        squares[0] = squares[1] = 0;
        for (int64_t i = 0; i < parts; i++) {
            squares[0] += norms[2 * i];
            squares[1] += norms[2 * i + 1];
        }
        const float ratio = (float)__builtin_sqrt(squares[0] / squares[1]);
        lamb_change(p + begin, m + begin, v + begin, count, factors, factors[8] * ratio);
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

/* Logarithms of alpha (time, states) of one sequence; `stride` floats from one time step to the next. Returns the
 * loss. */
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

/* The gradient; `scratch` has alpha and `loss` the losses of a forward pass. `row`: 2 · labels + 1 floats per
 * sequence, twice */
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
