/* Layer normalization, RMS normalization and softmax of the rows of a matrix, forward, in f32 and bf16.
 *
 * The yardstick for libraries: plain loops that a compiler vectorizes. Each thread computes whole rows. A row is read
 * from memory once; the second pass finds it in a cache. Sums and exponentials are f32.
 */
#include <stdint.h>
#include <string.h>
#include "threads.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* Many sums at once, because a core adds several vectors per cycle and each waits for the one before it. */
#define SUMS 64

typedef float f32;
typedef uint16_t bf16;

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_f32(f32 value)
{
    return value;
}

static inline f32 store_f32(float value)
{
    return value;
}

static inline float load_bf16(bf16 value)
{
    return float_of((uint32_t)value << 16);
}

/* To the nearest, and to the even one of two that are equally near. Not for NaN. */
static inline bf16 store_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* exp(x) for x <= 0, to about one unit in the last place: 2^k · exp(r) with the nearest integer k and |r| <= ln(2)/2.
 * The polynomial and the two parts of ln(2) are those of expf in Moshier's Cephes library. Below -87 the result is
 * exp(-87) = 1.6e-38, close to the smallest normal number. */
static inline float exponential(float x)
{
    const float magic = 12582912.0f; /* 1.5 · 2^23: adding it rounds to an integer */
    x = x < -87.0f ? -87.0f : x;
    const float shifted = x * 1.44269504f + magic, k = shifted - magic;
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * float_of((bits_of(shifted) - bits_of(magic) + 127) << 23);
}

/* The sum of VALUE over i from 0 to n - 1, in `total`. */
#define ADD_UP(total, VALUE)                           \
    do {                                               \
        float sums[SUMS] = {0};                        \
        int64_t i = 0;                                 \
        for (; i + SUMS <= n; i += SUMS)               \
            for (int64_t j = 0; j < SUMS; j++)         \
                sums[j] += VALUE(i + j);               \
        for (int64_t j = 0; i + j < n; j++)            \
            sums[j] += VALUE(i + j);                   \
        for (int half = SUMS / 2; half > 0; half /= 2) \
            for (int j = 0; j < half; j++)             \
                sums[j] += sums[j + half];             \
        total = sums[0];                               \
    } while (0)

#define X(i) LOAD(x[i])
#define SQUARE(i) (LOAD(x[i]) * LOAD(x[i]))
#define DIFFERENCE(i) ((LOAD(x[i]) - mean) * (LOAD(x[i]) - mean))
#define EXPONENTIAL(i) (exponentials[i])

#define ROWS(T)                                                                                                     \
    WIDEST static void layer_norm_row_##T(const T *restrict x, const float *restrict scale,                         \
                                          const float *restrict shift, T *restrict y, int64_t n, float epsilon)     \
    {                                                                                                               \
        float mean, variance;                                                                                       \
        ADD_UP(mean, X);                                                                                            \
        mean /= (float)n;                                                                                           \
        ADD_UP(variance, DIFFERENCE);                                                                               \
        const float factor = 1.0f / __builtin_sqrtf(variance / (float)n + epsilon);                                 \
        for (int64_t i = 0; i < n; i++)                                                                             \
            y[i] = STORE((LOAD(x[i]) - mean) * factor * scale[i] + shift[i]);                                       \
    }                                                                                                               \
                                                                                                                    \
    WIDEST static void rms_norm_row_##T(const T *restrict x, const float *restrict scale, T *restrict y, int64_t n, \
                                        float epsilon)                                                              \
    {                                                                                                               \
        float square;                                                                                               \
        ADD_UP(square, SQUARE);                                                                                     \
        const float factor = 1.0f / __builtin_sqrtf(square / (float)n + epsilon);                                   \
        for (int64_t i = 0; i < n; i++)                                                                             \
            y[i] = STORE(LOAD(x[i]) * factor * scale[i]);                                                           \
    }                                                                                                               \
                                                                                                                    \
    WIDEST static void softmax_row_##T(const T *restrict x, T *restrict y, float *restrict exponentials, int64_t n) \
    {                                                                                                               \
        float most[SUMS], largest, sum;                                                                             \
        for (int j = 0; j < SUMS; j++)                                                                              \
            most[j] = LOAD(x[0]);                                                                                   \
        int64_t i = 0;                                                                                              \
        for (; i + SUMS <= n; i += SUMS)                                                                            \
            for (int j = 0; j < SUMS; j++) {                                                                        \
                const float value = LOAD(x[i + j]);                                                                 \
                most[j] = most[j] > value ? most[j] : value;                                                        \
            }                                                                                                       \
        for (int j = 0; i + j < n; j++) {                                                                           \
            const float value = LOAD(x[i + j]);                                                                     \
            most[j] = most[j] > value ? most[j] : value;                                                            \
        }                                                                                                           \
        largest = most[0];                                                                                          \
        for (int j = 1; j < SUMS; j++)                                                                              \
            largest = largest > most[j] ? largest : most[j];                                                        \
        for (i = 0; i < n; i++)                                                                                     \
            exponentials[i] = exponential(LOAD(x[i]) - largest);                                                    \
        ADD_UP(sum, EXPONENTIAL);                                                                                   \
        const float factor = 1.0f / sum;                                                                            \
        for (i = 0; i < n; i++)                                                                                     \
            y[i] = STORE(exponentials[i] * factor);                                                                 \
    }                                                                                                               \
                                                                                                                    \
    int64_t deepbench_layer_norm_##T(const T *x, const float *scale, const float *shift, T *y, int64_t rows,        \
                                     int64_t columns, float epsilon)                                                \
    {                                                                                                               \
        _Pragma("omp parallel for schedule(static)")                                                                \
        for (int64_t row = 0; row < rows; row++)                                                                    \
            layer_norm_row_##T(x + row * columns, scale, shift, y + row * columns, columns, epsilon);               \
        return 0;                                                                                                   \
    }                                                                                                               \
                                                                                                                    \
    int64_t deepbench_rms_norm_##T(const T *x, const float *scale, T *y, int64_t rows, int64_t columns,             \
                                   float epsilon)                                                                   \
    {                                                                                                               \
        _Pragma("omp parallel for schedule(static)")                                                                \
        for (int64_t row = 0; row < rows; row++)                                                                    \
            rms_norm_row_##T(x + row * columns, scale, y + row * columns, columns, epsilon);                        \
        return 0;                                                                                                   \
    }                                                                                                               \
                                                                                                                    \
    /* `space` has a row of f32 for each thread. */                                                                 \
    int64_t deepbench_softmax_##T(const T *x, T *y, float *space, int64_t rows, int64_t columns)                    \
    {                                                                                                               \
        _Pragma("omp parallel for schedule(static)")                                                                \
        for (int64_t row = 0; row < rows; row++)                                                                    \
            softmax_row_##T(x + row * columns, y + row * columns, space + thread_number() * columns, columns);             \
        return 0;                                                                                                   \
    }

#define LOAD load_f32
#define STORE store_f32
ROWS(f32)
#undef LOAD
#undef STORE

#define LOAD load_bf16
#define STORE store_bf16
ROWS(bf16)
