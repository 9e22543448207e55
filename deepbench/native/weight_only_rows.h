/* The product of weight_only.c with the vectors of one instruction set.
 *
 * A vector of words has PER weights in each lane: those of 1 bit in a word are 32, of 2 bits 16, of 4 bits 8, of 8 bits
 * 4. All lanes are shifted together, so weight i of each lane becomes a vector of floats, and is multiplied by a vector
 * of B, which was brought to this order before. BLOCK weights are LANES words.
 *
 * With 16 lanes and few columns, weights of 1 bit take another way. Four of them have 16 values. Their products with four
 * numbers of B are added up ahead: a table of 16 sums for each four numbers. A vector then has a word of each of 16 rows,
 * and one lookup and one addition are those of four weights. T-MAC does so (Wei and others, "T-MAC: CPU Renaissance via
 * Table Lookup", EuroSys 2025). With 2 bits, this was not faster than the first way.
 */
#define PER(bits) (32 / (bits))
#define BLOCK(bits) (LANES * PER(bits))

/* Weight i of each word. With 16 lanes, weights of up to 4 bits are looked up, with 8 lanes those of up to 2 bits: of an
 * index, only the lowest four or three bits count, so tables of fewer numbers are repeated. Otherwise weights are shifted
 * to the top, and back with their sign. A weight of 1 bit is 1 where the bit is set, else -1. */
INLINE floats VERSION(weight)(words x, int i, int bits)
{
#if LANES == 16
    const floats fours = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    const floats twos = {0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1};
    const floats ones = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
    if (bits <= 4)
        return VERSION(pick)(bits == 4 ? fours : bits == 2 ? twos : ones, x >> bits * i);
#elif LANES == 8
    const floats twos = {0, 1, -2, -1, 0, 1, -2, -1}, ones = {-1, 1, -1, 1, -1, 1, -1, 1};
    if (bits <= 2)
        return VERSION(pick)(bits == 2 ? twos : ones, x >> bits * i);
#endif
    const words shifted = x << (32 - bits * (i + 1)) >> (32 - bits);
    return __builtin_convertvector(bits == 1 ? -2 * shifted - 1 : shifted, floats);
}

/* Whether weights are looked up in tables. */
INLINE int VERSION(has_tables)(const struct product *p)
{
    return LANES == 16 && p->bits == 1 && p->n <= MOST_TABLES && p->k % PER(1) == 0 && p->group % PER(1) == 0;
}

/* BLOCK; or the weights of a word with tables; or 0 if a row has no whole number of blocks, or a block has groups that no
 * word begins with. */
static int64_t VERSION(block)(const struct product *p)
{
    const int64_t block = BLOCK(p->bits), group = p->group;
    if (VERSION(has_tables)(p))
        return PER(p->bits);
    return p->k % block || group % PER(p->bits) || (group % block && block % group) ? 0 : block;
}


#if LANES == 16
/* The tables of the numbers of B that a word of weights is multiplied by. */
static void VERSION(arrange_tables)(const struct product *p, int64_t index)
{
    const words values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t four = 8 * index; four < 8 * (index + 1); four++) {
        floats sums = {0};
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sums += VERSION(weight)(values, i, 1) * number(p->b, 4 * four + i, p->is_bf16);
        VERSION(store)(sums, p->columns + four * LANES);
    }
}

/* Rows of words become columns: lane i of vector j and lane j of vector i change places. */
INLINE void VERSION(transpose)(words *x)
{
#pragma GCC unroll 4
    for (int step = 1; step < LANES; step *= 2) {
        words first, second;
        for (int lane = 0; lane < LANES; lane++) {
            first[lane] = lane & step ? LANES + lane - step : lane;
            second[lane] = lane & step ? LANES + lane : lane + step;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & step)) {
                const words a = x[i], b = x[i + step];
                x[i] = __builtin_shuffle(a, b, first);
                x[i + step] = __builtin_shuffle(a, b, second);
            }
    }
}

/* Up to ROWS rows of weights times all columns, whose number is a constant where this is inlined. Additions to one sum
 * wait for each other, so a column has several. */
INLINE void VERSION(rows_by_tables)(const struct product *p, int64_t first, const float *scales, float *result,
                                    int64_t row_count, const int column_count)
{
    const int sum_count = 4 / column_count;
    const int64_t row_words = p->k / PER(1), row_bytes = row_words * 4, group_words = p->group / PER(1);
    const uint8_t *weights = (const uint8_t *)p->a + first * row_bytes;
    floats totals[MOST_TABLES] = {{0}}, sums[MOST_TABLES] = {{0}};
    for (int64_t at = 0, left = group_words; at < row_words; at += LANES) {
        const int64_t count = row_words - at < LANES ? row_words - at : LANES;
        words x[ROWS] = {{0}};
        for (int64_t row = 0; row < row_count; row++) {
            const uint8_t *from = weights + row * row_bytes + at * 4;
            if (count == LANES)
                x[row] = VERSION(load_words)(from);
            else
                memcpy(&x[row], from, (size_t)count * 4);
            __builtin_prefetch(from + ROWS * row_bytes); /* of the rows that follow */
        }
        VERSION(transpose)(x);
        for (int64_t j = 0; j < count; j++) {
#pragma GCC unroll 8
            for (int four = 0; four < 8; four++)
#pragma GCC unroll 4
                for (int column = 0; column < column_count; column++)
                    sums[column * sum_count + four % sum_count] +=
                        VERSION(pick)(VERSION(load)(p->columns + ((column * row_words + at + j) * 8 + four) * LANES),
                                      x[j] >> 4 * four);
            if (--left == 0) {
                const floats scale = VERSION(load)(scales);
#pragma GCC unroll 4
                for (int i = 0; i < column_count * sum_count; i++) {
                    totals[i] += sums[i] * scale;
                    sums[i] = (floats){0};
                }
                left = group_words, scales += ROWS;
            }
        }
    }
    for (int column = 0; column < column_count; column++) {
        floats total = {0};
        for (int i = 0; i < sum_count; i++)
            total += totals[column * sum_count + i];
        VERSION(store)(total, result + column * ROWS);
    }
}
#endif

/* A block of B in the order of the weights: first number i of all words, then number i + 1. Or the tables of a word. */
static void VERSION(arrange)(const struct product *p, int64_t index)
{
#if LANES == 16
    if (VERSION(has_tables)(p)) {
        VERSION(arrange_tables)(p, index);
        return;
    }
#endif
    const int64_t start = index * BLOCK(p->bits);
    for (int64_t i = 0; i < PER(p->bits); i++)
        for (int64_t lane = 0; lane < LANES; lane++)
            p->columns[start + i * LANES + lane] = number(p->b, start + lane * PER(p->bits) + i, p->is_bf16);
}

/* The scales of ROWS rows as f32 in the order in which they are needed: block by block, or one after the other if a
 * block has only one; in it by rows; and in a row the `count` scales of a block. */
INLINE void VERSION(scales_by_block)(const struct product *p, float *restrict to, int64_t first, int64_t row_count,
                                     int64_t count, int64_t is_bf16)
{
    for (int64_t i = 0; i < p->k / p->group; i += count)
        for (int64_t row = 0; row < row_count; row++)
            for (int64_t j = 0; j < count; j++)
                to[i * ROWS + row * count + j] = number(p->scales, (i + j) * p->m + first + row, is_bf16);
}

static void VERSION(arrange_scales)(const struct product *p, float *restrict to, int64_t first, int64_t row_count)
{
    const int64_t count = p->group < BLOCK(p->bits) && !VERSION(has_tables)(p) ? BLOCK(p->bits) / p->group : 1;
    /* with constants, compilers find vectors for it */
    if (row_count == ROWS && count == 1 && p->is_bf16)
        VERSION(scales_by_block)(p, to, first, ROWS, 1, 1);
    else if (row_count == ROWS && count == 1)
        VERSION(scales_by_block)(p, to, first, ROWS, 1, 0);
    else if (row_count == ROWS && count == 2 && p->is_bf16)
        VERSION(scales_by_block)(p, to, first, ROWS, 2, 1);
    else if (row_count == ROWS && count == 2)
        VERSION(scales_by_block)(p, to, first, ROWS, 2, 0);
    else if (row_count == ROWS && count == 4 && p->is_bf16)
        VERSION(scales_by_block)(p, to, first, ROWS, 4, 1);
    else if (row_count == ROWS && count == 4)
        VERSION(scales_by_block)(p, to, first, ROWS, 4, 0);
    else
        VERSION(scales_by_block)(p, to, first, row_count, count, p->is_bf16);
}

/* Some rows of weights times some columns. Both counts are constants where this is inlined, their product at most TILE,
 * so that all sums stay in registers. Until the scale changes, a tile sums products of integers. */
INLINE void VERSION(tile)(const struct product *p, const uint8_t *weights, const float *scales, const float *columns,
                          float *result, const int bits, const int row_count, const int column_count)
{
    const int64_t span = p->group > BLOCK(bits) ? p->group : BLOCK(bits), count = span / p->group;
    floats totals[TILE] = {{0}};
    words group_of; /* of each lane, relative to the first lane */
    for (int lane = 0; lane < LANES; lane++)
        group_of[lane] = p->group < BLOCK(bits) ? lane * PER(bits) / (int)p->group : 0;
    for (int64_t start = 0; start < p->k; start += span, scales += count * ROWS) {
        floats sums[TILE] = {{0}};
        for (int64_t at = start; at < start + span; at += BLOCK(bits))
#pragma GCC unroll 8
            for (int row = 0; row < row_count; row++) {
                const uint8_t *from = weights + (row * p->k + at) * bits / 8;
                const words x = VERSION(load_words)(from);
                __builtin_prefetch(from + row_count * p->k * bits / 8); /* of the rows that follow */
#pragma GCC unroll 32
                for (int i = 0; i < PER(bits); i++) {
                    const floats w = VERSION(weight)(x, i, bits);
#pragma GCC unroll 4
                    for (int column = 0; column < column_count; column++)
                        sums[row * column_count + column] +=
                            w * VERSION(load)(columns + column * p->k + at + i * LANES);
                }
            }
#pragma GCC unroll 8
        for (int row = 0; row < row_count; row++) {
            const floats scale = VERSION(pick)(VERSION(load)(scales + row * count), group_of);
#pragma GCC unroll 4
            for (int column = 0; column < column_count; column++)
                totals[row * column_count + column] += sums[row * column_count + column] * scale;
        }
    }
    for (int row = 0; row < row_count; row++)
        for (int column = 0; column < column_count; column++)
            result[column * ROWS + row] = VERSION(sum)(totals[row * column_count + column]);
}

INLINE void VERSION(rows_of)(const struct product *p, const uint8_t *weights, const float *scales, const float *columns,
                             float *result, int64_t row_count, int64_t column_count, const int bits)
{
    const int64_t count = p->group < BLOCK(bits) ? BLOCK(bits) / p->group : 1;
#define AT(row) p, weights + (row) * p->k * bits / 8, scales + (row) * count, columns, result + (row), bits
    for (; column_count >= 4; column_count -= 4, columns += 4 * p->k, result += 4 * ROWS) {
        int64_t row = 0;
        for (; row + 2 <= row_count; row += 2)
            VERSION(tile)(AT(row), 2, 4);
        if (row < row_count)
            VERSION(tile)(AT(row), 1, 4);
    }
    for (; column_count >= 1; column_count -= 1, columns += p->k, result += ROWS) {
        int64_t row = 0;
        for (; row + 8 <= row_count; row += 8)
            VERSION(tile)(AT(row), 8, 1);
        for (; row < row_count; row++)
            VERSION(tile)(AT(row), 1, 1);
    }
#undef AT
}

/* Up to ROWS rows of weights times some columns. */
static void VERSION(rows_times_columns)(const struct product *p, int64_t first, const float *scales,
                                        const float *columns, float *result, int64_t row_count, int64_t column_count)
{
    const uint8_t *weights = (const uint8_t *)p->a + first * p->k * p->bits / 8;
#if LANES == 16
    if (VERSION(has_tables)(p)) {
        if (p->n == 1)
            VERSION(rows_by_tables)(p, first, scales, result, row_count, 1);
        else if (p->n == 2)
            VERSION(rows_by_tables)(p, first, scales, result, row_count, 2);
        else if (p->n == 3)
            VERSION(rows_by_tables)(p, first, scales, result, row_count, 3);
        else
            VERSION(rows_by_tables)(p, first, scales, result, row_count, 4);
        return;
    }
#endif
    if (p->bits == 1)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 1);
    else if (p->bits == 2)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 2);
    else if (p->bits == 4)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 4);
    else
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 8);
}
