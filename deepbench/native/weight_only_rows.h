/* The product of weight_only.c with the vectors of one instruction set.
 *
 * A vector of words has PER weights in each lane: those of 1 bit in a word are 32, of 2 bits 16, of 4 bits 8, of 8 bits
 * 4. All lanes are shifted together, so weight i of each lane becomes a vector of floats, and is multiplied by a vector
 * of B, which was brought to this order before. BLOCK weights are LANES words.
 */
#define PER(bits) (32 / (bits))
#define BLOCK(bits) (LANES * PER(bits))

/* BLOCK; or 0 if a row has no whole number of blocks, or a block has groups that no word begins with. */
static int64_t VERSION(block)(int64_t k, int64_t group, int64_t bits)
{
    const int64_t block = BLOCK(bits);
    return k % block || group % PER(bits) || (group % block && block % group) ? 0 : block;
}

/* A block of B in the order of the weights: first number i of all words, then number i + 1. */
static void VERSION(arrange)(const void *from, float *restrict to, int64_t index, int64_t bits, int64_t is_bf16)
{
    const int64_t start = index * BLOCK(bits);
    for (int64_t i = 0; i < PER(bits); i++)
        for (int64_t lane = 0; lane < LANES; lane++)
            to[start + i * LANES + lane] = number(from, start + lane * PER(bits) + i, is_bf16);
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
    const int64_t count = p->group < BLOCK(p->bits) ? BLOCK(p->bits) / p->group : 1;
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
    if (p->bits == 1)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 1);
    else if (p->bits == 2)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 2);
    else if (p->bits == 4)
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 4);
    else
        VERSION(rows_of)(p, weights, scales, columns, result, row_count, column_count, 8);
}
