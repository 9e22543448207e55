/* Recurrent layers of the fake GPU, the same for both vendors. */
#pragma once
#include "fake.h"

enum { RELU = 0, LSTM = 2, GRU = 3, STRICT_MATH = 3 };

/* `gates`: the vendor's positions of input, forget, new, output of an LSTM, or of reset, update, new of a GRU. */
struct rnn { int algorithm, cell, two_biases, type, math; int64_t input, hidden; int built, skip, gates[4]; };
struct data { int type; int64_t steps, batch, size; };

struct run {
    struct rnn r;
    struct data d;
    int backward, mode;
    const void *x, *h0, *c0, *weights, *dy;
    void *y, *dx, *dh0, *dc0, *gradient;
    double *reserve;
};

int gates_of(const struct rnn *r);
/* Number of elements before matrix `id` or its bias; -1 if there is none. */
int64_t place(const struct rnn *r, int id, int bias);
int64_t weights_of(const struct rnn *r);
void run_forward(void *run);
void run_backward(void *run);
void run_weights(void *run);
