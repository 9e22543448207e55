"""Problems in the formats of simulators, compilers and benchmarks of libraries: what all formats share.

A format writes layers: the work that its program knows. A problem that it cannot express as one layer becomes several,
or one that runs several times. Each output is counted again from its own text, so that no batch, no padding and no gate
is lost on the way.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from deepbench.core import registry
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, DeepBenchError, shorten
from deepbench.core.json_lines import sanitized
from deepbench.core.lowering import MatrixProduct
from deepbench.core.version import VERSION
from deepbench.ops.conv.problem import Conv
from deepbench.plan.problems import ExportedProblem

COUNTS = "counts.json"
"""The file beside every output, with what no other format has a place for."""

MOST_PROBLEMS = 20_000

ONLY_PRODUCTS = "layers are products alone: without bias, activation, gates, softmax, mask, and addition to C"


@dataclass(frozen=True)
class ProblemOptions:
    """What the user adds."""

    version: str | None = None
    """Of the format; None: its first."""
    most_multiply_adds: int | None = None
    """Larger problems are left out."""


@dataclass(frozen=True)
class WrittenLayer:
    """One layer of the output."""

    name: str
    """As the output has it."""
    problem: str
    """The name of the problem that it belongs to."""
    times: int
    """How often one call of the problem runs the layer."""
    multiply_adds: int | None
    """Of one run, as the problem has it; None: the layer is no product."""
    product: MatrixProduct | None = None
    """What it computes, where it is a product of matrices."""


@dataclass
class ProblemExport:
    """What a format has written."""

    files: dict[str, str | bytes] = field(default_factory=dict)
    """By path, relative to the folder of the output."""
    layers: list[WrittenLayer] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Problems that are not in it, each with the reason."""
    remarks: list[str] = field(default_factory=list)
    """What differs from the problem."""
    computed: dict[str, str] = field(default_factory=dict)
    """What the output of a problem computes, as a text like that of the problem, by the name of the problem."""

    @property
    def texts(self) -> dict[str, str]:
        """The files that are texts."""
        return {path: content for path, content in self.files.items() if isinstance(content, str)}


class ProblemFormat(ABC):
    """A format of problems. Subclass it, and end the file with `FORMAT = MyFormat()`."""

    name: str
    """As `deepbench export --to` has it."""
    reads: str
    """Which program reads it."""
    versions: ClassVar[tuple[str, ...]] = ()
    """Of the format, the default first; empty: there is one."""

    @abstractmethod
    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """The files. What the format cannot express is left out, with the reason."""

    @abstractmethod
    def recount(self, export: ProblemExport) -> dict[str, int]:
        """The multiply-adds of each layer, by its name, from the text of the output alone."""


def problem_formats() -> dict[str, ProblemFormat]:
    """All formats of problems, by name."""
    return {name: found for name, found in registry.registered("formats").items() if isinstance(found, ProblemFormat)}


def find_problem_format(name: str) -> ProblemFormat:
    """The format of problems with this name; `BadInput` for any other word."""
    known = problem_formats()
    if name not in known:
        raise BadInput(f"--to is {', '.join(known)}, found {shorten(name)}{did_you_mean(name, list(known))}")
    return known[name]


def write(to: ProblemFormat, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
    """What the format writes, counted again, with its counts; `BadInput` where nothing is left."""
    if options.version is not None and options.version not in to.versions:
        versions = f"its versions are {', '.join(to.versions)}" if to.versions else "it has one version"
        raise BadInput(f"{to.name} has no version {shorten(options.version)}; {versions}")
    if len(problems) > MOST_PROBLEMS:
        raise BadInput(f"there are {len(problems)} problems; at most {MOST_PROBLEMS} are exported at once")
    kept, too_large = _within(problems, options.most_multiply_adds)
    export = to.write_problems(kept, options)
    export.left_out[:0] = too_large
    if not export.layers:
        first = f"; the first: {export.left_out[0]}" if export.left_out else ""
        raise BadInput(f"{to.name} can express none of the {len(problems)} problems{first}")
    counted = to.recount(export)
    for layer in export.layers:
        if layer.multiply_adds is not None and counted.get(layer.name) != layer.multiply_adds:
            raise DeepBenchError(
                f"the output for {to.name} has {counted.get(layer.name)} multiply-adds in the layer {layer.name}, and "
                f"the problem has {layer.multiply_adds}: this is a fault of deepbench, so nothing was written"
            )
    export.files[COUNTS] = json.dumps(sanitized(_counts(to, problems, export)), indent=1) + "\n"
    return export


def _within(problems: Sequence[ExportedProblem], most: int | None) -> tuple[list[ExportedProblem], list[str]]:
    """The problems that are small enough, and the others with the reason."""
    kept, too_large = [], []
    for problem in problems:
        count = problem.flop // 2
        if most is not None and count > most:
            too_large.append(f"{problem.text}: {count} multiply-adds are more than --max-macs {most}")
        else:
            kept.append(problem)
    return kept, too_large


def _counts(to: ProblemFormat, problems: Sequence[ExportedProblem], export: ProblemExport) -> dict[str, Any]:
    """What the output means: the case of each problem, its work, its applications, and its layers."""
    layers: dict[str, list[dict[str, Any]]] = {}
    for layer in export.layers:
        facts = {"name": layer.name, "times": layer.times, "multiply_adds": layer.multiply_adds}
        product = asdict(layer.product) if layer.product else {}
        layers.setdefault(layer.problem, []).append({**facts, **({"product": product} if product else {})})
    return {
        "tool": f"deepbench {VERSION}",
        "format": to.name,
        "problems": [
            {
                "name": p.name,
                "problem": p.text,
                **({"computed": export.computed[p.name]} if p.name in export.computed else {}),
                "flop": p.flop,
                "sources": p.sources,
                "layers": layers[p.name],
            }
            for p in problems
            if p.name in layers
        ],
        "left_out": export.left_out,
        "remarks": export.remarks,
    }


def layers_of_products(
    problems: Sequence[ExportedProblem], export: ProblemExport, batch: bool = False, sparse: bool = False
) -> Iterator[tuple[ExportedProblem, MatrixProduct, WrittenLayer]]:
    """Each product of each problem, with its layer, which is put among those of the export.

    `batch`: whether one layer holds all products of a batch; without, it runs as often. `sparse`: whether the format
    has a place for zeros.
    """
    export.remarks.append(ONLY_PRODUCTS)
    for problem in problems:
        products = problem.products
        if not products:
            export.left_out.append(f"{problem.text}: it is no product of matrices")
            continue
        if not sparse and any(product.non_zeros is not None for product in products):
            export.left_out.append(f"{problem.text}: zeros at these positions cannot be expressed")
            continue
        if (total := sum(product.multiply_adds for product in products)) != problem.flop // 2:
            export.remarks.append(
                f"{problem.name}: {total} multiply-adds in place of {problem.flop // 2}, because masked pairs are "
                "computed"
            )
        for product in products:
            name = f"{problem.name}_{product.role}" if product.role else problem.name
            times = product.steps if batch else product.repeats
            layer = WrittenLayer(name, problem.name, times, product.multiply_adds // times, product)
            export.layers.append(layer)
            yield problem, product, layer


def divided(
    problems: Sequence[ExportedProblem], is_own: Callable[[Conv], bool], export: ProblemExport
) -> tuple[list[tuple[ExportedProblem, Conv]], list[ExportedProblem]]:
    """The convolutions forward that a format has a layer of its own for, which are put into the export; the others."""
    convolutions, others = [], []
    for problem in problems:
        p = problem.case.problem
        if isinstance(p, Conv) and problem.case.direction == "forward" and is_own(p):
            export.layers.append(WrittenLayer(problem.name, problem.name, 1, p.multiply_adds))
            convolutions.append((problem, p))
        else:
            others.append(problem)
    return convolutions, others


def text_of(export: ProblemExport, path: str) -> str:
    """A file of the output that is a text."""
    content = export.files[path]
    assert isinstance(content, str), f"{path} is a text"
    return content
