/* cuSPARSE of the fake GPU. Of the algorithms for matrices, the first is slow and the third fails. */
#include "fake.h"

enum { NOT_SUPPORTED = 10, INVALID = 3, ROW = 2 };

struct csr { int64_t rows, columns, non_zeros; const int32_t *starts, *indices; const void *values; int type; };
struct dense { int64_t rows, columns, ld; void *values; int type, order; };
struct product { struct csr a; struct dense b, c; double alpha, beta, seconds; };

static int sparse;
int SPARSE(Create)(void **created) { *created = &sparse; MAY_FAIL(); return 0; }
int SPARSE(SetStream)(void *h, void *s) { return 0; }
int SPARSE(GetVersion)(void *h, int *version) { *version = 12603; return 0; }

int SPARSE(CreateCsr)(void **created, int64_t rows, int64_t columns, int64_t non_zeros, void *starts, void *indices,
    void *values, int start_type, int index_type, int base, int type)
{
    struct csr a = {rows, columns, non_zeros, starts, indices, values, type};
    *created = memcpy(malloc(sizeof a), &a, sizeof a);
    return start_type != 2 || index_type != 2 || base ? INVALID : 0;
}
int SPARSE(CreateDnMat)(void **created, int64_t rows, int64_t columns, int64_t ld, void *values, int type, int order)
{
    struct dense d = {rows, columns, ld, values, type, order};
    *created = memcpy(malloc(sizeof d), &d, sizeof d);
    return ld < (order == ROW ? columns : rows) ? INVALID : 0;
}
int SPARSE(CreateDnVec)(void **created, int64_t size, void *values, int type)
{
    struct dense d = {size, 1, size, values, type, 1};
    *created = memcpy(malloc(sizeof d), &d, sizeof d);
    return 0;
}

static int64_t index_of(const struct dense *d, int64_t row, int64_t column)
{
    return d->order == ROW ? row * d->ld + column : row + column * d->ld;
}

static void multiply(void *arguments)
{
    struct product *p = arguments;
    for (int64_t i = 0; i < p->a.rows; i++)
        for (int64_t j = 0; j < p->c.columns; j++) {
            double sum = 0;
            for (int32_t l = p->a.starts[i]; l < p->a.starts[i + 1]; l++)
                sum += get(p->a.values, l, p->a.type) * get(p->b.values, index_of(&p->b, p->a.indices[l], j), p->b.type);
            int64_t at = index_of(&p->c, i, j);
            put(p->c.values, at, p->c.type, p->alpha * sum + (p->beta ? p->beta * get(p->c.values, at, p->c.type) : 0));
        }
    spin(p->seconds + slowness());
}

/* The workspace of the last preprocessing; a product must use the same one. */
static void *prepared;

static int run(const char *what, const void *alpha, struct csr *a, struct dense *b, const void *beta, struct dense *c,
    int type, int algorithm, void *scratch)
{
    if (scratch != prepared)
        return INVALID;
    if (algorithm == 12)
        return NOT_SUPPORTED;
    logged("%s algorithm %d types %d,%d,%d compute %d order %d", what, algorithm, a->type, b->type, c->type, type, b->order);
    struct product p = {*a, *b, *c, get(alpha, 0, type), get(beta, 0, type), algorithm == 4 || algorithm == 2 ? slow() : 0};
    submit(multiply, &p, sizeof p);
    return 0;
}

int SPARSE(SpMM_bufferSize)(void *h, int a_t, int b_t, const void *alpha, struct csr *a, struct dense *b,
    const void *beta, struct dense *c, int type, int algorithm, size_t *bytes)
{
    *bytes = 100 * algorithm;
    return a_t || b_t ? INVALID : fails(__func__);
}
int SPARSE(SpMM_preprocess)(void *h, int a_t, int b_t, const void *alpha, struct csr *a, struct dense *b,
    const void *beta, struct dense *c, int type, int algorithm, void *scratch)
{
    prepared = scratch;
    return 0;
}
int SPARSE(SpMM)(void *h, int a_t, int b_t, const void *alpha, struct csr *a, struct dense *b, const void *beta,
    struct dense *c, int type, int algorithm, void *scratch)
{
    return run("SpMM", alpha, a, b, beta, c, type, algorithm, scratch);
}
int SPARSE(SpMV_bufferSize)(void *h, int a_t, const void *alpha, struct csr *a, struct dense *x, const void *beta,
    struct dense *y, int type, int algorithm, size_t *bytes)
{
    *bytes = 0;
    return a_t ? INVALID : fails(__func__);
}
int SPARSE(SpMV_preprocess)(void *h, int a_t, const void *alpha, struct csr *a, struct dense *x, const void *beta,
    struct dense *y, int type, int algorithm, void *scratch)
{
    prepared = scratch;
    return 0;
}
int SPARSE(SpMV)(void *h, int a_t, const void *alpha, struct csr *a, struct dense *x, const void *beta, struct dense *y,
    int type, int algorithm, void *scratch)
{
    return run("SpMV", alpha, a, x, beta, y, type, algorithm, scratch);
}
