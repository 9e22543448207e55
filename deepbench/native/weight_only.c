/* A product with weights of 4 or 8 bits and a scale for each group of them: the yardstick of `weight_only_gemm`.
 *
 * Each thread computes some of the outputs. It widens one group of weights after the other to floats, which stay in the
 * first-level cache, and multiplies them by every column. So each weight is read and widened once. This is fast with
 * few columns, where the time of reading the weights counts.
 */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* Weights that are widened together: a part of a group. Even, so that it starts with the lower half of a byte. */
#define PART 256

/* Columns whose sums are kept while one row of weights is read; more columns read the row again. */
#define COLUMNS 64

static float from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to nearest, ties to even; numbers only. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

WIDEST static void widen_8(const int8_t *restrict a, float *restrict wide, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        wide[i] = a[i];
}

/* `first` is 1 if the part begins in the upper half of a byte. */
WIDEST static void widen_4(const uint8_t *restrict a, float *restrict wide, int64_t n, int64_t first)
{
    int64_t i = 0;
    if (first && n > 0)
        wide[i++] = (int8_t)*a++ >> 4;
    const int64_t pairs = (n - i) / 2;
    for (int64_t j = 0; j < pairs; j++) {
        wide[i + 2 * j] = (int8_t)(uint8_t)(a[j] << 4) >> 4;
        wide[i + 2 * j + 1] = (int8_t)a[j] >> 4;
    }
    i += 2 * pairs;
    if (i < n)
        wide[i] = (int8_t)(uint8_t)(a[pairs] << 4) >> 4;
}

WIDEST static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* c (n, m) = b (n, k) times the transpose of the weights (m, k). `wide_b` has room for b in f32, if b is bf16. */
int64_t deepbench_weight_only_gemm(const void *a, const void *scales, const void *b, void *c, float *wide_b, int64_t m,
    int64_t n, int64_t k, int64_t group, int64_t bits, int64_t is_bf16)
{
    const float *columns = is_bf16 ? wide_b : b;
    const int64_t row_bytes = k * bits / 8;
#pragma omp parallel
    {
        if (is_bf16) {
#pragma omp for
            for (int64_t i = 0; i < n * k; i++)
                wide_b[i] = from_bf16(((const uint16_t *)b)[i]);
        }
#pragma omp for
        for (int64_t row = 0; row < m; row++) {
            const uint8_t *weights = (const uint8_t *)a + row * row_bytes;
            for (int64_t first = 0; first < n; first += COLUMNS) {
                const int64_t count = n - first < COLUMNS ? n - first : COLUMNS;
                float sums[COLUMNS] = {0}, wide[PART];
                for (int64_t start = 0; start < k; start += group) {
                    const int64_t at = start / group * m + row;
                    const float scale
                        = is_bf16 ? from_bf16(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
                    for (int64_t part = start; part < start + group; part += PART) {
                        const int64_t length = start + group - part < PART ? start + group - part : PART;
                        if (bits == 8)
                            widen_8((const int8_t *)weights + part, wide, length);
                        else
                            widen_4(weights + part / 2, wide, length, part % 2);
                        for (int64_t j = 0; j < count; j++)
                            sums[j] += scale * dot(wide, columns + (first + j) * k + part, length);
                    }
                }
                for (int64_t j = 0; j < count; j++) {
                    const int64_t to = (first + j) * m + row;
                    if (is_bf16)
                        ((uint16_t *)c)[to] = to_bf16(sums[j]);
                    else
                        ((float *)c)[to] = sums[j];
                }
            }
        }
    }
    return 0;
}
