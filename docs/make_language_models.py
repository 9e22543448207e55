"""Write docs/language-models.md and its pictures: what a token and a prompt of language models cost, kernel by kernel.

Measure on a quiet machine, in 15 minutes, with a oneDNN from 3.5 on (docs/adding-a-library.md):

    deepbench run llm/llama32_1b --set phase=decode,batch=1,8,context=512,2048,8192,cache=cold \\
        --precision f32,bf16,i8 --quick --budget 7min -o decode.jsonl
    deepbench run llm/llama32_1b --set phase=prefill,context=512,2048 \\
        --precision f32,bf16,i8 --quick --budget 150s -o prefill.jsonl
    deepbench run weight_only --set batch=1,8,bits=4,8,cache=cold --precision bf16 \\
        --backend loops --quick -o weights.jsonl
    deepbench run llm/qwen3_30b_a3b --set phase=decode,batch=1,8,64,cache=cold --precision bf16 \\
        --quick --budget 2min -o experts.jsonl
    deepbench run llm/qwen3_30b_a3b --set phase=decode,batch=1,8,64,cache=cold --op permute_tokens \\
        --quick -o permute.jsonl
    deepbench run moe --set phase=decode,cache=cold --op grouped_gemm --precision bf16 --fit 2GiB \\
        --quick --budget 1min -o moe.jsonl
    python docs/make_language_models.py decode.jsonl prefill.jsonl weights.jsonl experts.jsonl permute.jsonl moe.jsonl

All numbers are sums of kernels, each with its fastest library. Products have the type that the table names; another
kernel that no library has in this type counts in bf16 or f32. For a token every array comes from memory (`cache=cold`):
the layers of a model take turns, and their weights, keys and values are larger than the caches of the processor.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.api.results import Results, load  # noqa: E402
from deepbench.core import units  # noqa: E402
from deepbench.core.errors import BadInput  # noqa: E402
from deepbench.judge import totals  # noqa: E402
from deepbench.judge.limits import Limits  # noqa: E402
from deepbench.plan.suites import Pass, left_out, pass_of, split_name  # noqa: E402
from deepbench.reporting.answers import listed  # noqa: E402
from deepbench.reporting.bars import StackedBar, svg  # noqa: E402
from deepbench.reporting.cases import LibraryRanking, rankings  # noqa: E402
from deepbench.results.summary import Summary  # noqa: E402

PAGE, PICTURES = "language-models.md", "pictures"

DENSE, EXPERTS = "llm/llama32_1b", "llm/qwen3_30b_a3b"
DECODE, PREFILL = "decode", "prefill"
MOE = "moe"

# The pass that tables explain kernel by kernel, where the files have it.
EXPLAINED = {DECODE: {"batch": 1, "context": 2048}, PREFILL: {"batch": 1, "context": 2048}}
OF_EXPERTS = {"batch": 8, "context": 2048}

# What a kernel is taken from, the best first. Types that a library lacks are replaced by f32.
TYPES = {"f32": ("f32",), "bf16": ("bf16", "f32"), "int8": ("i8", "bf16", "f32")}
PRODUCTS = ("gemm", "grouped_gemm")
BITS = {"int8 weights": 8, "int4 weights": 4}
VARIANTS = (*TYPES, *BITS)

KINDS = {
    "gemm": "products",
    "weight_only_gemm": "products",
    "grouped_gemm": "products of experts",
    "attention": "attention",
    "rms_norm": "norms",
    "layer_norm": "norms",
    "elementwise": "gates",
}
OTHER = "other"

DISTURBED = "ᴰ"

# Of a table of kernels; one more row has the rest.
MOST_ROWS = 7


@dataclass(frozen=True)
class Part:
    """A kernel of a pass with the case that it counts with."""

    label: str
    count: int
    summary: Summary
    ranking: LibraryRanking
    limits: Limits

    @property
    def time_s(self) -> float:
        """Of all its calls in a pass."""
        return self.count * self.summary.time_s

    @property
    def kind(self) -> str:
        """The group of kernels in pictures."""
        return KINDS.get(self.summary.record["op"], OTHER)


@dataclass(frozen=True)
class Sum:
    """A pass: all its kernels one after the other."""

    suite: str
    of: Pass
    parts: Sequence[Part]

    @property
    def time_s(self) -> float:
        """Seconds of the pass."""
        return sum(part.time_s for part in self.parts)

    @property
    def per_s(self) -> float:
        """Tokens per second."""
        return self.of.units / self.time_s

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the time: from the sum of the lower ends to the sum of the upper ends."""
        widths = [
            p.count * (e.high_s - e.low_s)
            for p in self.parts
            if (e := p.summary.estimate) is not None and e.low_s is not None and e.high_s is not None
        ]
        return sum(widths) / 2 / self.time_s if len(widths) == len(self.parts) else None

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs disturbed one of the times."""
        return any(part.summary.is_disturbed for part in self.parts)

    def share(self, kind: str) -> float:
        """Of the time, by a group of kernels."""
        return sum(part.time_s for part in self.parts if part.kind == kind) / self.time_s


class Data:
    """The kernels of several result files, with the largest number of threads. The first file with a time counts."""

    def __init__(self, files: Sequence[Results]) -> None:
        self.files = files
        self.rankings: dict[int, tuple[LibraryRanking, Limits]] = {}
        self.rows: dict[tuple[str, str, int, str], dict[str, Summary | None]] = {}
        self.kernels: dict[tuple[str, str, int, str], tuple[str, int]] = {}
        self.weights: dict[tuple[int, ...], Summary] = {}
        threads = max((s.record["threads"] for file in files for s in file), default=1)
        for file in files:
            for ranking in rankings(s for s in file if s.record["threads"] == threads):
                for s in ranking.ranked:
                    self.rankings[id(s)] = ranking, file.limits
                if ranking.ranked and (first := ranking.ranked[0]).record["op"] == "weight_only_gemm":
                    p = first.record["problem"]
                    if first.record["precision"] == "bf16":
                        self.weights[tuple(int(p[name]) for name in ("m", "n", "k", "bits"))] = first
            for kernel, fastest in totals.kernel_times(file.summaries).items():
                known = self.rows.setdefault((kernel.suite, kernel.op, kernel.row, kernel.direction), {})
                if kernel.threads == threads and known.get(kernel.precision) is None:
                    known[kernel.precision] = fastest
            for s in file.summaries:
                for source in s.record["sources"]:
                    row = source["suite"], s.record["op"], source["row"], s.record["direction"]
                    self.kernels[row] = source["label"] or s.record["op"], source.get("count", 1)

    def passes(self, model: str, phase: str) -> list[str]:
        """The suites of a phase of a model in the files, by batch and context."""
        suites = dict.fromkeys(row[0] for row in self.rows if split_name(row[0])[0] == model)
        found = [(p, suite) for suite in suites if (p := pass_of(suite)).phase == phase]
        found.sort(key=lambda f: (f[0].parameters["batch"], f[0].parameters["context"]))
        return [suite for _, suite in found]

    def sum_of(self, suite: str, variant: str) -> Sum | None:
        """The pass in a variant; None where a kernel has no time."""
        parts = []
        for op, row, direction in totals.kernels_of(suite):
            key = suite, op, row, direction
            s = self._chosen(self.rows.get(key, {}), op, variant)
            if s is None:
                return None
            label, count = self.kernels[key]
            parts.append(Part(label, count, s, *self.rankings[id(s)]))
        return Sum(suite, pass_of(suite), parts)

    def _chosen(self, by_type: Mapping[str, Summary | None], op: str, variant: str) -> Summary | None:
        if variant in BITS and op == "gemm":
            known = next((s for s in by_type.values() if s), None)
            problem = known.record["problem"] if known else {}
            return self.weights.get((*(int(problem.get(name, 0)) for name in ("m", "n", "k")), BITS[variant]))
        types = TYPES.get(variant, TYPES["bf16"])
        if op in PRODUCTS:  # they decide the name of the variant
            types = types[:1]
        return next((s for name in types if (s := by_type.get(name))), None)


# ---- cells


def per_second(found: Sum | None) -> str:
    """Tokens per second, with the interval of the time."""
    if found is None:
        return "–"
    width = f" {units.plus_minus(found.half_width)}" if found.half_width is not None else ""
    return f"{units.significant(found.per_s)}{width}{DISTURBED * found.is_disturbed}"


def time_cell(s: Summary) -> str:
    """The time of one call."""
    return units.seconds(s.time_s) + DISTURBED * s.is_disturbed


def limit_cells(part: Part) -> list[str]:
    """The limit that is nearest, and the share of it."""
    limit = None if part.summary.is_disturbed else part.limits.nearest(part.summary)
    return ["–", "–"] if limit is None else [limit.name, "–" if limit.share is None else units.percent(limit.share)]


def next_cell(part: Part) -> str:
    """The next library and how much longer it takes, where the order is decided."""
    rivals = part.ranking.ranked
    if len(rivals) < 2 or rivals[0] is not part.summary:
        return "–"
    second, ratio = rivals[1], part.ranking.ratios[1]
    if second.is_disturbed or part.summary.is_disturbed:
        return f"{second.library_title}{DISTURBED}"
    if second in part.ranking.ties:
        return f"≈ {second.library_title}"
    value = ratio.value if ratio else second.time_s / part.summary.time_s
    return f"{second.library_title} {units.significant(value)}×"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> list[str]:
    """A table; columns of numbers are aligned to the right."""
    rule = ["---" if i in text_columns else "---:" for i in range(len(header))]
    return ["", *(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)), ""]


def kernel_table(found: Sum, share: str) -> list[str]:
    """One row per kernel, the one that takes most first, and one for the rest."""
    rows = []
    ordered = sorted(found.parts, key=lambda p: -p.time_s)
    for part in ordered[:MOST_ROWS]:
        s = part.summary
        rows.append(
            [
                part.label,
                s.record["problem_title"],
                s.record["precision"],
                str(part.count),
                time_cell(s),
                units.percent(part.time_s / found.time_s),
                *limit_cells(part),
                s.library_title,
                next_cell(part),
            ]
        )
    if rest := ordered[MOST_ROWS:]:
        names = ", ".join(dict.fromkeys(part.label for part in rest))
        time_s = sum(part.time_s for part in rest)
        rows.append([f"others: {names}", *[""] * 4, units.percent(time_s / found.time_s), *[""] * 4])
    header = ["kernel", "problem", "type", "calls", "time", share, "limited by", "% of limit", "fastest", "next"]
    return markdown(header, rows, (0, 1, 2, 6, 8, 9))


def throughput_table(data: Data, suites: Sequence[str], variants: Sequence[str]) -> list[str]:
    """One row per variant, one column per batch and context: tokens per second."""
    passes = [pass_of(suite).parameters for suite in suites]
    header = ["types", *(f"{p['batch']} × {p['context']:,}" for p in passes)]
    rows = [[variant, *(per_second(data.sum_of(suite, variant)) for suite in suites)] for variant in variants]
    return markdown(header, [row for row in rows if set(row[1:]) != {"–"}])


def weights_table(data: Data, suite: str) -> list[str]:
    """The products of a token in every variant: time of a call and the share of its nearest limit."""
    found = {variant: data.sum_of(suite, variant) for variant in VARIANTS}
    known = {variant: s for variant, s in found.items() if s is not None}
    rows = []
    for i, part in enumerate(next(iter(known.values())).parts if known else []):
        if part.summary.record["op"] == "gemm":
            p = part.summary.record["problem"]
            others = (s.parts[i] for s in known.values())
            cells = [f"{time_cell(other.summary)}, {limit_cells(other)[1]}" for other in others]
            rows.append([part.label, f"{p['m']} × {p['k']}", *cells])
    table = markdown(["product", "weights", *known], rows, (0, 1))
    return [*table, *paragraph(*fastest_sentences(known))] if rows else []


def experts_table(data: Data) -> list[str]:
    """The grouped products of the suite `moe`; smaller ones are marked. The last column has unequal shares."""
    parts = []
    for (suite, op, row, direction), by_type in data.rows.items():
        s = by_type.get("bf16")
        if split_name(suite)[0] == MOE and op == "grouped_gemm" and s is not None:
            label, count = data.kernels[suite, op, row, direction]
            parts.append((suite, Part(label, count, s, *data.rankings[id(s)])))
    unequal = {_sizes(part): part.summary for _, part in parts if _skew(part)}
    rows, smaller = [], False
    for suite, part in parts:
        if not _skew(part):
            s = part.summary
            is_smaller = any(source["note"] for source in s.record["sources"] if source["suite"] == suite)
            smaller |= is_smaller
            groups, m, k, _ = _sizes(part)
            other = unequal.get(_sizes(part))
            trusted = other is not None and not other.is_disturbed and not s.is_disturbed
            ratio = f"{units.significant(other.time_s / s.time_s)}×" if other and trusted else "–"
            experts = f"{groups} of {m} × {k}{' *' * is_smaller}"
            rows.append(
                [part.label, experts, time_cell(s), *limit_cells(part), s.library_title, next_cell(part), ratio]
            )
    if not rows:
        return []
    header = ["product", "experts", "time", "limited by", "% of limit", "fastest", "next", "unequal"]
    notes = ["*unequal*: the time with unequal shares of the tokens over that with equal ones."]
    notes += ["\\*: smaller than in the model, to fit into memory."] * smaller
    return [*markdown(header, rows, (0, 1, 3, 5, 6)), *paragraph(*notes)]


def _sizes(part: Part) -> tuple[int, int, int, int]:
    p = part.summary.record["problem"]
    return int(p["groups"]), int(p["m"]), int(p["k"]), int(p["tokens"])


def _skew(part: Part) -> int:
    return int(part.summary.record["problem"].get("skew", 0))


# ---- sentences


def chosen(suites: Sequence[str], wanted: Mapping[str, int]) -> str | None:
    """The suite with these parameters, or else the first."""
    fitting = [s for s in suites if all(pass_of(s).parameters.get(n) == v for n, v in wanted.items())]
    return next(iter([*fitting, *suites]), None)


def name_of(suite: str) -> str:
    """`batch 1 and context 2,048`."""
    p = pass_of(suite).parameters
    return f"batch {p['batch']} and context {p['context']:,}"


def names_of(suites: Sequence[str]) -> tuple[str, list[str]]:
    """What all passes have in common, and what is left of each: `with batch 1` and `context 512`, `context 2,048`."""
    batches, contexts = {_batch(s) for s in suites}, {_context(s) for s in suites}
    if len(batches) == 1:
        return f"with batch {batches.pop()}", [f"context {_context(s):,}" for s in suites]
    if len(contexts) == 1:
        return f"with context {contexts.pop():,}", [f"batch {_batch(s)}" for s in suites]
    return "", [name_of(s) for s in suites]


def shares_sentence(found: Sum) -> str:
    """What takes how much."""
    kinds = sorted({part.kind for part in found.parts}, key=lambda kind: -found.share(kind))
    parts = [f"{kind} {units.percent(found.share(kind))}" for kind in kinds if found.share(kind) >= 0.005]
    return f"With {name_of(found.suite)} the time goes to {listed(parts)}."


def fastest_sentences(known: Mapping[str, Sum]) -> list[str]:
    """Which library is the fastest at how many products of a token, where the order is decided."""
    sentences = []
    for variant, found in known.items():
        wins: Counter[str] = Counter()
        for part in found.parts:
            if part.summary.record["op"] in ("gemm", "weight_only_gemm"):
                libraries = {s.record["backend"] for s in part.ranking.ranked}
                doubtful = part.ranking.ties or any(s.is_disturbed for s in part.ranking.ranked)
                alone = len(libraries) < 2
                wins["only one library" if alone else "undecided" if doubtful else part.summary.library_title] += 1
        sentences.append(f"{variant}: {', '.join(f'{name} {count}' for name, count in wins.most_common())}")
    return [f"Fastest library, by number of products: {'; '.join(sentences)}."]


def gain_sentence(data: Data, suites: Sequence[str], variant: str) -> list[str]:
    """How many times the tokens per second of the first pass the others allow; nothing where one is disturbed."""
    sums = [s for suite in suites if (s := data.sum_of(suite, variant)) and not s.is_disturbed]
    if len(sums) < 2:
        return []
    common, names = names_of([s.suite for s in sums])
    ratios = (units.significant(s.per_s / sums[0].per_s) for s in sums[1:])
    parts = [f"{ratio}× with {name}" for ratio, name in zip(ratios, names[1:], strict=True)]
    return [f"In {variant} {common}, tokens per second over those with {names[0]}: {listed(parts)}."]


def growth_sentence(data: Data, suites: Sequence[str], variant: str, kind: str) -> list[str]:
    """The share of a group of kernels in each pass; nothing where fewer than two are undisturbed."""
    sums = [s for suite in suites if (s := data.sum_of(suite, variant)) and not s.is_disturbed]
    if len(sums) < 2:
        return []
    common, names = names_of([s.suite for s in sums])
    parts = [f"{units.percent(s.share(kind))} with {name}" for s, name in zip(sums, names, strict=True)]
    return [f"In {variant} {common}, {kind} takes {listed(parts)}."]


def memory_sentence(data: Data, suite: str) -> list[str]:
    """Tokens per second if every array came once from memory and nothing else took time; none without a bandwidth."""
    found = [(variant, s) for variant in VARIANTS if (s := data.sum_of(suite, variant))]
    rates = [part.limits.dram(part.summary.record["threads"]) for _, s in found for part in s.parts[:1]]
    if not found or None in rates:
        return []
    parts = []
    for (variant, s), rate in zip(found, rates, strict=True):
        moved = sum(part.count * part.summary.record["traffic_bytes"] for part in s.parts)
        parts.append(f"{variant} {units.significant(s.of.units * (rate or 0.0) / moved)}")
    return [
        f"Moving each array once at the bandwidth of memory would allow, with {name_of(suite)}: {', '.join(parts)}."
    ]


def caches_sentence(found: Sum) -> list[str]:
    """Where the kernels found their arrays."""
    kinds = {part.summary.record["settings"].get("cache", "hot") for part in found.parts}
    where = {
        "hot": "Arrays were in caches where they fit",
        "cold": "Every array came from memory, as in a model that is larger than the caches",
        "weights": "Weights came from memory, and other arrays were in caches where they fit",
    }
    return [f"{where[kind]} (`cache={kind}`)." for kind in sorted(kinds)] if len(kinds) == 1 else []


def ratio_sentences(data: Data, suite: str) -> list[str]:
    """How many times as many tokens as f32 the other types allow; only where neither is disturbed."""
    base = data.sum_of(suite, "f32")
    parts = [
        f"{variant} {units.significant(base.time_s / s.time_s)}×"
        for variant in VARIANTS[1:]
        if base and not base.is_disturbed and (s := data.sum_of(suite, variant)) and not s.is_disturbed
    ]
    return [f"Tokens per second over those of f32, with {name_of(suite)}: {listed(parts)}."] if parts else []


def replaced_sentence(found: Sum | None) -> list[str]:
    """Which kernels count in f32 because no library has them in 16 bits."""
    if found is None:
        return []
    labels = dict.fromkeys(part.label for part in found.parts if part.summary.record["precision"] == "f32")
    return [f"No library of these files has {listed(list(labels))} in bf16, so that counts in f32."] if labels else []


def left_out_sentence(suite: str) -> list[str]:
    """What the model calls and no operation serves."""
    names = dict.fromkeys(kernel.kernel.split()[0] for kernel in left_out(suite))
    return [f"Not in it, because no operation serves it: {', '.join(f'`{name}`' for name in names)}."] if names else []


# ---- a picture


def picture(title: str, sums: Sequence[Sum]) -> str:
    """Bars of milliseconds per token, one per pass, with a colour per group of kernels, as SVG."""
    kinds = [kind for kind in (*dict.fromkeys(KINDS.values()), OTHER) if any(s.share(kind) > 0 for s in sums)]
    shown = []
    for s in sums:
        each, p = s.time_s / s.of.units, s.of.parameters
        text = units.seconds(each) + (" (disturbed)" if s.is_disturbed else "")
        label = f"batch {p['batch']}, context {p['context']:,}"
        shown.append(StackedBar(label, {kind: s.share(kind) * each for kind in kinds}, text))
    return svg(title, shown)


# ---- the page

INTRODUCTION = """\
# Kernels of language models

What a token and a prompt of a language model cost on a CPU, kernel by kernel: which kernel takes how much of the time,
which limit of the machine it is near, and which library is the fastest. This page is for people who work on the speed
of language models. `docs/make_language_models.py` writes it from result files.
"""

HOW_TO_READ = f"""\
## How to read it

- **Tokens per second** are an upper bound made of kernels: each kernel as often as a pass calls it, one after the
  other, with its fastest library. What runs between kernels is not in it. ± is half the interval of the sum, which goes
  from the sum of the lower ends of the kernels' 95 % intervals to that of the upper ends.
- **Types**: in *int8*, products multiply weights and activations of 8 bits. In *int8 weights* and *int4 weights* only
  the weights have 8 or 4 bits, in groups of 128 with a scale, and activations are bf16. All other kernels are bf16
  there.
- **limit** is the measured limit of the machine that explains the time, and **of it** the share that is reached;
  *unexplained*: no limit accounts for half of the time ([comparing.md](comparing.md#limits)).
- **next** is the second library and its time over that of the fastest. ≈: the order is not decided. {DISTURBED} marks
  times that other programs disturbed.
"""

YOUR_MACHINE = """\
The last command overwrites this page. `deepbench show decode.jsonl --by application` prints the total of every pass,
and `deepbench report decode.jsonl -o report.html` makes a page with every kernel. [models.md](models.md) has other
models and sizes.
"""


def paragraph(*sentences: str) -> list[str]:
    """Sentences in lines of at most 120 characters."""
    return [*textwrap.wrap(" ".join(sentences), 120), ""] if sentences else []


def commands() -> list[str]:
    """Those of the docstring of this file."""
    block = (__doc__ or "").partition("    deepbench")[2].partition("\n\nAll numbers")[0]
    return textwrap.dedent(f"    deepbench{block}").splitlines()


def machine_of(data: Data) -> str:
    """Machine, libraries and date of the files."""
    header = data.files[0].header
    machine = header["machine"]
    libraries = {
        f"{answer['library']['name']} {answer['library']['version']}": None
        for file in data.files
        for name, answer in file.header["libraries"].items()
        if "library" in answer and answer["library"]["version"] and any(s.record["backend"] == name for s in file)
    }
    threads = sorted({s.record["threads"] for file in data.files for s in file})
    peaks = {
        units.data_bytes(machine["memory_bytes"]) if machine.get("memory_bytes") else None: None,
        f"{listed([str(t) for t in threads])} threads": None,
    }
    dram = next((rate for file in data.files if (rate := file.limits.dram(threads[-1])) is not None), None)
    memory = f" Memory is read at {units.bytes_per_s(dram)} GB/s." if dram else ""
    facts = [machine.get("cpu") or "unknown processor", *filter(None, peaks), *libraries]
    return f"{', '.join(map(str, facts))}; {header['started'][:10]}.{memory}"


def page(files: Sequence[Results]) -> tuple[str, dict[str, str]]:
    """The page, and the pictures that it shows, by name."""
    data = Data(files)
    decode, prefill = data.passes(DENSE, DECODE), data.passes(DENSE, PREFILL)
    experts = data.passes(EXPERTS, DECODE)
    pictures: dict[str, str] = {}
    lines = [INTRODUCTION, *paragraph(machine_of(data)), *_disturbed(data), HOW_TO_READ]
    if decode:
        lines += _section("A token: decode of Llama 3.2 1B", data, decode, EXPLAINED[DECODE], "of a token", VARIANTS)
        alone, longer = [s for s in decode if _batch(s) == 1], [s for s in decode if _context(s) == 2048]
        lines += paragraph(*growth_sentence(data, alone, "bf16", "attention"), *gain_sentence(data, longer, "bf16"))
        lines += _picture(pictures, "language-models-decode", "Time per token in bf16, Llama 3.2 1B", data, decode)
        if (suite := chosen(decode, EXPLAINED[DECODE])) and (table := weights_table(data, suite)):
            title = f"Products by type, batch {_batch(suite)}: time of a call, and the share of its nearest limit"
            lines += [f"{title}:", *table]
    if prefill:
        lines += _section(
            "A prompt: prefill of Llama 3.2 1B", data, prefill, EXPLAINED[PREFILL], "of a prompt", [*TYPES]
        )
        lines += paragraph(*growth_sentence(data, prefill, "bf16", "attention"))
    table = experts_table(data)
    if experts or table:
        lines += ["## Mixture of experts", ""]
    if experts:
        lines += ["Tokens per second that the kernels of Qwen 3 30B-A3B allow, by batch × context:"]
        lines += throughput_table(data, experts, ["bf16"])
        lines += _sentences(data, experts, OF_EXPERTS, gain_sentence(data, experts, "bf16"))
    if table:
        lines += ["Products of experts for 8 tokens in bf16:", *table]
    lines += [
        "## Your machine",
        "",
        "```sh",
        *commands(),
        "```",
        "",
        YOUR_MACHINE,
    ]
    return "\n".join(lines).rstrip() + "\n", pictures


def _batch(suite: str) -> int:
    return pass_of(suite).parameters["batch"]


def _context(suite: str) -> int:
    return pass_of(suite).parameters["context"]


def _disturbed(data: Data) -> list[str]:
    ranked = [s for file in data.files for s in file if s.is_ranked]
    disturbed, single = sum(s.is_disturbed for s in ranked), sum(s.single_process for s in ranked)
    sentences = []
    if disturbed:
        sentences.append(f"**{disturbed} of {len(ranked)} times were disturbed by other programs.**")
    if single:
        why = "so their intervals ignore the variation between processes"
        sentences.append(f"{single} of {len(ranked)} times come from one process only, {why}.")
    return paragraph(*sentences)


def _section(
    title: str, data: Data, suites: Sequence[str], wanted: Mapping[str, int], share: str, variants: Sequence[str]
) -> list[str]:
    """Tokens per second of every pass, then one of them kernel by kernel in bf16."""
    lines = [f"## {title}", "", "Tokens per second that the kernels allow, by batch × context:"]
    lines += throughput_table(data, suites, variants)
    lines += _sentences(data, suites, wanted, [])
    suite = chosen(suites, wanted)
    if suite is not None and (found := data.sum_of(suite, "bf16")):
        lines += [f"Kernel by kernel in bf16, {name_of(suite)}:", *kernel_table(found, share)]
    return lines


def _sentences(data: Data, suites: Sequence[str], wanted: Mapping[str, int], more: Sequence[str]) -> list[str]:
    """About one of the passes: what takes how much of its time, and what is not in it."""
    suite = chosen(suites, wanted)
    found = data.sum_of(suite, "bf16") if suite else None
    if suite is None or found is None:
        return []
    shares = [] if found.is_disturbed else [shares_sentence(found)]
    return paragraph(
        *caches_sentence(found),
        *ratio_sentences(data, suite),
        *more,
        *shares,
        *replaced_sentence(found),
        *left_out_sentence(suite),
    )


def _picture(pictures: dict[str, str], name: str, title: str, data: Data, suites: Sequence[str]) -> list[str]:
    sums = [s for suite in suites if (s := data.sum_of(suite, "bf16"))]
    if not sums:
        return []
    pictures[f"{name}.svg"] = picture(f"{title}: a sum of kernels", sums)
    return [f"![{title}]({PICTURES}/{name}.svg)", ""]


def main(names: Sequence[str]) -> None:
    """Write the page and its pictures next to this file."""
    if not names:
        raise SystemExit("name the result files of the commands in the docstring of this file")
    try:
        text, pictures = page([load(name) for name in names])
    except BadInput as error:
        raise SystemExit(str(error)) from None
    folder = Path(__file__).parent
    (folder / PAGE).write_text(text, encoding="utf-8")
    for name, drawn in pictures.items():
        (folder / PICTURES / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
