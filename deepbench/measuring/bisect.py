"""Is a build of a library slower than a good one? One question of a bisection: both sides in turn, until it is decided.

versions       builds that are installed from packages, asked in the order of `judge.bisection`
commits        `git bisect` asks, and calls this for each commit (`measuring/commits.py`)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepbench.core.backend import Backend
from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.core.progress import Progress, no_progress
from deepbench.judge import gate
from deepbench.judge.bisection import Answer, Bisection
from deepbench.measuring import builds
from deepbench.measuring.session import Options
from deepbench.measuring.sides import Side, Turns
from deepbench.plan.cases import Choices

# Slowdowns below this share do not count.
MARGIN = 0.03

# Of all versions that are named, at most so many are asked about: each is a download.
MOST_VERSIONS = 200

ANSWERS: dict[str, Answer] = {gate.PASSED: "good", gate.REGRESSION: "bad", gate.CANNOT_TELL: "skip"}


@dataclass(frozen=True)
class Question:
    """What is measured for every state."""

    backend: Backend
    words: Sequence[str]
    """Cases or suites."""
    choices: Choices
    options: Options
    margin: float = MARGIN


@dataclass(frozen=True)
class Asked:
    """A state that was asked about."""

    state: str
    answer: Answer
    sentences: list[str]
    """Why."""


def ask(question: Question, good: Path, other: Path, state: str, progress: Progress = no_progress) -> Asked:
    """Whether the library at `other` is slower than the one at `good`; `BadInput` where that cannot be measured."""
    try:
        with _turns(question, good, other) as turns:
            turns.run(progress)
            verdict = gate.judge(turns.comparison(), question.margin)
    except DeepBenchError as error:
        if isinstance(error, BadInput):
            with _turns(question, good, good):  # else the words or the good library are at fault
                pass
        return Asked(state, "skip", [str(error)])
    slower = verdict.of(gate.REGRESSION)
    if not verdict.cases:
        return Asked(state, "skip", ["no case has a time on both sides"])
    # A case that the good build computes and this one does not is no slowdown: it may be another defect.
    is_lost = bool(slower) and all(c.is_lost for c in slower)
    return Asked(state, "skip" if is_lost else ANSWERS[verdict.verdict], gate.sentences(verdict))


@contextmanager
def _turns(question: Question, good: Path, other: Path) -> Iterator[Turns]:
    """Both libraries as the sides of a run, whose files are gone afterwards."""
    variable = str(question.backend.path_variable)
    sides = Side("a", environment={variable: str(good)}), Side("b", environment={variable: str(other)})
    with tempfile.TemporaryDirectory(prefix="deepbench-bisect-", ignore_cleanup_errors=True) as folder:
        asked = question.words, question.choices, question.options, Path(folder, "sides"), question.margin
        with Turns.create(sides, *asked) as turns:
            yield turns


def versions(
    question: Question,
    names: Sequence[str],
    told: Callable[[Asked], None],
    progress: Progress = no_progress,
) -> tuple[Bisection, list[Asked]]:
    """Search among versions of the package of a library, the first of which is good and the last one bad.

    `told` is called after each answer. `BadInput` where the last version is not slower than the first.
    """
    if not 2 <= len(names) <= MOST_VERSIONS:
        raise BadInput(f"a bisection needs 2 to {MOST_VERSIONS} versions, found {len(names)}")
    search, asked = Bisection(len(names)), list[Asked]()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deepbench-builds-")))
        good = builds.installed(question.backend, names[0], root / "good")

        def answer(state: int, reference: Path, folder: str) -> Asked:
            try:
                other = builds.installed(question.backend, names[state], root / folder)
            except BadInput as error:  # yanked, or not for this platform
                found = Asked(names[state], "skip", [str(error)])
            else:
                found = ask(question, reference, other, names[state], progress)
            asked.append(found)
            told(found)
            return found

        last = answer(len(names) - 1, good, "last")
        if last.answer != "bad":
            why = "is not slower than" if last.answer == "good" else "could not be told from"
            raise BadInput(f"{names[-1]} {why} {names[0]}, so there is nothing to search: {last.sentences[0]}")
        while (state := search.next()) is not None:
            search.tell(state, answer(state, good, f"{state}").answer)
        if search.bad - search.good == 1 and (search.good, search.bad) != (0, len(names) - 1):
            # The answers were each next to the first version. The two neighbors are measured next to each other.
            before = root / (f"{search.good}" if search.good else "good")
            confirmed = answer(search.bad, before, f"confirm-{search.bad}")
            asked[-1] = Asked(
                f"{names[search.bad]} next to {names[search.good]}", confirmed.answer, confirmed.sentences
            )
    return search, asked
