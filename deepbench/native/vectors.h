/* Vectors of one instruction set: see instruction_sets.h. */

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES)));

INLINE floats VERSION(load)(const float *from)
{
    floats result;
    memcpy(&result, from, sizeof result);
    return result;
}

INLINE words VERSION(load_words)(const void *from)
{
    words result;
    memcpy(&result, from, sizeof result);
    return result;
}

INLINE void VERSION(store)(floats value, float *to)
{
    memcpy(to, &value, sizeof value);
}

/* The same number in all lanes. */
INLINE floats VERSION(all)(float value)
{
    return value - (floats){0};
}

/* Lane i gets lane at[i] of the vector. */
INLINE floats VERSION(pick)(floats value, words at)
{
#ifdef HAS_VERSIONS
    return __builtin_shuffle(value, at);
#else
    floats result;
    for (int i = 0; i < LANES; i++)
        result[i] = value[at[i]];
    return result;
#endif
}

/* Adds the lanes i, i + 4, i + 8 and so on: four numbers, with the same sum as the vector. */
INLINE void VERSION(store_four)(floats value, float *to)
{
    words lanes;
    for (int i = 0; i < LANES; i++)
        lanes[i] = i;
#pragma GCC unroll 2
    for (int half = LANES / 2; half >= 4; half /= 2)
        value += VERSION(pick)(value, (lanes + half) & (LANES - 1));
    to[0] = value[0], to[1] = value[1], to[2] = value[2], to[3] = value[3];
}

INLINE float VERSION(sum)(floats value)
{
    float lanes[LANES], total = 0;
    VERSION(store)(value, lanes);
    for (int i = 0; i < LANES; i++)
        total += lanes[i];
    return total;
}
