/* Convolution of the fake GPU, the same for both vendors: tensors with sizes and strides. */
#pragma once
#include "fake.h"

enum { MOST = 16, FORWARD = 10, FILTER, DATA };

struct tensor {
    void *data;
    int type;
    int64_t rank, sizes[MOST], strides[MOST];
};

struct convolution {
    int kind, engine, dimensions;
    double alpha;
    struct tensor x, w, y;
    int64_t pad[3], stride[3], dilation[3];
};

/* Engine 1 is slow; engine 2 truncates f32 to TF32. */
void convolve(void *convolution);
