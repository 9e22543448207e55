/* A library that is slower by a known amount: it forwards one function to the real library and waits afterwards.

   cc -O2 -shared -fPIC -DFUNCTION=scipy_sgemm_64_ -DREAL='"/path/of/the/real.so"' -DPERCENT=5 slowed.c -o slowed.so \
      -Wl,--no-as-needed /path/of/the/real.so -Wl,-rpath,/path/of/the -ldl

   Each call takes PERCENT of its own time longer, and NANOSECONDS more. All other functions are those of the real
   library, which the new one is linked to. The clock costs 50 ns per call, on both sides if the base is slowed by 0. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#ifndef PERCENT
#define PERCENT 0
#endif
#ifndef NANOSECONDS
#define NANOSECONDS 0
#endif

typedef long word;
typedef word (*function)(word, word, word, word, word, word, word, word, word, word, word, word, word, word, word);

static function real;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

__attribute__((constructor)) static void find(void) {
    void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    real = library ? (function)dlsym(library, TEXT(FUNCTION)) : 0;
    if (!real) abort();
}

/* Fifteen words: more than any function of BLAS has, with the lengths of its texts. */
word FUNCTION(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l, word m,
              word n, word o) {
    double begin = now();
    word result = real(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
    double end = now();
    double until = end + (end - begin) * PERCENT / 100.0 + NANOSECONDS;
    while (now() < until) {
    }
    return result;
}
