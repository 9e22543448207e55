"""The cases of a conformance report: small problems of everything that a device should do, and large ones for rates.

Small problems come from `Op.smoke`: one of each kind, such as each elementwise function, and at least two, in every
precision and direction that a backend marks. All have default settings; each other setting is tried once per backend,
and the types of results (`result`) in every precision, because some libraries have products of one of them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deepbench.core.backend import Backend, all_backends, find_backend
from deepbench.core.case import Case, Pattern
from deepbench.core.devices import CPU
from deepbench.core.op import Op, all_ops
from deepbench.core.precision import PRECISIONS
from deepbench.ops.memory import STREAMS
from deepbench.plan.cases import Choices, Planned, expand
from deepbench.plan.fit import Limit, fitted
from deepbench.plan.suites import Entry

# Bytes of all arrays of a problem that measures the bandwidth of memory. Few caches hold them, and each of the three
# arrays of a sum has 128 MiB, the most that WebGPU promises for a buffer.
STREAM_BYTES = 3 * 2**27
# The setting that says in which type results are stored.
RESULT = "result"
# A call of a large product on a device takes about this long at most: its clock makes some fifty.
PRODUCT_S = 0.2


def backends_of(choices: Choices) -> list[Backend]:
    """The backends of a report: those that are named, else those that a run on this device uses."""
    if choices.backends:
        return [find_backend(name) for name in choices.backends]
    return [b for b in all_backends().values() if b.is_default_on(choices.device) and b.computes and not b.is_group]


def conformance_cases(choices: Choices, threads: int, flop_per_s: dict[str, float]) -> list[Planned]:
    """All cases of a report.

    `flop_per_s` has by backend the rate that a product of medium size reached on a device. It decides how large
    products are there; a backend without one gets only small ones.
    """
    entries = [
        entry for backend in backends_of(choices) for entry in _entries(backend, choices, flop_per_s.get(backend.name))
    ]
    return expand(entries, choices, threads)


def pilot(backend: Backend, choices: Choices, threads: int) -> Case | None:
    """A product of medium size, in the first precision that serves it; None if the backend has no products."""
    for op in _products():
        for precision in [n for n in PRECISIONS if not choices.precisions or n in choices.precisions]:
            if choices.ops and op.name not in choices.ops:
                continue
            entry = Entry(Pattern(op.name, op.probes[-1], op.directions[0], precision, backend.name), None)
            for planned in expand([entry], choices, threads):
                return planned.case
    return None


def _entries(backend: Backend, choices: Choices, flop_per_s: float | None) -> Iterator[Entry]:
    for op in all_ops().values():
        if op.is_group:
            continue
        for direction in op.directions:
            served = [name for name in PRECISIONS if backend.supports(op.name, name, direction)]
            for precision in served:
                yield from _lines(op, _small(op), direction, precision, backend)
                is_first = precision == ("f32" if "f32" in served else served[0]) and direction == op.directions[0]
                for name, value in _other_settings(op):
                    if is_first or name == RESULT:
                        yield from _lines(op, op.smoke[-1:], direction, precision, backend, (name, value))
    for op in _products():
        problems = [*op.probes]
        if choices.device != CPU:
            limit = Limit(None, round(PRODUCT_S * (flop_per_s or 0.0)))
            largest = [*op.probes, *op.device_probes] if flop_per_s is not None else []
            problems = [fitted(op, p, op.directions[:1], {}, limit) for p in largest]
        for precision in PRECISIONS:
            for value in op.settings.get(RESULT, ("",)):
                setting = [(RESULT, value)] if value else []
                yield from _lines(op, problems, op.directions[0], precision, backend, *setting)
    yield from _streams(backend)


def _lines(
    op: Op, problems: Iterable[Any], direction: str, precision: str, backend: Backend, *settings: tuple[str, str]
) -> Iterator[Entry]:
    for problem in dict.fromkeys(problems):
        pattern = Pattern(op.name, problem, direction, precision, backend.name, settings=settings)
        yield Entry(pattern, None)


def _small(op: Op) -> list[Any]:
    """The last problem of each kind, and the first of all: at least two where there are two."""
    kinds = {tuple(v for v in p.values.values() if isinstance(v, str)): p for p in op.smoke}
    return [op.smoke[0], *kinds.values()] if len(kinds) == 1 else [*kinds.values()]


def _other_settings(op: Op) -> Iterator[tuple[str, str]]:
    """Each value that is no default, of settings that say what is computed; `rare_settings` have marks of their own."""
    for name, values in op.settings.items():
        if name not in (*op.rare_settings, *op.variants):
            yield from ((name, value) for value in values[1:])


def _products() -> list[Op]:
    return [op for op in all_ops().values() if op.probes]


def _streams(backend: Backend) -> Iterator[Entry]:
    """Problems that memory limits: copies, else the sum of two vectors."""
    ops = all_ops()
    for name, kind, arrays in (("memory", "copy", sum(STREAMS["copy"])), ("elementwise", "add", 3)):
        if backend.supports(name, "f32", "forward"):
            problem = ops[name].Problem(kind, STREAM_BYTES // (4 * arrays) // 2 * 2)  # type: ignore[call-arg]
            yield from _lines(ops[name], [problem], "forward", "f32", backend)
            return
