/* cuDNN of the make-believe GPU: convolutions through the graph interface. Three engines are proposed for every
 * operation: 1 is slow, 2 has tensor cores (and cuts f32 to TF32), 3 cannot be built. */
#include "fake.h"

#ifndef HIP

enum { CONVOLUTION = 1, ENGINE, CONFIG, HEURISTICS, PLAN, KNOB = 7, FORWARD = 10, FILTER, DATA, GRAPH = 15, PACK, TENSOR };
enum { MOST = 16, NOT_SUPPORTED = 3000, BAD_PARAM = 2000 };

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
int cudnnCreate(void **made) { *made = &dnn; MAY_FAIL(); return 0; }
int cudnnSetStream(void *handle, void *s) { return 0; }
size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) { return status == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error"; }
void cudnnGetLastErrorString(char *text, size_t bytes) { *text = 0; }

int cudnnBackendCreateDescriptor(int kind, void **made)
{
    struct descriptor *d = calloc(1, sizeof *d);
    d->kind = kind;
    *made = d;
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

int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t wanted, int64_t *found, void *values)
{
    int64_t none;
    found = found ? found : &none;
    if (!d->finished)
        return BAD_PARAM;
    *found = 0;
    if (d->kind == HEURISTICS) { /* the second model has nothing to add, what always works is in the first */
        *found = find(d, 200)->values.numbers[0] == 1 ? 0 : 3;
        for (int i = 0; values && i < *found; i++) {
            struct descriptor *config = ((void **)values)[i];
            config->finished = 1, config->engine = i + 1;
            int64_t graph = (int64_t)(intptr_t)child(d, 201);
            config->count = 1, config->attributes[0].name = -1, config->attributes[0].values.integers[0] = graph;
        }
    } else if (d->kind == CONFIG && name == 300) {
        struct descriptor *engine = *(void **)values;
        engine->kind = ENGINE, engine->engine = d->engine, engine->finished = *found = 1;
    } else if (d->kind == CONFIG) {
        *found = 1;
        struct descriptor *knob = *(void **)values;
        knob->kind = KNOB, knob->engine = d->engine, knob->finished = 1;
    } else if (d->kind == KNOB) {
        *found = 1;
        if (name == 600)
            *(int *)values = 2;
        else
            *(int64_t *)values = 10 + d->engine;
    } else if (d->kind == ENGINE && name == 1301) {
        *(int64_t *)values = d->engine;
        *found = 1;
    } else if (d->kind == ENGINE) {
        *found = d->engine == 2;
        *(int *)values = 0;
    } else if (d->kind == PLAN) {
        *(int64_t *)values = child(d, 401)->engine * 4096;
        *found = 1;
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

struct tensor {
    void *data;
    int type;
    int64_t rank, sizes[MOST], strides[MOST];
};

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

struct convolution {
    int kind, engine, dimensions;
    double alpha;
    struct tensor x, w, y;
    int64_t pad[3], stride[3], dilation[3];
};

/* Sizes and steps of spatial axis i of three, counted from the last; 1 where the tensor has fewer. */
static int64_t spatial(const int64_t *values, int64_t rank, int i, int64_t missing)
{
    return i < rank - 2 ? values[rank - 1 - i] : missing;
}

static int64_t span(const struct tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        count += (t->sizes[i] - 1) * t->strides[i];
    return count;
}

/* All elements as they are multiplied. */
static double *loaded(const struct convolution *c, const struct tensor *t)
{
    /* FAKE_GPU_CUTS: engines without tensor cores cut f32 too, and do not say so. */
    int cut = (c->engine == 2 || getenv("FAKE_GPU_CUTS")) && t->type == R_32F;
    double *values = malloc(span(t) * sizeof *values);
    for (int64_t i = 0; i < span(t); i++)
        values[i] = as_multiplied(get(t->data, i, t->type), cut ? COMPUTE_TF32 : -1);
    return values;
}

static void convolve(void *arguments)
{
    struct convolution *c = arguments;
    struct tensor *x = &c->x, *w = &c->w, *y = &c->y, *out = c->kind == FORWARD ? y : c->kind == DATA ? x : w;
    int64_t count = span(out), rank = x->rank, groups = x->sizes[1] / w->sizes[1], per_group = w->sizes[0] / groups;
    double *sums = calloc(count, sizeof *sums);
    double *xv = loaded(c, x), *wv = loaded(c, w), *yv = loaded(c, y);
    int64_t ys[3], ws[3], xs[3];
    for (int i = 0; i < 3; i++) {
        ys[i] = spatial(y->sizes, rank, i, 1);
        ws[i] = spatial(w->sizes, rank, i, 1);
        xs[i] = spatial(x->sizes, rank, i, 1);
    }
    /* Strides of the three spatial axes, 0 where there are fewer. */
    int64_t xt[3], wt[3], yt[3], stride[3] = {1, 1, 1}, pad[3] = {0}, dilation[3] = {1, 1, 1};
    for (int i = 0; i < 3; i++) {
        xt[i] = spatial(x->strides, rank, i, 0);
        wt[i] = spatial(w->strides, rank, i, 0);
        yt[i] = spatial(y->strides, rank, i, 0);
        if (i < c->dimensions) {
            int axis = c->dimensions - 1 - i;
            stride[i] = c->stride[axis], pad[i] = c->pad[axis], dilation[i] = c->dilation[axis];
        }
    }
    for (int64_t t2 = 0; t2 < ws[2]; t2++)
    for (int64_t t1 = 0; t1 < ws[1]; t1++)
    for (int64_t t0 = 0; t0 < ws[0]; t0++)
    for (int64_t p2 = 0; p2 < ys[2]; p2++)
    for (int64_t p1 = 0; p1 < ys[1]; p1++)
    for (int64_t p0 = 0; p0 < ys[0]; p0++) {
        int64_t at0 = p0 * stride[0] - pad[0] + t0 * dilation[0], at1 = p1 * stride[1] - pad[1] + t1 * dilation[1];
        int64_t at2 = p2 * stride[2] - pad[2] + t2 * dilation[2];
        if (at0 < 0 || at0 >= xs[0] || at1 < 0 || at1 >= xs[1] || at2 < 0 || at2 >= xs[2])
            continue;
        int64_t x0 = at0 * xt[0] + at1 * xt[1] + at2 * xt[2], w0 = t0 * wt[0] + t1 * wt[1] + t2 * wt[2];
        int64_t y0 = p0 * yt[0] + p1 * yt[1] + p2 * yt[2];
        for (int64_t n = 0; n < y->sizes[0]; n++)
        for (int64_t k = 0; k < y->sizes[1]; k++)
        for (int64_t l = 0; l < w->sizes[1]; l++) {
            int64_t xi = x0 + n * x->strides[0] + (k / per_group * w->sizes[1] + l) * x->strides[1];
            int64_t wi = w0 + k * w->strides[0] + l * w->strides[1];
            int64_t yi = y0 + n * y->strides[0] + k * y->strides[1];
            if (c->kind == FORWARD)
                sums[yi] += xv[xi] * wv[wi];
            else if (c->kind == DATA)
                sums[xi] += yv[yi] * wv[wi];
            else
                sums[wi] += yv[yi] * xv[xi];
        }
    }
    for (int64_t i = 0; i < count; i++) { /* tensors of the tests are dense, so every place is an element */
        double value = c->alpha * sums[i];
        if (out->type == R_8I)
            ((int8_t *)out->data)[i] = (int8_t)fmax(-128, fmin(127, rint(value)));
        else
            put(out->data, i, out->type, value);
    }
    free(sums), free(xv), free(wv), free(yv);
    spin((c->engine == 1 ? 3e-4 : 0) + slowness());
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
