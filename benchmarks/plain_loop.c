/* The plain C loops that our timing is compared with: typed calls, nothing generic, one clock around them. */
#include <stdint.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

typedef void (*sgemm_t)(const char *, const char *, const int64_t *, const int64_t *, const int64_t *, const float *,
                        const float *, const int64_t *, const float *, const int64_t *, const float *, float *,
                        const int64_t *);

int64_t plain_sgemm(sgemm_t sgemm, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c,
                    int64_t calls)
{
    const float one = 1.0f;
    int64_t start = now();
    for (int64_t i = 0; i < calls; i++)
        sgemm("N", "N", &m, &n, &k, &one, a, &m, b, &k, &one, c, &m);
    return now() - start;
}

typedef int (*execute_t)(const void *, void *, int, const void *);

int64_t plain_execute(execute_t execute, const void *primitive, void *stream, int count, const void *arguments,
                      int64_t calls)
{
    int64_t start = now();
    for (int64_t i = 0; i < calls; i++)
        if (execute(primitive, stream, count, arguments) != 0)
            return -1;
    return now() - start;
}

typedef void *(*run_t)(void *, const void *, const void *);

int64_t plain_run(run_t run, void *session, const void *options, const void *binding, int64_t calls)
{
    int64_t start = now();
    for (int64_t i = 0; i < calls; i++)
        if (run(session, options, binding) != 0)
            return -1;
    return now() - start;
}
