"""The same problems measured on this machine, estimated by the model, and simulated by SCALE-Sim and ZigZag.

    make test-simulators                      sets up both simulators
    python benchmarks/simulated.py            prints the table; five minutes
    python benchmarks/simulated.py --write    also writes it into docs/simulators.md

The simulated machine has 32 × 32 multipliers, and a clock with which its peak rate is that of one core of this machine.
So the times can be compared, and their differences come from the shape of the work.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import deepbench
from deepbench.api.results import Results
from deepbench.core import units
from deepbench.networks.what_if.hardware import Hardware
from tests.help import simulators

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "simulators.md"

SIDE = 32

PROBLEMS = {
    "gemm m=1024 n=1024 k=1024": "product, large",
    "gemm m=256 n=256 k=256": "product, 256",
    "gemm m=1000 n=16 k=1024": "product, few columns",
    "gemm m=16 n=1000 k=1024": "product, few rows",
    "gemm m=33 n=33 k=33": "product, 33",
    "conv n=1 c=64 h=28 w=28 k=64 r=3 s=3 pad_h=1 pad_w=1": "3 × 3",
    "conv n=1 c=256 h=14 w=14 k=256 r=1 s=1": "1 × 1",
    "conv n=1 c=3 h=56 w=56 k=32 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2": "RGB",
}
PRECISION = "i8u8"


def times(results: Results) -> dict[str, float]:
    """Seconds by problem."""
    return {f"{s.record['op']} {s.record['problem_title']}": s.time_s for s in results.summaries if s.is_ranked}


def everything(folder: Path) -> tuple[str, float, dict[str, dict[str, float]]]:
    """The machine, its peak rate, and seconds by column and problem."""
    words = list(PROBLEMS)
    measured = deepbench.measure(
        words, backends="onednn", precisions=PRECISION, threads=1, output=folder / "measured.jsonl", progress=True
    )
    machine = Hardware.measured(measured.limits, "this machine", 1)
    peak = machine.peak_of(PRECISION)
    assert peak is not None, "the run has measured it"
    clock = peak / (2 * SIDE * SIDE)
    (folder / "machine.toml").write_text(machine.toml())
    columns = {"measured": times(measured)}
    model = deepbench.estimate(words, folder / "machine.toml", folder / "model.jsonl", precisions=PRECISION)
    columns["model"] = times(model)
    for name, run in (("scalesim", simulators.run_scalesim), ("zigzag", simulators.run_zigzag)):
        deepbench.export_problems(words, name, folder / name, precisions=PRECISION)
        report = run(folder / name, SIDE, SIDE, "ws")
        found = deepbench.import_results(
            report, folder / f"{name}.jsonl", problems=folder / name / "counts.json", clock=clock
        )
        columns[name] = times(found)
    return str(measured.header["machine"]["cpu"]), peak, columns


def table(peak: float, columns: dict[str, dict[str, float]], flop: dict[str, int]) -> str:
    """In Markdown: times, and the shares of the peak that they are."""
    titles = dict(zip(columns["measured"], PROBLEMS.values(), strict=True))
    lines = ["| problem | size | measured | model | SCALE-Sim | ZigZag |", "|---|---|---:|---:|---:|---:|"]
    for key, title in titles.items():
        cells = [
            f"{units.seconds(found[key])} ({units.percent(flop[key] / found[key] / peak)})" if key in found else "–"
            for found in columns.values()
        ]
        lines.append(f"| {title} | {key.partition(' ')[2]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        machine, peak, columns = everything(Path(name))
        results = deepbench.load(Path(name, "measured.jsonl"))
        flop = {f"{s.record['op']} {s.record['problem_title']}": s.record["flop"] for s in results.summaries}
    where = (
        f"{machine}, one core, oneDNN, `{PRECISION}`: {units.flop_per_s(peak)} TFLOP/s at most. Simulated: {SIDE} × "
        f"{SIDE} multipliers at the clock\nthat gives the same."
    )
    text = f"{where}\n\n{table(peak, columns, flop)}"
    print(text)
    if arguments.write:
        page = PAGE.read_text()
        marks = r"(<!-- three ways -->\n).*?(<!-- end of three ways -->)"
        PAGE.write_text(re.sub(marks, lambda m: f"{m[1]}{text}\n{m[2]}", page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
