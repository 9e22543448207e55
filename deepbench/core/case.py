"""Case: one problem on one library with its settings. One line of text identifies it everywhere.

    gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 onednn threads=2

The line is the key in a result file, the title in a table and, after `deepbench run`, the command that measures the
case again. Settings with their default value are omitted; `threads` is always present.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core import devices, registry
from deepbench.core.aliases import did_you_mean, meant
from deepbench.core.errors import BadInput, shorten
from deepbench.core.precision import PRECISIONS, Precision, find_precision
from deepbench.core.problem import fields_of, make_problem

if TYPE_CHECKING:
    from deepbench.core.backend import Backend
    from deepbench.core.op import Op

# `backward` computes both gradients in one call, for libraries that do not separate them.
DIRECTIONS = ("forward", "backward", "backward_data", "backward_weights")

# Settings of how a case runs, which every operation has. The first value is the default.
RUN_SETTINGS = {"pin": ("none", "cores"), "cache": ("hot", "cold", "weights")}

MOST_THREADS = 4096


@dataclass(frozen=True)
class Case:
    """Problem, direction, precision, backend, threads and settings. Frozen, so it can be a key."""

    op: str
    problem: Any
    direction: str
    precision: Precision
    backend: str
    threads: int
    overrides: tuple[tuple[str, str], ...] = ()
    """Settings that differ from their default, sorted by name."""
    named_device: str | None = None
    """The device, where it is not the usual one of the backend."""

    @property
    def device(self) -> str:
        """What it runs on, such as `cpu`, `cuda` or `pjrt:tpu`."""
        return self.named_device or self.library.device

    @property
    def operation(self) -> Op:
        """The operation; `BadInput` if there is none of this name."""
        found: Op = registry.find("ops", self.op)
        return found

    @property
    def library(self) -> Backend:
        """What calls the library; `BadInput` if there is none of this name."""
        found: Backend = registry.find("backends", self.backend)
        return found

    @property
    def settings(self) -> dict[str, str]:
        """The value of every setting, defaults included."""
        return {n: v[0] for n, v in known_settings(self.op).items()} | dict(self.overrides)

    @property
    def text(self) -> str:
        """The one-line text; `parse_case` is its inverse."""
        words = [self.op, self.problem.text, self.direction, self.precision.name, self.backend]
        device = [f"device={self.named_device}"] if self.named_device else []
        settings = (f"{name}={value}" for name, value in self.overrides)
        return " ".join([*words, f"threads={self.threads}", *device, *settings])


@dataclass(frozen=True)
class Pattern:
    """A case from which words may be missing; `plan` fills them in with every possible choice."""

    op: str
    problem: Any
    direction: str | None = None
    precision: str | None = None
    backend: str | None = None
    threads: int | None = None
    device: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    """Every setting in the text, defaults included; these stay as they are."""


def run_settings_text(case: Case) -> str:
    """The run settings of a case as text, so that its baselines run the same way."""
    return " ".join(f"{name}={value}" for name, value in case.overrides if name in RUN_SETTINGS)


def known_settings(op_name: str) -> dict[str, tuple[str, ...]]:
    """All settings of an operation with their possible values. The first value is the default."""
    return {**registry.find("ops", op_name).settings, **RUN_SETTINGS}


def parse_case(text: str) -> Case:
    """The case that a complete line describes. `BadInput` says which word is wrong or missing."""
    pattern = parse_pattern(text)
    for word in ("direction", "precision", "backend", "threads"):
        if getattr(pattern, word) is None:
            choices = {
                "direction": registry.find("ops", pattern.op).directions,
                "precision": PRECISIONS,
                "backend": registry.names("backends"),
                "threads": ("threads=1", "threads=2", "…"),
            }
            raise BadInput(f"the case {shorten(text)!r} has no {word}; add one of {', '.join(choices[word])}")
    return Case(
        pattern.op,
        pattern.problem,
        pattern.direction or "",
        find_precision(pattern.precision or ""),
        pattern.backend or "",
        pattern.threads or 0,
        check_settings(pattern.op, dict(pattern.settings)),
        device_of_case(pattern.backend or "", pattern.device),
    )


def device_of_case(backend: str, device: str | None) -> str | None:
    """The device as a case states it: None for the usual one of the backend, and `BadInput` where it reaches none."""
    if device is None:
        return None
    library = registry.find("backends", backend)
    if device == library.device:
        return None
    if not library.reaches(device):
        raise BadInput(f"{library.title} runs on {library.device}, not on {shorten(device)!r}")
    return device


def parse_patterns(text: str) -> list[Pattern]:
    """The patterns that a line describes: with `f32,bf16 onednn,mkl` there are four of them."""
    words = [[word] if i == 0 else _alternatives(word) for i, word in enumerate(text.split())]
    return [parse_pattern(" ".join(chosen)) for chosen in itertools.product(*words)]


def parse_pattern(text: str) -> Pattern:
    """The pattern that a line describes. Only the operation and its sizes are required."""
    words = text.split()
    if not words:
        raise BadInput("the case is empty; write for example: gemm m=1760 n=128 k=1760 f32 onednn")
    op = registry.find("ops", words[0])
    fields = {f.name for f in fields_of(op.Problem)}
    values: dict[str, int | str] = {}
    choices: dict[str, Any] = {}
    settings: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals and name in fields:
            _set_once(values, name, read_field(op, name, value), text)
        elif equals and name == "threads":
            _set_once(choices, "threads", thread_count(value), text)
        elif equals and name == "device":
            _set_once(choices, "device", devices.parse(value, device_backends()).device, text)
        elif equals:
            _set_once(settings, name, value, text)
        else:
            kind = _kind_of(word)
            if kind in choices:
                both = f", or type both as {choices[kind]},{word}" if choices[kind] != word else ""
                raise BadInput(f"{kind} appears twice in {shorten(text)!r}; remove one{both}")
            choices[kind] = word
    problem = make_problem(op, values)
    if choices.get("direction", op.directions[0]) not in op.directions:
        raise BadInput(f"{op.name} has no direction {choices['direction']}; choose {', '.join(op.directions)}")
    check_settings(op.name, settings)
    return Pattern(op.name, problem, settings=tuple(sorted(settings.items())), **choices)


def check_settings(op_name: str, settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings that differ from their default, sorted; `BadInput` for unknown names and values."""
    known = known_settings(op_name)
    for name, value in settings.items():
        if name not in known:
            raise BadInput(f"{op_name} has no field or setting {shorten(name)!r}; its settings are {', '.join(known)}")
        if value not in known[name]:
            raise BadInput(f"{name} must be one of {', '.join(known[name])}, found {shorten(value)!r}")
    return tuple(sorted((n, v) for n, v in settings.items() if v != known[n][0]))


def read_field(op: Any, name: str, text: str) -> int | str:
    """The value of a Problem's field: a word if the field is a choice, else an integer."""
    field = next(f for f in fields_of(op.Problem) if f.name == name)
    return text if "words" in field.metadata else whole_number(name, text)


def whole_number(name: str, text: str) -> int:
    """`text` as an integer; `BadInput` names the field and the text."""
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        found = repr(shorten(text)) if text else "nothing"
        raise BadInput(f"{name} must be a whole number, found {found}")
    if len(text) > 20:  # Python refuses to convert thousands of digits
        raise BadInput(f"{name} must be a whole number of at most 20 digits, found {len(text)}")
    return int(text)


def thread_count(text: str) -> int:
    """`text` as a number of threads, from 1 to MOST_THREADS."""
    threads = whole_number("threads", text)
    if not 1 <= threads <= MOST_THREADS:
        raise BadInput(f"threads must be from 1 to {MOST_THREADS}, found {threads}")
    return threads


def _set_once(values: dict[str, Any], name: str, value: Any, text: str) -> None:
    if name in values:
        raise BadInput(f"{name} appears twice in {shorten(text)!r}; remove one")
    values[name] = value


def device_backends() -> tuple[str, ...]:
    """The backends that name devices of their own, such as `pjrt:tpu`."""
    from deepbench.core.backend import all_device_backends

    return tuple(all_device_backends())


def words_by_kind() -> Mapping[str, Collection[str]]:
    """The words that may follow the sizes of a case, in any order."""
    return {"direction": DIRECTIONS, "precision": PRECISIONS, "backend": registry.names("backends")}


def _alternatives(word: str) -> list[str]:
    """`onednn,mkl` as two words; `BadInput` unless they are of one kind."""
    parts = [part for part in dict.fromkeys(word.split(",")) if part]
    if "=" in word or len(parts) < 2:
        return [word]
    kinds = dict.fromkeys(map(_kind_of, parts))
    if len(kinds) > 1:
        raise BadInput(f"{shorten(word)!r} joins {' and '.join(kinds)}; separate them by a space")
    return parts


def _kind_of(word: str) -> str:
    kinds = words_by_kind()
    for kind, words in kinds.items():
        if word in words:
            return kind
    known = [w for words in kinds.values() for w in words]
    found = meant(word, known)
    for kind, words in kinds.items():
        if found and found[0] in words:  # the words of this kind are all that a reader needs
            raise BadInput(
                f"{shorten(word)!r} is not a direction, precision or backend; "
                f"a {kind} is one of {', '.join(words)}{did_you_mean(word, known)}"
            )
    raise BadInput(
        f"{shorten(word)!r} is not a direction ({', '.join(DIRECTIONS)}), precision ({', '.join(PRECISIONS)}) "
        f"or backend ({', '.join(kinds['backend'])})"
    )
