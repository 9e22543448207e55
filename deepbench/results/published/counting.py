"""Writes `overview.json`: how much the file of each published machine has."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from deepbench.results.published import counted, machines


def text() -> str:
    """The content of the list."""
    return json.dumps({name: asdict(counted(name)) for name in machines()}, indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("overview.json").write_text(text(), encoding="utf-8")
