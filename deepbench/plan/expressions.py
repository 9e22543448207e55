"""The arithmetic of model files: sums, differences, products and quotients of whole numbers and names.

Python parses an expression, but never evaluates it, because model files may come from others.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from functools import lru_cache

from deepbench.core.errors import BadInput, shorten

LONGEST_EXPRESSION = 200

# No size in a model comes near it, and products of longer numbers take time.
LARGEST_VALUE = 10**18

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}

_WORD = re.compile(r"[0-9]{1,18}|[A-Za-z_][A-Za-z_0-9]*|[-+*/()]", re.ASCII)


def evaluate(text: str, value_of: Callable[[str], int]) -> int:
    """The value of an expression such as `batch*(heads+2*kv_heads)`; quotients are rounded down.

    `value_of` gives the value of a name, or raises `BadInput`.
    """
    if len(text) > LONGEST_EXPRESSION:
        raise BadInput(f"an expression has at most {LONGEST_EXPRESSION} characters, found {len(text)}")
    nodes = _parsed(text)
    values: dict[ast.AST, int] = {}
    for node in nodes:
        match node:
            case ast.Constant(value=int(number)):
                values[node] = number
            case ast.Name(id=name):
                values[node] = value_of(name[1:])
            case ast.BinOp(left, operation, right) if type(operation) in OPERATORS:
                if values[right] == 0 and isinstance(operation, ast.Div):
                    raise BadInput(f"{shorten(text)!r} divides by 0")
                values[node] = OPERATORS[type(operation)](values[left], values[right])
                if abs(values[node]) > LARGEST_VALUE:
                    raise BadInput(f"the value of {shorten(text)!r} is larger than {LARGEST_VALUE}")
            case ast.operator() | ast.expr_context():
                pass
            case _:
                raise _wrong(text)
    return values[nodes[-1]]


def _wrong(text: str) -> BadInput:
    return BadInput(
        f"wanted an expression of whole numbers and names with + - * / and parentheses, found {shorten(text)!r}"
    )


# A model has some hundred expressions, and is evaluated for many batches and lengths.
@lru_cache(maxsize=4096)
def _parsed(text: str) -> list[ast.AST]:
    """All nodes of an expression, operands before what is computed from them; the whole is the last one."""
    words = _WORD.findall(text)
    if "".join(words) != "".join(text.split()):
        raise _wrong(text)
    # With a letter in front, words of Python such as `in` are names, too.
    named = (str(int(word)) if word.isdigit() else word if word in "+-*/()" else f"n{word}" for word in words)
    try:
        tree = ast.parse(" ".join(named), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise _wrong(text) from None
    return [*ast.walk(tree)][::-1]
