/* Attention: the parts that libraries of matrix products lack, and a loop for decoding.
 *
 * The loop reads each key and value once, for all queries that need it. With few queries this takes as long as reading
 * the cache from memory, so it is the yardstick of other kernels.
 *
 * Source of its algorithm: Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023.
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

/* Must be inlined: a function that is not cloned would be compiled for the oldest CPU. */
#define INLINE static inline __attribute__((always_inline))

/* exp(x) for x <= 0, in steps that compilers vectorize: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], whose
 * coefficients are those of Cephes' expf. Its error is below 2 units in the last place; below -87 it is 0. */
INLINE float exponential(float x)
{
    const float n = (float)(int32_t)(x * 1.44269504f - 0.5f); /* rounds towards 0, so to nearest for x <= 0 */
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float e = 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    union {
        int32_t i;
        float f;
    } power = {.i = ((int32_t)n + 127) << 23};
    return x > -87.0f ? e * power.f : 0.0f;
}

static inline float number(const void *from, int64_t i, int64_t is_bf16)
{
    if (!is_bf16)
        return ((const float *)from)[i];
    union {
        uint32_t i;
        float f;
    } wide = {.i = (uint32_t)((const uint16_t *)from)[i] << 16};
    return wide.f;
}

/* To nearest, ties to even. */
INLINE uint16_t to_bf16(float x)
{
    union {
        float f;
        uint32_t i;
    } bits = {.f = x};
    return (uint16_t)((bits.i + 0x7fff + (bits.i >> 16 & 1)) >> 16);
}

/* Softmax of matrices of scores, in place. Row r of a matrix belongs to query (first + r % queries); column c to key c.
 * It sees the columns from (query + shift + 1 - window), or 0 without a window, up to (query + shift). */
struct softmax {
    float *scores;
    const float *lse; /* if not NULL: the logarithm of each row's sum, so that no maximum and sum are needed */
    int64_t rows, queries, columns, shift, window, is_causal;
    float scale;
};

INLINE void softmax_row(float *restrict row, int64_t begin, int64_t end, int64_t columns, float scale, const float *lse)
{
    float most = -INFINITY, sum = 0, inverse = 1;
    if (lse) {
        most = *lse / scale;
    } else {
#pragma omp simd reduction(max : most)
        for (int64_t c = begin; c < end; c++)
            most = row[c] > most ? row[c] : most;
    }
    memset(row, 0, (size_t)begin * sizeof *row);
#pragma omp simd reduction(+ : sum)
    for (int64_t c = begin; c < end; c++) {
        /* rounding may leave a score above lse; exponential() takes no positive numbers */
        const float x = scale * (row[c] - most);
        const float e = exponential(x > 0 ? 0 : x);
        row[c] = e;
        sum += e;
    }
    if (!lse) {
        inverse = 1 / sum;
#pragma omp simd
        for (int64_t c = begin; c < end; c++)
            row[c] *= inverse;
    }
    memset(row + end, 0, (size_t)(columns - end) * sizeof *row);
}

INLINE void visible(const struct softmax *s, int64_t r, int64_t *begin, int64_t *end)
{
    *begin = 0, *end = s->columns;
    if (s->is_causal) {
        *end = r % s->queries + s->shift + 1;
        if (*end > s->columns)
            *end = s->columns;
        if (s->window && r % s->queries + s->shift + 1 > s->window)
            *begin = r % s->queries + s->shift + 1 - s->window;
    }
}

WIDEST static void softmax_rows(const struct softmax *s, int64_t first, int64_t last)
{
    for (int64_t r = first; r < last; r++) {
        int64_t begin, end;
        visible(s, r, &begin, &end);
        softmax_row(s->scores + r * s->columns, begin, end, s->columns, s->scale, s->lse ? s->lse + r : NULL);
    }
}

int64_t deepbench_attention_softmax(const struct softmax *s)
{
#pragma omp parallel
    {
        int64_t first;
        const int64_t count = thread_part(s->rows, 1, &first);
        softmax_rows(s, first, first + count);
    }
    return 0;
}

/* ds = scale * weights * (ds - sum of dy * y), for the rows of scores in `weights` and `ds`. */
struct gradient {
    const float *weights;
    float *ds;
    const float *dy, *y;
    int64_t rows, columns, width;
    float scale;
};

WIDEST static void gradient_rows(const struct gradient *g, int64_t first, int64_t last)
{
    for (int64_t r = first; r < last; r++) {
        const float *dy = g->dy + r * g->width, *y = g->y + r * g->width, *weights = g->weights + r * g->columns;
        float *ds = g->ds + r * g->columns, sum = 0;
        const float scale = g->scale;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < g->width; i++)
            sum += dy[i] * y[i];
#pragma omp simd
        for (int64_t c = 0; c < g->columns; c++)
            ds[c] = scale * weights[c] * (ds[c] - sum);
    }
}

int64_t deepbench_attention_gradient(const struct gradient *g)
{
#pragma omp parallel
    {
        int64_t first;
        const int64_t count = thread_part(g->rows, 1, &first);
        gradient_rows(g, first, first + count);
    }
    return 0;
}

/* Copies pages of `page_bytes` for each of `kv_heads`, so that those of a sequence and head follow each other. */
int64_t deepbench_attention_collect(const char *cache, char *together, const int32_t *table, int64_t sequences,
                                    int64_t kv_heads, int64_t pages, int64_t page_bytes)
{
#pragma omp parallel for collapse(2)
    for (int64_t i = 0; i < sequences * kv_heads; i++)
        for (int64_t j = 0; j < pages; j++) {
            const int64_t page = table[i / kv_heads * pages + j];
            memcpy(together + (i * pages + j) * page_bytes, cache + (page * kv_heads + i % kv_heads) * page_bytes,
                   (size_t)page_bytes);
        }
    return 0;
}

/* Keys that are looked at together: their scores stay in a first-level cache. */
#define TILE 64

/* Rows (queries of the heads of a group) for which a vector of keys or values is read together. */
#define ROWS 4

/* Floats of a row in whole vectors of any instruction set, and of its state: the largest score, the sum, and the sums
 * of values. */
#define ROUNDED(size) (((size) + 31) / 32 * 32)
#define STATE(width) (ROUNDED(width) + 32)

/* Forward pass for few queries. The keys of a sequence and key-value head are split into `parts` that threads work on;
 * `scratch` holds the state of each part and row, and for each thread its queries and copies of a tile. */
struct decode {
    const void *q, *k, *v;
    void *y;
    const int32_t *lengths, *page_table;
    float *scratch;
    int64_t batch, kv_heads, group, queries, keys, size, width, page, is_causal, window, queries_are_keys, is_bf16,
        parts;
    float scale;
};

/* Keys of a part begin at multiples of TILE. */
static inline int64_t part_begin(int64_t first, int64_t last, int64_t part, int64_t parts)
{
    const int64_t tiles = (last - first + TILE - 1) / TILE, begin = first + tiles * part / parts * TILE;
    return begin < last ? begin : last;
}

#define VERSIONS "attention_decode.h"
#include "instruction_sets.h"

int64_t deepbench_attention_decode(const struct decode *d)
{
    const int64_t heads = d->batch * d->kv_heads, rows = d->group * d->queries;
    float *workspace = d->scratch + heads * d->parts * rows * STATE(d->width);
    const int64_t own = rows * ROUNDED(d->size) + TILE * (ROUNDED(d->size) + ROUNDED(d->width));
#pragma omp parallel
    {
        float *q = workspace + thread_number() * own;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < heads * d->parts; item++)
            CALL(decode_part)(d, item, q);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < heads * rows; row++)
            CALL(decode_row)(d, row);
    }
    return 0;
}
