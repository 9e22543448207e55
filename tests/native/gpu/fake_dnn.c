/* cuDNN of the fake GPU: descriptors and plans of its graph interface. Every graph has three engines: 1 is slow, 2 has
 * tensor cores (and truncates f32 to TF32), 3 cannot be built. Descriptors are checked more strictly than by cuDNN. */
#include "fake_dnn.h"

#ifndef HIP

static const size_t BYTES[] = {
    [0] = 8, [1] = 4, [2] = 1, [3] = 8, [4] = 4, [6] = 8, [7] = 4, [8] = 4, [9] = 4, [11] = 4, [14] = 4, [15] = 8,
    [18] = 4, [27] = 4, [28] = 4,
};

/* The attributes of each kind of descriptor: type, most values, whether it must be set, and the kind of a child. */
static const struct known {
    int kind, name, type, most, required, child;
} KNOWN[] = {
    {POINTWISE, 0, OF_POINTWISE_MODE, 1, 1}, {POINTWISE, 1, OF_DATA_TYPE, 1, 1}, {POINTWISE, 9, OF_INT64, 1, 0},
    {CONVOLUTION, 100, OF_DATA_TYPE, 1, 1}, {CONVOLUTION, 101, OF_CONVOLUTION_MODE, 1, 1},
    {CONVOLUTION, 102, OF_INT64, 3, 1}, {CONVOLUTION, 103, OF_INT64, 3, 1}, {CONVOLUTION, 104, OF_INT64, 3, 1},
    {CONVOLUTION, 105, OF_INT64, 3, 1}, {CONVOLUTION, 106, OF_INT64, 1, 1},
    {HEURISTICS, 200, OF_HEURISTIC, 1, 1}, {HEURISTICS, 201, OF_DESCRIPTOR, 1, 1, GRAPH},
    {PLAN, 400, OF_HANDLE, 1, 0}, {PLAN, 401, OF_DESCRIPTOR, 1, 1, CONFIG},
    {FORWARD, 700, OF_FLOAT, 1, 1}, {FORWARD, 701, OF_FLOAT, 1, 1}, {FORWARD, 702, OF_DESCRIPTOR, 1, 1, CONVOLUTION},
    {FORWARD, 703, OF_DESCRIPTOR, 1, 1, TENSOR}, {FORWARD, 704, OF_DESCRIPTOR, 1, 1, TENSOR},
    {FORWARD, 705, OF_DESCRIPTOR, 1, 1, TENSOR},
    {DATA, 706, OF_FLOAT, 1, 1}, {DATA, 707, OF_FLOAT, 1, 1}, {DATA, 708, OF_DESCRIPTOR, 1, 1, CONVOLUTION},
    {DATA, 709, OF_DESCRIPTOR, 1, 1, TENSOR}, {DATA, 710, OF_DESCRIPTOR, 1, 1, TENSOR},
    {DATA, 711, OF_DESCRIPTOR, 1, 1, TENSOR},
    {FILTER, 712, OF_FLOAT, 1, 1}, {FILTER, 713, OF_FLOAT, 1, 1}, {FILTER, 714, OF_DESCRIPTOR, 1, 1, CONVOLUTION},
    {FILTER, 715, OF_DESCRIPTOR, 1, 1, TENSOR}, {FILTER, 716, OF_DESCRIPTOR, 1, 1, TENSOR},
    {FILTER, 717, OF_DESCRIPTOR, 1, 1, TENSOR},
    {POINTWISE_OPERATION, 750, OF_DESCRIPTOR, 1, 1, POINTWISE}, {POINTWISE_OPERATION, 751, OF_DESCRIPTOR, 1, 1, TENSOR},
    {POINTWISE_OPERATION, 752, OF_DESCRIPTOR, 1, 0, TENSOR}, {POINTWISE_OPERATION, 753, OF_DESCRIPTOR, 1, 1, TENSOR},
    {POINTWISE_OPERATION, 758, OF_DESCRIPTOR, 1, 0, TENSOR},
    {GRAPH, 800, OF_HANDLE, 1, 0}, {GRAPH, 801, OF_DESCRIPTOR, 64, 1, -1},
    {TENSOR, 900, OF_INT64, 1, 1}, {TENSOR, 901, OF_DATA_TYPE, 1, 1}, {TENSOR, 902, OF_INT64, MOST_RANK, 1},
    {TENSOR, 903, OF_INT64, MOST_RANK, 1}, {TENSOR, 906, OF_INT64, 1, 1}, {TENSOR, 907, OF_BOOLEAN, 1, 0},
    {TENSOR, 908, OF_BOOLEAN, 1, 0},
    {PACK, 1000, OF_INT64, MOST_TENSORS, 1}, {PACK, 1001, OF_POINTER, MOST_TENSORS, 1}, {PACK, 1003, OF_POINTER, 1, 1},
    {MATMUL, 1500, OF_DATA_TYPE, 1, 1},
    {MATMUL_OPERATION, 1520, OF_DESCRIPTOR, 1, 1, TENSOR}, {MATMUL_OPERATION, 1521, OF_DESCRIPTOR, 1, 1, TENSOR},
    {MATMUL_OPERATION, 1522, OF_DESCRIPTOR, 1, 1, TENSOR}, {MATMUL_OPERATION, 1523, OF_DESCRIPTOR, 1, 1, MATMUL},
    {MATMUL_OPERATION, 1525, OF_DESCRIPTOR, 1, 0, TENSOR}, {MATMUL_OPERATION, 1526, OF_DESCRIPTOR, 1, 0, TENSOR},
    {MATMUL_OPERATION, 1527, OF_DESCRIPTOR, 1, 0, TENSOR},
    {REDUCTION, 1600, OF_REDUCTION, 1, 1}, {REDUCTION, 1601, OF_DATA_TYPE, 1, 1},
    {REDUCTION_OPERATION, 1610, OF_DESCRIPTOR, 1, 1, TENSOR}, {REDUCTION_OPERATION, 1611, OF_DESCRIPTOR, 1, 1, TENSOR},
    {REDUCTION_OPERATION, 1612, OF_DESCRIPTOR, 1, 1, REDUCTION},
    {PAGES, 1950, OF_DESCRIPTOR, 1, 1, TENSOR}, {PAGES, 1951, OF_DESCRIPTOR, 1, 1, TENSOR},
    {PAGES, 1952, OF_DESCRIPTOR, 1, 1, TENSOR}, {PAGES, 1953, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_FORWARD, 2000, OF_NORM_MODE, 1, 1}, {NORM_FORWARD, 2001, OF_NORM_PHASE, 1, 1},
    {NORM_FORWARD, 2002, OF_DESCRIPTOR, 1, 1, TENSOR}, {NORM_FORWARD, 2003, OF_DESCRIPTOR, 1, 0, TENSOR},
    {NORM_FORWARD, 2004, OF_DESCRIPTOR, 1, 0, TENSOR}, {NORM_FORWARD, 2005, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_FORWARD, 2006, OF_DESCRIPTOR, 1, 0, TENSOR}, {NORM_FORWARD, 2007, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_FORWARD, 2013, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_BACKWARD, 2100, OF_NORM_MODE, 1, 1}, {NORM_BACKWARD, 2101, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_BACKWARD, 2102, OF_DESCRIPTOR, 1, 0, TENSOR}, {NORM_BACKWARD, 2103, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_BACKWARD, 2104, OF_DESCRIPTOR, 1, 1, TENSOR}, {NORM_BACKWARD, 2105, OF_DESCRIPTOR, 1, 1, TENSOR},
    {NORM_BACKWARD, 2107, OF_DESCRIPTOR, 1, 1, TENSOR}, {NORM_BACKWARD, 2108, OF_DESCRIPTOR, 1, 0, TENSOR},
    {NORM_BACKWARD, 2109, OF_DESCRIPTOR, 1, 1, TENSOR},
    {RESHAPE, 2200, OF_DESCRIPTOR, 1, 1, TENSOR}, {RESHAPE, 2201, OF_DESCRIPTOR, 1, 1, TENSOR},
};
enum { MOST_KNOWN = sizeof KNOWN / sizeof *KNOWN };

struct attribute *find(struct descriptor *d, int name)
{
    for (int i = 0; d && i < d->count; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

struct descriptor *child(struct descriptor *d, int name)
{
    struct attribute *a = find(d, name);
    return a ? *(void **)a->values : NULL;
}

int64_t integer(struct descriptor *d, int name, int64_t missing)
{
    struct attribute *a = find(d, name);
    return a ? *(int64_t *)a->values : missing;
}

int enumerator(struct descriptor *d, int name, int missing)
{
    struct attribute *a = find(d, name);
    return a ? *(int *)a->values : missing;
}

int is_set(struct descriptor *d, int name)
{
    struct attribute *a = find(d, name);
    return a && *(char *)a->values;
}

static int dnn;
int cudnnCreate(void **created) { *created = &dnn; MAY_FAIL(); return 0; }
int cudnnSetStream(void *handle, void *s) { return 0; }
/* FAKE_GPU_CUDNN=NUMBER: its version. */
size_t cudnnGetVersion(void) { const char *text = getenv("FAKE_GPU_CUDNN"); return text ? strtoul(text, NULL, 10) : 91900; }
const char *cudnnGetErrorString(int status) { return status == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error"; }
void cudnnGetLastErrorString(char *text, size_t bytes) { *text = 0; }

int cudnnBackendCreateDescriptor(int kind, void **created)
{
    struct descriptor *d = calloc(1, sizeof *d);
    d->kind = kind;
    *created = d;
    return 0;
}
/* Its memory stays, so that its use afterwards is found. */
int cudnnBackendDestroyDescriptor(struct descriptor *d) { d->destroyed = 1; return 0; }

int cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t count, const void *values)
{
    const struct known *known = NULL;
    for (int i = 0; i < MOST_KNOWN; i++)
        if (KNOWN[i].kind == d->kind && KNOWN[i].name == name)
            known = &KNOWN[i];
    if (!known || d->finished || find(d, name) || type != known->type || count < 1 || count > known->most)
        return BAD_PARAM;
    for (int i = 0; type == OF_DESCRIPTOR && i < count; i++) {
        struct descriptor *other = ((void *const *)values)[i];
        if (!other->finished || other->destroyed || (known->child >= 0 && other->kind != known->child))
            return BAD_PARAM;
    }
    struct attribute a = {name, type, count, memcpy(malloc(BYTES[type] * count), values, BYTES[type] * count)};
    d->attributes[d->count++] = a;
    return 0;
}

int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *values)
{
    int64_t none;
    count = count ? count : &none;
    if (!d->finished)
        return BAD_PARAM;
    *count = 0;
    if (d->kind == HEURISTICS) { /* mode 1 proposes nothing, the others the same engines */
        *count = enumerator(d, 200, 1) == 1 ? 0 : 3;
        for (int i = 0; values && i < *count; i++) {
            struct descriptor *config = ((void **)values)[i];
            config->finished = 1, config->engine = i + 1, config->graph = child(d, 201);
        }
    } else if (d->kind == CONFIG && name == 300) {
        struct descriptor *engine = *(void **)values;
        engine->kind = ENGINE, engine->engine = d->engine, engine->finished = *count = 1;
    } else if (d->kind == CONFIG) {
        *count = 1;
        struct descriptor *knob = *(void **)values;
        knob->kind = KNOB, knob->engine = d->engine, knob->finished = 1;
    } else if (d->kind == KNOB) {
        *count = 1;
        if (name == 600)
            *(int *)values = 2;
        else
            *(int64_t *)values = 10 + d->engine;
    } else if (d->kind == ENGINE && name == 1301) {
        *(int64_t *)values = d->engine;
        *count = 1;
    } else if (d->kind == ENGINE) {
        *count = d->engine == 2;
        *(int *)values = 0;
    } else if (d->kind == PLAN) {
        *(int64_t *)values = child(d, 401)->engine * 4096;
        *count = 1;
    } else
        return BAD_PARAM;
    return 0;
}

int cudnnBackendFinalize(struct descriptor *d)
{
    MAY_FAIL();
    for (int i = 0; i < MOST_KNOWN; i++)
        if (KNOWN[i].kind == d->kind && KNOWN[i].required && !find(d, KNOWN[i].name))
            return BAD_PARAM;
    if (!is_valid(d) || (d->kind == GRAPH && !is_valid_graph(d)))
        return BAD_PARAM;
    if (d->kind == PLAN && (child(d, 401)->engine == 3 || !find(d, 400)))
        return NOT_SUPPORTED;
    d->finished = 1;
    return 0;
}

/* ---- execution */

static int dnn_type(int type) { static const int map[] = {R_32F, -1, R_16F, R_8I, R_32I, -1, -1, -1, -1, R_16BF}; return map[type]; }

static struct tensor tensor_of(struct descriptor *operation, int name, struct descriptor *pack)
{
    struct descriptor *d = child(operation, name);
    struct attribute *sizes = find(d, 902), *ids = find(pack, 1000);
    struct tensor t = {NULL, dnn_type(enumerator(d, 901, 0)), sizes->count};
    memcpy(t.sizes, sizes->values, 8 * sizes->count);
    memcpy(t.strides, find(d, 903)->values, 8 * sizes->count);
    for (int i = 0; i < ids->count; i++)
        if (((int64_t *)ids->values)[i] == integer(d, 906, -1))
            t.data = ((void **)find(pack, 1001)->values)[i];
    return t;
}

static float real(struct descriptor *d, int name) { return *(float *)find(d, name)->values; }

int cudnnBackendExecute(void *handle, struct descriptor *plan, struct descriptor *pack)
{
    MAY_FAIL();
    struct descriptor *config = child(plan, 401), *graph = config->graph, *operation = child(graph, 801);
    if (plan->destroyed || graph->destroyed || pack->destroyed || !plan->finished || !pack->finished)
        return BAD_PARAM;
    if (!has_addresses(graph, pack))
        return BAD_PARAM;
    if (operation->kind != FORWARD && operation->kind != DATA && operation->kind != FILTER) {
        struct execution e = {graph, pack, config->engine};
        logged("graph engine %d operations %d", config->engine, (int)find(graph, 801)->count);
        submit(compute_graph, &e, sizeof e);
        return 0;
    }
    struct convolution c = {operation->kind, config->engine};
    int first = operation->kind == FORWARD ? 700 : operation->kind == DATA ? 706 : 712;
    struct descriptor *shape = child(operation, first + 2);
    c.alpha = real(operation, first);
    int forward[] = {704, 703, 705}, data[] = {710, 709, 711}, filter[] = {716, 715, 717};
    int *names = operation->kind == FORWARD ? forward : operation->kind == DATA ? data : filter;
    c.x = tensor_of(operation, names[0], pack);
    c.w = tensor_of(operation, names[1], pack);
    c.y = tensor_of(operation, names[2], pack);
    c.dimensions = (int)integer(shape, 106, 0);
    memcpy(c.dilation, find(shape, 102)->values, 8 * c.dimensions);
    memcpy(c.stride, find(shape, 103)->values, 8 * c.dimensions);
    memcpy(c.pad, find(shape, 105)->values, 8 * c.dimensions);
    logged("convolution %d engine %d compute %d", operation->kind, config->engine, enumerator(shape, 100, -1));
    submit(convolve, &c, sizeof c);
    return 0;
}

#endif
