/* The timing loop: makes prepared C calls repeatedly between two readings of the clock.
 *
 * Loaded with ctypes; needs no Python header. Every argument is one machine word (an integer or an address), which is
 * how C passes such arguments on x86-64 and 64-bit Arm.
 */
#include <stdint.h>
#include <time.h>

typedef int64_t w;

struct call {
    void *function;
    const w *words;
    int64_t count;
    int64_t status; /* whether the function returns a status, 0 for success */
    const float *floats; /* DEEPBENCH_MOST_FLOATS numbers, or NULL */
};

#define DEEPBENCH_MOST_WORDS 22
#define DEEPBENCH_MOST_FLOATS 2
#define DEEPBENCH_MOST_WORDS_WITH_FLOATS 15

static inline w call(const struct call *c)
{
    const w *a = c->words;
    void *f = c->function;
    /* Both architectures pass floats in separate registers, so they can come after all words. */
    if (c->floats)
        return ((w(*)(w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, float, float))f)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
            c->floats[0], c->floats[1]);
    switch (c->count) {
    case 0: return ((w(*)(void))f)();
    case 1: return ((w(*)(w))f)(a[0]);
    case 2: return ((w(*)(w, w))f)(a[0], a[1]);
    case 3: return ((w(*)(w, w, w))f)(a[0], a[1], a[2]);
    case 4: return ((w(*)(w, w, w, w))f)(a[0], a[1], a[2], a[3]);
    case 5: return ((w(*)(w, w, w, w, w))f)(a[0], a[1], a[2], a[3], a[4]);
    case 6: return ((w(*)(w, w, w, w, w, w))f)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7: return ((w(*)(w, w, w, w, w, w, w))f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8: return ((w(*)(w, w, w, w, w, w, w, w))f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    /* On both architectures, words after the eighth are on the stack and the caller removes them: a function that
     * takes fewer ignores the rest. */
    case 9: case 10: case 11: case 12: case 13:
        return ((w(*)(w, w, w, w, w, w, w, w, w, w, w, w, w))f)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]);
    default:
        return ((w(*)(w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w))f)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
            a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21]);
    }
}

static int64_t between(const struct timespec *start, const struct timespec *end)
{
    return (end->tv_sec - start->tv_sec) * INT64_C(1000000000) + (end->tv_nsec - start->tv_nsec);
}

static int64_t call_all(const struct call *calls, int64_t n_calls, int64_t *failed)
{
    for (int64_t i = 0; i < n_calls; i++) {
        w result = call(&calls[i]);
        if (calls[i].status && (int32_t)result != 0) {
            *failed = i;
            return -1 - (int64_t)(uint32_t)(int32_t)result;
        }
    }
    return 0;
}

int64_t deepbench_most_words(void) { return DEEPBENCH_MOST_WORDS; }
int64_t deepbench_most_words_with_floats(void) { return DEEPBENCH_MOST_WORDS_WITH_FLOATS; }

/* Does nothing: its time is that of the loop itself. */
int64_t deepbench_nothing(void) { return 0; }

/* Marks of a region of interest: tools find them by their names. */
#if defined(__GNUC__)
#define DEEPBENCH_KEPT __attribute__((noinline))
#else
#define DEEPBENCH_KEPT
#endif

DEEPBENCH_KEPT int64_t deepbench_region_begin(void)
{
#if defined(__GNUC__)
    __asm__ volatile("");
#endif
    return 0;
}

DEEPBENCH_KEPT int64_t deepbench_region_end(void)
{
#if defined(__GNUC__)
    __asm__ volatile("");
#endif
    return 0;
}

/* Make `n_calls` calls in order, `repeats` times. `words` of each call points to DEEPBENCH_MOST_WORDS words.
 * Returns nanoseconds of the monotonic clock. If a call returns a status other than 0, returns -1 - status and stores
 * the index of the call in `failed`. */
int64_t deepbench_time_calls(const struct call *calls, int64_t n_calls, int64_t repeats, int64_t *failed)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t r = 0; r < repeats; r++) {
        int64_t status = call_all(calls, n_calls, failed);
        if (status)
            return status;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return between(&start, &end);
}

/* The same, but times each repeat separately, without the first `n_before` calls, such as a barrier. Stores the
 * nanoseconds of each repeat in `times`. Returns 0, or -1 - status as above. */
int64_t deepbench_time_each(const struct call *calls, int64_t n_before, int64_t n_calls, int64_t repeats,
    int64_t *times, int64_t *failed)
{
    struct timespec start, end;
    for (int64_t r = 0; r < repeats; r++) {
        int64_t status = call_all(calls, n_before, failed);
        if (status)
            return status;
        clock_gettime(CLOCK_MONOTONIC, &start);
        status = call_all(calls + n_before, n_calls - n_before, failed);
        clock_gettime(CLOCK_MONOTONIC, &end);
        if (status) {
            *failed += n_before;
            return status;
        }
        times[r] = between(&start, &end);
    }
    return 0;
}

/* `count` dependent additions: one cycle each on any core. */
int64_t deepbench_additions(int64_t count)
{
    uint64_t x = 1;
    for (int64_t i = 0; i < count; i++) {
        x += (uint64_t)i;
#if defined(__GNUC__)
        __asm__ volatile("" : "+r"(x)); /* or the compiler would replace the loop by a formula */
#endif
    }
    return (int64_t)x;
}
