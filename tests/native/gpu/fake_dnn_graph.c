/* Arithmetic of graphs of the fake cuDNN, in float64. Every tensor is rounded to its type, also between operations. */
#include "fake_dnn.h"

#ifndef HIP

struct values {
    struct descriptor *tensor;
    int rank, type;
    const int64_t *sizes, *strides;
    int64_t count;
    double *at; /* row-major, whatever the strides are */
};

struct state {
    struct execution *execution;
    struct values known[MOST_TENSORS];
    int count;
};

static int data_type(int type)
{
    switch (type) {
    case DNN_F16: return R_16F;
    case DNN_BF16: return R_16BF;
    case DNN_S32: return R_32I;
    case DNN_S8: return R_8I;
    default: return R_32F;
    }
}

static double rounded(double value, int type)
{
    double stored = 0;
    if (type == DNN_BOOLEAN)
        return value != 0;
    put(&stored, 0, data_type(type), value);
    return get(&stored, 0, data_type(type));
}

static void *address_of(struct state *s, struct descriptor *tensor)
{
    struct attribute *ids = find(s->execution->pack, 1000);
    for (int i = 0; i < ids->count; i++)
        if (((int64_t *)ids->values)[i] == integer(tensor, 906, -1))
            return ((void **)find(s->execution->pack, 1001)->values)[i];
    abort();
}

/* Indices of an element, from its number. */
static void unravel(const struct values *v, int64_t number, int64_t *index)
{
    for (int i = v->rank - 1; i >= 0; number /= v->sizes[i--])
        index[i] = number % v->sizes[i];
}

/* The number of the element of `from` that belongs to an element of `to`: axes of size 1 repeat, and an axis of groups
 * has one element for each group. */
static int64_t related(const struct values *from, const struct values *to, const int64_t *index)
{
    int64_t number = 0;
    for (int i = 0; i < from->rank; i++)
        number = number * from->sizes[i] + index[i] * from->sizes[i] / to->sizes[i];
    return number;
}

static int64_t place(const struct values *v, int64_t number)
{
    int64_t index[MOST_RANK], offset = 0;
    unravel(v, number, index);
    for (int i = 0; i < v->rank; i++)
        offset += index[i] * v->strides[i];
    return offset;
}

static struct values *added(struct state *s, struct descriptor *tensor)
{
    struct values *v = &s->known[s->count++];
    v->tensor = tensor, v->rank = (int)find(tensor, 902)->count, v->type = enumerator(tensor, 901, -1);
    v->sizes = find(tensor, 902)->values, v->strides = find(tensor, 903)->values, v->count = 1;
    for (int i = 0; i < v->rank; i++)
        v->count *= v->sizes[i];
    v->at = calloc(v->count, sizeof *v->at);
    return v;
}

/* A tensor that an operation reads; NULL if it is not set. */
static struct values *input(struct state *s, struct descriptor *operation, int name)
{
    struct descriptor *tensor = child(operation, name);
    if (!tensor)
        return NULL;
    for (int i = 0; i < s->count; i++)
        if (s->known[i].tensor == tensor)
            return &s->known[i];
    struct values *v = added(s, tensor);
    void *data = address_of(s, tensor);
    for (int64_t i = 0; i < v->count; i++)
        v->at[i] = get(data, place(v, i), data_type(v->type));
    return v;
}

static struct values *output(struct state *s, struct descriptor *operation, int name)
{
    struct descriptor *tensor = child(operation, name);
    return tensor ? added(s, tensor) : NULL;
}

static void store(struct state *s, struct values *v)
{
    if (!v)
        return;
    void *data = is_set(v->tensor, 907) ? NULL : address_of(s, v->tensor);
    for (int64_t i = 0; i < v->count; i++) {
        v->at[i] = rounded(v->at[i], v->type);
        if (data)
            put(data, place(v, i), data_type(v->type), v->at[i]);
    }
}

static double applied(int mode, double x, double b, double t, int64_t index)
{
    switch (mode) {
    case ADD: return x + b;
    case MULTIPLY: return x * b;
    case DIVIDE: return x / b;
    case SUBTRACT: return x - b;
    case EXPONENTIAL: return exp(x);
    case LOGARITHM: return log(x);
    case IDENTITY: return x;
    case GREATER: return x > b;
    case GREATER_OR_EQUAL: return x >= b;
    case LESS: return x < b;
    case AND: return x && b;
    case INDEX: return index;
    case SELECT: return t ? x : b;
    default: abort();
    }
}

static void pointwise(struct state *s, struct descriptor *d)
{
    struct values *x = input(s, d, 751), *b = input(s, d, 752), *t = input(s, d, 758), *y = output(s, d, 753);
    int mode = enumerator(child(d, 750), 0, -1);
    int64_t axis = integer(child(d, 750), 9, 0), index[MOST_RANK];
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, index);
        double second = b ? b->at[related(b, y, index)] : 0, third = t ? t->at[related(t, y, index)] : 0;
        y->at[i] = applied(mode, x->at[related(x, y, index)], second, third, index[axis]);
    }
    store(s, y);
}

static void matmul(struct state *s, struct descriptor *d)
{
    struct values *a = input(s, d, 1520), *b = input(s, d, 1521);
    struct values *rows = input(s, d, 1525), *columns = input(s, d, 1526), *inner = input(s, d, 1527);
    struct values *c = output(s, d, 1522);
    int last = c->rank - 1, cut = s->execution->engine == 2 && a->type == DNN_F32 && b->type == DNN_F32;
    int64_t index[MOST_RANK], steps = a->sizes[last], wide = b->sizes[last];
    for (int64_t i = 0; i < c->count; i++) {
        unravel(c, i, index);
        int64_t batch = index[0], row = index[last - 1], column = index[last];
        if ((rows && row >= rows->at[batch]) || (columns && column >= columns->at[batch]))
            continue;
        int64_t most = inner ? (int64_t)inner->at[batch] : steps;
        index[last - 1] = index[last] = 0;
        int64_t of_a = 0, of_b = 0; /* numbers of the matrices */
        for (int j = 0; j < last - 1; j++) {
            of_a = of_a * a->sizes[j] + index[j] * a->sizes[j] / c->sizes[j];
            of_b = of_b * b->sizes[j] + index[j] * b->sizes[j] / c->sizes[j];
        }
        double sum = 0;
        for (int64_t l = 0; l < most; l++) {
            double left = a->at[(of_a * a->sizes[last - 1] + row) * steps + l], right = b->at[(of_b * steps + l) * wide + column];
            sum += as_multiplied(left, cut ? COMPUTE_TF32 : -1) * as_multiplied(right, cut ? COMPUTE_TF32 : -1);
        }
        c->at[i] = sum;
    }
    store(s, c);
}

static void reduction(struct state *s, struct descriptor *d)
{
    struct values *x = input(s, d, 1610), *y = output(s, d, 1611);
    int is_maximum = enumerator(child(d, 1612), 1600, -1) == MAXIMUM;
    int64_t index[MOST_RANK];
    for (int64_t i = 0; is_maximum && i < y->count; i++)
        y->at[i] = -INFINITY;
    for (int64_t i = 0; i < x->count; i++) {
        unravel(x, i, index);
        double *to = &y->at[related(y, x, index)];
        *to = is_maximum ? fmax(*to, x->at[i]) : *to + x->at[i];
    }
    store(s, y);
}

static void reshape(struct state *s, struct descriptor *d)
{
    struct values *x = input(s, d, 2200), *y = output(s, d, 2201);
    int axes[MOST_RANK];
    unsigned used = 0;
    for (int i = 0; i < y->rank; i++) {
        int j = 0;
        while (used >> j & 1 || x->sizes[j] != y->sizes[i] || x->strides[j] != y->strides[i])
            j++;
        axes[i] = j, used |= 1u << j;
    }
    int64_t index[MOST_RANK], of_x[MOST_RANK];
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, index);
        for (int j = 0; j < y->rank; j++)
            of_x[axes[j]] = index[j];
        y->at[i] = x->at[related(x, x, of_x)];
    }
    store(s, y);
}

static void load_pages(struct state *s, struct descriptor *d)
{
    struct values *container = input(s, d, 1950), *lengths = input(s, d, 1952), *table = input(s, d, 1953);
    struct values *y = output(s, d, 1951);
    int is_transposed = y->strides[2] == 1 && y->strides[3] != 1;
    int64_t page = container->sizes[2], index[MOST_RANK];
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, index);
        int64_t key = index[is_transposed ? 3 : 2], number = index[is_transposed ? 2 : 3];
        if (key >= lengths->at[index[0]])
            continue;
        int64_t of_container[] = {(int64_t)table->at[index[0] * table->sizes[2] + key / page], index[1], key % page, number};
        y->at[i] = container->at[related(container, container, of_container)];
    }
    store(s, y);
}

/* Which of the means, and which of the parameters, an element of x has. */
static int64_t statistic(const struct values *x, int is_batch, int64_t i)
{
    int64_t index[MOST_RANK];
    unravel(x, i, index);
    return index[is_batch ? 1 : 0];
}
static int64_t channel(const struct values *x, int64_t i) { return statistic(x, 1, i); }

static void norm_forward(struct state *s, struct descriptor *d)
{
    struct values *x = input(s, d, 2002), *scale = input(s, d, 2005), *shift = input(s, d, 2006);
    struct values *epsilon = input(s, d, 2007);
    int mode = enumerator(d, 2000, -1), is_batch = mode == BATCH_NORM, is_training = enumerator(d, 2001, -1) == 1;
    int64_t parts = x->sizes[is_batch ? 1 : 0], each = x->count / parts;
    double *mean = calloc(parts, sizeof *mean), *reciprocal = calloc(parts, sizeof *reciprocal);
    for (int64_t i = 0; i < x->count && mode != RMS_NORM; i++)
        mean[statistic(x, is_batch, i)] += x->at[i] / each;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t part = statistic(x, is_batch, i);
        reciprocal[part] += (x->at[i] - mean[part]) * (x->at[i] - mean[part]) / each;
    }
    for (int64_t i = 0; i < parts; i++)
        reciprocal[i] = 1 / sqrt(reciprocal[i] + epsilon->at[0]);
    struct values *y = output(s, d, 2013);
    for (int64_t i = 0; i < x->count; i++) {
        int64_t part = statistic(x, is_batch, i), c = channel(x, i);
        y->at[i] = (x->at[i] - mean[part]) * reciprocal[part] * scale->at[c] + (shift ? shift->at[c] : 0);
    }
    store(s, y);
    if (is_training) {
        struct values *kept = output(s, d, 2003);
        if (kept)
            memcpy(kept->at, mean, parts * sizeof *mean);
        store(s, kept);
        kept = output(s, d, 2004);
        memcpy(kept->at, reciprocal, parts * sizeof *reciprocal);
        store(s, kept);
    }
    free(mean), free(reciprocal);
}

static void norm_backward(struct state *s, struct descriptor *d)
{
    struct values *x = input(s, d, 2101), *mean = input(s, d, 2102), *reciprocal = input(s, d, 2103);
    struct values *dy = input(s, d, 2104), *scale = input(s, d, 2105);
    struct values *dscale = output(s, d, 2107), *dshift = output(s, d, 2108), *dx = output(s, d, 2109);
    int mode = enumerator(d, 2100, -1), is_batch = mode == BATCH_NORM;
    int64_t parts = x->sizes[is_batch ? 1 : 0], each = x->count / parts;
    double *sums = calloc(parts, sizeof *sums), *products = calloc(parts, sizeof *products);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < x->count; i++) {
            int64_t part = statistic(x, is_batch, i), c = channel(x, i);
            double z = (x->at[i] - (mean ? mean->at[part] : 0)) * reciprocal->at[part], g = dy->at[i] * scale->at[c];
            if (pass) {
                dx->at[i] = (g - (mean ? sums[part] : 0) - z * products[part]) * reciprocal->at[part];
                continue;
            }
            sums[part] += g / each, products[part] += g * z / each;
            dscale->at[c] += dy->at[i] * z;
            if (dshift)
                dshift->at[c] += dy->at[i];
        }
    store(s, dscale), store(s, dshift), store(s, dx);
    free(sums), free(products);
}

void compute_graph(void *arguments)
{
    struct state s = {arguments};
    struct attribute *operations = find(s.execution->graph, 801);
    for (int i = 0; i < operations->count; i++) {
        struct descriptor *d = ((void **)operations->values)[i];
        switch (d->kind) {
        case POINTWISE_OPERATION: pointwise(&s, d); break;
        case MATMUL_OPERATION: matmul(&s, d); break;
        case REDUCTION_OPERATION: reduction(&s, d); break;
        case RESHAPE: reshape(&s, d); break;
        case PAGES: load_pages(&s, d); break;
        case NORM_FORWARD: norm_forward(&s, d); break;
        case NORM_BACKWARD: norm_backward(&s, d); break;
        default: abort();
        }
    }
    for (int i = 0; i < s.count; i++)
        free(s.known[i].at);
    spin((s.execution->engine == 1 ? slow() : 0) + slowness());
}

#endif
