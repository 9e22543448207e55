"""Models: the kernels that one forward pass or one training step of a network calls, how often, and where.

A model file is TOML. It has the hyperparameters of a network (`sizes`), its phases with their parameters, and its
kernels, one per line, whose fields are expressions of both. Networks that differ only in their hyperparameters share
the kernels of an architecture. docs/models.md describes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from deepbench.core.aliases import did_you_mean, refuse_unknown
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.precision import PRECISIONS
from deepbench.core.problem import LARGEST_SIZE
from deepbench.core.toml import parse_toml
from deepbench.plan.expressions import evaluate

# The phase in which a kernel also runs in the directions after its first.
TRAIN = "train"

# Divides the batch of a training step, which is then that of all devices together; each of them is a rank.
DEVICES, BATCH, RANKS = "devices", "batch", "ranks"

# What devices that divide a batch exchange.
ALL_REDUCE = "all_reduce"

# Words of a kernel's line that are no fields.
COUNT, WEIGHTS = "count", "weights"
DIRECTIONS = ("forward", "backward", "backward_data", "backward_weights")

# How networks run an operation: they add nothing to a product, and the next layer reads it in the type of the data.
OF_NETWORKS = dict.fromkeys(("gemm", "sparse_gemm"), (("beta", "0"), ("result", "narrow")))

# C(m × n) = A(m × k) · B(k × n): the gradients of products are products, with these sizes exchanged.
PRODUCTS = {"gemm": "mnk", "batched_gemm": "mnk", "grouped_gemm": "mk"}

# The largest model of the package has 11 kB. A trace has a line for each operator, some 180,000 in so many bytes.
MOST_MODEL_BYTES = 2**20
MOST_TRACE_BYTES = 8 * 2**20

# Far more than any model of the package has: 130 kernels, 60 names and 20 listed suites.
MOST_LINES = 2000
MOST_WORDS = 100
MOST_NAMES = 1000
MOST_PHASES = 100
MOST_MEMBERS = 200
LONGEST_TITLE = 1000

MOST_CALLS = 10**9
LONGEST_CHAIN = 20

TABLES = ("sizes", "phases", "kernels", "requires")

# The table in which `networks/traces/trace.py` keeps the operators of a traced network in their order.
TRACE = "trace"
TEXTS = ("title", "task", "source", "architecture", "unit")


@dataclass(frozen=True)
class Row:
    """A kernel of a model with its sizes, in one phase."""

    op: str
    """The name of an operation, which need not exist."""
    values: Mapping[str, int | str]
    directions: tuple[str, ...]
    count: int
    """How often one pass calls it, in each of the directions."""
    where: str
    """Where in the model."""
    weights: int | None
    """How many parameters of the model belong to it, over all calls; None: as many as its sizes say."""
    precision: str | None = None
    """None: the one that is chosen."""
    is_gradient: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    """How networks run it, where neither its line nor the run says."""


@dataclass(frozen=True)
class ModelSuite:
    """A network as its file describes it."""

    title: str
    source: str
    task: str
    unit: str
    """What one forward pass processes, such as `token`; `units` in a phase says how many. A phase may have its own."""
    sizes: Mapping[str, int | str]
    phases: Mapping[str, Mapping[str, int | str]]
    kernels: tuple[tuple[frozenset[str], str], ...]
    """The phases of each line (empty: all), and the line."""
    requires: Mapping[str, str] = field(default_factory=dict)
    """What sizes and parameters must fulfil: sentences, each with an expression that is 0 then."""
    is_traced: bool = False
    """Whether the lines are what a network ran, so that they say how."""

    def parameters(self, phase: str) -> dict[str, int]:
        """What can be set besides the phase, with defaults; `devices` has none."""
        values = self.phases[phase].items()
        return {name: value for name, value in values if isinstance(value, int) and name != "units"}

    @property
    def default_phase(self) -> str:
        """The first in the file."""
        return next(iter(self.phases))

    @cached_property
    def all_parameters(self) -> tuple[str, ...]:
        """The names of all parameters of all phases."""
        names = (name for phase in self.phases for name in (*self.parameters(phase), *self._divided(phase)))
        return tuple(dict.fromkeys(["phase", *names]))

    def _divided(self, phase: str) -> tuple[str, ...]:
        """The parameter that divides the batch, where a phase has a batch and ranks."""
        return (DEVICES,) if phase == TRAIN and {BATCH, RANKS} <= self.parameters(phase).keys() else ()

    def chosen(self, given: Mapping[str, str]) -> tuple[str, dict[str, int]]:
        """Phase and parameters, defaults included; `BadInput` says which exist."""
        phase = given.get("phase", self.default_phase)
        refuse_unknown([phase], self.phases, f"{self.title} has no phase")
        known = self.parameters(phase)
        names = (*known, *self._divided(phase))
        for name, text in given.items():
            if name == "phase":
                continue
            if name not in names:
                there_are = f"it has {', '.join(['phase', *names])}{did_you_mean(name, names)}"
                raise BadInput(f"{self.title} has no parameter {shorten(name)!r} in the phase {phase}; {there_are}")
            if not (text.isascii() and text.isdecimal() and len(text) < 11 and 1 <= int(text) <= LARGEST_SIZE):
                raise BadInput(f"{name} must be a whole number from 1 to {LARGEST_SIZE}, found {shorten(text)!r}")
            known[name] = int(text)
        if DEVICES in known:
            _check_devices(known[BATCH], known[DEVICES])
            if RANKS in given:
                raise BadInput(f"each of the {DEVICES} is one of the {RANKS}; leave out {RANKS}={given[RANKS]}")
        return phase, known

    def rows(self, phase: str, parameters: Mapping[str, int]) -> list[Row]:
        """The kernels of a pass in a phase, on each device. In training the gradients follow each kernel."""
        devices = parameters.get(DEVICES)
        own = {BATCH: parameters[BATCH] // devices, RANKS: devices} if devices else {}
        names = _Names({**self.sizes, **self.phases[phase], **parameters, **own})
        self._require(names)
        rows = []
        for phases, line in self.kernels:
            if not phases or phase in phases:
                row = _row(line, names)
                if row.count > 0:
                    rows += _with_gradients(row) if phase == TRAIN else [replace(row, directions=row.directions[:1])]
        if not self.is_traced:
            rows = [replace(row, settings=OF_NETWORKS.get(row.op, ())) for row in rows]
        return _of_devices(rows, devices, self.title) if devices else rows

    def _require(self, names: _Names) -> None:
        """`BadInput` where a requirement is not fulfilled, with the names in its expression and their values."""
        for sentence, text in self.requires.items():
            found: dict[str, int] = {}

            def value_of(name: str, found: dict[str, int] = found) -> int:
                return found.setdefault(name, names.value_of(name))

            if evaluate(text, value_of) != 0:
                values = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
                raise BadInput(f"{self.title}: {printable(shorten(sentence, 120))}; found {shorten(values, 120)}")

    def unit_of(self, phase: str) -> str:
        """What one forward pass processes in this phase."""
        return str(self.phases[phase].get("unit", self.unit))

    def units(self, phase: str, parameters: Mapping[str, int]) -> int:
        """How many units a forward pass processes, such as tokens or images, on all devices together."""
        return _Names({**self.sizes, **self.phases[phase], **parameters}).value_of("units")

    def weights(self, phase: str, parameters: Mapping[str, int]) -> int | None:
        """How many numbers the network learns; None if its file does not say."""
        names = _Names({**self.sizes, **self.phases[phase], **parameters})
        return names.value_of("parameters") if "parameters" in names.raw else None


def _check_devices(batch: int, devices: int) -> None:
    if batch % devices:
        possible = ", ".join(str(d) for d in range(1, min(batch, 1024) + 1) if batch % d == 0)
        raise BadInput(f"{DEVICES} must divide the batch of {batch}; {shorten(possible)} do, found {devices}")


def _of_devices(rows: list[Row], devices: int, title: str) -> list[Row]:
    """The rows of a device among those that divide a batch. One device alone exchanges nothing.

    `BadInput` for a model that exchanges something else than gradients: it divides more than the batch.
    """
    exchanges = dict.fromkeys(row.op for row in rows if RANKS in row.values)
    if list(exchanges) != [ALL_REDUCE]:
        has = f"it has {' and '.join(exchanges)}" if exchanges else "it has none"
        raise BadInput(f"{DEVICES} divide the batch of a model whose only exchange is {ALL_REDUCE}; {has} ({title})")
    return rows if devices > 1 else [row for row in rows if RANKS not in row.values]


class _Names:
    """The values of sizes and parameters; one may be an expression of others."""

    def __init__(self, raw: Mapping[str, int | str]) -> None:
        self.raw, self.open = dict(raw), list[str]()

    def value_of(self, name: str) -> int:
        value = self.raw.get(name)
        if value is None:
            raise BadInput(f"{name!r} is neither a size nor a parameter of this phase")
        if isinstance(value, str):
            if name in self.open:
                raise BadInput(f"{name!r} depends on itself")
            if len(self.open) == LONGEST_CHAIN:
                raise BadInput(f"{name!r} is needed by a chain of more than {LONGEST_CHAIN} names")
            self.open.append(name)
            value = self.raw[name] = evaluate(value, self.value_of)
            self.open.pop()
        return value

    def word(self, text: str) -> int | str:
        """The value of a field: a number, or a word where the text is the name of no size."""
        if text.isidentifier() and text not in self.raw:
            return text
        if (value := self.raw.get(text)) is not None and isinstance(value, str) and value.isidentifier():
            return value if value not in self.raw else self.value_of(text)
        return evaluate(text, self.value_of)


def _row(line: str, names: _Names) -> Row:
    words, _, where = line.partition("#")
    op, *rest = words.split(maxsplit=MOST_WORDS + 1)
    if len(rest) > MOST_WORDS:
        raise BadInput(f"a kernel has at most {MOST_WORDS} words, found more after {shorten(op)}")
    fields: dict[str, str] = {}
    directions, precisions = list[str](), list[str]()
    for word in rest:
        name, equals, text = word.partition("=")
        if equals and name and text and name not in fields:
            fields[name] = text
        elif word in DIRECTIONS:
            directions.append(word)
        elif word in PRECISIONS and not precisions:
            precisions.append(word)
        else:
            raise BadInput(f"wanted NAME=EXPRESSION, a direction or a precision, found {shorten(word)!r}")
    count = evaluate(fields.pop(COUNT, "1"), names.value_of)
    if count > MOST_CALLS:
        raise BadInput(f"count must be at most {MOST_CALLS}, found {count}")
    weights = fields.pop(WEIGHTS, None)
    if count <= 0:  # its sizes may make no sense then
        return Row(op, {}, ("forward",), 0, where.strip(), None)
    values = {name: names.word(text) for name, text in fields.items()}
    total = None if weights is None else evaluate(weights, _Names({**names.raw, **values}).value_of)
    precision = precisions[0] if precisions else None
    return Row(op, values, tuple(directions) or ("forward",), count, where.strip(), total, precision)


def _with_gradients(row: Row) -> list[Row]:
    """The row and, where it is a product, products for the gradients that it names as directions."""
    if row.op not in PRODUCTS:
        return [row]
    forward = replace(row, directions=("forward",))
    # One that lacks a size has no gradients, and cannot be measured: the reason is that of its forward pass.
    is_whole = all(size in row.values for size in PRODUCTS[row.op])
    return [forward, *(_gradient(row, d) for d in row.directions[1:] if is_whole)]


def _gradient(row: Row, direction: str) -> Row:
    """With dC of C = A · B: backward_data is dB = Aᵀ · dC, backward_weights is dA = dC · Bᵀ."""
    v, name, own = dict(row.values), direction.removeprefix("backward_"), "forward"
    if row.op == "grouped_gemm":
        if direction == "backward_data":
            v |= {"m": v["k"], "k": v["m"]}
        else:
            own = direction  # no forward product: the number of rows that it sums over differs between the groups
    elif direction == "backward_data":
        v |= {"m": v["k"], "k": v["m"], "a_t": 1}
    else:
        v |= {"n": v["k"], "k": v["n"], "b_t": 1}
    where = f"{row.where}, gradient of the {name}" if row.where else f"gradient of the {name}"
    return Row(row.op, v, (own,), row.count, where, 0, is_gradient=True)


# ---- reading


def parse_model(text: str, named: str, architecture: Callable[[str], str]) -> ModelSuite:
    """The model in the text of a file; `architecture` gives the text of the file with that name."""
    table = load_table(text, named)
    if name := table.get("architecture"):
        base = require_text(name, "architecture", named)
        table = _merged(load_table(architecture(base), base), table)
    for key in ("title", "phases", "kernels"):
        if key not in table:
            raise BadInput(f"{named} has no {key}; a model wants a title, phases and kernels")
    phases = table["phases"]
    if not phases or not all(name.isidentifier() for name in phases):
        raise BadInput(f"{named} wants phases with plain names; add for example [phases.inference] with batch = 1")
    if len(phases) > MOST_PHASES:
        raise BadInput(f"{named} has {len(phases)} phases; a model has at most {MOST_PHASES}")
    lines = []
    for key, kernels in table["kernels"].items():
        chosen = frozenset() if key == "all" else frozenset(key.split())
        lines += [
            (chosen, line.strip())
            for line in require_text(kernels, key, named).splitlines()
            if line.split("#")[0].strip()
        ]
    if len(lines) > MOST_LINES:
        raise BadInput(f"{named} has {len(lines)} kernels; a model has at most {MOST_LINES}")
    texts = {key: require_text(table.get(key, ""), key, named) for key in TEXTS}
    for text in (texts["title"], *phases):  # each of its cases names them
        if len(text) > LONGEST_TITLE:
            raise BadInput(f"{named}: {shorten(text)!r} has {len(text)} characters; a name has at most {LONGEST_TITLE}")
    return ModelSuite(
        texts["title"],
        texts["source"],
        texts["task"],
        texts["unit"] or "pass",
        _values(table.get("sizes", {}), named),
        {name: {"units": 1, **_values(values, named)} for name, values in phases.items()},
        tuple(lines),
        _requirements(table.get("requires", {}), named),
        TRACE in table,
    )


def parse_members(text: str, named: str) -> tuple[str, ...]:
    """The suites that a file lists in place of kernels, each once; none of a model."""
    members = load_table(text, named).get("suites", [])
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        raise BadInput(f"{named}: suites must be a list of names of suites")
    if len(members) > MOST_MEMBERS:
        raise BadInput(f"{named} lists {len(members)} suites; at most {MOST_MEMBERS} are read")
    return tuple(dict.fromkeys(members))


@lru_cache(maxsize=1)  # a command asks several times for what is in a file
def load_table(text: str, named: str) -> dict[str, Any]:
    """The table of a model, of a list of suites, or of a trace; do not change it. `BadInput` says what is wrong."""
    table = parse_toml(text, named)
    keys = (*TEXTS, *TABLES, TRACE, "suites")
    refuse_unknown(table, keys, f"{named} has an unknown key", "there are")
    for key in TABLES:
        if not isinstance(table.get(key, {}), dict):
            raise BadInput(f"{named}: {key} must be a table")
    if wrong := [name for name, phase in table.get("phases", {}).items() if not isinstance(phase, dict)]:
        raise BadInput(f"{named}: the phase {shorten(wrong[0])} must be a table")
    return table


def _merged(base: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """What the model says goes before what its architecture says; of the phases only those that the model has."""
    own = table.get("phases", {})
    phases = {name: {**base.get("phases", {}).get(name, {}), **values} for name, values in own.items()}
    return {
        **base,
        **table,
        "sizes": {**base.get("sizes", {}), **table.get("sizes", {})},
        "phases": phases,
        **{key: {**base.get(key, {}), **table.get(key, {})} for key in ("kernels", "requires")},
    }


def require_text(value: object, key: str, named: str) -> str:
    """The value of a key that must be a text; `BadInput` if it is none."""
    if not isinstance(value, str):
        raise BadInput(f"{named}: {shorten(key)} must be a text")
    return value


def _values(table: object, named: str) -> dict[str, int | str]:
    if not isinstance(table, dict):
        raise BadInput(f"{named}: sizes and phases must be tables")
    if len(table) > MOST_NAMES:
        raise BadInput(f"{named} has {len(table)} sizes in one table; a model has at most {MOST_NAMES}")
    for name, value in table.items():
        if not isinstance(value, int | str) or isinstance(value, bool) or not name.isidentifier():
            raise BadInput(f"{named}: {shorten(name)} must be a whole number, an expression or a word")
    return dict(table)


def _requirements(table: dict[str, Any], named: str) -> dict[str, str]:
    if len(table) > MOST_NAMES:
        raise BadInput(f"{named} has {len(table)} requirements; a model has at most {MOST_NAMES}")
    return {sentence: require_text(text, sentence, named) for sentence, text in table.items()}


def models_folder_text(folder: Path) -> Callable[[str], str]:
    """Reads architectures of the package."""

    def read(name: str) -> str:
        path = folder / f"{name}.toml"
        if not name.isidentifier() or not path.is_file():
            there_are = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
            raise BadInput(f"unknown architecture {shorten(name)!r}; there are {there_are}")
        return path.read_text(encoding="utf-8")

    return read
