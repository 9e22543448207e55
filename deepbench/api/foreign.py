"""Results of other programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from deepbench.api.results import Results, load_kernels
from deepbench.core.errors import BadInput, shorten
from deepbench.core.foreign_text import read_text

if TYPE_CHECKING:
    from deepbench.formats import ImportedFile

PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}

# No clock of a processor is outside.
SLOWEST_HZ, FASTEST_HZ = 1.0, 1e12

_CLOCK = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?(?:e[+-]?[0-9]{1,2})?) ?(?:([KMG])?Hz)?", re.IGNORECASE)


def import_results(
    file: str | Path,
    output: str | Path | None = None,
    *,
    machine: str | None = None,
    library: str | None = None,
    backend: str | None = None,
    threads: int | None = None,
    problems: str | Path | None = None,
    clock: str | float | None = None,
    case: str | None = None,
) -> Results:
    """Convert results of another program to a result file, and load it. The times stay marked as unchecked.

    Args:
        file: of nccl-tests, benchdnn, nvbench, pyperf, benchmark_model or the original DeepBench; of SCALE-Sim, ZigZag
            or Timeloop also a folder.
        output: the result file, which must not exist; None: the name of `file` with `.jsonl`, in this folder.
        machine: where the file does not name it.
        library: its name and version, such as `cuDNN 7.6`, where the file does not name it.
        backend: the name of that library in DeepBench, such as `cudnn`.
        threads: where the file does not say it; None: one.
        problems: of simulators and benchmark_model: the `counts.json` that `export_problems` wrote with the layers.
        clock: of simulators: cycles per second, as a number or such as `1GHz`.
        case: of nvbench and pyperf: the case of a benchmark; `{M}` stands for its axis M.
    """
    given = {"machine": machine, "library": library, "backend": backend, "threads": threads, "case": case}
    return load_kernels(convert(file, output, **given, problems=problems, clock=clock)[0])  # type: ignore[arg-type]


def convert(
    file: str | Path,
    output: str | Path | None = None,
    *,
    machine: str | None = None,
    library: str | None = None,
    backend: str | None = None,
    threads: int | None = None,
    problems: str | Path | None = None,
    clock: str | float | None = None,
    case: str | None = None,
) -> tuple[Path, ImportedFile, int]:
    """As `import_results`; returns the result file, what was left out and why, and the number of results."""
    from deepbench import formats

    target = Path(output) if output else Path(f"{Path(file).stem}.jsonl")
    counts = None
    if problems is not None:
        counts = read_text(Path(problems), formats.LARGEST_FOLDER_BYTES, "the counts.json of deepbench export")
    clock_hz = None if clock is None else _hertz(str(clock))
    options = formats.ImportOptions(machine, library, backend, threads, case, counts, clock_hz)
    imported, count = formats.import_file(Path(file), target, options)
    return target, imported, count


def _hertz(text: str) -> float:
    """`1GHz`, `940 MHz` or `1e9`; `BadInput` for anything else."""
    match = _CLOCK.fullmatch(text.strip())
    value = float(match[1]) * PREFIXES[(match[2] or "").upper()] if match else 0.0
    if not SLOWEST_HZ <= value <= FASTEST_HZ:
        raise BadInput(f"--clock wants cycles per second, such as 1GHz or 940e6, found {shorten(text)!r}")
    return value
