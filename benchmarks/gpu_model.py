"""How well the time model predicts published kernels of GPUs: shapes, frameworks and GPUs that it never saw.

    pip install -e ".[gpus]"
    python benchmarks/gpu_model.py                # prints the tables
    python benchmarks/gpu_model.py --write        # writes docs/gpu-model.md

- Unseen shapes: a fifth of the shapes of a table, whatever their framework, takes no part in the fit.
- Unseen framework: the median of the other frameworks for the same kernel stands for the left-out one.
- Unseen GPU: no row of the GPU takes part; only its data sheet is known.

It takes about twenty minutes on one core; fitting all tables, which is timed alone, takes some of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepbench.core.errors import BadInput
from deepbench.gpus import fit, package
from deepbench.gpus.families import families
from deepbench.gpus.families.family import PRECISIONS, Family, Kernels
from deepbench.gpus.index import version
from deepbench.gpus.sheet import Sheet
from deepbench.gpus.table import FINE, KernelTable, hashed, kernel_at, table

PAGE = Path(__file__).parents[1] / "docs" / "gpu-model.md"

# Groups with fewer rows are not listed.
LEAST = 1000

# So many rows, drawn at random, are compared with the model that never saw the GPU.
MOST_COMPARED = 20_000


def pair(errors: np.ndarray) -> str:
    """`1.8 / 3.2`: median and mean, in percent."""
    return f"{100 * np.median(errors):.1f} / {100 * errors.mean():.1f}" if len(errors) >= 40 else "–"


# The trees that know other GPUs see how long the arithmetic and the traffic take by the data sheet, how often the units
# are filled, and how much of the operands the cache holds. They do not see which GPU it is: with the ratio of peak and
# bandwidth, or of peak and power, they took an H200 for an A100.

# Rows of each GPU: more make the fit slower, and each GPU counts alike.
MOST_TRAINED = 15_000

# The shortest time of a kernel where nothing is known of a GPU.
FLOOR_S = 2.5e-6


def of_other_gpus(
    family_name: str, group: tuple[int, ...], known: Sequence[str], kernels: Kernels, page: Sheet
) -> np.ndarray | None:
    """Seconds of kernels of a group on a GPU with this sheet; the median of the frameworks. None without any table."""
    family = families()[family_name]
    columns, wanted, frameworks = [], [], []
    for machine in known:
        rows = rows_of(machine, family_name, group)
        if rows is None:
            continue
        if len(rows) > MOST_TRAINED:
            rows = rows.only(np.sort(np.random.default_rng(0).choice(len(rows), MOST_TRAINED, replace=False)))
        base = fit.roofline_s(family, rows.kernels, rows.sheet, FLOOR_S)
        names = np.array([framework_number(source.framework) for source in rows.sources])
        columns.append(_features(family, rows.kernels, rows.sheet, names[rows.source], base))
        wanted.append(np.log(rows.seconds / base))
        frameworks += [*{int(n) for n in names[rows.source]}]
    if not columns:
        return None
    trees = fit.grown(np.concatenate(columns), np.concatenate(wanted), len(family.categories) + 1, leaves=63)
    base = fit.roofline_s(family, kernels, page, FLOOR_S)
    each = [
        trees.predict(_features(family, kernels, page, np.full(len(base), number), base), num_threads=1)
        for number in sorted(set(frameworks))
    ]
    found: np.ndarray = base * np.exp(np.median(each, axis=0))
    return found


def rows_of(machine: str, family_name: str, group: tuple[int, ...]) -> KernelTable | None:
    """The rows of a group that are not marked; None where there are too few."""
    try:
        rows = table(machine, family_name)
    except BadInput:  # it has no table of the family
        return None
    chosen = rows.marks == FINE
    for name, value in zip(rows.family.groups, group, strict=True):
        chosen &= rows.kernels[name] == value
    return rows.only(np.flatnonzero(chosen)) if chosen.sum() >= fit.LEAST_ROWS else None


def _features(family: Family, kernels: Kernels, page: Sheet, source: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Those of a fit on one GPU, and times by the data sheet, in front of the names."""
    own = fit.features(family, kernels, page, source, base)
    work = family.work(kernels)
    peaks = np.array([page.peak_of(name) for name in PRECISIONS])[work.precision]
    shares = [
        np.log2(np.maximum(work.flop / peaks, 1e-9)),
        np.log2(work.bytes / page.bytes_per_s),
        np.log2(work.bytes / page.chip.cache_bytes),
    ]
    names = len(family.categories) + 1
    return np.concatenate([own[:, :-names], np.stack(shares, axis=1), own[:, -names:]], axis=1)


def framework_number(framework: str) -> int:
    """A number for a framework that is the same on every GPU."""
    known = ("sglang", "trtllm", "vllm", "nccl")
    return known.index(framework) if framework in known else len(known)


def of_framework(rows: KernelTable) -> np.ndarray:
    """Errors of the median of the other sources, for kernels that three or two sources have."""
    key = hashed([rows.kernels[name] for name in rows.family.keys])
    order = np.argsort(key, kind="stable")
    _, starts, counts = np.unique(key[order], return_index=True, return_counts=True)
    errors = []
    for size in (2, 3):
        first = starts[counts == size]
        times = np.stack([rows.seconds[order][first + i] for i in range(size)], axis=1)
        for i in range(size):
            others = np.delete(times, i, axis=1)
            errors.append(np.abs(np.median(others, axis=1) / times[:, i] - 1))
    return np.concatenate(errors) if errors else np.zeros(0)


def title(rows: KernelTable, group: tuple[int, ...]) -> str:
    """The type of a group."""
    if not group:
        return "all"
    chosen = np.flatnonzero((fit.group_of(rows.family, rows.kernels) == group).all(axis=1))
    return rows.family.precision_name(kernel_at(rows.kernels, int(chosen[0]))).partition(",")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/gpu-model.md")
    parser.add_argument("--gpu", action="append", help="only this GPU; repeatable")
    options = parser.parse_args()
    machines = options.gpu or list(package.machines())
    started, body, fitting_s, fitted = time.perf_counter(), [], 0.0, 0
    for name in families():
        for machine in machines:
            try:
                rows = table(machine, name)
            except BadInput:
                continue
            for group in fit.groups(rows):
                begun = time.process_time()
                model = fit.fit(rows, group)
                fitting_s += time.process_time() - begun
                if model is None or model.total is None:
                    continue
                fitted += 1
                own = rows_of(machine, name, group)
                if own is None or len(own) < LEAST:
                    continue
                low, high = np.exp(-model.total.high) - 1, np.exp(-model.total.low) - 1
                unseen = ""
                if name != "collectives":
                    others = [other for other in package.machines() if other != machine]
                    some = own.only(np.random.default_rng(1).permutation(len(own))[:MOST_COMPARED])
                    times = of_other_gpus(name, group, others, some.kernels, some.sheet)
                    unseen = pair(np.abs(times / some.seconds - 1)) if times is not None else "–"
                body.append(
                    [
                        *(machine, name, title(rows, group), f"{len(own)}"),
                        f"{100 * model.total.median:.1f} / {100 * model.total.mean:.1f}",
                        f"{100 * low:+.0f} … {100 * high:+.0f}",
                        pair(of_framework(own)),
                        unseen or "–",
                    ]
                )
                print(" ".join(body[-1]), flush=True)
    lines = page(body, fitting_s, fitted)
    print("\n".join(lines[:12]))
    print(f"{time.perf_counter() - started:.0f} s")
    if options.write:
        PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


def in_short(body: list[list[str]]) -> list[str]:
    """Sentences about the cells of the table: the largest errors, and how often a GPU is predicted from others."""

    def errors(cell: str) -> tuple[float, float]:
        median, _, mean = cell.partition(" / ")
        return float(median), float(mean)

    products = [errors(cells[4]) for cells in body if cells[1] == "linear" and int(cells[3]) >= 5000]
    others = [errors(cells[4]) for cells in body if cells[1].startswith("attention")]
    unseen = [errors(cells[7])[1] for cells in body if cells[7] != "–"]
    of_products = [errors(cells[7])[1] for cells in body if cells[1] == "linear" and cells[7] != "–"]

    def largest(found: list[tuple[float, float]]) -> str:
        medians, means = zip(*found, strict=True)
        return f"{max(medians):.1f} % (median) and {max(means):.1f} % (mean)"

    lines = []
    if products and others:
        lines += [
            f"On unseen shapes, the largest errors are {largest(products)} of products, and",
            f"{largest(others)} of attention.",
        ]
    if unseen and of_products:
        lines += [
            f"On an unseen GPU, the mean error is at most 20 % for {sum(e <= 20 for e in of_products)} of "
            f"{len(of_products)} groups of products, and {sum(e <= 20 for e in unseen)} of",
            f"{len(unseen)} groups of all operations.",
        ]
    return [*lines, ""] if lines else []


def page(body: list[list[str]], fitting_s: float, fitted: int) -> list[str]:
    """The page, line by line."""
    lines = [
        "# Errors of the time model on GPUs",
        "",
        "`python benchmarks/gpu_model.py --write` writes this page. [serving.md](serving.md#kernels) has the model.",
        "",
        f"Tables of aiconfigurator-core {version()}. Errors are median / mean of |predicted / measured - 1| in %.",
        f"Fitting {fitted} models took {fitting_s:.0f} CPU seconds. Rows that cannot be are left out.",
        "",
        *in_short(body),
        "- **Unseen shapes**: a fifth of the shapes, whatever their framework, takes no part in the fit. 95 %: what",
        "  the measured time may be, relative to the predicted one.",
        "- **Unseen framework**: the median of the other frameworks for the same kernel stands for the left-out one.",
        "- **Unseen GPU**: no row of the GPU takes part; only its data sheet is known. Where no other GPU is like",
        "  it, the error is large: A100 (older libraries), L40S, RTX PRO 6000 and B60 (other memory and launches).",
        "",
        "| GPU | operation | type | rows | unseen shapes | 95 % | unseen framework | unseen GPU |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    return [*lines, *(f"| {' | '.join(cells)} |" for cells in body)]


if __name__ == "__main__":
    main()
