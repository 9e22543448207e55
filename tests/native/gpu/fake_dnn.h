/* Descriptors of cuDNN's graph interface on the fake GPU. */
#pragma once
#include "fake_conv.h"

/* cudnnBackendDescriptorType_t */
enum {
    POINTWISE, CONVOLUTION, ENGINE, CONFIG, HEURISTICS, PLAN, KNOB = 7, POINTWISE_OPERATION = 13, GRAPH = 15, PACK,
    TENSOR, MATMUL, MATMUL_OPERATION, REDUCTION = 21, REDUCTION_OPERATION, NORM_FORWARD = 29, NORM_BACKWARD, RESHAPE,
    PAGES = 35
};
/* cudnnBackendAttributeType_t */
enum {
    OF_HANDLE, OF_DATA_TYPE, OF_BOOLEAN, OF_INT64, OF_FLOAT, OF_POINTER = 6, OF_CONVOLUTION_MODE, OF_HEURISTIC,
    OF_POINTWISE_MODE = 14, OF_DESCRIPTOR, OF_REDUCTION = 18, OF_NORM_MODE = 27, OF_NORM_PHASE
};
/* cudnnPointwiseMode_t, cudnnReduceTensorOp_t, cudnnBackendNormMode_t */
enum {
    ADD = 0, MULTIPLY = 1, DIVIDE = 6, SUBTRACT = 9, EXPONENTIAL = 13, LOGARITHM = 15, IDENTITY = 21, GREATER = 302,
    GREATER_OR_EQUAL = 303, LESS = 304, AND = 400, INDEX = 501, SELECT = 601
};
enum { SUM = 0, MAXIMUM = 3 };
enum { LAYER_NORM = 0, BATCH_NORM = 2, RMS_NORM = 4 };
/* cudnnDataType_t, as far as they are used */
enum { DNN_F32 = 0, DNN_F16 = 2, DNN_S8 = 3, DNN_S32 = 4, DNN_BF16 = 9, DNN_BOOLEAN = 11 };

enum { MOST_ATTRIBUTES = 16, MOST_TENSORS = 128, MOST_RANK = 8 };
enum { NOT_SUPPORTED = 3000, BAD_PARAM = 2000 };

struct attribute {
    int name, type;
    int64_t count;
    void *values;
};
struct descriptor {
    int kind, finished, destroyed, engine, count;
    struct attribute attributes[MOST_ATTRIBUTES];
    struct descriptor *graph; /* of a configuration */
};

struct attribute *find(struct descriptor *d, int name);
/* A descriptor, an integer or an enumerator that is an attribute; NULL or `missing` if it is not set. */
struct descriptor *child(struct descriptor *d, int name);
int64_t integer(struct descriptor *d, int name, int64_t missing);
int enumerator(struct descriptor *d, int name, int missing);
int is_set(struct descriptor *d, int name); /* a boolean that is true */

/* Whether the tensors and settings of an operation belong together. */
int is_valid(struct descriptor *operation);
/* Whether the operations of a graph do: each tensor between two of them is written before it is read. */
int is_valid_graph(struct descriptor *graph);
/* Whether all tensors in memory have an address in the pack. */
int has_addresses(struct descriptor *graph, struct descriptor *pack);

struct execution {
    struct descriptor *graph, *pack;
    int engine;
};
void compute_graph(void *execution);
