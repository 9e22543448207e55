"""The verdict of a CI job on a change.

The job first measures the old build against itself. If that shows that the machine cannot see what is asked, there is
no verdict: `refused`. Then old and new take turns. What looks slower is measured once more in fresh processes, which
removes accidents of a moment. It is the same machine, so that confirms nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepbench.judge.gate import GateVerdict
from deepbench.judge.resolution import Resolution

REFUSED = "refused"


@dataclass(frozen=True)
class CiVerdict:
    """What a job found."""

    base: str
    head: str
    """What the user calls the two builds."""
    machine: str
    margin: float
    resolution: Resolution
    refusal: str | None
    """Why there is no verdict."""
    outcome: GateVerdict | None
    """None where it was refused."""
    seen_again: tuple[str, ...] = ()
    """Cases that were measured a second time, in fresh processes."""
    repeat: tuple[str, ...] = ()
    """The words of the command that measures a case again; the case is added."""

    @property
    def verdict(self) -> str:
        """`passed`, `regression`, `cannot tell` or `refused`."""
        return REFUSED if self.outcome is None else self.outcome.verdict

    @property
    def exit_code(self) -> int:
        """0 passed, 1 regression, 2 neither."""
        return 2 if self.outcome is None else self.outcome.exit_code
