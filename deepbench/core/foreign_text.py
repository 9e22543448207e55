"""Text that other programs wrote: its encoding, and what launchers and people put before its lines.

Text may be compressed by gzip, and in UTF-8 or UTF-16 with a byte-order mark, as PowerShell writes it. A launcher may
have written a rank, a container, a host or a time before each line; a terminal its colours; a person a quote or a box.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.core.files import decompressed, open_regular, require_no_pointer
from deepbench.core.json_lines import printable

# Byte-order marks. That of UTF-32 begins with that of UTF-16.
ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

COLORS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")

TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
BEFORE = re.compile(
    "|".join(
        (
            r"\[[^\]\s]{1,100}\]<\w{1,10}>:?",  # mpirun --tag-output: [1,0]<stdout>:
            r"\[\d{1,6}\](?=\s)",  # mpiexec -prepend-rank: [0]
            r"[\w.#-]{0,60}\d[\w.-]{0,60}:(?=\s|$)",  # srun -l: 0:, pdsh: node1:
            r"[\w.-]{1,60} {1,60}\|(?=\s|$)",  # docker compose: trainer-1  |
            r"[>|](?=\s|$)",  # a quote, a table
            rf"\[?{TIME}\]?(?: std(?:out|err) [FP])?(?=\s|$)",
            r"(?:DEBUG|INFO|WARNING|ERROR)[:\s]",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,60} [\w./-]{1,60}(?:\[\d{1,9}\])?:(?=\s|$)",  # syslog
        )
    )
)

# A line has a time, a container and a rank before it, and rarely more.
MOST_BEFORE = 6


def decoded(content: bytes, errors: str = "replace") -> str:
    """Bytes as text, in the encoding of their byte-order mark; without one, in UTF-8."""
    encoding = next((name for mark, name in ENCODINGS if content.startswith(mark)), "utf-8")
    return content.decode(encoding, errors=errors)


def read_text(path: Path, most_bytes: int, wanted: str) -> str:
    """The text of a regular file of at most so many bytes, compressed or not; `BadInput` for anything else."""
    with open_regular(path, most_bytes, wanted) as file:
        try:
            content = decompressed(file, most_bytes).read(most_bytes + 1)
        except OSError as error:
            reason = error.strerror or error
            raise BadInput(f"cannot read {printable(str(path))}: {reason}; expected {wanted}") from None
    if len(content) > most_bytes:
        raise BadInput(f"{printable(str(path))} has more than {most_bytes} bytes; expected {wanted}")
    require_no_pointer(content, path)
    return decoded(content)


def without_colors(text: str) -> str:
    """A text without what colours a terminal; everything else stays."""
    return COLORS.sub("", text)


def plain_line(line: str) -> str:
    """A line without colours, and without what was put before it; the blanks that follow that stay."""
    line = COLORS.sub("", line)
    is_boxed = False
    for _ in range(MOST_BEFORE):
        rest = line.lstrip()
        found = BEFORE.match(rest)
        if found is None:
            break
        is_boxed |= found[0] == "|"
        line = rest[found.end() :]
    return line.rstrip().removesuffix("|") if is_boxed else line


def plain_lines(text: str) -> str:
    """The same for every line of a text."""
    return "\n".join(map(plain_line, text.splitlines()))
