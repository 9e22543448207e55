/* Compiles the file VERSIONS once for each instruction set, for loops that compilers do not vectorize well by
 * themselves. It writes each function as VERSION(name), with the vectors declared here; CALL(name) is that of the best
 * set that the CPU has. `target_clones` would be simpler, but GCC splits vectors into those of the oldest CPU before it
 * clones. Without GCC or on other CPUs than x86-64 there is one version, whose vectors have four lanes.
 *
 * Vectors are GCC's: a[i] = b * c works on all lanes. A compiler that lacks an operation of this width emulates it.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define HAS_VERSIONS
#endif

#define JOINED(a, b) a##_##b
#define WITH_SUFFIX(a, b) JOINED(a, b)
#define VERSION(name) WITH_SUFFIX(name, SUFFIX)

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* One version: LANES floats are a vector. */
#define floats VERSION(floats)
#define words VERSION(words)

#define SUFFIX plain
#define LANES 4
#include "vectors.h"
#include VERSIONS
#undef SUFFIX
#undef LANES

#ifdef HAS_VERSIONS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define SUFFIX avx2
#define LANES 8
#include "vectors.h"
#include VERSIONS
#undef SUFFIX
#undef LANES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#define SUFFIX avx512
#define LANES 16
#include "vectors.h"
#include VERSIONS
#undef SUFFIX
#undef LANES
#pragma GCC pop_options
#endif

/* A test may choose another version. */
#ifndef CALL
#ifdef HAS_VERSIONS
#define CALL(name)                                                            \
    (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") \
         ? name##_avx512                                                      \
         : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_avx2 : name##_plain)
#else
#define CALL(name) name##_plain
#endif
#endif
