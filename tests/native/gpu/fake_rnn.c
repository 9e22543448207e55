/* Arithmetic of recurrent layers: one layer, one direction. The weights are all matrices in the order of their numbers,
 * then all biases. `input` is 0 for a layer that has no input matrix. Algorithm 0 is slow. */
#include "fake_rnn.h"

int gates_of(const struct rnn *r) { return r->cell == LSTM ? 4 : r->cell == GRU ? 3 : 1; }

int64_t place(const struct rnn *r, int id, int bias)
{
    int64_t g = gates_of(r), h = r->hidden, matrices = g * h * (r->input + h);
    if (!bias && id < g && r->skip)
        return -1;
    if (!bias)
        return id < g ? id * h * r->input : g * h * r->input + (id - g) * h * h;
    return id < g || r->two_biases ? matrices + id * h : -1;
}
int64_t weights_of(const struct rnn *r)
{
    return place(r, 0, 1) + gates_of(r) * r->hidden * (r->two_biases ? 2 : 1);
}

/* Works on one row of the batch at a time; keeps states and gates of all steps. */

static double at(const struct run *s, const void *base, int64_t i)
{
    double value = get(base, i, s->r.type);
    return s->r.type == R_32F && s->r.math != STRICT_MATH ? as_multiplied(value, COMPUTE_TF32) : value;
}
static double plain(const struct run *s, const void *base, int64_t i) { return get(base, i, s->r.type); }
static void set(const struct run *s, void *base, int64_t i, double value) { put(base, i, s->r.type, value); }
static double sigma(double a) { return 1 / (1 + exp(-a)); }

/* Reserve of one (step, row): G gates after activation, recurrent product of a GRU, c before and after; at most 7 × H. */
static double *reserve_of(const struct run *s, int64_t t, int64_t n) { return s->reserve + (t * s->d.batch + n) * 7 * s->r.hidden; }

static void forward_step(struct run *s, int64_t t, int64_t n, double *k)
{
    const struct rnn *r = &s->r;
    const int *q = r->gates;
    int64_t H = r->hidden, I = r->input, N = s->d.batch, G = gates_of(r);
    for (int64_t j = 0; j < H; j++) {
        double from_x[4], from_h[4];
        for (int64_t g = 0; g < G; g++) {
            from_x[g] = r->skip ? plain(s, s->x, (t * N + n) * H + j) : 0;
            for (int64_t i = 0; i < I; i++)
                from_x[g] += at(s, s->weights, place(r, g, 0) + j * I + i) * at(s, s->x, (t * N + n) * I + i);
            from_x[g] += plain(s, s->weights, place(r, g, 1) + j);
            from_h[g] = r->two_biases ? plain(s, s->weights, place(r, g + G, 1) + j) : 0;
            for (int64_t i = 0; i < H; i++)
                from_h[g] += at(s, s->weights, place(r, g + G, 0) + j * H + i)
                    * (t ? at(s, s->y, ((t - 1) * N + n) * H + i) : at(s, s->h0, n * H + i));
        }
        double h, before = t ? plain(s, s->y, ((t - 1) * N + n) * H + j) : plain(s, s->h0, n * H + j);
        if (r->cell == RELU)
            h = k[j] = fmax(0, from_x[0] + from_h[0]);
        else if (r->cell == LSTM) {
            double i_ = sigma(from_x[q[0]] + from_h[q[0]]), f = sigma(from_x[q[1]] + from_h[q[1]]);
            double g = tanh(from_x[q[2]] + from_h[q[2]]), o = sigma(from_x[q[3]] + from_h[q[3]]);
            double c = t ? reserve_of(s, t - 1, n)[5 * H + j] : plain(s, s->c0, n * H + j);
            k[q[0] * H + j] = i_, k[q[1] * H + j] = f, k[q[2] * H + j] = g, k[q[3] * H + j] = o, k[4 * H + j] = c;
            k[5 * H + j] = f * c + i_ * g;
            h = o * tanh(k[5 * H + j]);
        } else {
            double reset = sigma(from_x[q[0]] + from_h[q[0]]), u = sigma(from_x[q[1]] + from_h[q[1]]);
            double g = tanh(from_x[2] + reset * from_h[2]);
            k[q[0] * H + j] = reset, k[q[1] * H + j] = u, k[2 * H + j] = g, k[3 * H + j] = from_h[2];
            h = (1 - u) * g + u * before;
        }
        set(s, s->y, (t * N + n) * H + j, h);
    }
}

void run_forward(void *arguments)
{
    struct run *s = arguments;
    double *own = s->mode ? NULL : calloc(s->d.steps * s->d.batch * 7 * s->r.hidden + 1, 8);
    if (own)
        s->reserve = own;
    for (int64_t t = 0; t < s->d.steps; t++)
        for (int64_t n = 0; n < s->d.batch; n++)
            forward_step(s, t, n, reserve_of(s, t, n));
    free(own);
    spin((s->r.algorithm == 0 ? slow() : 0) + slowness());
}

/* Gradients of data. Replaces the gates in the reserve by the gradients of their sums, as cuDNN may do. */
void run_backward(void *arguments)
{
    struct run *s = arguments;
    const struct rnn *r = &s->r;
    const int *q = r->gates;
    int64_t H = r->hidden, I = r->input, N = s->d.batch, G = gates_of(r), T = s->d.steps;
    double *dh = calloc(H, 8), *dc = calloc(H, 8), *next = calloc(H, 8), *dx = calloc(I + 1, 8);
    for (int64_t n = 0; n < N; n++) {
        memset(dh, 0, 8 * H);
        memset(dc, 0, 8 * H);
        for (int64_t t = T - 1; t >= 0; t--) {
            double *k = reserve_of(s, t, n);
            memset(next, 0, 8 * H);
            memset(dx, 0, 8 * I);
            for (int64_t j = 0; j < H; j++) {
                double d = dh[j] + plain(s, s->dy, (t * N + n) * H + j);
                double before = t ? plain(s, s->y, ((t - 1) * N + n) * H + j) : plain(s, s->h0, n * H + j);
                if (r->cell == RELU)
                    k[j] = k[j] > 0 ? d : 0;
                else if (r->cell == LSTM) {
                    double i_ = k[q[0] * H + j], f = k[q[1] * H + j], g = k[q[2] * H + j], o = k[q[3] * H + j];
                    double c = tanh(k[5 * H + j]);
                    double e = dc[j] + d * o * (1 - c * c);
                    k[q[0] * H + j] = e * g * i_ * (1 - i_), k[q[1] * H + j] = e * k[4 * H + j] * f * (1 - f);
                    k[q[2] * H + j] = e * i_ * (1 - g * g), k[q[3] * H + j] = d * c * o * (1 - o);
                    dc[j] = e * f;
                } else {
                    double reset = k[q[0] * H + j], u = k[q[1] * H + j], g = k[2 * H + j], inner = k[3 * H + j];
                    double a = d * (1 - u) * (1 - g * g);
                    k[q[0] * H + j] = a * inner * reset * (1 - reset), k[q[1] * H + j] = d * (before - g) * u * (1 - u);
                    k[2 * H + j] = a, k[3 * H + j] = a * reset;
                    next[j] += d * u;
                }
                double sum = 0;
                for (int64_t g = 0; g < G; g++) {
                    sum += k[g * H + j];
                    for (int64_t i = 0; i < I; i++)
                        dx[i] += k[g * H + j] * plain(s, s->weights, place(r, g, 0) + j * I + i);
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
            for (int64_t i = 0; i < I; i++)
                set(s, s->dx, (t * N + n) * I + i, dx[i]);
        }
        for (int64_t j = 0; j < H; j++) {
            set(s, s->dh0, n * H + j, dh[j]);
            if (r->cell == LSTM)
                set(s, s->dc0, n * H + j, dc[j]);
        }
    }
    free(dh), free(dc), free(next), free(dx);
    spin((r->algorithm == 0 ? slow() : 0) + slowness());
}

static void add(struct run *s, int64_t i, double value) { set(s, s->gradient, i, plain(s, s->gradient, i) + value); }

void run_weights(void *arguments)
{
    struct run *s = arguments;
    const struct rnn *r = &s->r;
    int64_t H = r->hidden, I = r->input, N = s->d.batch, G = gates_of(r), T = s->d.steps;
    double *sums = calloc(place(r, 0, 1) + 2 * G * H, 8);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t g = 0; g < G; g++)
                for (int64_t j = 0; j < H; j++) {
                    const double *k = reserve_of(s, t, n);
                    double d = k[g * H + j], e = r->cell == GRU && g == 2 ? k[3 * H + j] : d;
                    for (int64_t i = 0; i < I; i++)
                        sums[place(r, g, 0) + j * I + i] += d * plain(s, s->x, (t * N + n) * I + i);
                    sums[place(r, g, 1) + j] += d;
                    if (r->two_biases)
                        sums[place(r, g + G, 1) + j] += e;
                    for (int64_t i = 0; i < H; i++)
                        sums[place(r, g + G, 0) + j * H + i] +=
                            e * (t ? plain(s, s->y, ((t - 1) * N + n) * H + i) : plain(s, s->h0, n * H + i));
                }
    for (int64_t i = 0; i < weights_of(r); i++)
        add(s, i, sums[i]);
    free(sums);
    spin((r->algorithm == 0 ? slow() : 0) + slowness());
}
