/* cuDNN's recurrent layers on the fake GPU. The standard algorithm is slow; the small persistent one does not exist. */
#include "fake_rnn.h"

#ifndef HIP

enum { DOUBLE_BIAS = 2, NOT_SUPPORTED = 3000, BAD_PARAM = 2000, FAST_MATH = 0 };

struct tensor { int type, rank, sizes[8]; };

static int types[] = {R_32F, -1, R_16F, -1, -1, -1, -1, -1, -1, R_16BF};
static int64_t bytes_of(int type) { return type == R_32F ? 4 : 2; }

int cudnnCreateTensorDescriptor(void **created) { *created = calloc(1, sizeof(struct tensor)); return 0; }
int cudnnSetTensorNdDescriptor(struct tensor *t, int type, int rank, const int *sizes, const int *strides)
{
    t->type = type, t->rank = rank;
    memcpy(t->sizes, sizes, 4 * rank);
    return 0;
}
int cudnnCreateRNNDescriptor(void **created) { *created = calloc(1, sizeof(struct rnn)); return 0; }
int cudnnCreateRNNDataDescriptor(void **created) { *created = calloc(1, sizeof(struct data)); return 0; }

int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction, int input, int type,
    int precision, int math, int input_size, int hidden, int projection, int layers, void *dropout, unsigned flags)
{
    MAY_FAIL();
    /* Without an input matrix, the input must be as wide as the state. */
    *r = (struct rnn){algorithm, cell, bias == DOUBLE_BIAS, types[type], math, input ? 0 : input_size, hidden, 0, input,
        {0, 1, 2, 3}};
    if (projection != hidden || layers != 1 || direction || flags || (input && input_size != hidden))
        return BAD_PARAM;
    /* As in cuDNN, persistent algorithms need two biases. */
    return algorithm == 3 || (algorithm && bias != DOUBLE_BIAS) || precision ? NOT_SUPPORTED : 0;
}
int cudnnBuildRNNDynamic(void *handle, struct rnn *r, int batch) { r->built = 1; return 0; }
int cudnnSetRNNDataDescriptor(struct data *d, int type, int layout, int steps, int batch, int size, const int *lengths,
    void *fill)
{
    *d = (struct data){type, steps, batch, size};
    for (int i = 0; i < batch; i++)
        if (lengths[i] != steps)
            return BAD_PARAM;
    return layout != 1;
}
int cudnnGetRNNTempSpaceSizes(void *h, struct rnn *r, int mode, struct data *x, size_t *work, size_t *reserve)
{
    *work = 64;
    *reserve = mode ? 8 * x->steps * x->batch * r->hidden * 7 : 0;
    return 0;
}

int cudnnGetRNNWeightSpaceSize(void *handle, struct rnn *r, size_t *bytes)
{
    *bytes = bytes_of(r->type) * weights_of(r);
    return 0;
}
int cudnnGetRNNWeightParams(void *handle, struct rnn *r, int layer, size_t bytes, char *weights, int id,
    struct tensor *matrix, char **matrix_at, struct tensor *bias, char **bias_at)
{
    int64_t at = place(r, id, 1), matrix_place = place(r, id, 0);
    *matrix_at = matrix_place < 0 ? NULL : weights + bytes_of(r->type) * matrix_place;
    *bias_at = at < 0 ? NULL : weights + bytes_of(r->type) * at;
    return 0;
}

static int refuse(const struct rnn *r, const int *lengths, const struct data *d)
{
    return (r->algorithm == 2 && !r->built) || !lengths || lengths[0] != d->steps ? BAD_PARAM : 0;
}

int cudnnRNNForward(void *handle, struct rnn *r, int mode, const int *lengths, struct data *xd, const void *x,
    struct data *yd, void *y, void *hd, const void *hx, void *hy, void *cd, const void *cx, void *cy,
    size_t weight_bytes, const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve)
{
    MAY_FAIL();
    logged("forward cell %d algorithm %d math %d type %d mode %d", r->cell, r->algorithm, r->math, r->type, mode);
    struct run s = {*r, *xd, 0, mode, x, hx, cx, weights, NULL, y, NULL, NULL, NULL, NULL, reserve};
    submit(run_forward, &s, sizeof s);
    return refuse(r, lengths, xd);
}
int cudnnRNNBackwardData_v8(void *handle, struct rnn *r, const int *lengths, struct data *yd, void *y, const void *dy,
    struct data *xd, void *dx, void *hd, const void *hx, const void *dhy, void *dhx, void *cd, const void *cx,
    const void *dcy, void *dcx, size_t weight_bytes, const void *weights, size_t work_bytes, void *work,
    size_t reserve_bytes, void *reserve)
{
    struct run s = {*r, *xd, 1, 1, NULL, hx, cx, weights, dy, y, dx, dhx, dcx, NULL, reserve};
    submit(run_backward, &s, sizeof s);
    return refuse(r, lengths, xd);
}
int cudnnRNNBackwardWeights_v8(void *handle, struct rnn *r, int mode, const int *lengths, struct data *xd, const void *x,
    void *hd, const void *hx, struct data *yd, void *y, size_t weight_bytes, void *gradient, size_t work_bytes,
    void *work, size_t reserve_bytes, void *reserve)
{
    struct run s = {*r, *xd, 1, 1, x, hx, NULL, NULL, NULL, y, NULL, NULL, NULL, gradient, reserve};
    submit(run_weights, &s, sizeof s);
    return mode ? BAD_PARAM : refuse(r, lengths, xd);
}

#endif
