/* cuDNN's recurrent layers of the make-believe GPU: one layer, one direction. The standard algorithm is slow, the small
 * persistent one does not exist. Weights lie matrix after matrix in the order of their numbers, then the biases. */
#include "fake.h"

#ifndef HIP

enum { RELU = 0, LSTM = 2, GRU = 3, DOUBLE_BIAS = 2, NOT_SUPPORTED = 3000, BAD_PARAM = 2000, FAST_MATH = 0 };

struct rnn { int algorithm, cell, bias, type, precision, math; int64_t input, hidden; int built, skip; };
struct data { int type; int64_t steps, batch, size; };
struct tensor { int type, rank, sizes[8]; };

static int types[] = {R_32F, -1, R_16F, -1, -1, -1, -1, -1, -1, R_16BF};
static int64_t bytes_of(int type) { return types[type] == R_32F ? 4 : 2; }
static int gates_of(const struct rnn *r) { return r->cell == LSTM ? 4 : r->cell == GRU ? 3 : 1; }

int cudnnCreateTensorDescriptor(void **made) { *made = calloc(1, sizeof(struct tensor)); return 0; }
int cudnnSetTensorNdDescriptor(struct tensor *t, int type, int rank, const int *sizes, const int *strides)
{
    t->type = type, t->rank = rank;
    memcpy(t->sizes, sizes, 4 * rank);
    return 0;
}
int cudnnCreateRNNDescriptor(void **made) { *made = calloc(1, sizeof(struct rnn)); return 0; }
int cudnnCreateRNNDataDescriptor(void **made) { *made = calloc(1, sizeof(struct data)); return 0; }

int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction, int input, int type,
    int precision, int math, int input_size, int hidden, int projection, int layers, void *dropout, unsigned flags)
{
    MAY_FAIL();
    /* Without a matrix for the input it must be as wide as the state. */
    *r = (struct rnn){algorithm, cell, bias, type, precision, math, input ? 0 : input_size, hidden, 0, input};
    if (projection != hidden || layers != 1 || direction || flags || (input && input_size != hidden))
        return BAD_PARAM;
    /* As cuDNN: persistent algorithms take two biases only. */
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

/* Numbers of elements before matrix `id`, or before its bias; -1 where there is none. */
static int64_t place(const struct rnn *r, int id, int bias)
{
    int64_t g = gates_of(r), h = r->hidden, matrices = g * h * (r->input + h);
    if (!bias && id < g && r->skip)
        return -1;
    if (!bias)
        return id < g ? id * h * r->input : g * h * r->input + (id - g) * h * h;
    return id < g || r->bias == DOUBLE_BIAS ? matrices + id * h : -1;
}
int cudnnGetRNNWeightSpaceSize(void *handle, struct rnn *r, size_t *bytes)
{
    int64_t g = gates_of(r);
    *bytes = bytes_of(r->type) * (place(r, 0, 1) + g * r->hidden * (r->bias == DOUBLE_BIAS ? 2 : 1));
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

/* ---- arithmetic: one row of the batch at a time, states and gates of all steps kept */

struct run {
    struct rnn r;
    struct data d;
    int backward, mode;
    const void *x, *h0, *c0, *weights, *dy;
    void *y, *dx, *dh0, *dc0, *gradient;
    double *reserve;
};

static double at(const struct run *s, const void *base, int64_t i)
{
    double value = get(base, i, types[s->r.type]);
    return s->r.type == 0 && s->r.math != 3 ? as_multiplied(value, COMPUTE_TF32) : value;
}
static double plain(const struct run *s, const void *base, int64_t i) { return get(base, i, types[s->r.type]); }
static void set(const struct run *s, void *base, int64_t i, double value) { put(base, i, types[s->r.type], value); }
static double sigma(double a) { return 1 / (1 + exp(-a)); }

/* Kept of each (step, row): G gates after their function, the GRU's inner product, c before and after: at most 7 × H. */
static double *kept(const struct run *s, int64_t t, int64_t n) { return s->reserve + (t * s->d.batch + n) * 7 * s->r.hidden; }

static void forward_step(struct run *s, int64_t t, int64_t n, double *k)
{
    const struct rnn *r = &s->r;
    int64_t H = r->hidden, N = s->d.batch, G = gates_of(r);
    for (int64_t j = 0; j < H; j++) {
        double from_x[4], from_h[4];
        for (int64_t g = 0; g < G; g++) {
            from_x[g] = r->skip ? plain(s, s->x, (t * N + n) * H + j)
                                : at(s, s->weights, place(r, g, 0) + j) * at(s, s->x, t * N + n);
            from_x[g] += plain(s, s->weights, place(r, g, 1) + j);
            from_h[g] = r->bias == DOUBLE_BIAS ? plain(s, s->weights, place(r, g + G, 1) + j) : 0;
            for (int64_t i = 0; i < H; i++)
                from_h[g] += at(s, s->weights, place(r, g + G, 0) + j * H + i)
                    * (t ? at(s, s->y, ((t - 1) * N + n) * H + i) : at(s, s->h0, n * H + i));
        }
        double h, before = t ? plain(s, s->y, ((t - 1) * N + n) * H + j) : plain(s, s->h0, n * H + j);
        if (r->cell == RELU)
            h = k[j] = fmax(0, from_x[0] + from_h[0]);
        else if (r->cell == LSTM) {
            double i_ = sigma(from_x[0] + from_h[0]), f = sigma(from_x[1] + from_h[1]);
            double g = tanh(from_x[2] + from_h[2]), o = sigma(from_x[3] + from_h[3]);
            double c = t ? kept(s, t - 1, n)[5 * H + j] : plain(s, s->c0, n * H + j);
            k[j] = i_, k[H + j] = f, k[2 * H + j] = g, k[3 * H + j] = o, k[4 * H + j] = c;
            k[5 * H + j] = f * c + i_ * g;
            h = o * tanh(k[5 * H + j]);
        } else {
            double reset = sigma(from_x[0] + from_h[0]), u = sigma(from_x[1] + from_h[1]);
            double g = tanh(from_x[2] + reset * from_h[2]);
            k[j] = reset, k[H + j] = u, k[2 * H + j] = g, k[3 * H + j] = from_h[2];
            h = (1 - u) * g + u * before;
        }
        set(s, s->y, (t * N + n) * H + j, h);
    }
}

static void run_forward(void *arguments)
{
    struct run *s = arguments;
    double *own = s->mode ? NULL : calloc(s->d.steps * s->d.batch * 7 * s->r.hidden + 1, 8);
    if (own)
        s->reserve = own;
    for (int64_t t = 0; t < s->d.steps; t++)
        for (int64_t n = 0; n < s->d.batch; n++)
            forward_step(s, t, n, kept(s, t, n));
    free(own);
    spin((s->r.algorithm == 0 ? 3e-4 : 0) + slowness());
}

/* Gradients of data; gates kept by the forward pass are replaced by the gradients of their sums, as cuDNN may do. */
static void run_backward(void *arguments)
{
    struct run *s = arguments;
    const struct rnn *r = &s->r;
    int64_t H = r->hidden, N = s->d.batch, G = gates_of(r), T = s->d.steps;
    double *dh = calloc(H, 8), *dc = calloc(H, 8), *next = calloc(H, 8);
    for (int64_t n = 0; n < N; n++) {
        memset(dh, 0, 8 * H);
        memset(dc, 0, 8 * H);
        for (int64_t t = T - 1; t >= 0; t--) {
            double *k = kept(s, t, n), dx = 0;
            memset(next, 0, 8 * H);
            for (int64_t j = 0; j < H; j++) {
                double d = dh[j] + plain(s, s->dy, (t * N + n) * H + j);
                double before = t ? plain(s, s->y, ((t - 1) * N + n) * H + j) : plain(s, s->h0, n * H + j);
                if (r->cell == RELU)
                    k[j] = k[j] > 0 ? d : 0;
                else if (r->cell == LSTM) {
                    double i_ = k[j], f = k[H + j], g = k[2 * H + j], o = k[3 * H + j], c = tanh(k[5 * H + j]);
                    double e = dc[j] + d * o * (1 - c * c);
                    k[j] = e * g * i_ * (1 - i_), k[H + j] = e * k[4 * H + j] * f * (1 - f);
                    k[2 * H + j] = e * i_ * (1 - g * g), k[3 * H + j] = d * c * o * (1 - o);
                    dc[j] = e * f;
                } else {
                    double reset = k[j], u = k[H + j], g = k[2 * H + j], inner = k[3 * H + j];
                    double a = d * (1 - u) * (1 - g * g);
                    k[j] = a * inner * reset * (1 - reset), k[H + j] = d * (before - g) * u * (1 - u);
                    k[2 * H + j] = a, k[3 * H + j] = a * reset;
                    next[j] += d * u;
                }
                double sum = 0;
                for (int64_t g = 0; g < G; g++) {
                    sum += k[g * H + j];
                    dx += r->skip ? 0 : k[g * H + j] * plain(s, s->weights, place(r, g, 0) + j);
                }
                if (r->skip)
                    set(s, s->dx, (t * N + n) * H + j, sum);
            }
            for (int64_t g = 0; g < G; g++)
                for (int64_t j = 0; j < H; j++) {
                    double d = r->cell == GRU && g == 2 ? k[3 * H + j] : k[g * H + j];
                    for (int64_t i = 0; i < H; i++)
                        next[i] += d * plain(s, s->weights, place(r, g + G, 0) + j * H + i);
                }
            memcpy(dh, next, 8 * H);
            if (!r->skip)
                set(s, s->dx, t * N + n, dx);
        }
        for (int64_t j = 0; j < H; j++) {
            set(s, s->dh0, n * H + j, dh[j]);
            if (r->cell == LSTM)
                set(s, s->dc0, n * H + j, dc[j]);
        }
    }
    free(dh), free(dc), free(next);
    spin((r->algorithm == 0 ? 3e-4 : 0) + slowness());
}

static void add(struct run *s, int64_t i, double value) { set(s, s->gradient, i, plain(s, s->gradient, i) + value); }

static void run_weights(void *arguments)
{
    struct run *s = arguments;
    const struct rnn *r = &s->r;
    int64_t H = r->hidden, N = s->d.batch, G = gates_of(r), T = s->d.steps;
    double *sums = calloc(place(r, 0, 1) + 2 * G * H, 8);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t g = 0; g < G; g++)
                for (int64_t j = 0; j < H; j++) {
                    const double *k = kept(s, t, n);
                    double d = k[g * H + j], e = r->cell == GRU && g == 2 ? k[3 * H + j] : d;
                    if (!r->skip)
                        sums[place(r, g, 0) + j] += d * plain(s, s->x, t * N + n);
                    sums[place(r, g, 1) + j] += d;
                    if (r->bias == DOUBLE_BIAS)
                        sums[place(r, g + G, 1) + j] += e;
                    for (int64_t i = 0; i < H; i++)
                        sums[place(r, g + G, 0) + j * H + i] +=
                            e * (t ? plain(s, s->y, ((t - 1) * N + n) * H + i) : plain(s, s->h0, n * H + i));
                }
    int64_t count = place(r, 0, 1) + G * H * (r->bias == DOUBLE_BIAS ? 2 : 1);
    for (int64_t i = 0; i < count; i++)
        add(s, i, sums[i]);
    free(sums);
    spin((r->algorithm == 0 ? 3e-4 : 0) + slowness());
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
    logged("forward cell %d algorithm %d math %d type %d precision %d mode %d", r->cell, r->algorithm, r->math, r->type,
        r->precision, mode);
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
