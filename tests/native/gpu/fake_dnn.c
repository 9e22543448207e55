/* cuDNN of the fake GPU: convolutions through the graph interface. Every operation has three engines: 1 is slow, 2 has
 * tensor cores (and truncates f32 to TF32), 3 cannot be built. */
#include "fake_conv.h"

#ifndef HIP

enum { CONVOLUTION = 1, ENGINE, CONFIG, HEURISTICS, PLAN, KNOB = 7, GRAPH = 15, PACK, TENSOR };
enum { NOT_SUPPORTED = 3000, BAD_PARAM = 2000 };

struct attribute {
    int name, type;
    int64_t count;
    union {
        int64_t integers[MOST];
        void *pointers[MOST];
        float floats[MOST];
        int numbers[MOST];
    } values;
};
struct descriptor {
    int kind, finished, engine, count;
    struct attribute attributes[MOST];
};

static const size_t BYTES[] = {[0] = 8, [1] = 4, [3] = 8, [4] = 4, [6] = 8, [7] = 4, [8] = 4, [9] = 4, [11] = 4, [15] = 8};

static struct attribute *find(struct descriptor *d, int name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

static struct descriptor *child(struct descriptor *d, int name)
{
    struct attribute *a = d ? find(d, name) : NULL;
    return a ? a->values.pointers[0] : NULL;
}

static int dnn;
int cudnnCreate(void **created) { *created = &dnn; MAY_FAIL(); return 0; }
int cudnnSetStream(void *handle, void *s) { return 0; }
size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) { return status == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error"; }
void cudnnGetLastErrorString(char *text, size_t bytes) { *text = 0; }

int cudnnBackendCreateDescriptor(int kind, void **created)
{
    struct descriptor *d = calloc(1, sizeof *d);
    d->kind = kind;
    *created = d;
    return 0;
}
int cudnnBackendDestroyDescriptor(void *d) { free(d); return 0; }

int cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t count, const void *values)
{
    if (d->finished || d->count == MOST || count > MOST)
        return BAD_PARAM;
    struct attribute *a = &d->attributes[d->count++];
    a->name = name, a->type = type, a->count = count;
    memcpy(&a->values, values, BYTES[type] * count);
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
        *count = find(d, 200)->values.numbers[0] == 1 ? 0 : 3;
        for (int i = 0; values && i < *count; i++) {
            struct descriptor *config = ((void **)values)[i];
            config->finished = 1, config->engine = i + 1;
            int64_t graph = (int64_t)(intptr_t)child(d, 201);
            config->count = 1, config->attributes[0].name = -1, config->attributes[0].values.integers[0] = graph;
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
    if (d->kind == PLAN && (child(d, 401)->engine == 3 || !child(d, 400)))
        return NOT_SUPPORTED;
    d->finished = 1;
    return 0;
}

/* ---- execution */

static int dnn_type(int type) { static const int map[] = {R_32F, -1, R_16F, R_8I, R_32I, -1, -1, -1, -1, R_16BF}; return map[type]; }

static struct tensor tensor_of(struct descriptor *operation, int name, struct descriptor *pack)
{
    struct descriptor *d = child(operation, name);
    struct attribute *sizes = find(d, 902), *strides = find(d, 903), *ids = find(pack, 1000);
    struct tensor t = {NULL, dnn_type(find(d, 901)->values.numbers[0]), sizes->count};
    memcpy(t.sizes, sizes->values.integers, sizeof t.sizes);
    memcpy(t.strides, strides->values.integers, sizeof t.strides);
    for (int i = 0; i < ids->count; i++)
        if (ids->values.integers[i] == find(d, 906)->values.integers[0])
            t.data = find(pack, 1001)->values.pointers[i];
    return t;
}

int cudnnBackendExecute(void *handle, struct descriptor *plan, struct descriptor *pack)
{
    MAY_FAIL();
    struct descriptor *config = child(plan, 401), *graph = child(config, -1), *operation = child(graph, 801);
    if (!plan->finished || !pack->finished || !find(pack, 1003)->values.pointers[0])
        return BAD_PARAM;
    struct convolution c = {operation->kind, config->engine};
    int first = operation->kind == FORWARD ? 700 : operation->kind == DATA ? 706 : 712;
    struct descriptor *shape = child(operation, first + 2);
    c.alpha = find(operation, first)->values.floats[0];
    int forward[] = {704, 703, 705}, data[] = {710, 709, 711}, filter[] = {716, 715, 717};
    int *names = operation->kind == FORWARD ? forward : operation->kind == DATA ? data : filter;
    c.x = tensor_of(operation, names[0], pack);
    c.w = tensor_of(operation, names[1], pack);
    c.y = tensor_of(operation, names[2], pack);
    c.dimensions = (int)find(shape, 106)->values.integers[0];
    memcpy(c.dilation, find(shape, 102)->values.integers, 8 * c.dimensions);
    memcpy(c.stride, find(shape, 103)->values.integers, 8 * c.dimensions);
    memcpy(c.pad, find(shape, 105)->values.integers, 8 * c.dimensions);
    logged("convolution %d engine %d compute %d", operation->kind, config->engine, find(shape, 100)->values.numbers[0]);
    submit(convolve, &c, sizeof c);
    return 0;
}

#endif
