/* A product with weights of 1, 2, 4 or 8 bits and a scale for each group of them: the yardstick of `weight_only_gemm`.
 *
 * Made for few columns, where the time of reading the weights counts: a weight is read from memory once, and unpacked
 * once for four columns.
 */
#include <stdint.h>
#include <string.h>
#include "threads.h"

/* Rows of weights that a thread computes before it writes their results: those of scales in a cache line. */
#define ROWS 16

/* Columns whose results are kept until they are written. */
#define COLUMNS 16

/* Results that are computed together. */
#define TILE 8

/* Columns for which there are tables: 16 numbers for each four of the column. */
#define MOST_TABLES 4

/* c (n, m) = b (n, k) times the transpose of the weights a (m, k), with scales (k / group, m). `columns` has room for b
 * in f32, or with 1 bit and few columns for the tables; `row_scales` of each thread for the scales of ROWS rows and 64
 * bytes more, which are read but do not count. */
struct product {
    const void *a, *scales, *b;
    void *c;
    float *columns, *row_scales;
    int64_t m, n, k, group, bits, is_bf16;
};

static inline float number(const void *from, int64_t i, int64_t is_bf16)
{
    if (!is_bf16)
        return ((const float *)from)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to nearest, ties to even; numbers only. */
static inline uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

#define VERSIONS "weight_only_rows.h"
#include "instruction_sets.h"

/* Weight number `at`. */
static inline float single_weight(const uint8_t *weights, int64_t at, int64_t bits)
{
    const int64_t per_byte = 8 / bits;
    const uint8_t field = weights[at / per_byte] >> at % per_byte * bits;
    if (bits == 1)
        return field & 1 ? 1.0f : -1.0f;
    return (float)((int8_t)(uint8_t)(field << (8 - bits)) >> (8 - bits));
}

/* One weight after the other, for sizes and groups that no vectors fit. */
static void single_weights(const struct product *p, int64_t first, const float *columns, float *result,
                           int64_t row_count, int64_t column_count)
{
    const uint8_t *weights = p->a;
    for (int64_t row = 0; row < row_count; row++)
        for (int64_t column = 0; column < column_count; column++) {
            float sum = 0;
            for (int64_t i = 0; i < p->k; i++) {
                const int64_t at = (first + row) * p->k + i;
                const float weight = single_weight(weights, at, p->bits);
                const float scale = number(p->scales, i / p->group * p->m + first + row, p->is_bf16);
                sum += scale * weight * columns[column * p->k + i];
            }
            result[column * ROWS + row] = sum;
        }
}

int64_t deepbench_weight_only_gemm(const struct product *p)
{
    const int64_t block = CALL(block)(p), blocks = block ? p->k / block : 0;
#pragma omp parallel
    {
        if (block) {
#pragma omp for
            for (int64_t i = 0; i < p->n * blocks; i++)
                CALL(arrange)(p, i);
        } else {
#pragma omp for
            for (int64_t i = 0; i < p->n * p->k; i++)
                p->columns[i] = number(p->b, i, p->is_bf16);
        }
        float result[ROWS * COLUMNS], *scales = p->row_scales + thread_number() * (p->k / p->group + 1) * ROWS;
        int64_t begin;
        const int64_t end = thread_part(p->m, ROWS, &begin) + begin;
        for (int64_t first = begin; first < end; first += ROWS) {
            const int64_t row_count = end - first < ROWS ? end - first : ROWS;
            if (block)
                CALL(arrange_scales)(p, scales, first, row_count);
            for (int64_t column = 0; column < p->n; column += COLUMNS) {
                const int64_t column_count = p->n - column < COLUMNS ? p->n - column : COLUMNS;
                const float *columns = p->columns + column * p->k;
                if (block)
                    CALL(rows_times_columns)(p, first, scales, columns, result, row_count, column_count);
                else
                    single_weights(p, first, columns, result, row_count, column_count);
                for (int64_t j = 0; j < column_count; j++)
                    for (int64_t row = 0; row < row_count; row++) {
                        const int64_t to = (column + j) * p->m + first + row;
                        if (p->is_bf16)
                            ((uint16_t *)p->c)[to] = to_bf16(result[j * ROWS + row]);
                        else
                            ((float *)p->c)[to] = result[j * ROWS + row];
                    }
            }
        }
    }
    return 0;
}
