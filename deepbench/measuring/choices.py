"""Which algorithm a library's search has chosen, so that each case runs one algorithm in all rounds and later runs.

Searches take seconds, and their winner varies. So the first round of a case searches, and its record has the choice in
`notes.choice`. Later rounds, `--resume` and later runs get this choice: from the records of the file, else from what is
remembered of the machine for the same card, library, version, case and variables. A choice is only a text that a
library compares with the algorithms that it proposes itself. If it proposes or runs that one no longer, it searches
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from deepbench.core.case import Case
from deepbench.machine import remembered
from deepbench.measuring.launch import with_variables
from deepbench.results.file import ResultFile
from deepbench.results.record import Record, RecordWarning

# Variables of GPU runtimes that a search may depend on, besides those of the library. Cards are told apart by name.
RUNTIME_VARIABLES = ("CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*")
NAMES_A_CARD = "*_VISIBLE_DEVICES"

# A longer text is no choice. The longest are those of cuDNN, an engine with its knobs.
LONGEST = 500


def conditions(case: Case, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that a search depends on, as `NAME=value`."""
    library = case.library
    patterns = (*library.tuning_variables, *RUNTIME_VARIABLES, *filter(None, [library.path_variable]))
    names = [n for n in environment if any(fnmatchcase(n, p) for p in patterns) and not fnmatchcase(n, NAMES_A_CARD)]
    return tuple(f"{name}={environment[name]}" for name in sorted(names))


def choice_in(notes: Mapping[str, Any]) -> str | None:
    """The choice in the notes of a record; None if there is none, or if it cannot be one."""
    choice = notes.get("choice")
    return choice if isinstance(choice, str) and 0 < len(choice) <= LONGEST else None


class ChosenAlgorithms:
    """The choices for the cases of one result file."""

    def __init__(self, file: ResultFile, environment: Mapping[str, str], inherited: Mapping[str, str]) -> None:
        """`environment` has the variables of the workers besides those that are `inherited`."""
        self._header = file.header
        self._search_again = bool(file.header["plan"].get("search_again"))
        self._environment = with_variables(inherited, environment)
        self._of_file: dict[str, str] = {}
        self._remembered: dict[tuple[str, ...], str] | None = None
        for record in file.records:
            self._add(record)

    def of(self, case: Case) -> str | None:
        """The choice for a case: of an earlier round, else of an earlier run; None: the library must search."""
        if case.text in self._of_file:
            return self._of_file[case.text]
        key = self._key(case)
        if key is None or self._search_again:
            return None
        if self._remembered is None:
            lines = remembered.remembered(self._header["machine"], "algorithms")
            self._remembered = {
                tuple(map(str, line["key"])): choice
                for line in lines
                if isinstance(line.get("key"), list) and (choice := choice_in(line)) is not None
            }
        return self._remembered.get(key)

    def keep(self, case: Case, record: Record) -> None:
        """Keep what the search of a record has chosen, also for later runs if the record is right.

        A record with another algorithm than earlier rounds of its case gets a warning.
        """
        earlier, choice = self._of_file.get(case.text), choice_in(record["notes"])
        if choice is None:
            return
        if earlier not in (None, choice):
            text = "rounds ran different algorithms, because the library refused that of an earlier round"
            record["warnings"].append(RecordWarning(code="other_algorithm", text=text))
        self._add(record)
        key = self._key(case)
        if key is not None and record["status"] == "ok" and record["notes"].get("search") != "reused":
            line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "key": list(key), "choice": choice}
            remembered.remember(self._header["machine"], "algorithms", line)
            if self._remembered is not None:
                self._remembered[key] = choice

    def _add(self, record: Record) -> None:
        if (choice := choice_in(record["notes"])) is not None:
            self._of_file[record["case"]] = choice

    def _key(self, case: Case) -> tuple[str, ...] | None:
        """What the same choice holds for; None for libraries of CPUs, which do not search."""
        facts: Mapping[str, Any] = self._header["libraries"].get(case.backend, {}).get("library") or {}
        card = facts.get("card")
        if not isinstance(card, dict):
            return None
        names = (card.get("name"), card.get("driver"), facts.get("name"), facts.get("version"))
        return (*map(str, names), case.text, *conditions(case, self._environment))
