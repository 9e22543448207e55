"""`deepbench bisect`: the first version or commit of a library that is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, count
from deepbench.cli.console import make_console, progress_bar
from deepbench.cli.options import choices_of, choosing_options, share, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

if TYPE_CHECKING:
    from deepbench.api.bisecting import Asked

# Sentences about one version.
MOST_SENTENCES = 4


@cli.command(context_settings=HELP, short_help="Find the version or commit that made a library slower.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@click.option("--of", "backend", metavar="NAME", required=True, help="The library: openblas, onednn …")
@click.option("--versions", metavar="A..B", help="Versions of its package, the first of which is good; or A,B,C.")
@click.option("--commits", metavar="A..B", help="Commits of a repository, the first of which is good.")
@click.option("--repository", metavar="FOLDER", default=".", help="The repository (default: this folder).")
@click.option("--build", metavar="COMMAND", help="With --commits: the shell command that builds the library.")
@click.option("--library", metavar="FILE", help="With --commits: the file that it makes, relative to the repository.")
@click.option("--step", is_flag=True, help="Compare --library with --good-library: exit code 0, 1 or 125 (skip).")
@click.option("--good-library", metavar="FILE", help="With --step: the good one.")
@click.option("--margin", metavar="P", default="3%", help="Ignore slowdowns below P (default 3%).")
@click.option("--rounds", metavar="N", help="Exactly N processes per case and side (default: until it is decided).")
@click.option("--quick", is_flag=True, help="Short samples.")
@choosing_options("--op", "--precision", "--direction", "--threads", "--set", "--device", "--fit")
def bisect(
    words: tuple[str, ...],
    backend: str,
    versions: str | None,
    commits: str | None,
    repository: str,
    build: str | None,
    library: str | None,
    step: bool,
    good_library: str | None,
    margin: str,
    rounds: str | None,
    quick: bool,
    **filters: Any,
) -> int:
    """Find the first version or commit of a library that is slower, by measuring each next to a good one, in turn.

    A version that does not build, or whose measurements do not decide, is skipped. The commits are chosen by git
    bisect run, in work trees of its own. Exit code 0: found; 1: nothing is slower; 2: found among several.

    \b
    Examples:
      deepbench bisect --of openblas --versions 0.3.29..0.3.34 quick
      deepbench bisect --of onednn --commits v3.1..main --build 'make -C build' \\
          --library build/src/libdnnl.so.3 conv
    """
    from deepbench.api.bisecting import EXIT_CODES, is_slower, question, search
    from deepbench.api.measuring import Options

    if sum(map(bool, (versions, commits, step))) != 1:
        raise BadInput("choose one of --versions A..B, --commits A..B and --step")
    mode = "quick" if quick else "default"
    number = whole("--rounds", rounds, 1000)
    chosen, allowed = choices_of(filters, mode), share("--margin", margin)
    asking = question(backend, words or ("quick",), chosen, allowed, Options(mode, number))
    if commits:
        if not build or not library:
            raise BadInput("--commits needs --build COMMAND and --library FILE, the file that the command makes")
        return _commits(
            repository, commits, build, library, _step_words(words, backend, margin, rounds, quick, filters)
        )
    console = make_console()
    if step:
        if not good_library or not library:
            raise BadInput("--step needs --good-library FILE and --library FILE")
        with progress_bar(console) as bar:
            asked = is_slower(asking, good_library, library, bar)
        _tell(asked)
        return EXIT_CODES[asked.answer]
    with progress_bar(console) as bar:
        found = search(asking, str(versions), _tell, bar)
    if len(found.bad) > 1:
        say(f"the first slower one is among {', '.join(found.bad)}: those before the last could not be judged")
        return 2
    say(f"the first slower version is {found.bad[0]}; {found.good} is not slower")
    if not found.is_confirmed:
        say(f"but next to {found.good} alone this was not seen again; measure more (--rounds)")
        return 2
    return 0


def _tell(asked: Asked) -> None:
    words = {"good": "not slower", "bad": "slower", "skip": "skipped"}
    say(f"{asked.state}: {words[asked.answer]}")
    for sentence in asked.sentences[:MOST_SENTENCES]:
        say(f"  {sentence}")


def _commits(repository: str, commits: str, build: str, library: str, step: list[str]) -> int:
    from deepbench.api.bisecting import BuildCommand, bisect_commits

    good, dots, bad = commits.partition("..")
    if not dots or not good or not bad:
        raise BadInput(f"--commits wants A..B, a good commit and a slower one, found {commits[:60]}")
    found = bisect_commits(repository, good, bad, BuildCommand(build, library), step, say)
    if len(found.commits) > 1:
        say(f"the first slower commit is one of {count(len(found.commits), 'commit')}; the others could not be judged:")
        for commit in found.commits:
            say(f"  {commit}")
        return 2
    say(f"the first slower commit is {found.commits[0]}")
    return 0


def _step_words(
    words: tuple[str, ...], backend: str, margin: str, rounds: str | None, quick: bool, filters: dict[str, Any]
) -> list[str]:
    """The same question as words of `deepbench bisect --step`."""
    options = [f"--of={backend}", f"--margin={margin}", *([f"--rounds={rounds}"] if rounds else [])]
    options += ["--quick"] if quick else []
    for name, values in filters.items():
        for value in [values] if isinstance(values, str) else values or ():
            options.append(f"--{name.replace('_', '-')}={value}")
    return [*options, "--", *words]
