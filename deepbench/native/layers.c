/* In f32 and bf16: layer normalization, RMS normalization and softmax of the rows of a matrix, forward; group
 * normalization, rotary positions, the largest numbers of rows, and losses, forward and backward.
 *
 * The yardstick for libraries: plain loops that a compiler vectorizes. Each thread computes whole rows, groups, tokens
 * or blocks. A row is read from memory once; the second pass finds it in a cache. Sums and exponentials are f32.
 */
#include <math.h>
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

/* The largest VALUE over i from 0 to n - 1, in `largest`. */
#define FIND_LARGEST(largest, VALUE)                                           \
    do {                                                                       \
        float most[SUMS];                                                      \
        for (int j = 0; j < SUMS; j++)                                         \
            most[j] = VALUE(0);                                                \
        int64_t i = 0;                                                         \
        for (; i + SUMS <= n; i += SUMS)                                       \
            for (int j = 0; j < SUMS; j++) {                                   \
                const float value = VALUE(i + j);                              \
                most[j] = most[j] > value ? most[j] : value;                   \
            }                                                                  \
        for (int j = 0; i + j < n; j++) {                                      \
            const float value = VALUE(i + j);                                  \
            most[j] = most[j] > value ? most[j] : value;                       \
        }                                                                      \
        for (int half = SUMS / 2; half > 0; half /= 2)                         \
            for (int j = 0; j < half; j++)                                     \
                most[j] = most[j] > most[j + half] ? most[j] : most[j + half]; \
        largest = most[0];                                                     \
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
        float largest, sum;                                                                                         \
        FIND_LARGEST(largest, X);                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                             \
            exponentials[i] = exponential(LOAD(x[i]) - largest);                                                    \
        ADD_UP(sum, EXPONENTIAL);                                                                                   \
        const float factor = 1.0f / sum;                                                                            \
        for (int64_t i = 0; i < n; i++)                                                                             \
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
            softmax_row_##T(x + row * columns, y + row * columns, space + thread_number() * columns, columns);         \
        return 0;                                                                                                   \
    }

/* ---- group normalization: the elements of a group of channels of an image are next to each other */

#define OUTPUT_GRADIENT(i) (LOAD(dy[i]))
#define GRADIENT_TIMES_Z(i) (LOAD(dy[i]) * ((LOAD(x[i]) - mean) * factor))

#define GROUP_NORM(T)                                                                                              \
    /* `channels` of `pixels` each */                                                                              \
    WIDEST static void group_norm_row_##T(const T *restrict x, const float *restrict scale,                        \
                                          const float *restrict shift, T *restrict y, int64_t channels,            \
                                          int64_t pixels, float epsilon)                                           \
    {                                                                                                              \
        const int64_t n = channels * pixels;                                                                       \
        float mean, variance;                                                                                      \
        ADD_UP(mean, X);                                                                                           \
        mean /= (float)n;                                                                                          \
        ADD_UP(variance, DIFFERENCE);                                                                              \
        const float factor = 1.0f / __builtin_sqrtf(variance / (float)n + epsilon);                                \
        for (int64_t c = 0; c < channels; c++) {                                                                   \
            const float slope = factor * scale[c], offset = shift[c];                                              \
            for (int64_t i = c * pixels; i < (c + 1) * pixels; i++)                                                \
                y[i] = STORE((LOAD(x[i]) - mean) * slope + offset);                                                \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    /* The sums of dy and of dy · z over the pixels of a channel */                                                \
    WIDEST static void channel_sums_##T(const T *restrict x, const T *restrict dy, float mean, float factor,       \
                                        int64_t n, float *restrict sum, float *restrict product)                   \
    {                                                                                                              \
        ADD_UP(*sum, OUTPUT_GRADIENT);                                                                             \
        ADD_UP(*product, GRADIENT_TIMES_Z);                                                                        \
    }                                                                                                              \
                                                                                                                   \
    WIDEST static void channel_gradient_##T(const T *restrict x, const T *restrict dy, T *restrict dx, int64_t n,  \
                                            float mean, float factor, float scale, float sum, float product)       \
    {                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                          \
            const float z = (LOAD(x[i]) - mean) * factor;                                                          \
            dx[i] = STORE((LOAD(dy[i]) * scale - sum - z * product) * factor);                                     \
        }                                                                                                          \
    }                                                                                                              \
                                                                                                                   \
    /* `sizes`: images, groups, channels of a group, pixels */                                                     \
    int64_t deepbench_group_norm_##T(const T *x, const float *scale, const float *shift, T *y,                     \
                                     const int64_t *sizes, float epsilon)                                          \
    {                                                                                                              \
        const int64_t groups = sizes[1], channels = sizes[2], pixels = sizes[3];                                   \
        _Pragma("omp parallel for schedule(static)")                                                               \
        for (int64_t row = 0; row < sizes[0] * groups; row++) {                                                    \
            const int64_t begin = row * channels * pixels, channel = row % groups * channels;                      \
            group_norm_row_##T(x + begin, scale + channel, shift + channel, y + begin, channels, pixels, epsilon); \
        }                                                                                                          \
        return 0;                                                                                                  \
    }                                                                                                              \
                                                                                                                   \
    /* `sums` and `products` have a number for each channel of each image. */                                      \
    int64_t deepbench_group_norm_backward_##T(const T *x, const T *dy, const float *scale, const float *mean,      \
                                              const float *variance, T *dx, float *dscale, float *dshift,          \
                                              float *sums, float *products, const int64_t *sizes, float epsilon)   \
    {                                                                                                              \
        const int64_t images = sizes[0], groups = sizes[1], channels = sizes[2], pixels = sizes[3];                \
        const int64_t all = groups * channels;                                                                     \
        _Pragma("omp parallel for schedule(static)")                                                               \
        for (int64_t row = 0; row < images * groups; row++) {                                                      \
            const float factor = 1.0f / __builtin_sqrtf(variance[row] + epsilon);                                  \
            const float *of = scale + row % groups * channels, count = (float)(channels * pixels);                 \
            float sum = 0, product = 0;                                                                            \
            for (int64_t c = 0; c < channels; c++) {                                                               \
                const int64_t at = row * channels + c;                                                             \
                channel_sums_##T(x + at * pixels, dy + at * pixels, mean[row], factor, pixels, sums + at,          \
                                 products + at);                                                                   \
                sum += of[c] * sums[at];                                                                           \
                product += of[c] * products[at];                                                                   \
            }                                                                                                      \
            for (int64_t c = 0; c < channels; c++) {                                                               \
                const int64_t begin = (row * channels + c) * pixels;                                               \
                channel_gradient_##T(x + begin, dy + begin, dx + begin, pixels, mean[row], factor, of[c],          \
                                     sum / count, product / count);                                                \
            }                                                                                                      \
        }                                                                                                          \
        _Pragma("omp parallel for schedule(static)")                                                               \
        for (int64_t c = 0; c < all; c++) {                                                                        \
            float sum = 0, product = 0;                                                                            \
            for (int64_t image = 0; image < images; image++) {                                                     \
                sum += sums[image * all + c];                                                                      \
                product += products[image * all + c];                                                              \
            }                                                                                                      \
            dshift[c] = sum;                                                                                       \
            dscale[c] = product;                                                                                   \
        }                                                                                                          \
        return 0;                                                                                                  \
    }

/* ---- rotary positions: see ops/rope.py */

#define ROPE(T)                                                                                                   \
    WIDEST static void rope_token_##T(const T *restrict x, const T *restrict cosines, const T *restrict sines,    \
                                      T *restrict y, int64_t heads, int64_t half, float sign)                     \
    {                                                                                                             \
        for (int64_t head = 0; head < heads; head++) {                                                            \
            const T *restrict from = x + 2 * head * half;                                                         \
            T *restrict to = y + 2 * head * half;                                                                 \
            for (int64_t j = 0; j < half; j++) {                                                                  \
                const float a = LOAD(from[j]), b = LOAD(from[j + half]);                                          \
                const float cosine = LOAD(cosines[j]), sine = sign * LOAD(sines[j]);                              \
                to[j] = STORE(a * cosine - b * sine);                                                             \
                to[j + half] = STORE(b * cosine + a * sine);                                                      \
            }                                                                                                     \
        }                                                                                                         \
    }                                                                                                             \
                                                                                                                  \
    WIDEST static void rope_interleaved_token_##T(const T *restrict x, const T *restrict cosines,                 \
                                                  const T *restrict sines, T *restrict y, int64_t heads,          \
                                                  int64_t half, float sign)                                       \
    {                                                                                                             \
        for (int64_t head = 0; head < heads; head++) {                                                            \
            const T *restrict from = x + 2 * head * half;                                                         \
            T *restrict to = y + 2 * head * half;                                                                 \
            for (int64_t j = 0; j < half; j++) {                                                                  \
                const float a = LOAD(from[2 * j]), b = LOAD(from[2 * j + 1]);                                     \
                const float cosine = LOAD(cosines[j]), sine = sign * LOAD(sines[j]);                              \
                to[2 * j] = STORE(a * cosine - b * sine);                                                         \
                to[2 * j + 1] = STORE(b * cosine + a * sine);                                                     \
            }                                                                                                     \
        }                                                                                                         \
    }                                                                                                             \
                                                                                                                  \
    /* `sign` is 1, or -1 to turn back. `half` is half the size of a head. */                                     \
    int64_t deepbench_rope_##T(const T *x, const T *cosines, const T *sines, T *y, int64_t tokens, int64_t heads, \
                               int64_t half, int64_t interleaved, float sign)                                     \
    {                                                                                                             \
        _Pragma("omp parallel for schedule(static)")                                                              \
        for (int64_t token = 0; token < tokens; token++) {                                                        \
            const int64_t begin = 2 * token * heads * half, pair = token * half;                                  \
            (interleaved ? rope_interleaved_token_##T : rope_token_##T)(x + begin, cosines + pair, sines + pair,  \
                                                                        y + begin, heads, half, sign);            \
        }                                                                                                         \
        return 0;                                                                                                 \
    }

/* ---- the largest numbers of a row: one after the other if they are few, else with a heap whose root is the smallest
 * of those found so far */

#define FEW 16

/* Numbers that are compared with the root together; most blocks of a long row have no larger one. */
#define TOGETHER 64

static void sift_down(float *heap, int32_t *at, int64_t parent, int64_t size)
{
    const float value = heap[parent];
    const int32_t position = at[parent];
    for (int64_t child = 2 * parent + 1; child < size; child = 2 * parent + 1) {
        child += child + 1 < size && heap[child + 1] < heap[child];
        if (heap[child] >= value)
            break;
        heap[parent] = heap[child], at[parent] = at[child];
        parent = child;
    }
    heap[parent] = value, at[parent] = position;
}

/* The largest first. */
static void sort_heap(float *heap, int32_t *at, int64_t size)
{
    while (--size > 0) {
        const float value = heap[0];
        const int32_t position = at[0];
        heap[0] = heap[size], at[0] = at[size];
        heap[size] = value, at[size] = position;
        sift_down(heap, at, 0, size);
    }
}

#define LEFT(i) (left[i])

#define TOP_K(T)                                                                                                    \
    WIDEST static int any_larger_##T(const T *restrict x, float than)                                               \
    {                                                                                                               \
        int any = 0;                                                                                                \
        for (int i = 0; i < TOGETHER; i++)                                                                          \
            any |= LOAD(x[i]) > than;                                                                               \
        return any;                                                                                                 \
    }                                                                                                               \
                                                                                                                    \
    /* `left` is the row, from which those that were found are removed. */                                          \
    WIDEST static void few_largest_##T(const T *restrict x, float *restrict left, float *restrict found,            \
                                       int32_t *restrict indices, int64_t n, int64_t k)                             \
    {                                                                                                               \
        for (int64_t i = 0; i < n; i++)                                                                             \
            left[i] = LOAD(x[i]);                                                                                   \
        for (int64_t rank = 0; rank < k; rank++) {                                                                  \
            float largest;                                                                                          \
            FIND_LARGEST(largest, LEFT);                                                                            \
            int64_t at = 0;                                                                                         \
            while (at < n - 1 && left[at] != largest)                                                               \
                at++;                                                                                               \
            found[rank] = largest, indices[rank] = (int32_t)at;                                                     \
            left[at] = -INFINITY;                                                                                   \
        }                                                                                                           \
    }                                                                                                               \
                                                                                                                    \
    static void many_largest_##T(const T *x, float *heap, int32_t *indices, int64_t n, int64_t k)                   \
    {                                                                                                               \
        for (int64_t i = 0; i < k; i++)                                                                             \
            heap[i] = LOAD(x[i]), indices[i] = (int32_t)i;                                                          \
        for (int64_t i = k / 2; i-- > 0;)                                                                           \
            sift_down(heap, indices, i, k);                                                                         \
        for (int64_t begin = k; begin < n; begin += TOGETHER) {                                                     \
            const int64_t end = begin + TOGETHER < n ? begin + TOGETHER : n;                                        \
            if (end - begin == TOGETHER && !any_larger_##T(x + begin, heap[0]))                                     \
                continue;                                                                                           \
            for (int64_t i = begin; i < end; i++)                                                                   \
                if (LOAD(x[i]) > heap[0]) {                                                                         \
                    heap[0] = LOAD(x[i]), indices[0] = (int32_t)i;                                                  \
                    sift_down(heap, indices, 0, k);                                                                 \
                }                                                                                                   \
        }                                                                                                           \
        sort_heap(heap, indices, k);                                                                                \
    }                                                                                                               \
                                                                                                                    \
    static void top_k_row_##T(const T *x, T *values, int32_t *indices, float *found, int64_t n, int64_t k,          \
                              int64_t softmax)                                                                      \
    {                                                                                                               \
        if (k <= FEW)                                                                                               \
            few_largest_##T(x, found + k, found, indices, n, k);                                                    \
        else                                                                                                        \
            many_largest_##T(x, found, indices, n, k);                                                              \
        float sum = 1;                                                                                              \
        if (softmax) {                                                                                              \
            const float largest = found[0];                                                                         \
            sum = 0;                                                                                                \
            for (int64_t i = 0; i < k; i++)                                                                         \
                sum += found[i] = exponential(found[i] - largest);                                                  \
        }                                                                                                           \
        for (int64_t i = 0; i < k; i++)                                                                             \
            values[i] = STORE(found[i] / sum);                                                                      \
    }                                                                                                               \
                                                                                                                    \
    /* `space` has k + columns floats for each thread. */                                                           \
    int64_t deepbench_top_k_##T(const T *x, T *values, int32_t *indices, float *space, int64_t rows,                \
                                int64_t columns, int64_t k, int64_t softmax)                                        \
    {                                                                                                               \
        _Pragma("omp parallel for schedule(static)")                                                                \
        for (int64_t row = 0; row < rows; row++)                                                                    \
            top_k_row_##T(x + row * columns, values + row * k, indices + row * k,                                   \
                          space + thread_number() * (k + columns), columns, k, softmax);                            \
        return 0;                                                                                                   \
    }                                                                                                               \
                                                                                                                    \
    /* `p` are the results of the softmax, or null. */                                                              \
    int64_t deepbench_top_k_backward_##T(const int32_t *chosen, const T *p, const T *dy, T *dx, int64_t rows,       \
                                         int64_t columns, int64_t k)                                                \
    {                                                                                                               \
        _Pragma("omp parallel for schedule(static)")                                                                \
        for (int64_t row = 0; row < rows; row++) {                                                                  \
            const int64_t begin = row * k;                                                                          \
            T *out = dx + row * columns;                                                                            \
            memset(out, 0, (size_t)columns * sizeof *out);                                                          \
            float product = 0;                                                                                      \
            for (int64_t i = begin; p && i < begin + k; i++)                                                        \
                product += LOAD(p[i]) * LOAD(dy[i]);                                                                \
            for (int64_t i = begin; i < begin + k; i++)                                                             \
                out[chosen[i]] = p ? STORE(LOAD(p[i]) * (LOAD(dy[i]) - product)) : dy[i];                           \
        }                                                                                                           \
        return 0;                                                                                                   \
    }

/* ---- losses: see ops/loss.py */

/* Numbers whose losses are added in f32; the sums of blocks are added in f64. Gradients are computed in f32 for a block
 * before they are stored, because compilers do not vectorize both at once in bf16. */
#define BLOCK 4096

/* log(x) for 1 <= x <= 2, wrong by about two roundoffs: the polynomial of logf in Moshier's Cephes library. */
static inline float logarithm(float x)
{
    const int is_large = x > 1.41421356f;
    const float z = (is_large ? 0.5f * x : x) - 1.0f, square = z * z;
    float p = 7.0376836292e-2f;
    p = p * z - 1.1514610310e-1f;
    p = p * z + 1.1676998740e-1f;
    p = p * z - 1.2420140846e-1f;
    p = p * z + 1.4249322787e-1f;
    p = p * z - 1.6668057665e-1f;
    p = p * z + 2.0000714765e-1f;
    p = p * z - 2.4999993993e-1f;
    p = p * z + 3.3333331174e-1f;
    p = p * z * square - 0.5f * square + z;
    return is_large ? p + 0.69314718056f : p;
}

static inline float size_of(float x) { return x < 0 ? -x : x; }

static inline float at_least_0(float x) { return x > 0 ? x : 0; }

/* exp(-|x|) decides all of the following functions. */
static inline float sigmoid_of(float x, float e) { return (x < 0 ? e : 1.0f) / (1.0f + e); }

static inline float binary_cross_entropy(float x, float t)
{
    return at_least_0(x) - x * t + logarithm(1.0f + exponential(-size_of(x)));
}

static inline float binary_cross_entropy_slope(float x, float t) { return sigmoid_of(x, exponential(-size_of(x))) - t; }

static inline float mean_squared_error(float x, float t) { return (x - t) * (x - t); }

static inline float mean_squared_error_slope(float x, float t) { return 2.0f * (x - t); }

static inline float smooth_l1(float x, float t)
{
    const float d = size_of(x - t), near = d < 1.0f ? d : 1.0f;
    return near * (d - 0.5f * near);
}

static inline float smooth_l1_slope(float x, float t)
{
    const float d = x - t, above = d < -1.0f ? -1.0f : d;
    return above > 1.0f ? 1.0f : above;
}

/* With the argument that should be large: x, or -x for t = 0. */
static inline float focal(float x, float t)
{
    const float alpha = 0.75f - 0.5f * t, s = (2.0f * t - 1.0f) * x, e = exponential(-size_of(s));
    const float miss = sigmoid_of(-s, e);
    return alpha * miss * miss * (at_least_0(-s) + logarithm(1.0f + e));
}

static inline float focal_slope(float x, float t)
{
    const float alpha = 0.75f - 0.5f * t, sign = 1.0f - 2.0f * t, s = -sign * x, e = exponential(-size_of(s));
    const float miss = sigmoid_of(-s, e), hit = sigmoid_of(s, e), loss = at_least_0(-s) + logarithm(1.0f + e);
    return sign * alpha * miss * miss * (2.0f * hit * loss + miss);
}

#define BINARY_CROSS_ENTROPY(i) binary_cross_entropy(LOAD(x[i]), LOAD(t[i]))
#define MEAN_SQUARED_ERROR(i) mean_squared_error(LOAD(x[i]), LOAD(t[i]))
#define SMOOTH_L1(i) smooth_l1(LOAD(x[i]), LOAD(t[i]))
#define FOCAL(i) focal(LOAD(x[i]), LOAD(t[i]))

#define LOSS(T, name, AT)                                                                                       \
    WIDEST static float name##_sum_##T(const T *restrict x, const T *restrict t, int64_t n)                     \
    {                                                                                                           \
        float total;                                                                                            \
        ADD_UP(total, AT);                                                                                      \
        return total;                                                                                           \
    }                                                                                                           \
                                                                                                                \
    WIDEST static void name##_slopes_##T(const T *restrict x, const T *restrict t, T *restrict dx, int64_t n,   \
                                         float factor)                                                          \
    {                                                                                                           \
        float block[BLOCK];                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                         \
            block[i] = factor * name##_slope(LOAD(x[i]), LOAD(t[i]));                                           \
        for (int64_t i = 0; i < n; i++)                                                                         \
            dx[i] = STORE(block[i]);                                                                            \
    }                                                                                                           \
                                                                                                                \
    int64_t deepbench_##name##_##T(const T *x, const T *t, float *loss, int64_t n)                              \
    {                                                                                                           \
        double total = 0;                                                                                       \
        _Pragma("omp parallel for schedule(static) reduction(+ : total)")                                       \
        for (int64_t begin = 0; begin < n; begin += BLOCK)                                                      \
            total += name##_sum_##T(x + begin, t + begin, n - begin < BLOCK ? n - begin : BLOCK);               \
        *loss = (float)(total / (double)n);                                                                     \
        return 0;                                                                                               \
    }                                                                                                           \
                                                                                                                \
    int64_t deepbench_##name##_backward_##T(const T *x, const T *t, const float *dloss, T *dx, int64_t n)       \
    {                                                                                                           \
        const float factor = *dloss / (float)n;                                                                 \
        _Pragma("omp parallel for schedule(static)")                                                            \
        for (int64_t begin = 0; begin < n; begin += BLOCK)                                                      \
            name##_slopes_##T(x + begin, t + begin, dx + begin, n - begin < BLOCK ? n - begin : BLOCK, factor); \
        return 0;                                                                                               \
    }

#define SHIFTED_EXPONENTIAL(i) (exponential(LOAD(x[i]) - largest))

#define LOSSES(T)                                                                                              \
    LOSS(T, binary_cross_entropy, BINARY_CROSS_ENTROPY)                                                        \
    LOSS(T, mean_squared_error, MEAN_SQUARED_ERROR)                                                            \
    LOSS(T, smooth_l1, SMOOTH_L1)                                                                              \
    LOSS(T, focal, FOCAL)                                                                                      \
                                                                                                               \
    /* The logarithm of the sum of the exponentials of a row */                                                \
    WIDEST static float log_sum_##T(const T *restrict x, int64_t n)                                            \
    {                                                                                                          \
        float largest, sum;                                                                                    \
        FIND_LARGEST(largest, X);                                                                              \
        ADD_UP(sum, SHIFTED_EXPONENTIAL);                                                                      \
        return largest + logf(sum);                                                                            \
    }                                                                                                          \
                                                                                                               \
    WIDEST static void cross_entropy_row_##T(const T *restrict x, T *restrict dx, int64_t n, float log_sum,    \
                                             float factor)                                                     \
    {                                                                                                          \
        float block[BLOCK];                                                                                    \
        for (int64_t begin = 0; begin < n; begin += BLOCK) {                                                   \
            const int64_t some = n - begin < BLOCK ? n - begin : BLOCK;                                        \
            for (int64_t i = 0; i < some; i++)                                                                 \
                block[i] = factor * exponential(LOAD(x[begin + i]) - log_sum);                                 \
            for (int64_t i = 0; i < some; i++)                                                                 \
                dx[begin + i] = STORE(block[i]);                                                               \
        }                                                                                                      \
    }                                                                                                          \
                                                                                                               \
    /* `log_sums` (rows) is for the backward pass. */                                                          \
    int64_t deepbench_cross_entropy_##T(const T *x, const int32_t *target, float *loss, float *log_sums,       \
                                        int64_t rows, int64_t columns)                                         \
    {                                                                                                          \
        double total = 0;                                                                                      \
        _Pragma("omp parallel for schedule(static) reduction(+ : total)")                                      \
        for (int64_t row = 0; row < rows; row++) {                                                             \
            log_sums[row] = log_sum_##T(x + row * columns, columns);                                           \
            total += log_sums[row] - LOAD(x[row * columns + target[row]]);                                     \
        }                                                                                                      \
        *loss = (float)(total / (double)rows);                                                                 \
        return 0;                                                                                              \
    }                                                                                                          \
                                                                                                               \
    int64_t deepbench_cross_entropy_backward_##T(const T *x, const int32_t *target, const float *dloss, T *dx, \
                                                 const float *log_sums, int64_t rows, int64_t columns)         \
    {                                                                                                          \
        const float factor = *dloss / (float)rows;                                                             \
        _Pragma("omp parallel for schedule(static)")                                                           \
        for (int64_t row = 0; row < rows; row++) {                                                             \
            const int64_t begin = row * columns, right = begin + target[row];                                  \
            cross_entropy_row_##T(x + begin, dx + begin, columns, log_sums[row], factor);                      \
            dx[right] = STORE(factor * (exponential(LOAD(x[right]) - log_sums[row]) - 1.0f));                  \
        }                                                                                                      \
        return 0;                                                                                              \
    }

#define LOAD load_f32
#define STORE store_f32
ROWS(f32)
GROUP_NORM(f32)
ROPE(f32)
TOP_K(f32)
LOSSES(f32)
#undef LOAD
#undef STORE

#define LOAD load_bf16
#define STORE store_bf16
ROWS(bf16)
GROUP_NORM(bf16)
ROPE(bf16)
TOP_K(bf16)
LOSSES(bf16)
