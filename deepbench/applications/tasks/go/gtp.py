"""GNU Go as an opponent, through the Go Text Protocol (version 2)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from deepbench.core.errors import Unavailable

COLUMNS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # no I
PASS = "PASS"

# Questions that a process gets before its answers are read. The answers to more of them could fill the pipe: then it
# waits for us, and we wait for it.
AT_ONCE = 16

REMEDY = "install it for this kind of processor, on Debian with apt install gnugo"


def vertex(move: int, edge: int) -> str:
    """The name of a point. Moves count points by rows from the top; the number behind the last point is a pass."""
    return PASS if move == edge**2 else f"{COLUMNS[move % edge]}{edge - move // edge}"


def move_of(vertex: str, edge: int) -> int:
    """The number of a point or of a pass, see `vertex`."""
    word = vertex.upper()
    return edge**2 if word == PASS else (edge - int(word[1:])) * edge + COLUMNS.index(word[0])


class GnuGo:
    """Processes of GNU Go that answer questions about games. Use as a context manager.

    Its random numbers begin anew with every question, and processes take questions in turn. An answer may still depend
    on earlier questions to the same process (1 of 768 did), so answers depend on the number of processes.
    """

    def __init__(self, command: Sequence[str], edge: int, komi: float, processes: int) -> None:
        self._edge = edge
        self._before = [f"boardsize {edge}", f"komi {komi}", "clear_board", "set_random_seed 1"]
        self._processes = [_start(command) for _ in range(processes)]

    def __enter__(self) -> GnuGo:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def moves(self, games: Sequence[Sequence[int]]) -> list[int]:
        """The next move in games, each given by its moves so far; black begins."""
        answers = self.ask(games, [[f"genmove {_colour(len(played))}"] for played in games])
        return [move_of(answer, self._edge) for (answer,) in answers]

    def ask(self, games: Sequence[Sequence[int]], commands: Sequence[Sequence[str]]) -> list[list[str]]:
        """The answers to a few commands after the moves of each game."""
        count, edge = len(self._processes), self._edge
        before = [[*self._before, *(f"play {_colour(i)} {vertex(m, edge)}" for i, m in enumerate(g))] for g in games]
        found = []
        for begin in range(0, len(before), AT_ONCE * count):
            some = list(zip(before, commands, strict=True))[begin : begin + AT_ONCE * count]
            for number, (replay, asked) in enumerate(some):
                _write(self._processes[number % count], [*replay, *asked])
            for number, (replay, asked) in enumerate(some):
                answers = [_read(self._processes[number % count]) for _ in (*replay, *asked)]
                found.append(answers[len(replay) :])
        return found


def _colour(number: int) -> str:
    return "white" if number % 2 else "black"


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=none, text=True)
    except OSError as error:
        raise Unavailable(f"{command[0]} does not start: {error.strerror}", REMEDY) from None


def _write(process: subprocess.Popen[str], lines: Sequence[str]) -> None:
    assert process.stdin is not None, "it is a pipe"
    try:
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
    except OSError:
        raise Unavailable("GNU Go has ended", REMEDY) from None


def _read(process: subprocess.Popen[str]) -> str:
    """One answer: `=` and a text, up to an empty line."""
    assert process.stdout is not None, "it is a pipe"
    first = process.stdout.readline()
    if not first.startswith("="):
        raise Unavailable(f"GNU Go says {first.strip() or 'nothing'!r}", REMEDY)
    lines = [first[1:].strip()]
    while line := process.stdout.readline().strip():
        lines.append(line)
    return "\n".join(lines)
