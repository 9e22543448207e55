/* Convolution of the make-believe GPU, whatever the vendor calls it: tensors with their sizes and strides. */
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

/* Engine 1 is slow, 2 cuts f32 to TF32. */
void convolve(void *convolution);
