"""Writes a page about result files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.reporting.page import content, render
from deepbench.reporting.page.preset import Preset
from deepbench.results import published
from deepbench.results.file import ResultFile


def write_report(
    files: Sequence[ResultFile],
    machines: Sequence[str],
    path: Path,
    title: str | None,
    steps_of: content.StepsOf | None = None,
    preset: Preset | None = None,
) -> None:
    """Compare the first file with the others, and every file with these published machines; replace the page.

    `steps_of` gives the steps of networks that the kernels of a file predict.
    """
    published_names = {published.path_of(machine): machine for machine in published.machines()}
    names = [published_names.get(file.path, file.path.name) for file in files]
    labels = names if len(set(names)) == len(names) else [str(file.path) for file in files]
    labelled = list(zip(files, labels, strict=True))
    pairs = [content.of_pair(files[0], file, (labels[0], label)) for file, label in labelled[1:]]
    pairs += [content.of_published(file, label, machine) for file, label in labelled for machine in machines]
    preset = preset or Preset()
    about = [content.of_file(file, label, steps_of, preset.machines) for file, label in labelled]
    data = {"files": about, "pairs": pairs, "preset": preset.values(about)}
    page = render.page(data, printable(title or f"DeepBench: {', '.join(labels)}"))
    with replacing(path) as draft:
        draft.write_bytes(page)
