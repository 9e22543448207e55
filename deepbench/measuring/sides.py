"""Two sides of one run that take turns: what the machine does meanwhile affects both, so their ratio is more certain.

A side differs from the other in its cases (a setting, threads, the library) or in the environment of its workers. Each
side has an ordinary result file; the headers of both name the same run.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepbench.core import stats
from deepbench.core.aliases import did_you_mean
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case, thread_count
from deepbench.core.errors import BadInput
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.core.variables import (
    fixed_variables,
    is_secret,
    is_tuning,
    is_whole,
    override_variables,
    path_variables,
    thread_variables,
    tuning,
)
from deepbench.judge import compare, heats, metrics
from deepbench.machine import describe
from deepbench.measuring.session import (
    Options,
    Session,
    measure_together,
    open_libraries,
    remeasure,
    require_same_machine,
)
from deepbench.measuring.trust import NotTrusted, ranks_of, require_hosts, require_ranks
from deepbench.plan.cases import Choices, Planned, expand, read_chosen
from deepbench.plan.modes import Rounds
from deepbench.results.file import ResultFile
from deepbench.results.record import MEASURED, Record, Source
from deepbench.results.summary import are_disturbed
from deepbench.results.work import Work, by_case

# Variables that make a library load a program, run one, or write a file: a file from elsewhere must not set one.
LOADS_CODE = re.compile(r"LIBRAR|PLUGIN|PATH|INJECTION|AGENT|PRELOAD|DIR|EXEC|COMMAND|TOOL|_FILE|DEST|MAIL|=", re.I)

# The p-value below which no further round is needed. It is looked at after every round, so it is smaller than for one
# look; compare.LOOKS is the other half of that correction.
EARLY = 0.005


@dataclass(frozen=True)
class Side:
    """How one side differs from the other."""

    name: str
    """`a` or `b`."""
    choices: dict[str, str] = field(default_factory=dict)
    """`threads`, `backend`, or a setting of cases."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the workers; an empty text removes the variable."""
    build: str | None = None
    """What the user calls the library that it loads, such as `openblas 0.3.30`."""

    @property
    def libraries(self) -> dict[str, str]:
        """The files that its workers load instead of what they would find, by variable."""
        return {n: v for n, v in self.environment.items() if v and n in path_variables()}

    @property
    def words(self) -> str:
        """Such as `threads=1`."""
        if self.build is not None:
            return self.build
        words = [f"{n}={v}" if v else f"without {n}" for n, v in {**self.choices, **self.environment}.items()]
        return ", ".join(words) or "unchanged"

    def applied(self, choices: Choices) -> Choices:
        """The choices of the command line, with this side's own in their place."""
        for name, value in self.choices.items():
            if name == "threads":
                choices = dataclasses.replace(choices, threads=(thread_count(value),))
            elif name == "backend":
                choices = dataclasses.replace(choices, backends=(value,))
            else:
                choices = dataclasses.replace(choices, settings={**choices.settings, name: (value,)})
        return choices


def parse_sides(text: str) -> tuple[Side, Side]:
    """The sides of `NAME=a,b`. NAME is a setting, `threads` or `backend`; in capitals, an environment variable."""
    name, equals, rest = text.partition("=")
    values = rest.split(",")
    if not name or not equals or len(values) != 2 or values[0] == values[1]:
        raise BadInput(f"--ab wants NAME=ONE,OTHER, found {text[:60]!r}")
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        return Side("a", choices={name: values[0]}), Side("b", choices={name: values[1]})
    if name in thread_variables():
        raise BadInput("the number of threads is a setting of the case: --ab threads=1,2")
    if name in (*override_variables(), *fixed_variables()):
        raise BadInput(f"deepbench sets {name} itself (see --set pin=cores), so both sides would be equal")
    if name.startswith("DEEPBENCH_") and name not in path_variables():
        known = sorted(path_variables())
        raise BadInput(f"{name} is no variable of DeepBench that names a library{did_you_mean(name, known)}")
    if is_secret(name):
        raise BadInput(f"--ab stores the values of {name}, and this is the name of a secret; choose another variable")
    return Side("a", environment={name: values[0]}), Side("b", environment={name: values[1]})


# Names of sides that are longer than this stand above the table only.
LONGEST_NAME = 30


def names_of_sides(sides: tuple[Side, Side], files: tuple[ResultFile, ResultFile]) -> tuple[str, str]:
    """Short names for tables: `threads=1`, or `A: OpenBLAS 0.3.27` where the sides load other libraries."""
    if all(len(side.words) <= LONGEST_NAME and not side.libraries for side in sides):
        return sides[0].words, sides[1].words
    changed = _loaded_differently(files)
    named = []
    for side, file in zip(sides, files, strict=True):
        texts = dict.fromkeys(_paths(file)[name][0] for name in changed)
        named.append(": ".join(filter(None, (side.name.upper(), ", ".join(texts)))))
    return named[0], named[1]


def same_libraries(sides: tuple[Side, Side], files: tuple[ResultFile, ResultFile]) -> str | None:
    """A warning where the sides differ in a variable, but loaded the same files; None if a library is another one.

    A variable that is known to tune libraries may well change what one library does.
    """
    names = [n for n in (sides[0].environment or sides[1].environment) if n in path_variables() or not is_tuning(n)]
    if not names or _loaded_differently(files):
        return None
    used = {word for planned in files[0].header["plan"]["cases"] for word in planned["case"].split()}
    paths = [f"{text} {path}" for name, (text, path) in sorted(_paths(files[0]).items()) if name in used]
    what = "does not name another library" if names[0] in path_variables() else "is not known to change what they do"
    return f"both sides loaded the same files, and {names[0]} {what}: {'; '.join(paths)}"


def _paths(file: ResultFile) -> dict[str, tuple[str, str]]:
    """Name and version, and the file, of each library by its backend."""
    answers = {n: a["library"] for n, a in file.header["libraries"].items() if "library" in a}
    texts = {n: f"{facts['name']} {facts['version'] or ''}".strip() for n, facts in answers.items()}
    return {n: (texts[n], str(facts["path"])) for n, facts in answers.items()}


def _loaded_differently(files: tuple[ResultFile, ResultFile]) -> list[str]:
    """The backends whose library is another one on the other side."""
    a, b = map(_paths, files)
    return [name for name in a if name in b and a[name] != b[name]]


def sides_of_file(
    file: ResultFile, here: Mapping[str, Any] | None = None, other: ResultFile | None = None, *, trusted: bool
) -> tuple[Side, Side]:
    """The libraries and the environment of a file against today's.

    `here` has today's facts about libraries, as a header has them; None: they are looked for. With another file, its
    environment stands for today's. `trusted`: the file may name libraries to load, which run with the user's rights,
    and start more processes than there are cores; `NotTrusted` where it does and may not. `BadInput` where nothing
    differs, or where a library of the file is gone.
    """
    names = sorted({r["backend"] for r in file.records})
    if not trusted:
        require_ranks(file, ranks_of(map(parse_case, file.order)))
    here = open_libraries(names) if here is None else here
    environment: dict[str, str] = {}
    for name in names:
        then, now = ((side.get(name) or {}).get("library") for side in (file.header["libraries"], here))
        if then is None or then == now:
            continue
        path, variable = str(then.get("path")), find_backend(name).path_variable
        if variable is None or not Path(path).is_file() or (now and now.get("path") == path):
            raise BadInput(
                f"{file.path} was measured with {name} {then.get('version')} at {path}, which is no longer there; "
                "compare the files instead: deepbench compare"
            )
        environment[variable] = path
    if environment and not trusted:
        libraries = ", ".join(f"{name}={path}" for name, path in environment.items())
        raise NotTrusted(
            f"{file.path} names libraries to load: {libraries}; a library can do all that you can, so look at these "
            f"files first; if you trust them, add --trust {file.path}"
        )
    then_set, now_set = _tuning_of(file), _tuning_of(other) if other is not None else _set_by_users(os.environ)
    both = {**then_set, **now_set}
    changed = [n for n in both if then_set.get(n) != now_set.get(n) and _is_known(n, then_set, now_set)]
    environment |= {n: then_set.get(n, "") for n in changed}
    if not environment:
        raise BadInput(
            f"the libraries and the environment of {file.path} are the same as today's, so there are no two sides; "
            "measure again and compare the files: deepbench compare"
        )
    return Side("a", environment=environment), Side("b", environment={n: now_set.get(n, "") for n in changed})


def _tuning_of(file: ResultFile) -> dict[str, str]:
    """Variables with which users changed how libraries run, from the first record that has them."""
    variables = next((r["process"].get("environment") for r in file.records if r["process"]), None)
    texts = {n: v for n, v in variables.items() if isinstance(v, str)} if isinstance(variables, dict) else {}
    return _set_by_users(texts)


def _set_by_users(environment: Mapping[str, str]) -> dict[str, str]:
    set_by_us = {*thread_variables(), *fixed_variables()}
    return {n: v for n, v in tuning(environment).items() if v and n not in set_by_us and not LOADS_CODE.search(n)}


def _is_known(name: str, *environments: Mapping[str, str]) -> bool:
    """Whether all values of a variable were kept in full."""
    return all(is_whole(environment.get(name, "")) for environment in environments)


@dataclass(frozen=True)
class Pair:
    """One case on both sides."""

    a: Case
    b: Case
    sources: list[Source]


def pair_up(a: Sequence[Planned], b: Sequence[Planned], names: set[str]) -> list[Pair]:
    """The cases that both sides have; `names` are the choices in which the sides differ. `BadInput` for none."""
    different = ("device", *names)
    right = {Work.of_case(p.case).without(*different): p.case for p in b}
    works = [(p, Work.of_case(p.case).without(*different)) for p in a]
    pairs = [Pair(p.case, right[work], p.sources) for p, work in works if work in right]
    # A case that the choices do not change would be compared with itself.
    pairs = [p for p in pairs if not names or p.a != p.b]
    if not pairs:
        raise BadInput("the two sides have no case in common; see deepbench list with either value")
    return pairs


def queue(
    pairs: Sequence[Pair], a: ResultFile, b: ResultFile, rounds: Rounds, seed: int, margin: float
) -> list[tuple[Pair, int]]:
    """The pairs of the next round in random order: those with too few rounds, and those that are not decided."""
    records = by_case(a.records), by_case(b.records)
    wanted = []
    for pair in pairs:
        both = records[0].get(pair.a.text, []), records[1].get(pair.b.text, [])
        done = min(map(len, both))
        if any(r["status"] not in MEASURED for side in both for r in side) or done >= rounds.most:
            continue
        if done < rounds.least or not decided(*both, margin):
            wanted.append((pair, done + 1))
    if not wanted:
        return []
    first = min(number for _, number in wanted)
    batch = [(pair, number) for pair, number in wanted if number == first]
    random.Random(f"{seed}/{first}").shuffle(batch)
    return batch


def decided(a: Sequence[Record], b: Sequence[Record], margin: float) -> bool:
    """Whether the rounds so far show that the sides differ, or that they are the same. Too few heats show nothing."""
    met = heats.meetings(a, b)
    if (met.count and met.too_few) or any(map(are_disturbed, (a, b))):
        return False
    difference, _ = compare.difference_of_rounds(a, b, True)
    return difference is not None and is_decided(difference, margin)


def is_decided(difference: stats.Difference, margin: float) -> bool:
    """Whether a difference needs no further rounds."""
    clear = difference.p < EARLY and compare.verdict_of(difference, difference.p, margin) != "cannot tell"
    return clear or compare.verdict_of(difference, 1.0, margin) == "same"


class Turns:
    """Both sides of a comparison: two sessions whose rounds take turns. Use as a context manager."""

    def __init__(
        self, sides: tuple[Side, Side], sessions: tuple[Session, Session], pairs: list[Pair], margin: float
    ) -> None:
        self.sides, self.sessions, self.pairs, self.margin = sides, sessions, pairs, margin

    @classmethod
    def create(
        cls,
        sides: tuple[Side, Side],
        words: Sequence[str],
        choices: Choices,
        options: Options,
        stem: Path,
        margin: float = compare.MARGIN,
    ) -> Turns:
        """Two new result files, `<stem>.a.jsonl` and `<stem>.b.jsonl`.

        A case is measured until its difference is known to be inside or outside the margin.
        """
        entries, choices = read_chosen(words, choices)
        threads = describe.default_threads()
        planned = [expand(entries, side.applied(choices), threads) for side in sides]
        pairs, run = pair_up(planned[0], planned[1], set(sides[0].choices)), secrets.token_hex(8)
        paths = [Path(f"{stem}.{side.name}.jsonl") for side in sides]
        if taken := [str(path) for path in paths if os.path.lexists(path)]:
            raise BadInput(f"{' and '.join(taken)} already exist{'s' * (len(taken) == 1)}; choose another name with -o")
        sessions = []
        with ExitStack() as stack:
            for side, path in zip(sides, paths, strict=True):
                cases = [Planned(getattr(p, side.name), p.sources) for p in pairs]
                mark = {"run": run, "side": side.name, "choices": side.choices, "environment": side.environment}
                sessions.append(stack.enter_context(Session.create(path, cases, options, mark)))
                stack.callback(sessions[-1].discard)  # if the other side cannot be measured
            stack.pop_all()
        sessions[1].share_limits(sessions[0])
        return cls(sides, (sessions[0], sessions[1]), pairs, margin)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.sessions:
            session.close()

    def comparison(self, metric: str = metrics.STEADY) -> compare.Comparison:
        """What has been measured so far, compared by this time of each process."""
        a, b = (metrics.with_metric(file, metric) for file in self.files)
        return compare.compare_files(a, b, metrics.MARGINS[metric][0])

    @property
    def files(self) -> tuple[ResultFile, ResultFile]:
        """What both sides have so far."""
        return self.sessions[0].file, self.sessions[1].file

    def run(self, progress: Progress = no_progress, ends: float | None = None) -> None:
        """Measure round after round, both sides of a pair one after the other in random order, until all is decided.

        With `ends`, a time of `time.monotonic`, no measurement begins later, but every pair is measured once.
        """
        plan = self.files[0].header["plan"]
        rounds, seed = Rounds(**plan["rounds"]), plan["order_seed"]
        done = 0
        for session in self.sessions:  # the second one adds what the first one did not need
            session.probe(session.cases)
        while batch := queue(self.pairs, *self.files, rounds, seed, self.margin):
            for i, (pair, number) in enumerate(batch):
                if ends is not None and number > 1 and time.monotonic() >= ends:
                    return
                left = len(batch) * (1 + max(0, rounds.least - number)) - i
                progress(Activity(f"round {number}  {pair.a.text}", done, done + left))
                measure_together([(self.sessions[0], pair.a, number), (self.sessions[1], pair.b, number)])
                done += 1


def require_rerun(after: ResultFile, cases: Sequence[str]) -> None:
    """`BadInput` where cases of the second of two files cannot be measured again."""
    if after.header["plan"].get("interleaved") or not set(cases) <= set(after.order):
        raise BadInput("--rerun is for two files of the same cases, not for sides of one run; measure both again")


def measure_again(
    before: ResultFile,
    after: ResultFile,
    cases: Sequence[str],
    *,
    trusted: bool,
    on_load: Callable[[Mapping[str, str], str], None],
) -> tuple[ResultFile, ResultFile]:
    """Measure cases of two files again: both sides in turn where the libraries of the first are still here.

    `on_load` is called with the libraries that are loaded because the first file names them. `NotTrusted` where it
    names some and `trusted` is false.
    """
    require_rerun(after, cases)
    if ranks_of(map(parse_case, cases)) > 1:
        require_hosts(after, (), "measure the cases again: deepbench run --hostfile FILE")
    require_same_machine(after)
    with tempfile.TemporaryDirectory(prefix="deepbench-") as folder:
        try:
            both = sides_of_file(before, after.header["libraries"], after, trusted=trusted)
        except NotTrusted:
            raise
        except BadInput:  # the libraries of the first side are gone
            fresh = remeasure(after, cases, Path(folder) / "again.jsonl")
            return dataclasses.replace(before, records=[r for r in before.records if r["case"] in cases]), fresh
        on_load(both[0].libraries, str(before.path))
        with Turns.create(both, cases, Choices(), Options(), Path(folder) / "again") as turns:
            turns.run()
            first, second = turns.files
            return first, second
