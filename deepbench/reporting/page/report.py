"""Writes a page about result files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepbench.applications.reporting import page as training
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.networks.traces.trace import Trace
from deepbench.reporting.page import content, render
from deepbench.results.file import ResultFile


def write_report(
    files: Sequence[ResultFile],
    machines: Sequence[str],
    path: Path,
    title: str | None,
    traces: Sequence[Trace] = (),
) -> None:
    """Compare the first file with the others, and every file with these published machines; replace the page.

    Of each network in `traces` the page has the step that the kernels of each file predict.
    """
    if any(file.has_applications for file in files):
        others = [str(file.path) for file in files if not file.has_applications] + [
            *machines,
            *(t.title for t in traces),
        ]
        if others:
            raise BadInput(f"trained applications have a page of their own; leave out {', '.join(others)}")
        training.write_page(files, path, title)
        return
    names = [file.path.name for file in files]
    labels = names if len(set(names)) == len(names) else [str(file.path) for file in files]
    labelled = list(zip(files, labels, strict=True))
    pairs = [content.of_pair(files[0], file, (labels[0], label)) for file, label in labelled[1:]]
    pairs += [content.of_published(file, label, machine) for file, label in labelled for machine in machines]
    data = {"files": [content.of_file(file, label, traces) for file, label in labelled], "pairs": pairs}
    page = render.page(data, printable(title or f"DeepBench: {', '.join(labels)}"))
    with replacing(path) as draft:
        draft.write_bytes(page)
