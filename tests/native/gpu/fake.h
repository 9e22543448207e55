/* A fake GPU: one stream per process, arithmetic on the CPU. Shared by the files of the fake vendor library. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HIP
#define RT(name) hip##name
#define DRIVER(name) hip##name
#define BLAS(name, version) hipblas##name
#define LT(name) hipblasLt##name
#define SPARSE(name) hipsparse##name
#define SPARSELT(name) hipsparseLt##name
enum { OP_T = 112, COMPUTE_TF32 = 6, COMPUTE_16F = 0, COMPUTE_32I = 9, DESC_A = 0, DESC_B = 1, ALGO_BYTES = 24 };
enum { BLAS_NOT_SUPPORTED = 7, ATTR_CLOCK = 5, ATTR_SM = 63, ATTR_L2 = 19, ATTR_MAJOR = 23, ATTR_MINOR = 61 };
#else
#define RT(name) cuda##name
#define DRIVER(name) cu##name
#define BLAS(name, version) cublas##name##version
#define LT(name) cublasLt##name
#define SPARSE(name) cusparse##name
#define SPARSELT(name) cusparseLt##name
enum { OP_T = 1, COMPUTE_TF32 = 77, COMPUTE_16F = 64, COMPUTE_32I = 72, DESC_A = 3, DESC_B = 4, ALGO_BYTES = 64 };
enum { BLAS_NOT_SUPPORTED = 15, ATTR_CLOCK = 13, ATTR_SM = 16, ATTR_L2 = 38, ATTR_MAJOR = 75, ATTR_MINOR = 76 };
#endif

enum { R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14, R_E4M3 = 28, R_E5M2 = 29 };

/* FAKE_GPU_FAIL="name=status,…": these functions only return this status. 0: the function works. */
int fails(const char *name);
#define MAY_FAIL() do { int status_ = fails(__func__); if (status_) return status_; } while (0)
/* FAKE_GPU_LOG=FILE: one line per call that tests look at. */
void logged(const char *format, ...);

/* Put work into the stream. It is done when somebody waits for it. */
typedef void (*work)(void *arguments);
void submit(work function, const void *arguments, size_t bytes);
void spin(double seconds);
/* FAKE_GPU_SLOW=SECONDS: added to the time of each kernel. */
double slowness(void);
/* Extra seconds of algorithms that must not be chosen; 0 with FAKE_GPU_EVEN, if the choice does not matter. */
double slow(void);

double get(const void *base, int64_t index, int type);
void put(void *base, int64_t index, int type, double value);
double as_multiplied(double value, int compute);
