"""Which rule of a CI finds a slowdown, and how often does it call equal builds different?

    python benchmarks/rules.py [FOLDER]              prints the tables; the data is in benchmarks/rules by default
    python benchmarks/rules.py --write [FOLDER]      also writes them into docs/rules.md, with its picture

The files are those of `rules_data.py`: 50 products on two builds that took turns, of which one was slower by a known
amount. Each rule sees the same processes. A rule that needs fewer of them than there are is applied to each choice of
neighbors, as one commit after the other would be judged. Otava's rule needs `pip install apache-otava`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, stdev

sys.path.insert(0, str(Path(__file__).parent.parent))

import itertools

from scipy.stats import mannwhitneyu, ttest_ind

import deepbench
from deepbench.api.results import Results
from deepbench.core import units
from deepbench.judge.gate import CANNOT_TELL, REGRESSION
from deepbench.results.record import Measurement

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "rules"
PAGE, PICTURE = ROOT / "docs" / "rules.md", ROOT / "docs" / "pictures" / "rules.svg"

PAIR = re.compile(r"(?P<occasion>\d{8}-\d{4}(?P<kind>busy|long)?)-(?P<percent>\d+)\.a\.jsonl\.gz")

Side = Sequence[Measurement]
"""The processes of one build, in the order in which they ran."""


# ---- rules of others


def previous_point(a: Side, b: Side) -> list[bool]:
    """The mean of a run is at least twice that of the run before."""
    return [mean(new["samples_s"]) >= 2 * mean(old["samples_s"]) for old, new in zip(a, b, strict=False)]


def twice_in_a_row(a: Side, b: Side) -> list[bool]:
    """The last two points are both above 1.35 times the median of the last three days."""
    limit = 1.35 * median(median(m["samples_s"]) for m in a)
    above = [median(m["samples_s"]) > limit for m in b]
    return [first and second for first, second in itertools.pairwise(above)]


def ten_percent_and_t(a: Side, b: Side) -> list[bool]:
    """Of five processes of each build: Student's t-test below 0.05, and 10 % in their median or in their minimum."""
    old, new = ([median(m["samples_s"]) for m in side[:5]] for side in (a, b))
    is_slower = median(new) >= 1.1 * median(old) or min(new) >= 1.1 * min(old)
    return [bool(is_slower and ttest_ind(old, new).pvalue <= 0.05)]


def z_score(a: Side, b: Side) -> list[bool]:
    """A run is more than five standard deviations above the mean of the runs before."""
    old = [mean(m["samples_s"]) for m in a]
    limit = mean(old) + 5 * stdev(old)
    return [mean(m["samples_s"]) > limit for m in b]


def mann_whitney(a: Side, b: Side) -> list[bool]:
    """Mann and Whitney's test on the samples of one process of each build, below 0.05."""
    pairs = [(old["samples_s"], new["samples_s"]) for old, new in zip(a, b, strict=False)]
    return [
        bool(median(new) > median(old) and mannwhitneyu(old, new).pvalue < 0.05)
        for old, new in pairs
        if len(old) > 2 and len(new) > 2
    ]


def otava(a: Side, b: Side) -> list[bool]:
    """Otava's change points, with its own settings, in the series of all processes: any that says slower."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points([mean(m["samples_s"]) for m in (*a, *b)])
    return [any(p.stats.mean_2 > p.stats.mean_1 for p in points)]


@dataclass(frozen=True)
class Rule:
    """A rule that others use."""

    title: str
    used_by: str
    processes: str
    """How many of each build it looks at."""
    alarms: Callable[[Side, Side], list[bool]]
    """Of one case, for each choice of processes: whether the second build is called slower."""


OTHERS = (
    Rule("200 % of the previous run", "github-action-benchmark", "1", previous_point),
    Rule("1.35 × the median, twice", "PyTorch's operator benchmarks", "all and 2", twice_in_a_row),
    Rule("10 % and a t-test", "oneDNN on Arm", "5", ten_percent_and_t),
    Rule("z-score above 5", "Conbench", "all and 1", z_score),
    Rule("Mann–Whitney on samples", "TritonBench", "1", mann_whitney),
    Rule("change points", "Apache Otava", "all", otava),
)

# Of our gate. 5 % is what it uses if nothing is said.
MARGINS = (0.05, 0.02, 0.01, 0.005)

# Other times of a process, which have a margin of their own.
METRICS = {"first_call": "the first call", "creation": "creation"}


# ---- applying them


@dataclass
class Count:
    """How often a rule raised an alarm."""

    alarms: int = 0
    undecided: int = 0
    comparisons: int = 0

    def add(self, alarms: Sequence[bool], undecided: int = 0) -> None:
        """Of one case more."""
        self.alarms += sum(alarms)
        self.undecided += undecided
        self.comparisons += len(alarms)

    @property
    def share(self) -> float | None:
        """Alarms in comparisons; None without any."""
        return self.alarms / self.comparisons if self.comparisons else None


@dataclass
class Row:
    """One rule in a table."""

    title: str
    used_by: str
    processes: str
    counts: dict[int, Count] = field(default_factory=dict)
    """By the percentage by which the second build is slower."""


@dataclass(frozen=True)
class Occasion:
    """One run of `rules_data.py`."""

    name: str
    kind: str
    """Empty, or `busy` or `long`."""
    pairs: Mapping[int, tuple[Results, Results]]
    """The files of both builds, by percentage."""


def occasions(folder: Path) -> list[Occasion]:
    """All that a folder has."""
    found: dict[tuple[str, str], dict[int, tuple[Results, Results]]] = {}
    for path in sorted(folder.glob("*.a.jsonl.gz")):
        if match := PAIR.fullmatch(path.name):
            other = path.with_name(path.name.replace(".a.", ".b."))
            pair = deepbench.load(path), deepbench.load(other)
            found.setdefault((match["occasion"], match["kind"] or ""), {})[int(match["percent"])] = pair
    return [Occasion(name, kind, dict(sorted(pairs.items()))) for (name, kind), pairs in found.items()]


def processes(results: Results) -> dict[str, list[Measurement]]:
    """The measurements of each case, in their order."""
    found: dict[str, list[Measurement]] = {}
    for record in results.file.records:
        if record["measurement"] is not None:
            found.setdefault(record["case"], []).append(record["measurement"])
    return found


def apply(pairs: Sequence[tuple[int, Results, Results]]) -> list[Row]:
    """All rules on pairs of files."""
    has_otava = find_spec("otava") is not None
    if not has_otava:
        print("Otava's rule is left out; pip install apache-otava", file=sys.stderr)
    rules = [r for r in OTHERS if has_otava or r.alarms is not otava]
    rows = [Row(r.title, r.used_by, r.processes) for r in rules]
    ours = [Row(f"turns, margin {100 * margin:g} %", "DeepBench", "all") for margin in MARGINS]
    for percent, a, b in pairs:
        old, new = processes(a), processes(b)
        for rule, row in zip(rules, rows, strict=True):
            count = row.counts.setdefault(percent, Count())
            for case in old.keys() & new.keys():
                count.add(rule.alarms(old[case], new[case]))
        for margin, row in zip(MARGINS, ours, strict=True):
            verdicts = [c.verdict for c in deepbench.gate(a, b, margin=margin).outcome.cases]
            count = row.counts.setdefault(percent, Count())
            count.add([v == REGRESSION for v in verdicts], verdicts.count(CANNOT_TELL))
    return rows + ours


def apply_metrics(pairs: Sequence[tuple[int, Results, Results]]) -> list[Row]:
    """Our gate on other times of the processes, with the margin that it has for them."""
    rows = [Row(f"turns, {title}", "DeepBench", "all") for title in METRICS.values()]
    for percent, a, b in pairs:
        for metric, row in zip(METRICS, rows, strict=True):
            verdicts = [c.verdict for c in deepbench.gate(a, b, metric=metric).outcome.cases]
            count = row.counts.setdefault(percent, Count())
            count.add([v == REGRESSION for v in verdicts], verdicts.count(CANNOT_TELL))
    return rows


# ---- showing them


def shares(row: Row, percent: int) -> str:
    """A cell of the table."""
    count = row.counts.get(percent)
    if count is None or count.share is None:
        return "–"
    text = units.percent(count.share)
    return text if percent else f"{text} of {count.comparisons}"


def table(rows: Sequence[Row]) -> str:
    """In Markdown: a line per rule."""
    slower = sorted({p for row in rows for p in row.counts} - {0})
    heads = ["rule", "used by", "processes", "false alarms", *(f"+{p} %" for p in slower), "undecided"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|---|---:" + "|---:" * (len(slower) + 1) + "|"]
    for row in rows:
        equal = row.counts.get(0)
        undecided = units.percent(equal.undecided / equal.comparisons) if equal and equal.comparisons else "–"
        cells = [row.title, row.used_by, row.processes, *(shares(row, p) for p in [0, *slower]), undecided]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


LEFT, WIDE, HIGH, TOP = 400, 92, 30, 78


def picture(rows: Sequence[Row]) -> str:
    """A cell per rule and amount: red is a false alarm, green a slowdown that was found."""
    percents = sorted({p for row in rows for p in row.counts})
    width, height = LEFT + WIDE * len(percents) + 10, TOP + HIGH * len(rows) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="14" fill="#202020">',
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
        '<text x="10" y="26" font-size="16" font-weight="bold">How often a rule calls the second build slower</text>',
    ]
    for i, percent in enumerate(percents):
        x = LEFT + WIDE * (i + 0.5)
        head = f"+{percent} %" if percent else "equal"
        lines.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="middle">{head}</text>')
    for j, row in enumerate(rows):
        y = TOP + HIGH * j
        bold = ' font-weight="bold"' if row.used_by == "DeepBench" else ""
        lines.append(f'<text x="10" y="{y + 20}"{bold}>{escape(row.title)}</text>')
        lines.append(f'<text x="210" y="{y + 20}" fill="#606060" font-size="12">{escape(row.used_by)}</text>')
        for i, percent in enumerate(percents):
            share = row.counts[percent].share if percent in row.counts else None
            x, color = LEFT + WIDE * i, "#2E8B57" if percent else "#C0392B"
            # A false alarm of 20 % is as bad as the colour can say.
            strength = 0.0 if share is None else share if percent else min(1.0, 5 * share)
            text = "–" if share is None else units.percent(share)
            ink = "#FFFFFF" if strength > 0.6 else "#202020"
            lines.append(
                f'<rect x="{x + 2}" y="{y + 2}" width="{WIDE - 4}" height="{HIGH - 4}" rx="3" fill="{color}" '
                f'fill-opacity="{strength:.2f}" stroke="#D0D0D0"/>'
                f'<text x="{x + WIDE / 2}" y="{y + 20}" text-anchor="middle" fill="{ink}">{text}</text>'
            )
    return "\n".join([*lines, "</svg>"]) + "\n"


def pairs_of(found: Sequence[Occasion], kind: str = "") -> list[tuple[int, Results, Results]]:
    """The pairs that took turns on occasions of one kind, with their percentage."""
    return [(p, a, b) for o in found if o.kind == kind for p, (a, b) in o.pairs.items()]


def apart(found: Sequence[Occasion]) -> list[tuple[int, Results, Results]]:
    """The first build of each comparison next to the second of each other one."""
    usual = [(o, p) for o in found if not o.kind for p in o.pairs]
    return [(p, o.pairs[q][0], other.pairs[p][1]) for (o, q), (other, p) in itertools.permutations(usual, 2)]


def machine_of(found: Sequence[Occasion]) -> str:
    """Where and when it was measured, in a sentence."""
    heads = [a.header for o in found for a, _ in o.pairs.values()]
    cpus = sorted({str(head["machine"]["cpu"]) for head in heads})
    cores = sorted({str(head["machine"].get("cores_allowed")) for head in heads})
    days = sorted({head["started"][:10] for head in heads})
    return f"Measured on {' and '.join(cpus)}, {' and '.join(cores)} cores of a shared host, {' and '.join(days)}."


def write(name: str, text: str) -> None:
    """Put a text between its marks in the page."""
    marks = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = PAGE.read_text().partition(marks[0])
    _, found, after = rest.partition(marks[1])
    if not found:
        raise SystemExit(f"{PAGE} has no place for the table {name!r}")
    PAGE.write_text(f"{before}{marks[0]}\n{text}\n\n{marks[1]}{after}")


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = occasions(arguments.folder)
    if not found:
        raise SystemExit(
            f"{arguments.folder} has no files such as 20261128-0600-5.a.jsonl.gz; rules_data.py makes them"
        )
    tables = {
        "in turn": apply(pairs_of(found)),
        "not in turn": apply(apart(found)),
        "busy": apply(pairs_of(found, "busy")),
        "longer": apply(pairs_of(found, "long")),
        "other times": apply_metrics(pairs_of(found)),
    }
    for name, rows in tables.items():
        print(f"{name}\n\n{table(rows)}\n" if rows[0].counts else f"{name}: no files\n")
    if arguments.write:
        for name, rows in tables.items():
            if rows[0].counts:
                write(name, table(rows))
        write("machine", machine_of(found))
        PICTURE.write_text(picture(tables["in turn"]), encoding="utf-8")


if __name__ == "__main__":
    main()
