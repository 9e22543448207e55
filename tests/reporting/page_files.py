"""Result files whose pages have every chart, a failure, and texts that a page must not take for markup."""

from deepbench.results.file import read_results
from tests.help import samples

HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}<b>=cmd\u202egnp.exe\x1b[31m"
SHAPES = [(m, n) for m in (8, 16, 64) for n in (1, 2, 4, 32)]


def records():
    made = []
    for i, (m, n) in enumerate(SHAPES):
        for backend, factor in (("mkl", 1.0), ("openblas", 0.5 + 0.1 * i)):
            text = f"gemm m={m} n={n} k=4 a_t=0 b_t=0 forward f32 {backend} threads=1"
            for number in (1, 2, 3):
                seconds = 1e-6 * m * n * factor * (1 + 0.01 * number)
                made.append(samples.measured(seconds=seconds, round_number=number, text=text))
    sparse = "sparse_gemm m=64 n=2 k=64 sparsity=95 forward f32 mkl threads=1"
    dense = "gemm m=64 n=2 k=64 a_t=0 b_t=0 forward f32 mkl threads=1"
    made += [samples.measured(seconds=s, text=t) for s, t in ((1e-6, sparse), (5e-6, dense))]
    low = "gemm m=64 n=32 k=4 a_t=0 b_t=0 forward i8u8 mkl threads=1"
    made.append(samples.measured(seconds=1e-6, text=low))
    bad = samples.failed("crashed", HOSTILE, "onednn")
    return [*made, bad]


def result_file(path, cpu="A CPU"):
    header = samples.header()
    header["machine"]["cpu"] = cpu
    return read_results(samples.write(path, [{"limit": samples.peak(1e12)}, *records()], header))
