"""Damaged and hostile variants of good files, from a seed: what a reader must survive."""

import os
import random
import re
import resource
import signal
import time
from collections import Counter
from contextlib import contextmanager

from deepbench.core.errors import BadInput

# `DEEPBENCH_FUZZ=100000 pytest -m long tests/promises/test_mutations.py` tries so many of each kind.
MANY = int(os.environ.get("DEEPBENCH_FUZZ", "2000"))

# For one small file, in CPU seconds, and how much the memory of this process may grow for all of them.
MOST_S = 5.0
MOST_BYTES = 2**30

NUMBERS = (
    *(
        b"0",
        b"-1",
        b"1",
        b"1.5",
        b"1e999",
        b"-1e999",
        b"nan",
        b"inf",
        b"NaN",
        b"Infinity",
        b"",
        b"1e-320",
        b"1_0",
        b"+7",
    ),
    *(b"2147483647", b"2147483648", b"9223372036854775808", b"18446744073709551616", b"1" + b"0" * 30, b"9" * 5000),
    *(b"0x" + b"f" * 5000, b"99999", b"4611686018427387904", b"\xd9\xa3", b"true", b'"7"', b"[]", b"{}", b"null"),
)
PIECES = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x1b[31m",
        b"\x1b]0;x\x07",
        b"\r",
        b"\n",
        b"\t",
        b" ",
        b"#",
        b'"',
        b"'",
        b"\\",
    ),
    *(
        b'"""',
        b"=",
        b",",
        b".",
        b":",
        b"[",
        b"]",
        b"{",
        b"}",
        b"(",
        b")",
        b"-",
        b"%",
        b"/",
        b"*",
        b"\xe2\x80\xae",
        b"\\u001b",
    ),
    *(
        b"[" * 2000,
        b"{" * 2000,
        b"(" * 300,
        b"a." * 300,
        b"a" * 20_000,
        b"\n" * 5000,
        b" = 1\n",
        b"null",
        b"\xed\xa0\x80",
    ),
)


def _byte(content, rng):
    place = rng.randrange(len(content))
    return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]


def _piece(content, rng):
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice(PIECES) + content[place:]


def _range(content, rng):
    """Remove, repeat or move a few bytes."""
    first = rng.randrange(len(content))
    last = min(len(content), first + rng.choice((1, 2, 8, 50, 400)))
    kept, part = content[:first] + content[last:], content[first:last]
    how = rng.randrange(3)
    if how == 0:
        return kept
    if how == 1:
        return content[:last] + part * rng.choice((1, 2, 100)) + content[last:]
    place = rng.randrange(len(kept) + 1)
    return kept[:place] + part + kept[place:]


def _cut(content, rng):
    return content[: rng.randrange(len(content))]


def _line(content, rng):
    """Remove, repeat, exchange or empty lines."""
    lines = content.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        del lines[a]
    elif how == 1:
        lines[a:a] = [lines[b]] * rng.choice((1, 2, 50))
    elif how == 2:
        lines[a], lines[b] = lines[b], lines[a]
    else:
        lines[a] = b""
    return b"\n".join(lines)


def _replaced(content, rng, pattern, by):
    found = list(re.finditer(pattern, content))
    if not found:
        return content
    match = rng.choice(found)
    return content[: match.start()] + by(match[0]) + content[match.end() :]


def _number(content, rng):
    return _replaced(content, rng, rb"-?[0-9]+(?:\.[0-9]+)?", lambda _: rng.choice(NUMBERS))


def _word(content, rng):
    """Another word of the same file in place of one, or none."""
    words = re.findall(rb"[A-Za-z_][A-Za-z_0-9.]*", content) or [b"x"]
    return _replaced(
        content, rng, rb"[A-Za-z_][A-Za-z_0-9.]*", lambda _: rng.choice((rng.choice(words), b"", b"x" * 3000))
    )


def _value(content, rng):
    """Something of another type in place of a text, a list or a table."""
    others = (b"3", b'"x"', b"[]", b"[[]]", b"{}", b"true", b"1.5", b"[1, 'a']", b"1979-05-27", b"null")
    return _replaced(content, rng, rb'"[^"\n]*"|\[[^\[\]]*\]|\{[^{}]*\}', lambda _: rng.choice(others))


CHANGES = (_byte, _piece, _range, _cut, _line, _line, _number, _number, _number, _word, _value)


def mutated(content, rng):
    """The content with one to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        if content:
            content = rng.choice(CHANGES)(content, rng)
    return content


class TooSlow(BaseException):
    """No reader catches it."""


@contextmanager
def _limited():
    def stop(number, frame):
        raise TooSlow(f"takes more than {MOST_S} CPU seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def try_mutations(originals, read, count, kept, seed=1):
    """Read so many mutations: each ends with a result or with one printable sentence, soon and with little memory.

    `read` gets the bytes. The first mutation that fails is written to the file `kept`. Returns how many ended how.
    """
    ended, rng = Counter(), random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    slowest = 0.0
    for number in range(count):
        content = mutated(rng.choice(originals), rng)
        begin = time.process_time()
        try:
            with _limited():
                read(content)
            ended["read"] += 1
        except BadInput as error:
            ended["refused"] += 1
            assert "\n" not in str(error), (number, str(error))
            assert len(str(error)) < 5000, (number, str(error)[:300])
        except BaseException as error:
            kept.write_bytes(content)
            error.add_note(f"mutation {number} of seed {seed}, kept in {kept}: {content[:300]!r}")
            raise
        slowest = max(slowest, time.process_time() - begin)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < MOST_BYTES, f"the memory grew by {grown} bytes"
    return ended
