/* cuSPARSELt of the fake GPU. A compressed matrix has two of every four values, and their positions. */
#include "fake.h"

enum { INVALID = 3, NOT_SUPPORTED = 10, BY_COLUMN = 1, SEARCHED = 7 };
#ifdef HIP
enum { OPERATION_T = 1, INTEGER = 1, DESCRIPTOR = 11024 };
#else
enum { OPERATION_T = 1, INTEGER = 0, DESCRIPTOR = 512 };
#endif

struct matrix { int64_t rows, columns, ld; int type, structured; };
struct product { struct matrix a, b, c; int compute; };
struct plan { struct product *product; void *selection; int algorithm; };
struct multiplication { struct plan plan; double alpha, beta; const void *a, *b; void *c; int searching; };

/* Descriptors are in the caller's memory. All of the size that the library states is written. */
static int store(void *memory, const void *what, size_t bytes)
{
    if ((uintptr_t)memory % 16)
        return INVALID;
    memset(memory, 0xAB, DESCRIPTOR);
    memcpy(memory, what, bytes);
    return 0;
}

int SPARSELT(Init)(void *h) { MAY_FAIL(); return store(h, "handle", 7); }
int SPARSELT(GetVersion)(void *h, int *version) { *version = 803; return strcmp(h, "handle") ? INVALID : 0; }
const char *SPARSELT(GetErrorString)(int status) { return status == NOT_SUPPORTED ? "not supported" : "invalid value"; }

static int matrix(void *memory, int64_t rows, int64_t columns, int64_t ld, unsigned alignment, int type, int order, int s)
{
    struct matrix m = {rows, columns, ld, type, s};
    int wide = type == R_8I ? 16 : type == R_32F ? 4 : 8;
    if (order != BY_COLUMN || alignment % 16 || ld < rows)
        return INVALID;
    if (type != R_32I && (rows % wide || columns % (s ? wide : 8)))
        return NOT_SUPPORTED;
    return store(memory, &m, sizeof m);
}
int SPARSELT(DenseDescriptorInit)(void *h, void *m, int64_t rows, int64_t columns, int64_t ld, unsigned alignment,
    int type, int order)
{
    return matrix(m, rows, columns, ld, alignment, type, order, 0);
}
int SPARSELT(StructuredDescriptorInit)(void *h, void *m, int64_t rows, int64_t columns, int64_t ld, unsigned alignment,
    int type, int order, int sparsity)
{
    return matrix(m, rows, columns, ld, alignment, type, order, 1 + sparsity);
}
int SPARSELT(MatmulDescriptorInit)(void *h, void *description, int a_t, int b_t, struct matrix *a, struct matrix *b,
    struct matrix *c, struct matrix *d, int compute)
{
    MAY_FAIL();
    struct product p = {*a, *b, *c, compute};
    if (a_t != OPERATION_T || b_t || !a->structured || c != d)
        return INVALID;
    if ((a->type == R_16F || a->type == R_16BF) && c->type != a->type)
        return NOT_SUPPORTED;
    if ((compute == INTEGER) != (a->type == R_8I))
        return INVALID;
    return store(description, &p, sizeof p);
}
int SPARSELT(MatmulAlgSelectionInit)(void *h, void *selection, void *description, int algorithm)
{
    return store(selection, &algorithm, sizeof algorithm);
}
/* Only the algorithm that a search finds, and the one before it, exist. */
int SPARSELT(MatmulAlgSetAttribute)(void *h, int *selection, int attribute, const int *value, size_t bytes)
{
    MAY_FAIL();
    if (!attribute && *value && *value != SEARCHED)
        return INVALID;
    if (!attribute)
        *selection = *value;
    return bytes != 4 || (attribute && attribute != 3);
}
int SPARSELT(MatmulAlgGetAttribute)(void *h, int *selection, int attribute, int *value, size_t bytes)
{
    *value = attribute ? 1 : *selection;
    return 0;
}
int SPARSELT(MatmulPlanInit)(void *h, void *memory, struct product *product, void *selection)
{
    struct plan plan = {product, selection, *(int *)selection};
    return store(memory, &plan, sizeof plan);
}
int SPARSELT(MatmulGetWorkspace)(void *h, struct plan *plan, size_t *bytes)
{
    *bytes = 100 + 1000 * plan->algorithm;
    return 0;
}

int SPARSELT(SpMMAPruneCheck)(void *h, struct product *p, const void *a, int *invalid, void *stream)
{
    *invalid = 0;
    for (int64_t i = 0; i < p->a.columns * p->a.rows; i += 4) {
        int count = 0;
        for (int j = 0; j < 4; j++)
            count += get(a, i + j, p->a.type) != 0;
        *invalid |= count > 2;
    }
    return fails(__func__);
}
int SPARSELT(SpMMACompressedSize)(void *h, struct plan *plan, size_t *bytes, size_t *buffer)
{
    int64_t groups = plan->product->a.rows * plan->product->a.columns / 4;
    *bytes = groups * 2 * (sizeof(double) + 1);
    *buffer = 64;
    return 0;
}
/* All values as doubles, then all positions. */
int SPARSELT(SpMMACompress)(void *h, struct plan *plan, const void *dense, void *compressed, void *buffer, void *stream)
{
    struct matrix *a = &plan->product->a;
    int64_t groups = a->rows * a->columns / 4;
    double *values = compressed;
    char *places = (char *)(values + 2 * groups);
    for (int64_t g = 0; g < groups; g++) {
        int count = 0;
        for (int j = 0; j < 4; j++) {
            double value = get(dense, 4 * g + j, a->type);
            if (value != 0 && count < 2) {
                values[2 * g + count] = value;
                places[2 * g + count++] = j;
            }
        }
        for (; count < 2; count++)
            values[2 * g + count] = places[2 * g + count] = 0;
    }
    return fails(__func__);
}

static void multiply(void *arguments)
{
    struct multiplication *m = arguments;
    struct product *p = m->plan.product;
    int64_t k = p->a.rows, groups = p->a.rows * p->a.columns / 4;
    const double *values = m->a;
    const char *places = (const char *)(values + 2 * groups);
    for (int64_t j = 0; j < p->c.columns; j++)
        for (int64_t i = 0; i < p->c.rows; i++) {
            double sum = 0;
            for (int64_t l = i * k / 2; l < (i + 1) * k / 2; l++)
                sum += values[l] * get(m->b, j * p->b.ld + (l - i * k / 2) / 2 * 4 + places[l], p->b.type);
            int64_t at = j * p->c.ld + i;
            double old = m->beta ? m->beta * get(m->c, at, p->c.type) : 0;
            put(m->c, at, p->c.type, m->alpha * sum + old);
        }
    spin(slowness());
}

static int run(struct plan *plan, const float *alpha, const void *a, const void *b, const float *beta, const void *c,
    void *d, void **streams, int count)
{
    if (c != d || count != 1 || !streams)
        return INVALID;
    struct multiplication m = {*plan, *alpha, *beta, a, b, d};
    logged("SpMMA algorithm %d types %d,%d,%d compute %d", plan->algorithm, plan->product->a.type, plan->product->b.type,
        plan->product->c.type, plan->product->compute);
    submit(multiply, &m, sizeof m);
    return 0;
}
/* Changes the plan to another algorithm, which needs a larger workspace. */
int SPARSELT(MatmulSearch)(void *h, struct plan *plan, const void *alpha, const void *a, const void *b,
    const void *beta, const void *c, void *d, void *workspace, void **streams, int count)
{
    MAY_FAIL();
    int status = run(plan, alpha, a, b, beta, c, d, streams, count);
    plan->algorithm = *(int *)plan->selection = SEARCHED;
    return status;
}
int SPARSELT(Matmul)(void *h, struct plan *plan, const void *alpha, const void *a, const void *b, const void *beta,
    const void *c, void *d, void *workspace, void **streams, int count)
{
    MAY_FAIL();
    return run(plan, alpha, a, b, beta, c, d, streams, count);
}
