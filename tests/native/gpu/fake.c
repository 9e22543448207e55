/* Runtime, driver, NVML, AMD SMI, BLAS and BLASLt of the fake GPU. See fake.h. */
#include "fake.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

int fails(const char *name)
{
    const char *list = getenv("FAKE_GPU_FAIL");
    size_t length = strlen(name);
    while (list && *list) {
        if (!strncmp(list, name, length) && list[length] == '=')
            return atoi(list + length + 1);
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return 0;
}

void logged(const char *format, ...)
{
    const char *path = getenv("FAKE_GPU_LOG");
    if (!path)
        return;
    FILE *file = fopen(path, "a");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* The time of the fake GPU: that of this process without what other programs take, so that the order of two kernels does
 * not depend on them. */
static double gpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

void spin(double seconds)
{
    double end = gpu_now() + seconds;
    while (gpu_now() < end)
        ;
}

double slowness(void)
{
    const char *text = getenv("FAKE_GPU_SLOW");
    return text ? atof(text) : 0;
}

/* FAKE_GPU_POWER_CAP=SECONDS: after so much work the clock falls, and graphs take twice as long. */
static double worked;
static int is_capped(void)
{
    const char *text = getenv("FAKE_GPU_POWER_CAP");
    return text && worked > atof(text);
}

double slow(void) { return getenv("FAKE_GPU_EVEN") ? 0 : 3e-4; }

/* ---- the stream */

struct task {
    work function;
    void *arguments;
    struct task *next;
};
struct queue {
    struct task *first, *last;
    int count;
};
static struct queue stream, *capture;
/* After so many launches the host waits for the GPU, as with real drivers. */
enum { MOST_WAITING = 1024 };

static void append(struct queue *queue, work function, const void *arguments, size_t bytes)
{
    struct task *task = malloc(sizeof *task);
    task->function = function;
    task->arguments = memcpy(malloc(bytes + 1), arguments, bytes);
    task->next = NULL;
    if (queue->last)
        queue->last->next = task;
    else
        queue->first = task;
    queue->last = task;
    queue->count++;
}

static void drain(void)
{
    while (stream.first) {
        struct task *task = stream.first;
        task->function(task->arguments);
        stream.first = task->next;
        if (!stream.first)
            stream.last = NULL;
        stream.count--;
        free(task->arguments);
        free(task);
    }
}

void submit(work function, const void *arguments, size_t bytes)
{
    if (capture) {
        append(capture, function, arguments, bytes);
        return;
    }
    append(&stream, function, arguments, bytes);
    if (stream.count > MOST_WAITING)
        drain();
}

struct wait {
    volatile uint32_t *word;
    uint32_t value;
};

static void wait_for(void *arguments)
{
    struct wait *wait = arguments;
    while ((int32_t)(*wait->word - wait->value) < 0)
        usleep(20);
}

#ifdef HIP
/* Without signal memory, streams wait for host memory; with it, for nothing else. */
static void *signal_memory;
int hipExtMallocWithFlags(void **address, size_t bytes, unsigned flags)
{
    MAY_FAIL();
    *address = signal_memory = calloc(1, bytes);
    return bytes != 8 || flags != 2;
}
int hipStreamWaitValue32(void *s, void *address, uint32_t value, unsigned flags, uint32_t mask)
{
    if (mask != 0xFFFFFFFF || address < signal_memory || (signal_memory && address != signal_memory))
        return 1;
    if (!signal_memory && !fails("hipExtMallocWithFlags"))
        return 1;
#else
int cuStreamWaitValue32_v2(void *s, uint64_t address, uint32_t value, unsigned flags)
{
#endif
    MAY_FAIL();
    struct wait wait = {(volatile uint32_t *)(uintptr_t)address, value};
    append(&stream, wait_for, &wait, sizeof wait);
    return 0;
}

/* ---- runtime */

static int cards(void) { const char *text = getenv("FAKE_GPU_CARDS"); return text ? atoi(text) : 1; }
int RT(GetDeviceCount)(int *count) { *count = cards(); return fails(__func__); }
/* FAKE_GPU_EXCLUSIVE=FILE: as in exclusive mode, one process at a time has the GPU; FILE is locked meanwhile. */
static int is_busy(void)
{
    static int lock = -1;
    const char *path = getenv("FAKE_GPU_EXCLUSIVE");
    if (!path || lock >= 0)
        return 0;
    lock = open(path, O_RDWR | O_CREAT, 0600);
    if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB))
        return 0;
    close(lock);
    lock = -1;
    return 1;
}
int RT(SetDevice)(int device) { return is_busy() ? 46 : device < 0 || device >= cards(); }
const char *RT(GetErrorString)(int status) { return status == 100 ? "no device is detected" : "an error of the fake"; }
int RT(GetLastError)(void) { return 0; }
#ifdef HIP
#define VERSION 60342134
#else
#define VERSION 13000
#endif
int RT(DriverGetVersion)(int *version) { *version = VERSION; return 0; }
int RT(RuntimeGetVersion)(int *version) { *version = VERSION; return 0; }
int RT(DeviceGetPCIBusId)(char *text, int length, int device)
{
    snprintf(text, length, "0000:3B:00.0");
    return 0;
}
int DRIVER(DeviceGetName)(char *text, int length, int device)
{
    snprintf(text, length, "Fake GPU");
    return 0;
}

int RT(DeviceGetAttribute)(int *value, int attribute, int device)
{
    switch (attribute) {
    case ATTR_CLOCK: *value = 1000000; return 0;
    case ATTR_SM: *value = 4; return 0;
    case ATTR_L2: *value = 1 << 16; return 0;
    case ATTR_MAJOR: *value = 9; return 0;
    case ATTR_MINOR: *value = 0; return 0;
    default: return 1;
    }
}

/* FAKE_GPU_MEMORY=BYTES: the memory of the GPU. */
static size_t used;
static size_t total(void)
{
    const char *text = getenv("FAKE_GPU_MEMORY");
    return text ? strtoull(text, NULL, 10) : (size_t)4 << 30;
}

int RT(MemGetInfo)(size_t *free_bytes, size_t *all)
{
    *all = total();
    *free_bytes = total() - used;
    return 0;
}

int RT(Malloc)(void **address, size_t bytes)
{
    MAY_FAIL();
    if (used + bytes > total())
        return 2;
    if (posix_memalign(address, 256, bytes))
        return 2;
    used += malloc_usable_size(*address);
    memset(*address, 0xA5, bytes); /* so that nothing relies on zeros */
    return 0;
}

int RT(Free)(void *address)
{
    drain();
    used -= malloc_usable_size(address);
    free(address);
    return 0;
}
int RT(HostAlloc)(void **address, size_t bytes, unsigned flags)
{
    *address = calloc(1, bytes);
    return flags != 2;
}
int RT(HostGetDevicePointer)(void **seen, void *address, unsigned flags) { *seen = address; return 0; }
struct copy {
    void *to;
    const void *from;
    size_t bytes;
};
static void copy(void *arguments)
{
    struct copy *c = arguments;
    memcpy(c->to, c->from, c->bytes);
}
int RT(MemcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *s)
{
    struct copy c = {to, from, bytes};
    submit(copy, &c, sizeof c);
    return kind < 1 || kind > 3 || s != &stream;
}
struct fill {
    void *address;
    int value;
    size_t bytes;
};
static void fill(void *arguments)
{
    struct fill *f = arguments;
    memset(f->address, f->value, f->bytes);
}
int RT(MemsetAsync)(void *address, int value, size_t bytes, void *s)
{
    struct fill f = {address, value, bytes};
    submit(fill, &f, sizeof f);
    return 0;
}
int RT(StreamCreateWithFlags)(void **created, unsigned flags) { *created = &stream; return flags != 1; }
int RT(StreamSynchronize)(void *s)
{
    drain();
    return fails(__func__);
}

int RT(StreamBeginCapture)(void *s, int mode)
{
    MAY_FAIL();
    capture = calloc(1, sizeof *capture);
    return 0;
}

int RT(StreamEndCapture)(void *s, void **graph)
{
    *graph = capture;
    capture = NULL;
    MAY_FAIL();
    return *graph ? 0 : 901;
}

int RT(GraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long flags)
{
    logged("graph of %d", ((struct queue *)graph)->count);
    *executable = graph;
    return 0;
}
int RT(GraphDestroy)(void *graph) { return 0; }
int RT(GraphUpload)(void *executable, void *s) { return 0; }
int RT(GraphExecDestroy)(void *executable) { return 0; }

static void run_graph(void *arguments)
{
    struct queue *graph = *(struct queue **)arguments;
    double start = gpu_now();
    for (struct task *task = graph->first; task; task = task->next)
        task->function(task->arguments);
    if (is_capped())
        spin(gpu_now() - start);
    worked += gpu_now() - start;
}

int RT(GraphLaunch)(void *executable, void *s)
{
    MAY_FAIL();
    submit(run_graph, &executable, sizeof executable);
    return 0;
}

static void stamp(void *arguments) { **(double **)arguments = gpu_now(); }

int RT(EventCreateWithFlags)(void **event, unsigned flags) { *event = calloc(1, sizeof(double)); return 0; }
int RT(EventRecord)(void *event, void *s)
{
    submit(stamp, &event, sizeof event);
    return 0;
}
int RT(EventSynchronize)(void *event)
{
    drain();
    return fails(__func__);
}
int RT(EventElapsedTime)(float *milliseconds, void *start, void *end)
{
    *milliseconds = (float)((*(double *)end - *(double *)start) * 1e3);
    return 0;
}

/* ---- NVML */

#ifndef HIP
int nvmlInit_v2(void) { return fails(__func__); }
const char *nvmlErrorString(int status) { return "an error of the fake"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.1"); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    *device = &stream;
    return strcmp(bus, "0000:3B:00.0") != 0;
}
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) { *mhz = kind == 1 ? is_capped() ? 700 : 900 : 2000; return 0; }
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz) { *mhz = 1000; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 250000; return 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 40; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *reasons)
{
    const char *text = getenv("FAKE_GPU_REASONS");
    *reasons = text ? strtoull(text, NULL, 0) : 1;
    return 0;
}
/* Always 100 W. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, uint64_t *millijoules)
{
    *millijoules = (uint64_t)(now() * 100e3);
    return fails(__func__);
}
struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu, compute;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *table)
{
    const char *text = getenv("FAKE_GPU_OTHERS");
    int others = text ? atoi(text) : 0;
    table[0].pid = getpid();
    for (int i = 0; i < others; i++)
        table[i + 1].pid = 1000000 + i;
    *count = 1 + others;
    return 0;
}
#else
/* ---- AMD SMI */

int amdsmi_init(uint64_t flags) { return flags == 2 ? fails(__func__) : 1; }
int amdsmi_get_processor_handle_from_bdf(uint64_t bus, void **device) { *device = &stream; return bus != 0x3B << 8; }
int amdsmi_get_clock_info(void *device, int kind, unsigned *clocks)
{
    clocks[0] = kind ? 2000 : is_capped() ? 700 : 900, clocks[1] = 500, clocks[2] = 1000;
    return kind != 0 && kind != 4;
}
int amdsmi_get_power_info(void *device, unsigned *power)
{
    const char *old = getenv("FAKE_GPU_ROCM6"); /* the second word is the average power */
    power[0] = old ? 0xFFFFFFFF : 250, power[1] = old ? 250 : 0;
    return 0;
}
int amdsmi_get_temp_metric(void *device, int sensor, int metric, int64_t *celsius) { *celsius = 40; return sensor != 1; }
int amdsmi_get_energy_count(void *device, uint64_t *count, float *resolution, uint64_t *timestamp)
{
    *resolution = 15.3f;
    *count = (uint64_t)(now() * 100e6 / *resolution);
    return fails(__func__);
}
int amdsmi_get_gpu_process_list(void *device, unsigned *count, void *table)
{
    const char *text = getenv("FAKE_GPU_OTHERS");
    *count = 1 + (text ? atoi(text) : 0);
    return 15;
}
#endif

/* ---- numbers */

static double float8(uint8_t bits, int mantissa, int bias)
{
    int exponent = (bits & 0x7F) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    double value = exponent ? ldexp(1 + fraction / (double)(1 << mantissa), exponent - bias)
                            : ldexp(fraction / (double)(1 << mantissa), 1 - bias);
    return bits & 0x80 ? -value : value;
}

double get(const void *base, int64_t i, int type)
{
    switch (type) {
    case R_32F: return ((const float *)base)[i];
    case R_16F: return ((const _Float16 *)base)[i];
    case R_16BF: {
        uint32_t bits = (uint32_t)((const uint16_t *)base)[i] << 16;
        float value;
        memcpy(&value, &bits, 4);
        return value;
    }
    case R_8I: return ((const int8_t *)base)[i];
    case R_32I: return ((const int32_t *)base)[i];
    case R_E4M3: return float8(((const uint8_t *)base)[i], 3, 7);
    case R_E5M2: return float8(((const uint8_t *)base)[i], 2, 15);
    default: abort();
    }
}

void put(void *base, int64_t i, int type, double value)
{
    switch (type) {
    case R_32F: ((float *)base)[i] = (float)value; return;
    case R_16F: ((_Float16 *)base)[i] = (_Float16)value; return;
    case R_16BF: {
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        ((uint16_t *)base)[i] = (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
        return;
    }
    case R_32I: ((int32_t *)base)[i] = (int32_t)value; return;
    default: abort();
    }
}

double as_multiplied(double value, int compute)
{
    if (compute != COMPUTE_TF32)
        return value;
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    bits &= ~((1u << 13) - 1);
    memcpy(&narrow, &bits, 4);
    return narrow;
}

/* ---- BLAS */

struct gemm {
    int a_t, b_t, a_type, b_type, c_type, compute;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta, seconds;
    const void *a, *b;
    void *c;
};

static void gemm(void *arguments)
{
    struct gemm *g = arguments;
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < g->k; l++)
                sum += as_multiplied(get(g->a, g->a_t ? l + i * g->lda : i + l * g->lda, g->a_type), g->compute)
                    * as_multiplied(get(g->b, g->b_t ? j + l * g->ldb : l + j * g->ldb, g->b_type), g->compute);
            double before = g->beta ? get(g->c, i + j * g->ldc, g->c_type) : 0;
            put(g->c, i + j * g->ldc, g->c_type, g->alpha * sum + g->beta * before);
        }
    spin(g->seconds + slowness());
}

/* alpha and beta have the type that belongs to the compute type: read as a float, an integer 1 would be almost 0. */
static double scalar(const void *address, int compute)
{
    return get(address, 0, compute == COMPUTE_32I ? R_32I : compute == COMPUTE_16F ? R_16F : R_32F);
}

static int handle;
int BLAS(Create, _v2)(void **created) { *created = &handle; MAY_FAIL(); return 0; }
int BLAS(GetVersion, _v2)(void *h, int *version) { *version = 130100; return 0; }
int BLAS(SetStream, _v2)(void *h, void *s) { return s != &stream; }
#ifndef HIP
int cublasSetMathMode(void *h, int mode) { logged("math mode %d", mode); return 0; }
#endif
int BLAS(SetWorkspace, _v2)(void *h, void *workspace, size_t bytes) { return 0; }

int BLAS(GemmEx, )(void *h, int a_t, int b_t, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
    const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc, int compute, int algorithm)
{
    MAY_FAIL();
    logged("GemmEx %d %d %d %d %d lda=%d types=%d,%d,%d compute=%d", a_t == OP_T, b_t == OP_T, m, n, k, lda, a_type,
        b_type, c_type, compute);
    if (a_type == R_8I && (lda % 4 || ldb % 4))
        return BLAS_NOT_SUPPORTED;
    struct gemm g = {a_t == OP_T, b_t == OP_T, a_type, b_type, c_type, compute, m, n, k, lda, ldb, ldc,
        scalar(alpha, compute), scalar(beta, compute), 0, a, b, c};
    submit(gemm, &g, sizeof g);
    return 0;
}

/* ---- BLASLt: three algorithms; the second is the fastest (FAKE_GPU_BEST: the first), the third
 * always fails (FAKE_GPU_REFUSED: this one) */
static int refused_one(void) { const char *text = getenv("FAKE_GPU_REFUSED"); return text ? atoi(text) : 3; }
static int slow_one(void) { return getenv("FAKE_GPU_BEST") ? 2 : 1; }
static int lt_version(void) { const char *text = getenv("FAKE_GPU_LT_VERSION"); return text ? atoi(text) : 130100; }

struct description { int compute, scale, a_t, b_t, fast; };
enum { DESC_FAST = 25 };
struct layout { int type; int64_t rows, columns, ld; };
struct result {
    union { uint64_t words[ALGO_BYTES / 8]; int id; } algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

int LT(Create)(void **created) { *created = &handle; return 0; }
#ifdef HIP
int LT(GetVersion)(void *h, int *version) { *version = lt_version(); return 0; }
#else
size_t LT(GetVersion)(void) { return lt_version(); }
#endif
int LT(MatmulDescCreate)(void **created, int compute, int scale)
{
    struct description d = {compute, scale, 0, 0, 0};
    *created = memcpy(malloc(sizeof d), &d, sizeof d);
    return 0;
}
int LT(MatmulDescSetAttribute)(void *description, int attribute, const int *value, size_t bytes)
{
    struct description *d = description;
    if (attribute == DESC_FAST)
        return !(bytes == 1 && (d->fast = *(const char *)value) == 1);
    *(attribute == DESC_A ? &d->a_t : &d->b_t) = *value == OP_T;
    return (attribute != DESC_A && attribute != DESC_B) || bytes != 4;
}
int LT(MatrixLayoutCreate)(void **created, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    struct layout l = {type, rows, columns, ld};
    *created = memcpy(malloc(sizeof l), &l, sizeof l);
    return 0;
}
int LT(MatmulPreferenceCreate)(void **created) { *created = &handle; return 0; }
int LT(MatmulPreferenceSetAttribute)(void *p, int attribute, const void *value, size_t bytes)
{
    logged("preference %d = %llu", attribute, bytes == 8 ? *(unsigned long long *)value : *(unsigned *)value);
    return 0;
}

int LT(MatmulAlgoGetHeuristic)(void *h, struct description *d, struct layout *a, struct layout *b, struct layout *c,
    struct layout *result_layout, void *preference, int wanted, struct result *results, int *count)
{
    MAY_FAIL();
    int float8 = a->type == R_E4M3 || a->type == R_E5M2, wide = float8 ? 16 : a->type == R_8I ? 4 : 1;
    *count = 0;
    /* As on Hopper: 8-bit floats need A transposed, B not transposed, and multiples of 16. */
    if ((wide > 1 && (a->ld % wide || b->ld % wide)) || (float8 && (!d->a_t || d->b_t || a->rows % 16 || a->columns % 16)))
        return BLAS_NOT_SUPPORTED; /* as cuBLASLt 13.1 on an H200 */
    for (int i = 0; i < 3; i++) {
        memset(&results[i], 0, sizeof results[i]);
        results[i].algorithm.id = i + 1;
        results[i].workspace = 1024 * i;
    }
    *count = 3;
    return 0;
}
int LT(MatmulAlgoConfigGetAttribute)(struct result *algorithm, int attribute, int *value, size_t bytes, size_t *written)
{
    if (bytes != (attribute > 6 ? 2 : 4))
        return 7;
    if (bytes == 2)
        *(uint16_t *)value = 7;
    else
        *value = attribute == 0 ? algorithm->algorithm.id : 7;
    *written = bytes;
    return 0;
}

int LT(Matmul)(void *h, struct description *d, const void *alpha, const void *a, struct layout *al, const void *b,
    struct layout *bl, const void *beta, const void *c, struct layout *cl, void *out, struct layout *ol,
    struct result *algorithm, void *workspace, size_t workspace_bytes, void *s)
{
    MAY_FAIL();
    if (getenv("FAKE_GPU_CRASH") && al->type == R_E4M3)
        abort();
    if (algorithm->algorithm.id == refused_one() || c != out || s != &stream)
        return BLAS_NOT_SUPPORTED;
    int64_t m = ol->rows, n = ol->columns, k = d->a_t ? al->rows : al->columns;
    logged("Matmul %d %d %lld %lld %lld lda=%lld types=%d,%d,%d compute=%d scale=%d algorithm=%d fast=%d", d->a_t, d->b_t,
        (long long)m, (long long)n, (long long)k, (long long)al->ld, al->type, bl->type, cl->type, d->compute, d->scale,
        algorithm->algorithm.id, d->fast);
    struct gemm g = {d->a_t, d->b_t, al->type, bl->type, cl->type, d->compute, m, n, k, al->ld, bl->ld, cl->ld,
        scalar(alpha, d->compute), scalar(beta, d->compute), algorithm->algorithm.id == slow_one() ? 3e-3 : 0, a, b, out};
    submit(gemm, &g, sizeof g);
    return 0;
}
