"""Bisection over the commits of a repository: `git bisect run` chooses, builds, and asks `deepbench bisect --step`.

All happens in work trees of its own, in a folder for temporary files, so what the user has checked out stays as it is.
The build command is the user's, and runs with the user's rights.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.measuring.launch import module_command

# Characters of the output of git or of a build that a message quotes.
LONGEST_QUOTE = 300


@dataclass(frozen=True)
class BuildCommand:
    """How a commit becomes a library."""

    command: str
    """A shell command in the root of the repository."""
    library: str
    """The file that it makes, relative to the root, or a folder that has it."""


@dataclass(frozen=True)
class FirstBad:
    """Where a bisection has ended."""

    commits: list[str]
    """One commit; several where those between could not be judged. Each with its subject."""
    log: str
    """What `git bisect log` says."""


def bisect(
    repository: Path,
    good: str,
    bad: str,
    build: BuildCommand,
    step: Sequence[str],
    show: Callable[[str], None],
) -> FirstBad:
    """Find the first bad commit after `good`. `step` are the words of `deepbench bisect --step` without the libraries.

    `show` is called with every line of the output. `BadInput` where git or the build of the good commit fails.
    """
    commits = [_commit(repository, name) for name in (good, bad)]
    with _work_tree(repository, commits[0]) as reference, _work_tree(repository, commits[1]) as tree:
        done = subprocess.run(
            build.command,
            shell=True,
            cwd=reference,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        library = reference / build.library
        if done.returncode or not library.exists():
            reason = _last(done.stderr or done.stdout) if done.returncode else f"it makes no {build.library}"
            raise BadInput(f"the good commit {good} does not build: {reason}")
        libraries = ["--good-library", str(library), "--library", str(tree / build.library)]
        words = module_command("deepbench", "bisect", "--step", *libraries, *step)
        # 125: this commit cannot be judged.
        script = f"rm -rf {shlex.quote(build.library)}; ({build.command}) || exit 125; exec {shlex.join(words)}"
        _git(tree, "bisect", "start", commits[1], commits[0])
        with subprocess.Popen(
            ["git", "bisect", "run", "sh", "-c", script],
            cwd=tree,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        ) as run:
            assert run.stdout is not None
            lines = []
            for line in run.stdout:
                lines.append(line.rstrip())
                show(printable(line.rstrip()))
        log = _git(tree, "bisect", "log")
        return FirstBad(_first_bad(tree, lines), log)


def _first_bad(tree: Path, lines: Sequence[str]) -> list[str]:
    """The commits that may be the first bad one: `git bisect run` names one, or those that were left."""
    for line in lines:
        commit, _, rest = line.partition(" ")
        if rest.startswith("is the first") and rest.endswith("commit"):
            return [_subject(tree, commit)]
    for number, line in enumerate(lines):
        if "first bad commit could be any of" in line or "We cannot bisect more" in line:
            names = [word for word in lines[number:] if len(word) == 40 and set(word) <= set("0123456789abcdef")]
            return [_subject(tree, name) for name in dict.fromkeys(names)]
    raise BadInput(f"git bisect did not end: {_last(chr(10).join(lines))}")


def _subject(tree: Path, commit: str) -> str:
    return printable(_git(tree, "log", "-1", "--format=%h %s", commit).strip())


@contextmanager
def _work_tree(repository: Path, commit: str) -> Iterator[Path]:
    """A work tree of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="deepbench-bisect-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder, "tree")
        _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))


def _commit(repository: Path, name: str) -> str:
    """The full name of a commit."""
    if name.startswith("-"):
        raise BadInput(f"a commit does not begin with -, found {shorten(printable(name))}")
    return _git(
        repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", what=name
    ).strip()


def _git(folder: Path, *words: str, what: str | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise BadInput(f"cannot run git in {printable(str(folder))}: {error.strerror}") from None
    if done.returncode:
        asked = (
            f"{shorten(printable(what))} is no commit of {printable(str(folder))}" if what else f"git {words[0]} failed"
        )
        raise BadInput(f"{asked}: {_last(done.stderr or done.stdout)}" if done.stderr or not what else asked)
    return done.stdout


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1])[:LONGEST_QUOTE] if lines else "no output"
