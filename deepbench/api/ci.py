"""A CI job: two builds of a library in turn, and what to tell people about it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from deepbench.api.comparing import GATE_MARGIN
from deepbench.api.filters import Choices, Filters, What, make_choices, words_of
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.core.progress import Progress
from deepbench.judge.ci import CiVerdict
from deepbench.machine import describe
from deepbench.machine.system import require_linux
from deepbench.measuring import builds
from deepbench.measuring.ci import judge_change
from deepbench.measuring.session import Options
from deepbench.reporting import ci as texts
from deepbench.reporting.progress import shown

__all__ = ["CiJob", "check_change", "run_job", "texts"]

BUDGET_S = 600.0


@dataclass(frozen=True)
class CiJob:
    """What a job found, and where its files are."""

    verdict: CiVerdict
    folder: Path
    seconds: float


def check_change(
    sides: str,
    what: What | Iterable[What] = "quick",
    *,
    output: str | Path,
    budget_s: float = BUDGET_S,
    margin: float = GATE_MARGIN,
    mode: str = "default",
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> CiJob:
    """Judge a change of a library for CI: is anything slower than before?

    Args:
        sides: the two builds, the old one first, such as `openblas=old.whl,new.whl`, as in `alternate`.
        what: what to measure, as in `cases`.
        output: a new folder for result files, `verdict.json`, `comment.md` and `junit.xml`.
        budget_s: seconds for everything.
        margin: slowdowns below this share do not count.
        mode: as in `measure`, and so is `progress`.
        progress: True shows a progress bar.
        filters: which cases; see `Filters`.

    The old build is measured against itself first. Where that shows that this machine cannot tell a slowdown of the
    margin, the verdict is `refused`.
    """
    with shown(progress) as show:
        return run_job(sides, words_of(what), make_choices(mode, **filters), Path(output), budget_s, margin, mode, show)


def run_job(
    sides: str,
    words: Sequence[str],
    choices: Choices,
    folder: Path,
    budget_s: float,
    margin: float,
    mode: str,
    progress: Progress,
) -> CiJob:
    """As `check_change`."""
    require_linux("the comparison of builds")
    begin = time.monotonic()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise BadInput(f"{folder} exists; choose a new folder for the output") from None
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}") from None
    choices = builds.of_library(sides, choices)
    machine = str(describe.describe_machine().get("cpu") or "an unknown processor")
    with builds.sides(sides) as both:
        verdict = judge_change(
            both,
            words,
            choices,
            Options(mode),
            folder,
            budget_s=budget_s,
            margin=margin,
            machine=machine,
            repeat=("run", "--ab", sides),
            progress=progress,
        )
    job = CiJob(verdict, folder, time.monotonic() - begin)
    _write(job)
    return job


def _write(job: CiJob) -> None:
    verdict = job.verdict
    cases = verdict.outcome.cases if verdict.outcome is not None else []
    content: dict[str, Any] = {
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "sentence": texts.sentence(verdict),
        "base": verdict.base,
        "head": verdict.head,
        "machine": verdict.machine,
        "margin": verdict.margin,
        "resolution": verdict.resolution.share,
        "refusal": verdict.refusal,
        "measured_again": list(verdict.seen_again),
        "seconds": round(job.seconds, 1),
        "cases": [
            {
                "case": c.case,
                "verdict": c.verdict,
                "reason": c.reason,
                "ratio": c.compared.ratio if c.compared else None,
                "interval": list(c.compared.interval) if c.compared and c.compared.interval else None,
            }
            for c in cases
        ],
    }
    files = {
        "verdict.json": json.dumps(content, indent=1) + "\n",
        "comment.md": texts.comment(verdict),
        "junit.xml": texts.junit(verdict, job.seconds),
    }
    for name, text in files.items():
        with replacing(job.folder / name) as draft:
            draft.write_text(text, encoding="utf-8", errors="replace")
