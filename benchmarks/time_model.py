"""How far the time model is off, on the products that the original DeepBench published for eleven devices.

python benchmarks/time_model.py [--threads FILE] [--write]

Prints the tables of docs/what-if.md, and with --write replaces them there:

1. Each device: the roofline of its data sheet (`benchmarks/hardware/`); the model, cross-validated with five folds, in
   which problems that differ only in what is transposed are in one fold; and constants of the ten other devices.
2. Pairs of devices with the same chip or generation: what a what-if on the first says of the second, whose times are
   known. This shows that the intervals do not hold from one device to another. The page has no such table.
3. With a result FILE that has the same cases with one thread and with two (`deepbench run … --threads 1,2`): what a
   what-if on the times with one thread says of a machine with the limits that were measured with two, and the other
   way round. This shows whether the intervals hold where nothing but the hardware changes.

All published times are those of the list `deepbench/train` in f32: 160 products per device.
"""

import argparse
import os
import statistics
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.api.results import load  # noqa: E402
from deepbench.core.case import Case, parse_case  # noqa: E402
from deepbench.core.files import replacing  # noqa: E402
from deepbench.core.precision import PRECISIONS  # noqa: E402
from deepbench.core.units import percent, significant  # noqa: E402
from deepbench.judge.demand import demand_of  # noqa: E402
from deepbench.networks.what_if import effects as what_if  # noqa: E402
from deepbench.networks.what_if import of_results as applications  # noqa: E402
from deepbench.networks.what_if import time_model  # noqa: E402
from deepbench.networks.what_if.hardware import Hardware  # noqa: E402
from deepbench.networks.what_if.knobs import Change  # noqa: E402
from deepbench.networks.what_if.terms import ModelledApplication, Term  # noqa: E402
from deepbench.networks.what_if.time_model import Columns, Constants, Errors, TimeModel  # noqa: E402
from deepbench.results import published  # noqa: E402

# The words of the question in the page.
EXAMPLE = ("--application", "speech", "--precision", "bf16", "--set", "memory.bytes_per_s*2", "--set", "peak.bf16*2")

PAGE = ROOT / "docs" / "what-if.md"

# A neighbour that differs by a factor of √2 in one size has the weight exp(-1/2), and one that differs in being
# transposed is this many octaves away. Few and distant neighbours count little: no error has this weight, too.
NEIGHBOUR_OCTAVES, TRANSPOSED_OCTAVES, NO_NEIGHBOUR = 0.5, 2.0, 0.1

# The same chip (GM200, Vega 10, GP102), or the same generation (GP100).
PAIRS = (
    ("TitanX Maxwell", "Tesla M40"),
    ("MI25", "Vega Frontier Edition"),
    ("GTX 1080 Ti", "TitanXp"),
    ("GTX 1080 Ti", "Tesla P100"),
)


def sheets() -> list[Hardware]:
    """The data sheets of the devices, in the order of their files."""
    return [Hardware.load(path) for path in sorted((ROOT / "benchmarks" / "hardware").glob("*.toml"))]


def times_of(machine: str) -> dict[Case, float]:
    """The published times of the products in f32, in seconds. Where a product is listed twice, the shorter one."""
    times: dict[Case, float] = {}
    for s in published.summaries(machine):
        r = s.record
        if (r["op"], r["notes"]["suite"], r["precision"]) == ("gemm", "deepbench/train", "f32"):
            case = Case("gemm", parse_case(r["case"]).problem, "forward", PRECISIONS["f32"], "reference", 1)
            times[case] = s.time_s
    return times


def columns_of(hardware: Hardware) -> Columns:
    """The published times of a device as arrays."""
    times = times_of(hardware.name)
    demands = [demand_of(case, hardware.capacities) for case in times]
    return Columns.of(demands, list(times.values()), hardware)


def own_fit(hardware: Hardware) -> time_model.FittedModel:
    """The fit to the published times of a device."""
    times = times_of(hardware.name)
    return time_model.fit_cases(hardware.name, list(times), list(times.values()), hardware)


def with_neighbours(fit: time_model.FittedModel, columns: Columns) -> Errors:
    """The cross-validated errors of products, corrected by the errors of measured products of nearly the same sizes.

    Libraries choose kernels by rules that no formula knows, so the errors of similar problems are alike. The neighbours
    are of other folds than what they correct.
    """
    fold = np.array(time_model.folds_of(list(map(time_model.sizes_of, fit.own))))
    logs = -np.log1p([columns.errors(constants) for constants in fit.folds])
    problems = [case.problem for case in fit.own]
    octaves = np.log2([(p.m, p.n, p.k) for p in problems])
    transposed = np.array([(p.a_t, p.b_t) for p in problems], float) * TRANSPOSED_OCTAVES
    places = np.hstack([octaves, transposed])
    squares = ((places[:, None] - places) ** 2).sum(axis=2)
    weights = np.exp(-squares / (2 * NEIGHBOUR_OCTAVES**2)) * (fold[:, None] != fold)
    corrections = (weights * logs[fold]).sum(axis=1) / (weights.sum(axis=1) + NO_NEIGHBOUR)
    return Errors.of(((1 + np.array(list(fit.own.values()))) * np.exp(corrections) - 1).tolist())


def roofline_errors(hardware: Hardware) -> Errors:
    """The errors of the roofline of a data sheet."""
    return Errors.of(map(float, columns_of(replace(hardware, units=None)).errors(Constants())))


def held_out(hardware: Hardware, others: list[Hardware]) -> tuple[Errors, float]:
    """The errors on a device of constants that were fitted to others, and that of the sum of all times."""
    constants = pooled([columns_of(other) for other in others])
    columns = columns_of(hardware)
    total = float(columns.predicted_s(constants).sum() / columns.measured_s.sum() - 1)
    return Errors.of(map(float, columns.errors(constants))), total


def pooled(parts: list[Columns]) -> Constants:
    """The constants with the least mean relative error on several devices, each of which counts alike."""

    def cost(values: list[float]) -> float:
        return statistics.mean(float(np.mean(np.abs(c.errors(Constants(*values))))) for c in parts)

    bounds = ((1e-8, 1e-3), (1e-2, 4.0), (1e-2, 4.0), (time_model.LEAST_P, time_model.MOST_P))
    starts = ([5e-6, 0.8, 0.6, p] for p in (1.2, 4.0))
    return Constants(*min((time_model.minimum(cost, start, bounds) for start in starts), key=lambda found: found[0])[1])


def pair(first: Hardware, second: Hardware) -> dict[str, float]:
    """What a what-if on the first device says of the second: errors of the ratios, and how often the interval holds."""
    times = times_of(first.name)
    return ratios(TimeModel(first, times), times, times_of(second.name), second)


def ratios(model: TimeModel, times: dict[Case, float], there: dict[Case, float], second: Hardware) -> dict[str, float]:
    """Predicted ratios of times on two machines, next to the measured ones."""
    terms = [Term(case, case.text, 1, time, time, time, 0, 0) for case, time in times.items() if case in there]
    effects = [what_if.effect(term, model, second, Change(())) for term in terms]
    measured = [there[e.term.case] / e.term.seconds for e in effects]
    both = list(zip(effects, measured, strict=True))
    whole = what_if.outcome(ModelledApplication("", terms), Change(()), effects)
    true = sum(there[t.case] for t in terms) / sum(t.seconds for t in terms)
    return {
        "count": len(terms),
        "mean": statistics.mean(abs(e.ratio.value / m - 1) for e, m in both),
        "median": statistics.median(abs(e.ratio.value / m - 1) for e, m in both),
        "unchanged": statistics.mean(abs(1 / m - 1) for _, m in both),
        "inside": statistics.mean(e.ratio.low <= m <= e.ratio.high for e, m in both),
        "sum": whole.ratio.value,
        "low": whole.ratio.low,
        "high": whole.ratio.high,
        "sum measured": true,
    }


def of_threads(path: Path) -> list[str]:
    """The lines of the third table."""
    results = load(path)
    times: dict[int, dict[Case, float]] = {1: {}, 2: {}}
    for s in results.summaries:
        case = applications.case_of(s)
        if s.is_ranked and not s.is_disturbed and case is not None and case.threads in times:
            times[case.threads][replace(case, threads=1)] = s.time_s
    lines = [
        "| from | to | kernels | ratio: mean error | median | inside the interval | sum: predicted | measured |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for first, second in ((1, 2), (2, 1)):
        hardware = [Hardware.measured(results.limits, path.name, threads) for threads in (first, second)]
        model = TimeModel(hardware[0], times[first])
        found = ratios(model, times[first], times[second], hardware[1])
        names = [f"{n} thread{'s' * (n > 1)}" for n in (first, second)]
        cells = [percent(found[name]) for name in ("mean", "median", "inside")]
        lines.append(f"| {' | '.join(names)} | {found['count']} | {' | '.join(cells)} | {sums(found)} |")
    return lines


def own_row(hardware: Hardware, others: list[Hardware]) -> str:
    """The line of a device in the first table."""
    fit, (unseen, total) = own_fit(hardware), held_out(hardware, others)
    errors = [roofline_errors(hardware).mean, fit.errors.mean, fit.errors.median]
    corrected = with_neighbours(fit, columns_of(hardware))
    errors += [corrected.mean, corrected.median, corrected.high]
    cells = [percent(error, 1) for error in errors] + [percent(error) for error in (unseen.mean, unseen.high)]
    return f"| {hardware.name} | {' | '.join(cells)} | {signed(total)} |"


def short(name: str) -> str:
    """A device without its vendor."""
    return name.split(" ", 1)[1]


def tables() -> dict[str, list[str]]:
    """The lines of all tables in Markdown, by their names in the page."""
    listed = sheets()
    own = [
        "| device | roofline | model | median | with neighbours | median | 90 % | unseen | 90 % | sum |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(own_row(hardware, [h for h in listed if h is not hardware]) for hardware in listed),
    ]
    pairs = [
        "| from | to | ratio: mean error | of no change | inside the interval | sum: predicted | measured |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    by_name = {short(h.name): h for h in listed}
    for first, second in PAIRS:
        found = pair(by_name[first], by_name[second])
        cells = [percent(found[name]) for name in ("mean", "unchanged", "inside")]
        pairs.append(f"| {first} | {second} | {' | '.join(cells)} | {sums(found)} |")
    return {"example": example(), "own": own, "pairs": pairs}


def sums(found: dict[str, float]) -> str:
    """The predicted ratio of the sums of all times with its interval, and the measured one."""
    low, high = (significant(found[name]) for name in ("low", "high"))
    return f"{significant(found['sum'])} ({low} to {high}) | {significant(found['sum measured'])}"


def signed(value: float) -> str:
    """`+12 %`."""
    return f"{'+' if value >= 0 else chr(0x2212)}{percent(abs(value))}"


def example() -> list[str]:
    """What the command in the page prints."""
    words = [sys.executable, "-m", "deepbench", "whatif", "results/xeon-amx-2vcpu.jsonl.gz", *EXAMPLE]
    wide = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run(words, cwd=ROOT, env=wide, capture_output=True, text=True, check=True)
    head, table, *_ = done.stdout.split("\n\n")
    shown = [textwrap.fill(line, 118) for line in head.splitlines()]
    command = f"$ deepbench whatif results/xeon-amx-2vcpu.jsonl.gz {' '.join(EXAMPLE[:4])} \\"
    return [
        "```text",
        command,
        f"    {' '.join(EXAMPLE[4:])}",
        *shown,
        "",
        *map(str.rstrip, table.splitlines()[:3]),
        "```",
    ]


def with_tables(text: str, found: dict[str, list[str]]) -> str:
    """A page with its tables replaced; each stands between two comments."""
    for name, lines in found.items():
        if f"<!-- {name} -->" not in text:
            continue
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}" + "\n".join(lines) + f"\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"replace the tables of {PAGE.name}")
    parser.add_argument("--threads", type=Path, metavar="FILE", help="results with one thread and with two")
    arguments = parser.parse_args()
    found = tables()
    if arguments.threads:
        found["threads"] = of_threads(arguments.threads)
    for lines in found.values():
        print("\n".join(lines), end="\n\n")
    if arguments.write:
        with replacing(PAGE) as draft:
            draft.write_text(with_tables(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
