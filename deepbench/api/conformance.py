"""Conformance: does a device do everything right that its backends offer, and how fast is it?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deepbench.api.filters import Choice, make_choices
from deepbench.api.measuring import Options, Session, default_path, temporary_path
from deepbench.api.results import FileResults, Results, load_kernels
from deepbench.core.devices import CPU
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.precision import PRECISIONS
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.judge.conformance import BANDWIDTH, Conformance, judge
from deepbench.machine import describe
from deepbench.plan.conformance import backends_of, conformance_cases, pilot
from deepbench.plan.modes import QUICK
from deepbench.reporting.progress import shown

if TYPE_CHECKING:
    from deepbench.plan.cases import Choices, Planned
    from deepbench.reporting.output import Report

__all__ = [
    "Conformance",
    "conform",
    "conformance",
    "conformance_path",
    "conformance_report",
    "peaks_of",
    "plan_conformance",
    "write_conformance",
]

# A device that is new may hang in its first call.
PILOT_TIMEOUT_S = 60.0

_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([kMGTP]?)(FLOP/s|FLOPS|OP/s|OPS|B/s)?")


def conform(
    device: str,
    *,
    budget_s: float | None = None,
    timeout_s: float | None = None,
    output: str | Path | None = None,
    ops: Choice = None,
    backends: Choice = None,
    precisions: Choice = None,
    directions: Choice = None,
    progress: bool | Progress = False,
) -> Results:
    """Measure everything that the backends reaching a device offer, each case once; see `conformance`.

    Args:
        device: its name, as `deepbench info --devices` lists it, such as `pjrt:tpu`.
        budget_s: stop after this many seconds.
        timeout_s: seconds without a sign of life after which a case is given up.
        output: the result file, which must not exist; by default a file in the folder for temporary files.
        ops, backends, precisions, directions: only these; by default all of the libraries that a run on it uses.
        progress: True shows a progress bar; a function is called with an `Activity` before each measurement.
    """
    options = Options("quick", timeout_s=timeout_s, budget_s=budget_s)
    choices = make_choices(device=device, ops=ops, backends=backends, precisions=precisions, directions=directions)
    with shown(progress) as show:
        planned = plan_conformance(choices, options, show)
        path = Path(output) if output is not None else temporary_path()
        with Session.create(path, planned, options) as session:
            session.run(show, options.begin, once=True)
            return Results(session.file)


def plan_conformance(choices: Choices, options: Options, progress: Progress = no_progress) -> list[Planned]:
    """The cases of a report; `BadInput` where no backend reaches the device, or where none is left.

    On a device, one product of medium size is measured first: it decides how large the largest ones are.
    """
    from deepbench.measuring.heat import measure_case

    backends, threads, rates = backends_of(choices), describe.default_threads(), dict[str, float]()
    if far := [b for b in backends if not b.reaches(choices.device)]:
        raise BadInput(f"{far[0].title} runs on {far[0].device}, not on {choices.device}; name another --backend")
    for backend in backends if choices.device != CPU else ():
        case = pilot(backend, choices, threads)
        if case is not None:
            progress(Activity(f"how large may products be?  {case.text}"))
            record = measure_case(case, 1, QUICK.rules, min(PILOT_TIMEOUT_S, options.case_timeout_s))
            if record["status"] == "ok" and record["measurement"]:
                rates[backend.name] = record["flop"] / min(record["measurement"]["samples_s"])
    planned = conformance_cases(choices, threads, rates)
    if not planned:
        who = ", ".join(b.name for b in backends) or "no backend"
        raise BadInput(
            f"no case is left for {choices.device}: {who} has nothing that passes the filters; "
            "deepbench info --devices lists what reaches devices here"
        )
    return planned


def conformance_path(device: str, stamp: str) -> Path:
    """An unused file name such as `deepbench-conform-pjrt-tpu-20261121-113000.jsonl`."""
    return default_path(Path(), f"conform-{device.replace(':', '-')}-{stamp}")


def conformance(results: FileResults | str | Path, peaks: Mapping[str, float] | None = None) -> Conformance:
    """What a file of kernels says about its devices.

    `peaks`: those of the data sheet, as FLOP/s by precision, and `memory` in bytes/s. A rate is a share of its peak
    only where one is stated here or known to the library.
    """
    for name, value in (peaks or {}).items():
        if name not in (*PRECISIONS, BANDWIDTH) or not 0 < value < 1e30:
            raise BadInput(f"peaks are rates by precision, or of {BANDWIDTH}, found {shorten(name)!r}: {value!r:.40}")
    found = results if isinstance(results, FileResults) else load_kernels(results)
    if not isinstance(found, Results):
        found.refuse("a conformance report is about kernels, of deepbench conform or run")
    return judge(found.file, peaks)


def conformance_report(found: Conformance) -> Report:
    """The report for a terminal and for programs."""
    from deepbench.reporting.conformance import report

    return report(found)


def write_conformance(found: Conformance, path: str | Path) -> None:
    """Write the report as a page; `BadInput` without Jinja2, and for a name that is none of a page."""
    from deepbench.reporting.conformance import write_page

    if not str(path).lower().endswith((".html", ".htm")):
        raise BadInput(f"the page needs a name that ends in .html, found {printable(str(path))[-60:]!r}")
    write_page(found, Path(path))


def peaks_of(words: Iterable[str], bandwidth: str | None = None) -> dict[str, float]:
    """`bf16=989T` and `4.8TB/s` as the peaks of a data sheet."""
    peaks: dict[str, float] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in PRECISIONS:
            raise BadInput(
                f"--peak wants a precision and its rate, such as bf16=989T, found {shorten(word)!r}; precisions are "
                f"{', '.join(PRECISIONS)}"
            )
        if name in peaks:
            raise BadInput(f"--peak names {name} twice; leave one out")
        peaks[name] = _rate(text, "--peak", "bf16=989T", is_bytes=False)
    if bandwidth is not None:
        peaks[BANDWIDTH] = _rate(bandwidth, "--bandwidth", "4.8TB/s", is_bytes=True)
    return peaks


def _rate(text: str, option: str, example: str, is_bytes: bool) -> float:
    match = _RATE.fullmatch(text.strip())
    value = float(match[1]) * _SCALES[match[2]] if match is not None else 0.0
    if match is None or not value or (match[3] is not None and (match[3] == "B/s") is not is_bytes):
        raise BadInput(f"{option} wants a rate such as {example}, found {shorten(text)!r}")
    return value
