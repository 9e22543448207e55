"""The arithmetic of model files: sums, differences, products and quotients of whole numbers and names.

Expressions are parsed here and never given to Python's `eval`, because model files may come from others.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from deepbench.core.errors import BadInput, shorten

LONGEST_EXPRESSION = 200

# Of parentheses within parentheses.
DEEPEST = 10

# No size in a model comes near it, and products of longer numbers take time.
LARGEST_VALUE = 10**18

_TOKEN = re.compile(r"[0-9]{1,18}|[a-z_][a-z_0-9]*|[-+*/()]", re.ASCII)


def evaluate(text: str, value_of: Callable[[str], int]) -> int:
    """The value of an expression such as `batch*(heads+2*kv_heads)`; quotients are rounded down.

    `value_of` gives the value of a name, or raises `BadInput`.
    """
    return _Reader(text, value_of).read()


class _Reader:
    def __init__(self, text: str, value_of: Callable[[str], int]) -> None:
        if len(text) > LONGEST_EXPRESSION:
            raise BadInput(f"an expression has at most {LONGEST_EXPRESSION} characters, found {len(text)}")
        self.text, self.value_of = text, value_of
        self.tokens = _TOKEN.findall(text)
        self.position = self.depth = 0
        if "".join(self.tokens) != "".join(text.split()) or not self.tokens:
            raise self._wrong()

    def read(self) -> int:
        value = self._sum()
        if self._next() is not None:
            raise self._wrong()
        return value

    def _sum(self) -> int:
        value = self._product()
        while (sign := self._next()) in ("+", "-"):
            self.position += 1
            term = self._product()
            value = self._checked(value + term if sign == "+" else value - term)
        return value

    def _product(self) -> int:
        value = self._factor()
        while (sign := self._next()) in ("*", "/"):
            self.position += 1
            factor = self._factor()
            if sign == "/" and factor == 0:
                raise BadInput(f"{shorten(self.text)!r} divides by 0")
            value = self._checked(value * factor if sign == "*" else value // factor)
        return value

    def _factor(self) -> int:
        token = self._next()
        if token is None:
            raise self._wrong()
        self.position += 1
        if token == "(":
            self.depth += 1
            value = self._sum() if self.depth <= DEEPEST else 0
            if self._next() != ")":
                raise self._wrong()
            self.position += 1
            self.depth -= 1
            return value
        if token.isdigit():
            return int(token)
        if token in "+-*/)":
            raise self._wrong()
        return self.value_of(token)

    def _next(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def _checked(self, value: int) -> int:
        if abs(value) > LARGEST_VALUE:
            raise BadInput(f"the value of {shorten(self.text)!r} is larger than {LARGEST_VALUE}")
        return value

    def _wrong(self) -> BadInput:
        wanted = "whole numbers and names with + - * / and parentheses"
        return BadInput(f"wanted an expression of {wanted}, found {shorten(self.text)!r}")
