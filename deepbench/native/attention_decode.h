/* Decoding of attention.c with the vectors of one instruction set.
 *
 * A cache is read as vectors of words. A word is a float, or two numbers in bf16: shifted by 16 bits the even one,
 * masked the odd one. So a row of bf16 becomes vectors of even and of odd numbers in turn; queries and sums are kept in
 * this order, and put back in order at the end.
 */

/* Rows of a tile of keys or values, `step` words apart; a multiple of LANES of them counts. */
struct VERSION(tile) {
    const uint32_t *words;
    int64_t step;
};

/* Vectors of floats in a row of `size` numbers, and the numbers in them. */
INLINE int64_t VERSION(chunks)(int64_t size, int is_bf16)
{
    return is_bf16 ? (size + 2 * LANES - 1) / (2 * LANES) : (size + LANES - 1) / LANES;
}

/* Where number i of a row is in its vectors. */
INLINE int64_t VERSION(place)(int64_t i, int is_bf16)
{
    return is_bf16 ? i / (2 * LANES) * (2 * LANES) + i % 2 * LANES + i % (2 * LANES) / 2 : i;
}

INLINE floats VERSION(even)(words pairs)
{
    return (floats)(pairs << 16);
}

INLINE floats VERSION(odd)(words pairs)
{
    return (floats)(pairs & (int32_t)0xffff0000);
}

/* Asks for vectors of words before they are needed: those of the next tile, and those that are read by columns. */
INLINE void VERSION(fetch)(const uint32_t *from, int64_t vectors)
{
    for (int64_t i = 0; i < vectors; i++)
        __builtin_prefetch(from + i * LANES);
}

/* As exponential() in attention.c; 0 for -INFINITY. */
INLINE floats VERSION(exponentials)(floats x)
{
    const words whole = __builtin_convertvector(x * 1.44269504f - 0.5f, words);
    const floats n = __builtin_convertvector(whole, floats);
    const floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    floats e = VERSION(all)(1.9875691500e-4f);
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    return (floats)((words)(e * (floats)((whole + 127) << 23)) & (words)(x > -87.0f));
}

/* Four sums for each of `keys` keys and each row, which add up to its score. */
INLINE void VERSION(products)(const float *q, int64_t q_step, const uint32_t *k, int64_t k_step, int64_t chunks,
                              float (*partial)[TILE][4], int64_t key, const int keys, const int rows,
                              const int is_bf16)
{
    floats sums[2][ROWS] = {{{0}}};
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const float *other = q + chunk * LANES * (is_bf16 ? 2 : 1);
#pragma GCC unroll 2
        for (int i = 0; i < keys; i++) {
            const words x = VERSION(load_words)(k + (key + i) * k_step + chunk * LANES);
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++)
                if (is_bf16) {
                    sums[i][row] += VERSION(even)(x) * VERSION(load)(other + row * q_step);
                    sums[i][row] += VERSION(odd)(x) * VERSION(load)(other + row * q_step + LANES);
                } else
                    sums[i][row] += (floats)x * VERSION(load)(other + row * q_step);
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < keys; i++)
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++)
            VERSION(store_four)(sums[i][row], partial[row][key + i]);
}

/* sums = shrink * sums + the values of all keys times their weights, for two vectors of floats of each row. */
INLINE void VERSION(add_values)(float *sums, int64_t sums_step, struct VERSION(tile) v, int64_t keys,
                                const float (*weights)[TILE], const float *shrink, const int rows, const int vectors,
                                const int is_bf16)
{
    floats total[ROWS][2];
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++)
            total[row][i] = VERSION(load)(sums + row * sums_step + i * LANES) * shrink[row];
    for (int64_t key = 0; key < keys; key++) {
        const words first = VERSION(load_words)(v.words + key * v.step);
        floats value[2];
        value[0] = is_bf16 ? VERSION(even)(first) : (floats)first;
        if (vectors == 2)
            value[1] = is_bf16 ? VERSION(odd)(first) : (floats)VERSION(load_words)(v.words + key * v.step + LANES);
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
            for (int i = 0; i < vectors; i++)
                total[row][i] += value[i] * weights[row][key];
    }
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++)
            VERSION(store)(total[row][i], sums + row * sums_step + i * LANES);
}

/* Exponentials of the scores of one row, which sees the keys from `from` to `to`; those of the others are 0. `state`
 * has the largest score so far, then a vector whose sum is that of all exponentials. Returns by what earlier sums
 * shrink. */
INLINE float VERSION(softmax_tile)(const float (*partial)[4], float *weights, float *state, int64_t from, int64_t to)
{
    const float before = state[0];
    float most = before;
    for (int j = 0; j < TILE; j++)
        weights[j] = partial[j][0] + partial[j][1] + partial[j][2] + partial[j][3];
    for (int64_t j = 0; j < from; j++)
        weights[j] = -INFINITY;
    for (int64_t j = to; j < TILE; j++)
        weights[j] = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int j = 0; j < TILE; j++)
        most = weights[j] > most ? weights[j] : most;
    if (most == -INFINITY) { /* it has seen no key yet */
        memset(weights, 0, TILE * sizeof *weights);
        return 1;
    }
    const float shrink = exponential(before - most);
    floats total = VERSION(load)(state + LANES) * shrink;
    for (int j = 0; j < TILE; j += LANES) {
        const floats e = VERSION(exponentials)(VERSION(load)(weights + j) - most);
        VERSION(store)(e, weights + j);
        total += e;
    }
    state[0] = most;
    VERSION(store)(total, state + LANES);
    return shrink;
}

/* Some rows and one tile. `state` of each row is followed by its sums. */
INLINE void VERSION(rows_and_tile)(const float *q, int64_t q_step, float *state, int64_t state_step,
                                   struct VERSION(tile) k, struct VERSION(tile) v, int64_t k_chunks, int64_t v_chunks,
                                   int64_t keys, const int64_t (*seen)[2], const int rows, const int is_bf16)
{
    float partial[ROWS][TILE][4], weights[ROWS][TILE], shrink[ROWS];
    int64_t key = 0;
    for (; key + 2 <= keys; key += 2) {
        VERSION(fetch)(k.words + (key + TILE) * k.step, 2 * k_chunks);
        VERSION(fetch)(v.words + key * v.step, 2 * v_chunks);
        VERSION(products)(q, q_step, k.words, k.step, k_chunks, partial, key, 2, rows, is_bf16);
    }
    if (key < keys)
        VERSION(products)(q, q_step, k.words, k.step, k_chunks, partial, key, 1, rows, is_bf16);
    for (int row = 0; row < rows; row++)
        shrink[row] = VERSION(softmax_tile)(partial[row], weights[row], state + row * state_step, seen[row][0],
                                            seen[row][1]);
    float *sums = state + 2 * LANES;
    int64_t chunk = 0;
    if (is_bf16)
        for (; chunk < v_chunks; chunk++, sums += 2 * LANES, v.words += LANES)
            VERSION(add_values)(sums, state_step, v, keys, weights, shrink, rows, 2, 1);
    else {
        for (; chunk + 2 <= v_chunks; chunk += 2, sums += 2 * LANES, v.words += 2 * LANES)
            VERSION(add_values)(sums, state_step, v, keys, weights, shrink, rows, 2, 0);
        if (chunk < v_chunks)
            VERSION(add_values)(sums, state_step, v, keys, weights, shrink, rows, 1, 0);
    }
}

/* Rows that are no whole number of vectors are copied, and end with zeros. */
INLINE struct VERSION(tile) VERSION(whole_vectors)(const char *from, int64_t row_bytes, int64_t chunks, int64_t keys,
                                                   char *copy)
{
    const int64_t step = chunks * LANES;
    if (row_bytes == 4 * step)
        return (struct VERSION(tile)){(const uint32_t *)from, step};
    for (int64_t key = 0; key < keys; key++) {
        memcpy(copy + key * step * 4, from + key * row_bytes, (size_t)row_bytes);
        memset(copy + key * step * 4 + row_bytes, 0, (size_t)(step * 4 - row_bytes));
    }
    return (struct VERSION(tile)){(const uint32_t *)copy, step};
}

INLINE void VERSION(part)(const struct decode *d, int64_t item, float *q, const int is_bf16)
{
    const int64_t part = item % d->parts, head = item / d->parts % d->kv_heads;
    const int64_t sequence = item / d->parts / d->kv_heads, rows = d->group * d->queries;
    const int64_t keys = d->lengths ? d->lengths[sequence] : d->keys, bytes = is_bf16 ? 2 : 4;
    const int64_t queries = d->queries_are_keys ? keys : d->queries;
    const int64_t pages = d->page ? (d->keys + d->page - 1) / d->page : 0;
    const int64_t unseen = d->is_causal && d->window ? keys - queries + 1 - d->window : 0;
    const int64_t first = unseen > 0 ? unseen : 0;
    const int64_t begin = part_begin(first, keys, part, d->parts), end = part_begin(first, keys, part + 1, d->parts);
    const int64_t k_chunks = VERSION(chunks)(d->size, is_bf16), v_chunks = VERSION(chunks)(d->width, is_bf16);
    const int64_t q_step = ROUNDED(d->size), state_step = STATE(d->width);
    const char *source = (const char *)d->q + (sequence * d->kv_heads + head) * rows * d->size * bytes;
    float *states = d->scratch + item * rows * state_step;
    char *k_copy = (char *)(q + rows * q_step), *v_copy = k_copy + TILE * ROUNDED(d->size) * 4;
    memset(q, 0, (size_t)(rows * q_step) * sizeof *q);
    memset(states, 0, (size_t)(rows * state_step) * sizeof *states);
    for (int64_t row = 0; row < rows; row++) {
        states[row * state_step] = -INFINITY;
        for (int64_t i = 0; i < d->size; i++)
            q[row * q_step + VERSION(place)(i, is_bf16)] = d->scale * number(source, row * d->size + i, is_bf16);
    }
    for (int64_t tile = begin; tile < end;) {
        /* a tile ends at the end of a page */
        int64_t stop = tile + TILE < end ? tile + TILE : end, at;
        if (d->page) {
            const int64_t next = (tile / d->page + 1) * d->page;
            stop = stop < next ? stop : next;
            at = ((int64_t)d->page_table[sequence * pages + tile / d->page] * d->kv_heads + head) * d->page;
            at += tile % d->page;
        } else
            at = (sequence * d->kv_heads + head) * d->keys + tile;
        const int64_t n = stop - tile;
        const struct VERSION(tile) k = VERSION(whole_vectors)(
            (const char *)d->k + at * d->size * bytes, d->size * bytes, k_chunks, n, k_copy);
        const struct VERSION(tile) v = VERSION(whole_vectors)(
            (const char *)d->v + at * d->width * bytes, d->width * bytes, v_chunks, n, v_copy);
        for (int64_t row = 0; row < rows;) {
            const int64_t some = rows - row >= ROWS ? ROWS : 1;
            int64_t seen[ROWS][2], is_seen = 0;
            for (int64_t i = 0; i < some; i++) {
                const int64_t query = (row + i) % d->queries, last = query + keys - queries + 1 - tile;
                seen[i][0] = d->is_causal && d->window && last > d->window ? last - d->window : 0;
                seen[i][1] = query >= queries ? 0 : d->is_causal && last < n ? last : n;
                seen[i][0] = seen[i][0] < TILE ? seen[i][0] : TILE;
                seen[i][1] = seen[i][1] > 0 ? seen[i][1] : 0;
                is_seen |= seen[i][0] < seen[i][1];
            }
            if (!is_seen) {
                row += some;
                continue;
            }
            const float *some_q = q + row * q_step;
            float *state = states + row * state_step;
            if (some == ROWS)
                VERSION(rows_and_tile)(some_q, q_step, state, state_step, k, v, k_chunks, v_chunks, n, seen, ROWS,
                                       is_bf16);
            else
                VERSION(rows_and_tile)(some_q, q_step, state, state_step, k, v, k_chunks, v_chunks, n, seen, 1,
                                       is_bf16);
            row += some;
        }
        tile = stop;
    }
}

static void VERSION(decode_part)(const struct decode *d, int64_t item, float *q)
{
    if (d->is_bf16)
        VERSION(part)(d, item, q, 1);
    else
        VERSION(part)(d, item, q, 0);
}

/* Adds up the parts of one row, each relative to the largest score of all, and stores the result. */
static void VERSION(decode_row)(const struct decode *d, int64_t row)
{
    const int64_t rows = d->group * d->queries, state_step = STATE(d->width), step = rows * state_step;
    const int64_t vectors = VERSION(chunks)(d->width, (int)d->is_bf16) * (d->is_bf16 ? 2 : 1);
    float *first = d->scratch + row / rows * d->parts * step + row % rows * state_step;
    float most = -INFINITY, total = 0;
    for (int64_t part = 0; part < d->parts; part++)
        most = first[part * step] > most ? first[part * step] : most;
    for (int64_t part = 0; part < d->parts; part++) {
        float *state = first + part * step;
        const float shrink = most == -INFINITY ? 0 : exponential(state[0] - most);
        total += VERSION(sum)(VERSION(load)(state + LANES)) * shrink;
        for (int64_t i = 2; i < 2 + vectors; i++) {
            floats sums = VERSION(load)(state + i * LANES) * shrink;
            if (part)
                sums += VERSION(load)(first + i * LANES);
            VERSION(store)(sums, first + i * LANES);
        }
    }
    const float inverse = total > 0 ? 1 / total : 0; /* rows of padding are 0 */
    for (int64_t i = 0; i < d->width; i++) {
        const float y = first[2 * LANES + VERSION(place)(i, (int)d->is_bf16)] * inverse;
        if (d->is_bf16)
            ((uint16_t *)d->y)[row * d->width + i] = to_bf16(y);
        else
            ((float *)d->y)[row * d->width + i] = y;
    }
}
