"""Facts about a machine that are kept between runs, such as self-tests and limits. Each kind of machine has a folder.

The folders are in `~/.local/state/deepbench` (or in `XDG_STATE_HOME`), or where `DEEPBENCH_STATE` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.files import SAFELY, read_regular
from deepbench.core.json_lines import from_line, sanitized, to_line

STATE = "DEEPBENCH_STATE"

# A larger file is not ours: a self-test writes some kilobytes.
MOST_BYTES = 64 * 2**20

# What identifies a kind of machine. The host name does not, because every container has a new one.
IDENTITY = ("cpu", "cpu_ids", "instructions", "cores_allowed", "cpu_quota", "memory_bytes", "hypervisor")


def fingerprint(machine: Mapping[str, Any]) -> str:
    """A short identifier for a kind of machine, from its description in a header."""
    parts = json.dumps([machine.get(name) for name in IDENTITY], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def folder() -> Path:
    """The folder for all machines."""
    if override := os.environ.get(STATE):
        return Path(override)
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "deepbench"


def remember(machine: Mapping[str, Any], name: str, line: Mapping[str, Any]) -> Path | None:
    """Append a line of JSON to the file `name` of a machine. The path, or None if it cannot be written."""
    path = folder() / fingerprint(machine) / f"{name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | SAFELY
        with open(os.open(path, flags, 0o666), "ab", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            file.write(to_line(dict(line)).encode())
    except OSError:
        return None
    return path


def remembered(machine: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """All lines in the file `name` of a machine, the oldest first. Invalid lines are skipped."""
    path, lines = folder() / fingerprint(machine) / f"{name}.jsonl", []
    try:
        content = read_regular(path, MOST_BYTES, "what deepbench remembers of this machine")
    except BadInput:
        return []
    for text in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = sanitized(from_line(text))
            if isinstance(value, dict):
                lines.append(value)
    return lines


def age(line: Mapping[str, Any]) -> timedelta:
    """How long ago a line was measured, by its field `at`; the longest time of all where that is not a date."""
    try:
        return datetime.now(UTC) - datetime.fromisoformat(line["at"])
    except (KeyError, ValueError, TypeError):  # a file may contain any text
        return timedelta.max
