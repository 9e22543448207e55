/* What the fake cuDNN accepts: sizes, types and settings that belong together. */
#include "fake_dnn.h"

#ifndef HIP

struct shape {
    int rank, type;
    const int64_t *sizes, *strides;
};

static struct shape shape_of(struct descriptor *tensor)
{
    struct shape s = {0, -1, NULL, NULL};
    if (tensor)
        s = (struct shape){(int)find(tensor, 902)->count, enumerator(tensor, 901, -1), find(tensor, 902)->values,
                           find(tensor, 903)->values};
    return s;
}

static int same_sizes(struct shape a, struct shape b)
{
    return a.rank == b.rank && !memcmp(a.sizes, b.sizes, 8 * a.rank);
}

/* Whether a tensor has this size in one axis and size 1 in the others. */
static int is_along(struct shape s, int axis, int64_t size)
{
    for (int i = 0; i < s.rank; i++)
        if (s.sizes[i] != (i == axis ? size : 1))
            return 0;
    return s.rank > axis;
}

static int is_number(int type)
{
    return type == DNN_F32 || type == DNN_F16 || type == DNN_S8 || type == DNN_S32 || type == DNN_BF16;
}

static int is_float(int type) { return type == DNN_F32 || type == DNN_F16 || type == DNN_BF16; }

static int is_valid_tensor(struct descriptor *d)
{
    struct shape s = shape_of(d);
    int is_by_value = is_set(d, 908), is_virtual = is_set(d, 907);
    if (find(d, 903)->count != s.rank || s.rank < 3 || integer(d, 900, 0) != 16 || (is_virtual && is_by_value))
        return 0;
    for (int i = 0; i < s.rank; i++)
        if (s.sizes[i] < 1 || s.strides[i] < 1 || (is_by_value && s.sizes[i] != 1))
            return 0;
    return is_number(s.type) || (s.type == DNN_BOOLEAN && is_virtual);
}

static int inputs_of(int mode) /* 0: unknown */
{
    switch (mode) {
    case ADD: case MULTIPLY: case DIVIDE: case SUBTRACT: case GREATER: case GREATER_OR_EQUAL: case LESS: case AND: return 2;
    case EXPONENTIAL: case LOGARITHM: case IDENTITY: case INDEX: return 1;
    case SELECT: return 3;
    default: return 0;
    }
}

static int broadcasts(struct shape from, struct shape to)
{
    for (int i = 0; i < from.rank; i++)
        if (from.sizes[i] != 1 && from.sizes[i] != to.sizes[i])
            return 0;
    return from.rank == to.rank;
}

static int is_valid_pointwise(struct descriptor *d)
{
    struct descriptor *settings = child(d, 750);
    struct shape x = shape_of(child(d, 751)), b = shape_of(child(d, 752)), t = shape_of(child(d, 758));
    struct shape y = shape_of(child(d, 753));
    int mode = enumerator(settings, 0, -1), inputs = inputs_of(mode);
    int64_t axis = integer(settings, 9, -1);
    int is_logical = mode == GREATER || mode == GREATER_OR_EQUAL || mode == LESS || mode == AND;
    if ((b.rank != 0) != (inputs > 1) || (t.rank != 0) != (inputs > 2) || (axis >= 0) != (mode == INDEX) || axis >= x.rank)
        return 0;
    if (!broadcasts(x, y) || (b.rank && !broadcasts(b, y)) || (t.rank && !broadcasts(t, y)))
        return 0;
    for (int i = 0; i < y.rank; i++) /* an axis of the result is as long as that of an input */
        if (y.sizes[i] != 1 && x.sizes[i] == 1 && (!b.rank || b.sizes[i] == 1))
            return 0;
    if (is_logical != (y.type == DNN_BOOLEAN) || is_logical != (enumerator(settings, 1, -1) == DNN_BOOLEAN))
        return 0;
    if (mode == AND && (x.type != DNN_BOOLEAN || b.type != DNN_BOOLEAN))
        return 0;
    if (mode != AND && (x.type == DNN_BOOLEAN || b.type == DNN_BOOLEAN))
        return 0;
    return (mode != SELECT || t.type == DNN_BOOLEAN) && (mode != INDEX || y.type == DNN_S32);
}

static int is_valid_matmul(struct descriptor *d)
{
    struct shape a = shape_of(child(d, 1520)), b = shape_of(child(d, 1521)), c = shape_of(child(d, 1522));
    int last = a.rank - 1;
    if (a.rank != b.rank || a.rank != c.rank || enumerator(child(d, 1523), 1500, -1) != DNN_F32)
        return 0;
    if (!is_float(a.type) || !is_float(b.type) || !is_float(c.type))
        return 0;
    if (a.sizes[last] != b.sizes[last - 1] || c.sizes[last - 1] != a.sizes[last - 1] || c.sizes[last] != b.sizes[last])
        return 0;
    for (int i = 0; i < last - 1; i++) {
        int64_t most = a.sizes[i] > b.sizes[i] ? a.sizes[i] : b.sizes[i];
        if (c.sizes[i] != most || most % a.sizes[i] || most % b.sizes[i])
            return 0;
    }
    for (int name = 1525; name <= 1527; name++) {
        struct shape counts = shape_of(child(d, name));
        if (counts.rank && (counts.type != DNN_S32 || !is_along(counts, 0, c.sizes[0]) || counts.rank != a.rank))
            return 0;
    }
    return 1;
}

static int is_valid_reduction(struct descriptor *d)
{
    struct shape x = shape_of(child(d, 1610)), y = shape_of(child(d, 1611));
    int operator = enumerator(child(d, 1612), 1600, -1);
    if (x.rank != y.rank || same_sizes(x, y) || (operator != SUM && operator != MAXIMUM))
        return 0;
    for (int i = 0; i < x.rank; i++)
        if (x.sizes[i] % y.sizes[i])
            return 0;
    return is_float(x.type) && is_float(y.type);
}

/* The same memory: the axes of the result are those of x in another order. */
static int is_valid_reshape(struct descriptor *d)
{
    struct shape x = shape_of(child(d, 2200)), y = shape_of(child(d, 2201));
    unsigned used = 0;
    if (x.rank != y.rank || !is_set(child(d, 2201), 907))
        return 0;
    for (int i = 0; i < y.rank; i++) {
        int j = 0;
        while (j < x.rank && (used >> j & 1 || x.sizes[j] != y.sizes[i] || x.strides[j] != y.strides[i]))
            j++;
        if (j == x.rank)
            return 0;
        used |= 1u << j;
    }
    return 1;
}

static int is_valid_load(struct descriptor *d)
{
    struct shape container = shape_of(child(d, 1950)), y = shape_of(child(d, 1951));
    struct shape lengths = shape_of(child(d, 1952)), table = shape_of(child(d, 1953));
    if (container.rank != 4 || y.rank != 4 || lengths.rank != 4 || table.rank != 4 || container.type != y.type)
        return 0;
    int is_transposed = y.strides[2] == 1 && y.strides[3] != 1;
    int64_t keys = y.sizes[is_transposed ? 3 : 2], size = y.sizes[is_transposed ? 2 : 3];
    int64_t pages = (keys + container.sizes[2] - 1) / container.sizes[2];
    return lengths.type == DNN_S32 && is_along(lengths, 0, y.sizes[0]) && table.type == DNN_S32
        && table.sizes[0] == y.sizes[0] && table.sizes[1] == 1 && table.sizes[2] == pages && table.sizes[3] == 1
        && container.sizes[1] == y.sizes[1] && container.sizes[3] == size && is_set(child(d, 1951), 907);
}

/* A tensor that must, must not or may be there (NULL): f32, with one number for each channel or each image. */
static int is_parameter(struct descriptor *d, int name, int wanted, int axis, struct shape x)
{
    struct shape s = shape_of(child(d, name));
    return wanted ? s.rank == x.rank && s.type == DNN_F32 && is_along(s, axis, x.sizes[axis]) : !s.rank;
}

static int is_valid_norm(struct descriptor *d)
{
    int is_forward = d->kind == NORM_FORWARD, mode = enumerator(d, is_forward ? 2000 : 2100, -1);
    int is_batch = mode == BATCH_NORM, is_rms = mode == RMS_NORM, is_training = enumerator(d, 2001, -1) == 1;
    struct shape x = shape_of(child(d, is_forward ? 2002 : 2101));
    int of_statistics = is_batch ? 1 : 0; /* their axis */
    if ((mode != LAYER_NORM && !is_batch && !is_rms) || !is_float(x.type))
        return 0;
    if (!is_forward) {
        struct shape dy = shape_of(child(d, 2104)), dx = shape_of(child(d, 2109));
        return same_sizes(x, dy) && same_sizes(x, dx) && dy.type == x.type && dx.type == x.type
            && is_parameter(d, 2102, !is_rms, of_statistics, x) && is_parameter(d, 2103, 1, of_statistics, x)
            && is_parameter(d, 2105, 1, 1, x) && is_parameter(d, 2107, 1, 1, x) && is_parameter(d, 2108, !is_rms, 1, x);
    }
    struct shape y = shape_of(child(d, 2013)), epsilon = shape_of(child(d, 2007));
    if (is_batch && !is_training)
        return 0;
    if (!is_set(child(d, 2007), 908) || epsilon.type != DNN_F32 || epsilon.rank != x.rank)
        return 0;
    return same_sizes(x, y) && y.type == x.type && is_parameter(d, 2003, is_training && !is_rms, of_statistics, x)
        && is_parameter(d, 2004, is_training, of_statistics, x) && is_parameter(d, 2005, 1, 1, x)
        && is_parameter(d, 2006, !is_rms, 1, x);
}

static int is_valid_pack(struct descriptor *d)
{
    struct attribute *ids = find(d, 1000), *pointers = find(d, 1001);
    if (ids->count != pointers->count || !*(void **)find(d, 1003)->values)
        return 0;
    for (int i = 0; i < ids->count; i++) {
        if (!((void **)pointers->values)[i])
            return 0;
        for (int j = 0; j < i; j++)
            if (((int64_t *)ids->values)[i] == ((int64_t *)ids->values)[j])
                return 0;
    }
    return 1;
}

int is_valid(struct descriptor *d)
{
    switch (d->kind) {
    case TENSOR: return is_valid_tensor(d);
    case POINTWISE: return inputs_of(enumerator(d, 0, -1)) != 0;
    case POINTWISE_OPERATION: return is_valid_pointwise(d);
    case MATMUL_OPERATION: return is_valid_matmul(d);
    case REDUCTION_OPERATION: return is_valid_reduction(d);
    case RESHAPE: return is_valid_reshape(d);
    case PAGES: return is_valid_load(d);
    case NORM_FORWARD: case NORM_BACKWARD: return is_valid_norm(d);
    case PACK: return is_valid_pack(d);
    default: return 1;
    }
}

/* Whether attribute i of an operation is a tensor that it writes; -1 for other descriptors. */
static int is_written(struct descriptor *operation, int i)
{
    int name = operation->attributes[i].name;
    switch (operation->kind) {
    case FORWARD: return name == 705;
    case DATA: return name == 710;
    case FILTER: return name == 715;
    case POINTWISE_OPERATION: return name == 753;
    case MATMUL_OPERATION: return name == 1522;
    case REDUCTION_OPERATION: return name == 1611;
    case RESHAPE: return name == 2201;
    case PAGES: return name == 1951;
    case NORM_FORWARD: return name == 2013 || ((name == 2003 || name == 2004) && enumerator(operation, 2001, 0) == 1);
    case NORM_BACKWARD: return name == 2107 || name == 2108 || name == 2109;
    default: return -1; /* no operation */
    }
}

static struct descriptor *tensor_at(struct descriptor *operation, int i)
{
    struct attribute *a = &operation->attributes[i];
    struct descriptor *d = a->type == OF_DESCRIPTOR ? *(void **)a->values : NULL;
    return d && d->kind == TENSOR ? d : NULL;
}

int is_valid_graph(struct descriptor *graph)
{
    struct attribute *operations = find(graph, 801);
    struct descriptor *seen[MOST_TENSORS], *written[MOST_TENSORS];
    int tensors = 0, results = 0;
    for (int i = 0; i < operations->count; i++) {
        struct descriptor *operation = ((void **)operations->values)[i];
        if (is_written(operation, 0) < 0)
            return 0;
        for (int is_write = 0; is_write < 2; is_write++)
            for (int j = 0; j < operation->count; j++) {
                struct descriptor *tensor = tensor_at(operation, j);
                if (!tensor || is_written(operation, j) != is_write)
                    continue;
                int is_known = 0, is_result = 0;
                for (int k = 0; k < tensors; k++) {
                    if (seen[k] != tensor && integer(seen[k], 906, -1) == integer(tensor, 906, -1))
                        return 0; /* two tensors with one number */
                    is_known |= seen[k] == tensor;
                }
                for (int k = 0; k < results; k++)
                    is_result |= written[k] == tensor;
                if (is_write ? is_result || is_set(tensor, 908) : is_set(tensor, 907) && !is_result)
                    return 0; /* written twice, or read before it is written */
                if (tensors == MOST_TENSORS)
                    return 0;
                if (!is_known)
                    seen[tensors++] = tensor;
                if (is_write)
                    written[results++] = tensor;
            }
    }
    return 1;
}

int has_addresses(struct descriptor *graph, struct descriptor *pack)
{
    struct attribute *operations = find(graph, 801), *ids = find(pack, 1000);
    for (int i = 0; i < operations->count; i++) {
        struct descriptor *operation = ((void **)operations->values)[i];
        for (int j = 0; j < operation->count; j++) {
            struct descriptor *tensor = tensor_at(operation, j);
            int is_found = !tensor || is_set(tensor, 907);
            for (int k = 0; !is_found && k < ids->count; k++)
                is_found = ((int64_t *)ids->values)[k] == integer(tensor, 906, -1);
            if (!is_found)
                return 0;
        }
    }
    return 1;
}

#endif
