"""What is remembered of a machine between runs: self-tests and roofs, in a folder named by what the machine is.

`DEEPBENCH_STATE` names another folder than `~/.local/state/deepbench` (or below `XDG_STATE_HOME`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepbench.core.json_lines import from_line, sanitized, to_line

STATE = "DEEPBENCH_STATE"

# A machine with another of these is another machine. Its name is none of them: containers have a new one each time.
WHAT = ("cpu", "cpu_ids", "instructions", "cores_allowed", "cpu_quota", "memory_bytes", "hypervisor")


def fingerprint(machine: Mapping[str, Any]) -> str:
    """A short name of what a machine is, from its description in a header."""
    parts = json.dumps([machine.get(name) for name in WHAT], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def folder() -> Path:
    """Where it is kept."""
    named = os.environ.get(STATE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "deepbench"


def remember(machine: Mapping[str, Any], name: str, line: Mapping[str, Any]) -> Path | None:
    """Append a line of JSON to what is known of a machine under this name; None where nothing can be written."""
    path = folder() / fingerprint(machine) / f"{name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(to_line(dict(line)))
    except OSError:
        return None
    return path


def remembered(machine: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """All lines under this name, the oldest first; lines that are none are left out."""
    found = []
    with contextlib.suppress(OSError):
        path = folder() / fingerprint(machine) / f"{name}.jsonl"
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = sanitized(from_line(text))
                if isinstance(value, dict):
                    found.append(value)
    return found
