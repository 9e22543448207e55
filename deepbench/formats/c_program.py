"""C: a program per kernel that needs nothing else, for simulators of processors and for high-level synthesis.

    cc -O2 -o gemm_1 gemm_1.c && ./gemm_1

Each makes its data, computes once in plain loops between two marks, and prints a checksum. Numbers are multiples of 1/8
from -1 to 1 (of 8 bits: integers from -8 to 8), so that sums are exact in any order, and the checksum is the same in
every language. The marks are macros: `-DGEM5`, `-DSNIPER` and `-DCALLGRIND` choose those of these tools, and
`-D'ROI_BEGIN()=…' -D'ROI_END()=…'` any others. 16-bit floats are computed as f32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from deepbench.core.lowering import MatrixProduct
from deepbench.formats._problems import (
    ProblemExport,
    ProblemFormat,
    ProblemOptions,
    divided,
    layers_of_products,
    text_of,
)
from deepbench.ops.conv.problem import Conv
from deepbench.plan.problems import ExportedProblem

# Sums of more products of two multiples of 1/8 are not exact in f32.
MOST_EXACT_TERMS = 2**18

HEAD = """/* {name}: {problem}
   cc -O2 -o {name} {name}.c && ./{name} */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(GEM5)
#include <gem5/m5ops.h>
#define ROI_BEGIN() m5_work_begin(0, 0)
#define ROI_END() m5_work_end(0, 0)
#elif defined(SNIPER)
#include <sim_api.h>
#define ROI_BEGIN() SimRoiStart()
#define ROI_END() SimRoiEnd()
#elif defined(CALLGRIND)
#include <valgrind/callgrind.h>
#define ROI_BEGIN() CALLGRIND_TOGGLE_COLLECT
#define ROI_END() CALLGRIND_TOGGLE_COLLECT
#endif
#ifndef ROI_BEGIN
#define ROI_BEGIN()
#define ROI_END()
#endif

{sizes}

typedef {data} data_t;
typedef {result} result_t;

/* The number with this index in an array: the same in every program. */
static data_t value(uint64_t index, uint32_t array)
{{
    uint32_t x = (uint32_t)index * 2654435761u + array * 40503u;
    x ^= x >> 15;
    return (data_t)(((int)((x >> 8) % 17) - 8) * {scale});
}}

static void *filled(uint64_t count, uint32_t array)
{{
    data_t *numbers = malloc(count * sizeof *numbers);
    if (!numbers)
        exit(2);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = value(i, array);
    return numbers;
}}
"""

TAIL = """
int main(void)
{{
{prepare}
    result_t *c = calloc(RESULTS, sizeof *c);
    if (!c)
        return 2;
    ROI_BEGIN();
    compute({arguments});
    ROI_END();
    double checksum = 0;
    for (int64_t i = 0; i < RESULTS; i++)
        checksum += (double)c[i] * (double)(1 + i % 7);
    printf("{name} checksum %.6f\\n", checksum);
    return 0;
}}
"""

PRODUCT = """
/* C = A * B: A is M x K, B is K x N, C is M x N, by rows, BATCH times. */
static void compute(const data_t *a, const data_t *b, result_t *c)
{
    for (int64_t g = 0; g < BATCH; g++, a += M * K, b += K * N, c += M * N)
        for (int64_t i = 0; i < M; i++)
            for (int64_t l = 0; l < K; l++)
                for (int64_t j = 0; j < N; j++)
                    c[i * N + j] += (result_t)a[i * K + l] * (result_t)b[l * N + j];
}
"""

SPARSE = """
/* C = A * B: A is M x K with ROW_NON_ZEROS numbers per row (CSR), B is K x N, C is M x N, by rows. */
static void compute(const int64_t *columns, const data_t *a, const data_t *b, result_t *c)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t l = i * ROW_NON_ZEROS; l < (i + 1) * ROW_NON_ZEROS; l++)
            for (int64_t j = 0; j < N; j++)
                c[i * N + j] += (result_t)a[l] * (result_t)b[columns[l] * N + j];
}
"""

COLUMNS = """    int64_t *columns = malloc(M * ROW_NON_ZEROS * sizeof *columns);
    if (!columns)
        return 2;
    for (int64_t l = 0; l < M * ROW_NON_ZEROS; l++)
        columns[l] = (l % ROW_NON_ZEROS * K / ROW_NON_ZEROS + l / ROW_NON_ZEROS) % K;
"""

CONVOLUTION = """
/* y[n][k][z][p][q] = sum over c, t, r, s of x[n][c][z * STRIDE_D - PAD_D + t * DILATION_D][...] * w[k][c][t][r][s] */
static void compute(const data_t *x, const data_t *w, result_t *y)
{
    for (int64_t n = 0; n < BATCH; n++)
    for (int64_t k = 0; k < FILTERS; k++)
    for (int64_t z = 0; z < Z; z++)
    for (int64_t p = 0; p < P; p++)
    for (int64_t q = 0; q < Q; q++) {
        result_t sum = 0;
        for (int64_t c = 0; c < CHANNELS / GROUPS; c++)
        for (int64_t t = 0; t < T; t++)
        for (int64_t r = 0; r < R; r++)
        for (int64_t s = 0; s < S; s++) {
            int64_t d = z * STRIDE_D - PAD_D + t * DILATION_D;
            int64_t h = p * STRIDE_H - PAD_H + r * DILATION_H;
            int64_t v = q * STRIDE_W - PAD_W + s * DILATION_W;
            if (d < 0 || d >= D || h < 0 || h >= H || v < 0 || v >= W)
                continue;
            int64_t channel = k / (FILTERS / GROUPS) * (CHANNELS / GROUPS) + c;
            sum += (result_t)x[(((n * CHANNELS + channel) * D + d) * H + h) * W + v]
                 * (result_t)w[(((k * (CHANNELS / GROUPS) + c) * T + t) * R + r) * S + s];
        }
        y[(((n * FILTERS + k) * Z + z) * P + p) * Q + q] = sum;
    }
}
"""

SIZE = re.compile(r"^#define (\w+) INT64_C\((\d+)\)$", re.MULTILINE)


class CProgram(ProblemFormat):
    name = "c"
    reads = "C compilers: gem5, Sniper, Spike, QEMU, Valgrind, high-level synthesis"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`NAME.c` per layer."""
        export = ProblemExport()
        convolutions, products = divided(problems, lambda _: True, export)
        export.files |= {f"{problem.name}.c": _conv(problem, p) for problem, p in convolutions}
        for problem, product, layer in layers_of_products(products, export, batch=True, sparse=True):
            export.files[f"{layer.name}.c"] = _product(problem, product, layer.name)
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From the sizes that are defined at the top of each program."""
        counts = {}
        for path in export.texts:
            sizes = {name: int(size) for name, size in SIZE.findall(text_of(export, path))}
            if "FILTERS" in sizes:
                taps = sizes["CHANNELS"] // sizes["GROUPS"] * sizes["T"] * sizes["R"] * sizes["S"]
                count = sizes["BATCH"] * sizes["FILTERS"] * sizes["Z"] * sizes["P"] * sizes["Q"] * taps
            else:
                count = sizes["BATCH"] * sizes["M"] * sizes["N"] * sizes.get("ROW_NON_ZEROS", sizes["K"])
            counts[path.removesuffix(".c")] = count
        return counts


def _product(problem: ExportedProblem, p: MatrixProduct, name: str) -> str:
    sizes = {"BATCH": p.batch, "M": p.m, "N": p.n, "K": p.k, "RESULTS": p.batch * p.m * p.n}
    if p.non_zeros is None:
        a, b = f"filled({p.batch * p.m * p.k}u, 1)", f"filled({p.batch * p.k * p.n}u, 2)"
        prepare = f"    data_t *a = {a}, *b = {b};"
        return _program(problem, name, sizes, p.k, PRODUCT, prepare, "a, b, c")
    sizes["ROW_NON_ZEROS"] = p.non_zeros // p.m
    prepare = f"{COLUMNS}    data_t *a = filled({p.non_zeros}u, 1), *b = filled({p.k * p.n}u, 2);"
    return _program(problem, name, sizes, p.k, SPARSE, prepare, "columns, a, b, c")


def _conv(problem: ExportedProblem, p: Conv) -> str:
    z, out_h, out_w = p.output
    sizes = {"BATCH": p.n, "CHANNELS": p.c, "FILTERS": p.k, "GROUPS": p.groups, "D": p.d, "H": p.h, "W": p.w}
    sizes |= {"Z": z, "P": out_h, "Q": out_w, "T": p.t, "R": p.r, "S": p.s}
    for axis, stride, pad, dilation in zip("DHW", p.stride, p.pad, p.dilation, strict=True):
        sizes |= {f"STRIDE_{axis}": stride, f"PAD_{axis}": pad, f"DILATION_{axis}": dilation}
    sizes["RESULTS"] = p.n * p.k * math.prod(p.output)
    images, filters = p.n * p.c * math.prod(p.image), p.k * (p.c // p.groups) * math.prod(p.filter)
    prepare = f"    data_t *x = filled({images}u, 1), *w = filled({filters}u, 2);"
    terms = p.c // p.groups * math.prod(p.filter)
    return _program(problem, problem.name, sizes, terms, CONVOLUTION, prepare, "x, w, c")


def _program(
    problem: ExportedProblem, name: str, sizes: dict[str, int], terms: int, body: str, prepare: str, arguments: str
) -> str:
    """The text. `terms`: of the longest sum."""
    is_integer = problem.case.precision.name in ("i8", "i8u8")
    result = "int32_t" if is_integer else "float" if terms <= MOST_EXACT_TERMS else "double"
    head = HEAD.format(
        name=name,
        problem=problem.text,
        sizes="\n".join(f"#define {word} INT64_C({size})" for word, size in sizes.items()),
        data="int8_t" if is_integer else "float",
        result=result,
        scale="1" if is_integer else "0.125f",
    )
    return head + body + TAIL.format(name=name, prepare=prepare, arguments=arguments)


FORMAT = CProgram()
