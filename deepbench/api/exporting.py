"""Results and problems in the formats of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from deepbench import formats
from deepbench.api.filters import Choices, Filters, What, make_choices, words_of
from deepbench.api.results import load_kernels
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import replacing
from deepbench.formats import Export, ExportOptions, _problems
from deepbench.formats._problems import ProblemExport, ProblemOptions
from deepbench.plan.problems import exported_problems
from deepbench.results.exported import exported

__all__ = ["export", "export_problems", "is_of_problems", "prepare", "prepare_problems", "write", "write_problems"]

# A folder of results of years.
MOST_FILES = 5_000


def export(
    files: str | Path | Sequence[str | Path],
    to: str,
    output: str | Path,
    *,
    commit: str | None = None,
    branch: str | None = None,
    repository: str | None = None,
    skip_damaged: bool = False,
) -> list[Path]:
    """Write results for another program.

    Args:
        files: a result file; of `otava` several, which become points in time.
        to: the format: `pytorch-hud`, `bencher`, `github-action-benchmark`, `otava`, `openmetrics` or
            `flashinfer-trace`.
        output: the file; of `otava` the beginning of two names, of `flashinfer-trace` a folder.
        commit: of the code that was measured, where the format has a place for it.
        branch: of that code.
        repository: of that code, as `owner/name`.
        skip_damaged: leave out damaged lines of files.

    Returns the files that were written. Times that other programs disturbed are marked, or left out where the format
    has no mark.
    """
    return write(prepare(files, to, output, commit, branch, repository, skip_damaged), output)


def prepare(
    files: str | Path | Sequence[str | Path],
    to: str,
    output: str | Path | None,
    commit: str | None = None,
    branch: str | None = None,
    repository: str | None = None,
    skip_damaged: bool = False,
) -> Export:
    """What `export` would write, and what is left out; without an output, of a format that is one text."""
    many, known = [files] if isinstance(files, str | Path) else list(files), formats.find_export_format(to)
    if output is None and not known.suffix:
        raise BadInput(f"--to {to} writes several files; name the output: -o {to}")
    if len(many) > (MOST_FILES if known.takes_several else 1):
        most = f"at most {MOST_FILES} files" if known.takes_several else "one file"
        raise BadInput(f"--to {known.name} takes {most}, found {len(many)}")
    if not many:
        raise BadInput("name the result files to export")
    options = ExportOptions(str(output or "results"), commit, branch, repository)
    return known.write_results([exported(load_kernels(f, skip_damaged=skip_damaged).file) for f in many], options)


def write(export: Export, output: str | Path) -> list[Path]:
    """Write the texts, each as a whole; the paths."""
    return _write({Path(f"{output}{name}"): text for name, text in export.texts.items()})


# ---- problems


def is_of_problems(to: str) -> bool:
    """Whether a format has problems, and not results; `BadInput` for a word that is no format."""
    problems, results = _problems.problem_formats(), formats.export_formats()
    if to not in {*problems, *results}:
        hint = did_you_mean(to, [*problems, *results])
        raise BadInput(
            f"--to is {', '.join(results)} for results, or {', '.join(problems)} for problems; "
            f"found {shorten(to)}{hint}"
        )
    return to in problems


def export_problems(
    what: What | Iterable[What],
    to: str,
    output: str | Path,
    *,
    version: str | None = None,
    most_multiply_adds: int | None = None,
    **filters: Unpack[Filters],
) -> ProblemExport:
    """Write problems for a simulator, a compiler, or the benchmark of a library.

    Args:
        what: a suite, a file of problems, a traced network, a case, or several.
        to: the format, such as `scalesim`, `timeloop`, `zigzag`, `chakra`, `onnx` or `c`.
        output: a new or an empty folder.
        version: of the format, where it has several.
        most_multiply_adds: larger problems are left out.
        filters: those of `cases`; libraries, threads and devices do not matter.

    Returns what was written, with its layers, what was left out and what differs. `counts.json` in the folder says the
    same, with the case of each layer and its applications. The multiply-adds of each layer are counted from the output.
    """
    made = prepare_problems(what, to, output, make_choices(**filters), version, most_multiply_adds)
    write_problems(made, output)
    return made


def prepare_problems(
    what: What | Iterable[What],
    to: str,
    output: str | Path,
    choices: Choices,
    version: str | None = None,
    most_multiply_adds: int | None = None,
) -> ProblemExport:
    """What `export_problems` would write; `BadInput` for a folder with files."""
    folder = Path(output)
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"{output} is not empty; name a new folder, so that these files are not mixed with others")
    known, problems = _problems.find_problem_format(to), exported_problems(words_of(what), choices)
    return _problems.write(known, problems, ProblemOptions(version, most_multiply_adds))


def write_problems(export: ProblemExport, output: str | Path) -> list[Path]:
    """Write the files into a folder, each as a whole and counts.json last; the paths."""
    return _write({Path(output, name): content for name, content in export.files.items()})


def _write(files: Mapping[Path, str] | Mapping[Path, str | bytes]) -> list[Path]:
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot make the folder {path.parent}: {error.strerror}") from None
        with replacing(path) as draft:
            draft.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [*files]
