"""Write docs/coverage.md: the status of every problem of DeepBench's suites on one machine.

Run `python docs/make_coverage.py FILE…` with the result files of `deepbench run deepbench/…`. Without files, only the
last section is written anew: the kernels of models that no operation serves.

A problem counts once per direction and precision, with its best status over all libraries and settings. Problems that
no library supports are counted too, because they are read from the suites.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from pathlib import Path

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.core.problem import make_problem
from deepbench.plan.suites import left_out, phases_of, read_suite, suite_files
from deepbench.results import summary
from deepbench.results.file import read_results
from deepbench.results.record import STATUSES

SUITES = ("deepbench/train", "deepbench/server", "deepbench/device")
NO_LIBRARY, NOT_RUN = "no library", "not run"

# Kernels of models that no operation serves, and why.
NOT_COVERED = {
    "roi_align": "pooling of regions: its positions depend on the data",
    "non_maximum_suppression": "suppression of overlapping boxes: its work depends on the data",
    "transducer_loss": "loss of RNN-T: a recursion of its own, other than CTC's",
    "additive_attention": "additive attention of GNMT: tanh of sums, before today's attention",
    "silu_attention": "attention without softmax, where candidates do not see each other",
    "graph_attention": "layers of R-GAT over the edges of a sampled graph: their number depends on the data",
    "neighbor_sample": "sampling of a graph: its work depends on the data",
    "sort_hard_negatives": "choice of hard examples: sorting, which depends on the data",
}

# What is measured on GPUs only, and how we know.
OF_GPUS = (
    "On CPUs, `sparse_gemm` with `structure=2_4` is a product of a CSR matrix. None of the libraries here has 2:4 "
    "sparsity on CPUs. `to_sparse_semi_structured` of PyTorch 2.13 raises an error for tensors of a CPU, and its "
    "operators have no kernel for CPUs. oneDNN has the encodings CSR, COO and packed, all for zeros anywhere "
    "(`dnnl_sparse_encoding_t`). MKL exports `mkl_sparse_s_create_csr`, `csc`, `bsr` and `coo`. SciPy has these "
    "formats and others for zeros anywhere. OpenBLAS exports no sparse function."
)


def not_covered() -> list[str]:
    """A list of the kernels that no operation serves, most frequent first."""
    found: dict[str, Counter[str]] = {}
    for suite in suite_files():
        for phase in phases_of(suite):
            for kernel in left_out(f"{suite}:phase={phase}"):
                found.setdefault(kernel.kernel.split()[0], Counter())[suite] += 1
    lines = [
        "",
        "## What is not covered",
        "",
        "Kernels of [models](models.md) that no operation serves, with the number of their rows and of models:",
        "",
    ]
    for op, rows in sorted(found.items(), key=lambda item: -item[1].total()):
        number = f"{_counted(rows.total(), 'row')}, {_counted(len(rows), 'model')}"
        what = f"- `{op}` ({number}): {NOT_COVERED.get(op, 'no operation yet')}."
        lines += textwrap.wrap(what, 118, subsequent_indent="  ")
    what = "Rows of which only the data know a size are not listed at all ([models.md](models.md#the-models))."
    lines += ["", what, ""]
    return lines + textwrap.wrap(OF_GPUS, 118, break_on_hyphens=False)


def listed_problems() -> dict[tuple[str, str, str], set[tuple[str, object]]]:
    """(suite, op, direction) → the distinct problems with their settings."""
    problems: dict[tuple[str, str, str], set[tuple[str, object]]] = {}
    for suite in SUITES:
        for entry in read_suite(suite):
            pattern = entry.pattern
            direction = pattern.direction or find_op(pattern.op).directions[0]
            problems.setdefault((suite, pattern.op, direction), set()).add((pattern.problem.text, pattern.settings))
    return problems


def read_statuses(
    paths: list[Path],
) -> tuple[dict[tuple[str, str, str, str, str], dict[str, str]], Counter[str], list[str]]:
    """(suite, op, direction, precision, problem) → status by backend; reasons; the machines and libraries."""
    statuses: dict[tuple[str, str, str, str, str], dict[str, str]] = {}
    reasons: Counter[str] = Counter()
    machines: dict[str, None] = {}
    for path in paths:
        file = read_results(path)
        machine = file.header["machine"]
        libraries = [
            f"{answer['library']['name']} {answer['library']['version']}"
            for answer in file.header["libraries"].values()
            if "library" in answer
        ]
        date = file.header["started"][:10]
        machines[f"{machine['cpu']}, {machine.get('cores_allowed')} cores; {', '.join(libraries)}; {date}"] = None
        for s in summary.summarize(file.records):
            record = s.record
            if not find_backend(record["backend"]).computes:
                continue
            for source in record["sources"]:
                text = make_problem(find_op(record["op"]), record["problem"]).text
                key = (source["suite"], record["op"], record["direction"], record["precision"], text)
                by_backend = statuses.setdefault(key, {})
                if by_backend.get(record["backend"]) != "ok":  # with some setting
                    by_backend[record["backend"]] = s.status
            if s.status != "ok":
                reasons[f"{record['backend']}: {s.status}: {record['reason']}"] += 1
    return statuses, reasons, list(machines)


def _counted(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"


PAGE = Path(__file__).with_name("coverage.md")
LAST_SECTION = "\n## What is not covered\n"


def main() -> None:
    """Write the page next to this file; without result files, only its last section, which comes from the suites."""
    if not sys.argv[1:]:
        kept = PAGE.read_text(encoding="utf-8").partition(LAST_SECTION)[0]
        PAGE.write_text("\n".join([kept.rstrip("\n"), *not_covered()]) + "\n", encoding="utf-8")
        return
    statuses, reasons, machines = read_statuses([Path(p) for p in sys.argv[1:]])
    used_backends = {name for by_backend in statuses.values() for name in by_backend}
    devices = {find_backend(name).device for name in used_backends}
    backends = [b for b in all_backends().values() if b.device in devices and b.computes and b.name != "reference"]
    known = {p for b in backends for mark in b.marks() for p in mark.precisions}
    columns = [*STATUSES, NO_LIBRARY, NOT_RUN]
    rows, used = [], set()
    totals: Counter[str] = Counter()
    for (suite, op_name, direction), problems in sorted(listed_problems().items()):
        op = find_op(op_name)
        for kind in PRECISIONS.values():
            if not op.allows(direction, kind) or kind.name not in known:
                continue
            counts: Counter[str] = Counter()
            ok_by: Counter[str] = Counter()
            for text, _ in problems:
                by_backend = statuses.get((suite, op_name, direction, kind.name, text), {})
                capable = [b for b in backends if b.supports(op_name, kind.name, direction)]
                status = next((s for s in STATUSES if s in by_backend.values()), NOT_RUN if capable else NO_LIBRARY)
                missing = [b for b in capable if b.default and b.name not in by_backend]
                if status != "ok" and missing:  # another library may support it
                    status = NOT_RUN
                counts[status] += 1
                ok_by.update(name for name, s in by_backend.items() if s == "ok")
            totals.update(counts)
            used.update(counts)
            by = ", ".join(f"{name} {n}" for name, n in sorted(ok_by.items()))
            rows.append((suite, op_name, direction, kind.name, len(problems), counts, by))
    shown = [c for c in columns if c in used]
    lines = [
        "# Coverage",
        "",
        "This page shows which problems of DeepBench's suites run in which precision on one machine. It is for readers",
        "who want to know what to expect on their own. `python docs/make_coverage.py` generates it from result files.",
        "",
        *[f"- {m}" for m in machines],
        "",
        "Each problem counts once, with its best status over all libraries. The last column has the libraries that are",
        "`ok`, by number of problems. *no library*: no library supports it. *not run*: the time limit was reached.",
        "",
        f"| suite | op | direction | precision | problems | {' | '.join(shown)} | ok by |",
        f"|---|---|---|---|---:|{'---:|' * len(shown)}---|",
    ]
    for suite, op_name, direction, kind_name, count, counts, by in rows:
        cells = " | ".join(str(counts[c]) if counts[c] else "" for c in shown)
        lines.append(f"| {suite} | {op_name} | {direction} | {kind_name} | {count} | {cells} | {by} |")
    cells = " | ".join(str(totals[c]) if totals[c] else "" for c in shown)
    lines.append(f"| all | | | | {sum(totals.values())} | {cells} | |")
    lines += ["", "## Reasons", "", "Why a library has no time for a case, with the number of cases:", ""]
    for text, n in reasons.most_common():
        lines += textwrap.wrap(f"- {n} × {text}", 118, subsequent_indent="  ")
    lines += not_covered()
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
