/* The triad and the copy of STREAM, typed out: what a C programmer would write to ask how fast memory is.
 * plain_stream N: two arrays read, one written, of N floats each; prints best bytes a second of triad and of copy. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int count, char **words)
{
    long n = count > 1 ? atol(words[1]) : 1 << 26;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
    double triad = 1e9, copy = 1e9;
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        a[i] = 1.0f, b[i] = 2.0f, c[i] = 0.0f;
    for (int turn = 0; turn < 20; turn++) {
        double start = now();
#pragma omp parallel for
        for (long i = 0; i < n; i++)
            c[i] = a[i] + 3.0f * b[i];
        double end = now();
        if (end - start < triad)
            triad = end - start;
        start = now();
#pragma omp parallel for
        for (long i = 0; i < n; i++)
            c[i] = a[i];
        end = now();
        if (end - start < copy)
            copy = end - start;
    }
    printf("%.6g %.6g %g\n", 12.0 * n / triad, 8.0 * n / copy, c[n / 2]);
    return 0;
}
