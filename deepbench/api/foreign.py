"""Results of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepbench.api.results import Results, load_kernels

if TYPE_CHECKING:
    from deepbench.formats import ImportedFile


def import_results(
    file: str | Path,
    output: str | Path | None = None,
    *,
    machine: str | None = None,
    library: str | None = None,
    backend: str | None = None,
    threads: int | None = None,
    case: str | None = None,
) -> Results:
    """Convert results of another program to a result file, and load it. The times stay marked as unchecked.

    Args:
        file: of nccl-tests, benchdnn, nvbench, pyperf or the original DeepBench.
        output: the result file, which must not exist; None: the name of `file` with `.jsonl`, in this folder.
        machine: where the file does not name it.
        library: its name and version, such as `cuDNN 7.6`, where the file does not name it.
        backend: the name of that library in DeepBench, such as `cudnn`.
        threads: where the file does not say it; None: one.
        case: of nvbench and pyperf: the case of a benchmark; `{M}` stands for its axis M.
    """
    return load_kernels(
        convert(file, output, machine=machine, library=library, backend=backend, threads=threads, case=case)[0]
    )


def convert(
    file: str | Path,
    output: str | Path | None = None,
    *,
    machine: str | None = None,
    library: str | None = None,
    backend: str | None = None,
    threads: int | None = None,
    case: str | None = None,
) -> tuple[Path, ImportedFile, int]:
    """As `import_results`; returns the result file, what was left out and why, and the number of results."""
    from deepbench import formats

    target = Path(output) if output else Path(f"{Path(file).stem}.jsonl")
    options = formats.ImportOptions(machine, library, backend, threads, case)
    imported, count = formats.import_file(Path(file), target, options)
    return target, imported, count
