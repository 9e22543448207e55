"""Values that may be secrets and that no reader shows: environment variables that DeepBench does not store."""

from __future__ import annotations

import re
from typing import Any

from deepbench.core.variables import HIDDEN, is_secret, is_tuning, kept

# A word of a command that sets a variable, such as --ab NAME=1,2.
SETS_VARIABLE = re.compile(r"((?:--[a-z-]+=)?(\w+)=)")


def without_secrets(line: Any) -> Any:
    """The same line of any kind; values of variables that DeepBench does not store are replaced."""
    if not isinstance(line, dict):
        return line
    plan, command = line.get("plan"), line.get("command")
    starts = [event.get("start") for name in ("training", "serving") if isinstance(event := line.get(name), dict)]
    for place in (line.get("process"), *starts):
        if isinstance(place, dict) and "environment" in place:
            place["environment"] = _masked(place["environment"])
    side = plan.get("interleaved") if isinstance(plan, dict) else None
    if isinstance(side, dict) and isinstance(side.get("environment"), dict):
        # The user asked to compare by these variables, so only secrets are hidden.
        side["environment"] = {n: HIDDEN if is_secret(n) else v for n, v in side["environment"].items()}
    if isinstance(command, list):
        line["command"] = [_masked_word(word) if isinstance(word, str) else word for word in command]
    return line


def _masked(environment: Any) -> Any:
    if not isinstance(environment, dict):
        return HIDDEN
    return {n: kept(v) if isinstance(v, str) and is_tuning(n) else HIDDEN for n, v in environment.items()}


def _masked_word(word: str) -> str:
    match = SETS_VARIABLE.match(word)
    return f"{match[1]}{HIDDEN}" if match and is_secret(match[2]) else word
