/* A product with weights of 4 or 8 bits and a scale for each group of them: the yardstick of `weight_only_gemm`.
 *
 * Each thread computes some of the outputs. It widens one group of weights after the other to floats, which stay in the
 * first-level cache, and multiplies them by every column. So each weight is read and widened once. This is fast with
 * few columns, where the time of reading the weights counts.
 */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define WIDEST
#endif

/* Weights that are widened together: a part of a group. Even, so that it starts with the lower half of a byte unless
 * the group is odd. */
#define PART 256

/* Columns whose sums are kept while one row of weights is read; more columns read the row again. */
#define COLUMNS 16

/* Sums of each column, because each vector waits for the one before it in its own sum. */
#define LANES 64

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

/* Widen `n` integers and scale them. With 4 bits, `first` is 1 if the part begins in the upper half of a byte. Bytes come
 * before floats, because compilers shuffle bytes well. */
static inline __attribute__((always_inline)) void widen(
    const uint8_t *restrict a, float *restrict wide, int64_t n, int64_t bits, int64_t first, float scale)
{
    int8_t bytes[PART + 2];
    const int8_t *integers = (const int8_t *)a;
    if (bits == 4) {
        for (int64_t j = 0; j < (n + first + 1) / 2; j++) {
            bytes[2 * j] = (int8_t)((a[j] & 15) ^ 8) - 8;
            bytes[2 * j + 1] = (int8_t)((a[j] >> 4) ^ 8) - 8;
        }
        integers = bytes + first;
    }
    for (int64_t i = 0; i < n; i++)
        wide[i] = scale * integers[i];
}

/* One row of weights times `count` columns of k numbers each. `scales` has a number for each group. */
WIDEST static void row_times_columns(const uint8_t *restrict weights, const float *restrict scales,
    const float *restrict columns, float *restrict result, int64_t count, int64_t k, int64_t group, int64_t bits)
{
    float sums[COLUMNS][LANES] = {{0}}, wide[PART];
    for (int64_t start = 0; start < k; start += group) {
        for (int64_t part = start; part < start + group; part += PART) {
            const int64_t length = start + group - part < PART ? start + group - part : PART;
            widen(weights + part * bits / 8, wide, length, bits, bits == 4 ? part % 2 : 0, scales[start / group]);
            for (int64_t j = 0; j < count; j++) {
                const float *column = columns + j * k + part;
                int64_t i = 0;
                for (; i + LANES <= length; i += LANES)
                    for (int l = 0; l < LANES; l++)
                        sums[j][l] += wide[i + l] * column[i + l];
                for (; i < length; i++)
                    sums[j][0] += wide[i] * column[i];
            }
        }
    }
    for (int64_t j = 0; j < count; j++) {
        float sum = 0;
        for (int l = 0; l < LANES; l++)
            sum += sums[j][l];
        result[j] = sum;
    }
}

/* c (n, m) = b (n, k) times the transpose of the weights (m, k). `wide_b` has room for b in f32, if b is bf16, and `wide_scales`
 * for the scales in f32, by rows. */
int64_t deepbench_weight_only_gemm(const void *a, const void *scales, const void *b, void *c, float *wide_b,
    float *wide_scales, int64_t m, int64_t n, int64_t k, int64_t group, int64_t bits, int64_t is_bf16)
{
    const float *columns = is_bf16 ? wide_b : b;
    const int64_t row_bytes = k * bits / 8, groups = k / group;
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
            float *row_scales = wide_scales + row * groups, results[COLUMNS];
            for (int64_t i = 0; i < groups; i++)
                row_scales[i] = is_bf16 ? from_bf16(((const uint16_t *)scales)[i * m + row])
                                        : ((const float *)scales)[i * m + row];
            for (int64_t first = 0; first < n; first += COLUMNS) {
                const int64_t count = n - first < COLUMNS ? n - first : COLUMNS;
                row_times_columns(weights, row_scales, columns + first * k, results, count, k, group, bits);
                for (int64_t j = 0; j < count; j++) {
                    const int64_t to = (first + j) * m + row;
                    if (is_bf16)
                        ((uint16_t *)c)[to] = to_bf16(results[j]);
                    else
                        ((float *)c)[to] = results[j];
                }
            }
        }
    }
    return 0;
}
