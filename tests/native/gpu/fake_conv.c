/* Arithmetic of convolutions. See fake_conv.h. */
#include "fake_conv.h"

/* Size or stride of spatial axis i, counted from the last; `missing` if the tensor has fewer. */
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

/* All elements, in the precision in which they are multiplied. */
static double *loaded(const struct convolution *c, const struct tensor *t)
{
    /* FAKE_GPU_CUTS: engines without tensor cores also truncate f32, without reporting it. */
    int cut = (c->engine == 2 || getenv("FAKE_GPU_CUTS")) && t->type == R_32F;
    double *values = malloc(span(t) * sizeof *values);
    for (int64_t i = 0; i < span(t); i++)
        values[i] = as_multiplied(get(t->data, i, t->type), cut ? COMPUTE_TF32 : -1);
    return values;
}

void convolve(void *arguments)
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
    /* Strides of the three spatial axes; 0 if there are fewer. */
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
    for (int64_t i = 0; i < count; i++) { /* tensors in the tests have no gaps */
        double value = c->alpha * sums[i];
#ifndef HIP
        if (out->type == R_32I) { /* as cuDNN 9.19 on an H200: the bits of alpha are an s32 */
            float alpha = c->alpha;
            int32_t bits;
            memcpy(&bits, &alpha, sizeof bits);
            value = bits * sums[i];
        }
#endif
        if (out->type == R_8I)
            ((int8_t *)out->data)[i] = (int8_t)fmax(-128, fmin(127, rint(value)));
        else
            put(out->data, i, out->type, value);
    }
    free(sums), free(xv), free(wv), free(yv);
    spin((c->engine == 1 ? slow() : 0) + slowness());
}
