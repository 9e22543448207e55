/* MIOpen of the fake GPU. A convolution has three solutions: the first is slow, the third cannot be compiled.
 * The default algorithm of recurrent layers is slow. */
#include "fake_conv.h"
#include "fake_rnn.h"

#ifdef HIP

enum { BAD_PARAM = 3, NOT_IMPLEMENTED = 6, WITH_BIAS = 1, TRAINING = 0 };

struct described { int type, rank; int sizes[8], strides[8]; };
struct shape { int dimensions, groups, pad[3], stride[3], dilation[3], alternative; };
struct solution { float milliseconds; size_t workspace; uint64_t number; int algorithm; };

static int handle;
static int type_of(int type) { static const int map[] = {R_16F, R_32F, R_32I, R_8I, -1, R_16BF}; return map[type]; }

int miopenCreateWithStream(void **created, void *stream) { *created = &handle; return stream ? fails(__func__) : BAD_PARAM; }
int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) { *major = 3, *minor = 3, *patch = 0; return 0; }
const char *miopenGetErrorString(int status) { return status == NOT_IMPLEMENTED ? "NotImplemented" : "BadParm"; }

int miopenCreateTensorDescriptor(void **created) { *created = calloc(1, sizeof(struct described)); return 0; }
int miopenSetTensorDescriptor(struct described *t, int type, int rank, const int *sizes, const int *strides)
{
    t->type = type_of(type), t->rank = rank;
    memcpy(t->sizes, sizes, 4 * rank);
    memcpy(t->strides, strides, 4 * rank);
    return 0;
}

/* ---- convolution */

int miopenCreateConvolutionDescriptor(void **created) { *created = calloc(1, sizeof(struct shape)); return 0; }
int miopenInitConvolutionNdDescriptor(struct shape *s, int dimensions, const int *pad, const int *stride,
    const int *dilation, int mode)
{
    s->dimensions = dimensions, s->groups = 1, s->alternative = -1;
    memcpy(s->pad, pad, 4 * dimensions);
    memcpy(s->stride, stride, 4 * dimensions);
    memcpy(s->dilation, dilation, 4 * dimensions);
    return mode;
}
int miopenSetConvolutionGroupCount(struct shape *s, int groups) { s->groups = groups; return 0; }
int miopenSetConvolutionAttribute(struct shape *s, int attribute, int value) { s->alternative = value; return attribute; }

static struct tensor tensor_of(const struct described *d, void *data)
{
    struct tensor t = {data, d->type, d->rank};
    for (int i = 0; i < d->rank; i++)
        t.sizes[i] = d->sizes[i], t.strides[i] = d->strides[i];
    return t;
}

static int propose(const struct described *output, const struct described *input, size_t *count, size_t most,
    struct solution *solutions)
{
    int wanted = input->type == R_8I ? R_32I : input->type;
    *count = output->type == wanted ? 3 : 0;
    for (size_t i = 0; solutions && i < *count && i < most; i++)
        solutions[i] = (struct solution){1, 4096 * (i + 1), 100 + i + 1, i == 1 ? 5 : 0};
    return 0;
}

static int execute(int kind, const struct described *x, const void *xv, const struct described *w, const void *wv,
    const struct described *y, void *yv, const struct shape *s, uint64_t solution, size_t workspace)
{
    struct convolution c = {kind, (int)solution - 100, s->dimensions, 1};
    c.x = tensor_of(x, (void *)xv), c.w = tensor_of(w, (void *)wv), c.y = tensor_of(y, yv);
    for (int i = 0; i < s->dimensions; i++)
        c.pad[i] = s->pad[i], c.stride[i] = s->stride[i], c.dilation[i] = s->dilation[i];
    if (x->sizes[1] != w->sizes[1] * s->groups || workspace != 4096 * (solution - 100) || s->alternative)
        return BAD_PARAM;
    c.engine = c.engine == 2 ? 0 : c.engine; /* no engine truncates here */
    logged("convolution %d solution %d type %d", kind, (int)solution, y->type);
    submit(convolve, &c, sizeof c);
    return 0;
}

#define DIRECTION(name, kind, first, second, third, xd, xa, wd, wa, yd, ya)                                             \
    int miopenConvolution##name##GetSolutionCount(void *h, struct described *first, struct described *second,           \
        struct shape *s, struct described *third, size_t *count)                                                        \
    {                                                                                                                   \
        return propose(third, first, count, 0, NULL);                                                                   \
    }                                                                                                                   \
    int miopenConvolution##name##GetSolution(void *h, struct described *first, struct described *second,                \
        struct shape *s, struct described *third, size_t most, size_t *count, struct solution *solutions)               \
    {                                                                                                                   \
        return propose(third, first, count, most, solutions);                                                           \
    }                                                                                                                   \
    int miopenConvolution##name##CompileSolution(void *h, struct described *first, struct described *second,            \
        struct shape *s, struct described *third, uint64_t number)                                                      \
    {                                                                                                                   \
        return number == 103 ? NOT_IMPLEMENTED : 0;                                                                     \
    }                                                                                                                   \
    int miopenConvolution##name##Immediate(void *h, struct described *first, void *a, struct described *second,         \
        void *b, struct shape *s, struct described *third, void *c, void *workspace, size_t bytes, uint64_t number)     \
    {                                                                                                                   \
        MAY_FAIL();                                                                                                     \
        return execute(kind, xd, xa, wd, wa, yd, ya, s, number, bytes);                                                 \
    }

DIRECTION(Forward, FORWARD, w, x, y, x, b, w, a, y, c)
DIRECTION(BackwardData, DATA, dy, w, dx, dx, c, w, b, dy, a)
DIRECTION(BackwardWeights, FILTER, dy, x, dw, x, b, dw, c, dy, a)

/* ---- recurrent layers */

int miopenCreateRNNDescriptor(void **created) { *created = calloc(1, sizeof(struct rnn)); return 0; }
int miopenSetRNNDescriptor(struct rnn *r, int hidden, int layers, int input, int direction, int cell, int bias,
    int algorithm, int type)
{
    struct rnn created = {algorithm, cell, bias == WITH_BIAS, type_of(type), STRICT_MATH, 0, hidden, 1, input, {0, 1, 3, 2}};
    *r = created;
    if (cell == GRU)
        r->gates[0] = 1, r->gates[1] = 0; /* the update gate comes first */
    return layers != 1 || direction || fails(__func__);
}
int miopenCreateSeqTensorDescriptor(void **created) { *created = calloc(1, sizeof(struct data)); return 0; }
int miopenSetRNNDataSeqTensorDescriptor(struct data *d, int type, int layout, int steps, int batch, int size,
    const int *lengths, void *fill)
{
    *d = (struct data){type_of(type), steps, batch, size};
    for (int i = 0; i < batch; i++)
        if (lengths[i] != steps)
            return BAD_PARAM;
    return layout != 1;
}
int miopenGetRNNTempSpaceSizes(void *h, struct rnn *r, struct data *x, int mode, size_t *work, size_t *reserve)
{
    r->input = r->skip ? 0 : x->size;
    *work = 64;
    *reserve = mode == TRAINING ? 8 * x->steps * x->batch * r->hidden * 7 : 0;
    return r->skip && x->size != r->hidden ? BAD_PARAM : 0;
}
static int bytes_of(const struct rnn *r) { return r->type == R_32F ? 4 : 2; }
int miopenGetRNNParamsSize(void *h, struct rnn *r, struct described *x, size_t *bytes, int type)
{
    *bytes = bytes_of(r) * weights_of(r);
    return x->rank != 2 || (!r->skip && x->sizes[1] != r->input) ? BAD_PARAM : 0;
}
static int offset(struct rnn *r, int id, int bias, size_t *elements)
{
    int64_t at = place(r, id, bias);
    *elements = at;
    return at < 0 ? BAD_PARAM : 0;
}
int miopenGetRNNLayerParamOffset(struct rnn *r, int layer, struct described *x, int id, void *d, size_t *elements)
{
    return offset(r, id, 0, elements);
}
int miopenGetRNNLayerBiasOffset(struct rnn *r, int layer, struct described *x, int id, void *d, size_t *elements)
{
    return offset(r, id, 1, elements);
}

int miopenRNNForward(void *h, struct rnn *r, int mode, struct data *xd, const void *x, void *hd, const void *hx, void *hy,
    void *cd, const void *cx, void *cy, struct data *yd, void *y, const void *weights, size_t weight_bytes, void *work,
    size_t work_bytes, void *reserve, size_t reserve_bytes)
{
    MAY_FAIL();
    logged("forward cell %d algorithm %d type %d mode %d", r->cell, r->algorithm, r->type, mode);
    struct run s = {*r, *xd, 0, mode == TRAINING, x, hx, cx, weights, NULL, y, NULL, NULL, NULL, NULL, reserve};
    submit(run_forward, &s, sizeof s);
    return weight_bytes != bytes_of(r) * weights_of(r) || work_bytes != 64;
}
int miopenRNNBackwardSeqData(void *h, struct rnn *r, struct data *yd, void *y, const void *dy, void *hd, const void *hx,
    const void *dhy, void *dhx, void *cd, const void *cx, const void *dcy, void *dcx, struct data *xd, void *dx,
    const void *weights, size_t weight_bytes, void *work, size_t work_bytes, void *reserve, size_t reserve_bytes)
{
    struct run s = {*r, *xd, 1, 1, NULL, hx, cx, weights, dy, y, dx, dhx, dcx, NULL, reserve};
    submit(run_backward, &s, sizeof s);
    return reserve_bytes ? 0 : BAD_PARAM;
}
int miopenRNNBackwardWeightsSeqTensor(void *h, struct rnn *r, struct data *xd, const void *x, void *hd, const void *hx,
    struct data *yd, void *y, void *gradient, size_t weight_bytes, void *work, size_t work_bytes, void *reserve,
    size_t reserve_bytes)
{
    struct run s = {*r, *xd, 1, 1, x, hx, NULL, NULL, NULL, y, NULL, NULL, NULL, gradient, reserve};
    submit(run_weights, &s, sizeof s);
    return reserve_bytes ? 0 : BAD_PARAM;
}

#endif
