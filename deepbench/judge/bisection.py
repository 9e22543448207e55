"""Which of many states of a library is the first slower one, in a number of questions that grows with the logarithm.

States are in their order of time. The first one is good and the last one is bad. A state that cannot be judged, because
it does not build or because its measurements do not decide, is skipped: its neighbors are asked instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["good", "bad", "skip"]

EXIT_CODES: dict[Answer, int] = {"good": 0, "bad": 1, "skip": 125}
"""What `git bisect run` understands."""


@dataclass
class Bisection:
    """The search among so many states. Ask about `next()` and `tell` the answer until there is none."""

    count: int
    good: int = 0
    """The last state that is known to be good."""
    bad: int = -1
    """The first state that is known to be bad."""
    skipped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError("a search needs a good state and a bad one")
        self.bad = self.bad % self.count

    @property
    def candidates(self) -> range:
        """States that may be the first bad one."""
        return range(self.good + 1, self.bad + 1)

    def next(self) -> int | None:
        """The state to ask about: the one nearest to the middle of those that are open; None where none is."""
        open_states = [state for state in range(self.good + 1, self.bad) if state not in self.skipped]
        middle = (self.good + self.bad) / 2
        return min(open_states, key=lambda state: (abs(state - middle), state), default=None)

    def tell(self, state: int, answer: Answer) -> None:
        """The answer about a state."""
        if answer == "good":
            self.good = max(self.good, state)
        elif answer == "bad":
            self.bad = min(self.bad, state)
        else:
            self.skipped.add(state)

    @property
    def questions_left(self) -> int:
        """About how many more questions there are, for a progress bar."""
        return max(0, (self.bad - self.good - 1).bit_length())
