"""Results in the formats of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepbench import formats
from deepbench.api.results import load_kernels
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.formats import Export, ExportOptions
from deepbench.results.exported import exported

__all__ = ["export", "prepare", "write"]

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
    paths = []
    for name, text in export.texts.items():
        path = Path(f"{output}{name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot make the folder {path.parent}: {error.strerror}") from None
        with replacing(path) as draft:
            draft.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
