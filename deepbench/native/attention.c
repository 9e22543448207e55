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
#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* Inlined, because a function that is not cloned would be compiled for the oldest CPU. */
#define INLINE static inline __attribute__((always_inline))

/* Keys that are looked at together: their scores stay in a first-level cache. */
#define TILE 64

int64_t deepbench_attention_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

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

INLINE float of_bf16(uint16_t x)
{
    union {
        uint32_t i;
        float f;
    } wide = {.i = (uint32_t)x << 16};
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

static void thread_rows(int64_t rows, int64_t *first, int64_t *last)
{
    int64_t part = 0, parts = 1;
#ifdef _OPENMP
    part = omp_get_thread_num(), parts = omp_get_num_threads();
#endif
    *first = rows * part / parts;
    *last = rows * (part + 1) / parts;
}

int64_t deepbench_attention_softmax(const struct softmax *s)
{
#pragma omp parallel
    {
        int64_t first, last;
        thread_rows(s->rows, &first, &last);
        softmax_rows(s, first, last);
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
        int64_t first, last;
        thread_rows(g->rows, &first, &last);
        gradient_rows(g, first, last);
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

/* Forward pass for few queries. The keys of a sequence and key-value head are split into `parts` that threads work on;
 * `scratch` holds for each part and row (query of a head in the group) its maximum, its sum and its sums of values. */
struct decode {
    const void *q, *k, *v;
    void *y;
    const int32_t *lengths, *page_table;
    float *scratch;
    int64_t batch, kv_heads, group, queries, keys, size, width, page, is_causal, window, queries_are_keys, parts;
    float scale;
};

/* Keys of a part begin at multiples of TILE. */
INLINE int64_t part_begin(int64_t first, int64_t last, int64_t part, int64_t parts)
{
    const int64_t tiles = (last - first + TILE - 1) / TILE, begin = first + tiles * part / parts * TILE;
    return begin < last ? begin : last;
}

#define DECODE(NAME, TYPE, LOAD, STORE)                                                                                \
    WIDEST static void decode_part_##NAME(const struct decode *d, int64_t item, float *restrict q)                     \
    {                                                                                                                  \
        const int64_t part = item % d->parts, head = item / d->parts % d->kv_heads;                                    \
        const int64_t sequence = item / d->parts / d->kv_heads, rows = d->group * d->queries;                          \
        const int64_t keys = d->lengths ? d->lengths[sequence] : d->keys, size = d->size, width = d->width;            \
        const int64_t queries = d->queries_are_keys ? keys : d->queries;                                               \
        const int64_t pages = d->page ? (d->keys + d->page - 1) / d->page : 0;                                         \
        const int64_t seen = d->is_causal && d->window ? keys - queries + 1 - d->window : 0;                           \
        const int64_t first = seen > 0 ? seen : 0;                                                                     \
        const int64_t begin = part_begin(first, keys, part, d->parts);                                                 \
        const int64_t end = part_begin(first, keys, part + 1, d->parts);                                               \
        const TYPE *source = (const TYPE *)d->q + (sequence * d->kv_heads + head) * rows * size;                       \
        float *restrict out = d->scratch + item * rows * (width + 2);                                                  \
        for (int64_t i = 0; i < rows * size; i++)                                                                      \
            q[i] = d->scale * LOAD(source[i]);                                                                         \
        for (int64_t r = 0; r < rows; r++) {                                                                           \
            memset(out + r * (width + 2), 0, (size_t)(width + 2) * sizeof *out);                                       \
            out[r * (width + 2)] = -INFINITY;                                                                          \
        }                                                                                                              \
        float *restrict wide = q + rows * size;                                                                        \
        for (int64_t tile = begin; tile < end;) {                                                                      \
            /* a tile ends at the end of a page */                                                                     \
            int64_t stop = tile + TILE < end ? tile + TILE : end, at;                                                  \
            if (d->page) {                                                                                             \
                const int64_t next = (tile / d->page + 1) * d->page;                                                   \
                stop = stop < next ? stop : next;                                                                      \
                at = ((int64_t)d->page_table[sequence * pages + tile / d->page] * d->kv_heads + head) * d->page;       \
                at += tile % d->page;                                                                                  \
            } else                                                                                                     \
                at = (sequence * d->kv_heads + head) * d->keys + tile;                                                 \
            const int64_t n = stop - tile;                                                                             \
            const TYPE *k = (const TYPE *)d->k + at * size, *v = (const TYPE *)d->v + at * width;                      \
            float scores[TILE];                                                                                        \
            const float *restrict wide_k = (const float *)k, *restrict wide_v = (const float *)v;                      \
            if (sizeof(TYPE) < sizeof(float)) {                                                                        \
                for (int64_t i = 0; i < n * size; i++)                                                                 \
                    wide[i] = LOAD(k[i]);                                                                              \
                for (int64_t i = 0; i < n * width; i++)                                                                \
                    wide[TILE * size + i] = LOAD(v[i]);                                                                \
                wide_k = wide, wide_v = wide + TILE * size;                                                            \
            }                                                                                                          \
            for (int64_t r = 0; r < rows; r++) {                                                                       \
                const int64_t query = r % d->queries;                                                                  \
                int64_t from = 0, to = n;                                                                              \
                if (d->is_causal) {                                                                                    \
                    const int64_t last = query + keys - queries + 1 - tile;                                            \
                    to = last < n ? last : n;                                                                          \
                    if (d->window && last > d->window)                                                                 \
                        from = last - d->window;                                                                       \
                }                                                                                                      \
                if (from >= to || query >= queries)                                                                    \
                    continue;                                                                                          \
                float *restrict sums = out + r * (width + 2) + 2, *state = sums - 2, most = state[0], total = 0;       \
                for (int64_t j = from; j < to; j++) {                                                                  \
                    float s = 0;                                                                                       \
                    const float *restrict a = q + r * size, *restrict b = wide_k + j * size;                           \
                    _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < size; i++) s += a[i] * b[i];          \
                    scores[j] = s;                                                                                     \
                    most = s > most ? s : most;                                                                        \
                }                                                                                                      \
                const float shrink = exponential(state[0] - most);                                                     \
                _Pragma("omp simd reduction(+ : total)") for (int64_t j = from; j < to; j++)                           \
                {                                                                                                      \
                    scores[j] = exponential(scores[j] - most);                                                         \
                    total += scores[j];                                                                                \
                }                                                                                                      \
                if (shrink != 1)                                                                                       \
                    for (int64_t i = 0; i < width; i++)                                                                \
                        sums[i] *= shrink;                                                                             \
                for (int64_t j = from; j < to; j++) {                                                                  \
                    const float weight = scores[j], *restrict b = wide_v + j * width;                                  \
                    for (int64_t i = 0; i < width; i++)                                                                \
                        sums[i] += weight * b[i];                                                                      \
                }                                                                                                      \
                state[0] = most;                                                                                       \
                state[1] = state[1] * shrink + total;                                                                  \
            }                                                                                                          \
            tile = stop;                                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Adds up the parts of one row, each relative to the largest score of all. */                                     \
    WIDEST static void decode_row_##NAME(const struct decode *d, int64_t row)                                          \
    {                                                                                                                  \
        const int64_t rows = d->group * d->queries, width = d->width, step = rows * (width + 2);                       \
        float *first = d->scratch + row / rows * d->parts * step + row % rows * (width + 2);                           \
        float most = -INFINITY, total = 0;                                                                             \
        for (int64_t part = 0; part < d->parts; part++)                                                                \
            most = first[part * step] > most ? first[part * step] : most;                                              \
        for (int64_t part = 0; part < d->parts; part++) {                                                              \
            float *state = first + part * step;                                                                        \
            const float shrink = state[1] > 0 ? exponential(state[0] - most) : 0;                                      \
            total += state[1] * shrink;                                                                                \
            for (int64_t i = 0; i < width; i++)                                                                        \
                first[2 + i] = (part ? first[2 + i] : 0) + state[2 + i] * shrink;                                      \
        }                                                                                                              \
        const float inverse = total > 0 ? 1 / total : 0; /* rows of padding are 0 */                                   \
        TYPE *y = (TYPE *)d->y + row * width;                                                                          \
        for (int64_t i = 0; i < width; i++)                                                                            \
            y[i] = STORE(first[2 + i] * inverse);                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    int64_t deepbench_attention_decode_##NAME(const struct decode *d)                                                  \
    {                                                                                                                  \
        const int64_t heads = d->batch * d->kv_heads, rows = d->group * d->queries;                                    \
        float *workspace = d->scratch + heads * d->parts * rows * (d->width + 2);                                      \
        const int64_t own = rows * d->size + TILE * (d->size + d->width);                                              \
        _Pragma("omp parallel")                                                                                        \
        {                                                                                                              \
            int64_t thread = 0;                                                                                        \
            THREAD(thread);                                                                                            \
            _Pragma("omp for schedule(static)") for (int64_t item = 0; item < heads * d->parts; item++)                \
                decode_part_##NAME(d, item, workspace + thread * own);                                                 \
            _Pragma("omp for schedule(static)") for (int64_t row = 0; row < heads * rows; row++)                       \
                decode_row_##NAME(d, row);                                                                             \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

#ifdef _OPENMP
#define THREAD(number) number = omp_get_thread_num()
#else
#define THREAD(number)
#endif
#define SAME(x) (x)
DECODE(f32, float, SAME, SAME)
DECODE(bf16, uint16_t, of_bf16, to_bf16)
