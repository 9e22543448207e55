"""Commands that messages suggest."""

from __future__ import annotations

import shlex
from pathlib import Path

from deepbench.core.json_lines import printable


def command(*words: str | Path) -> str:
    """`deepbench` with these words, quoted for a shell. A path that starts with a dash is not taken for an option."""
    texts = [f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words]
    return printable(shlex.join(["deepbench", *texts]))
