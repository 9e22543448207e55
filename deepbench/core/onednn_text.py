"""Problems as oneDNN writes them: benchdnn on its command line, and the library in its log."""

from __future__ import annotations

import re

# The precision by the types of data and weights.
PRECISIONS = {"f32": "f32", "bf16": "bf16", "f16": "f16", "s8:s8": "i8", "u8:s8": "i8u8"}

# Layouts of images, or of arrays like them, by the order of their axes: channels last, or first.
CHANNELS_LAST = ("axb", "acb", "acdb", "acdeb", "nwc", "nhwc", "ndhwc")
CHANNELS_FIRST = ("abx", "abc", "abcd", "abcde", "ncw", "nchw", "ncdhw")


def precision_of(data: str, weights: str) -> str | None:
    """The precision with these types; None if there is none."""
    return PRECISIONS.get(data if data == weights else f"{data}:{weights}") or PRECISIONS.get(f"{data}:{weights}")


def numbers(problem: str) -> dict[str, int]:
    """`mb2_ic16oc32_ih7kh3n"name"` as numbers by their names."""
    text, _, name = problem.partition('n"')  # such as n"alexnet:conv1" at the end
    text = (text if name.endswith('"') else problem).replace("_", "")
    # Without (?<![a-z]) a long word without digits takes minutes.
    return {name: int(value) for name, value in re.findall(r"(?<![a-z])([a-z]+)(\d{1,18})", text)}


def shapes(problem: str) -> list[tuple[int, ...]] | None:
    """`2x3x4:2x4x5` as two shapes, with or without a name at the end; None if it is something else."""
    if not re.fullmatch(r"\d{1,18}(x\d{1,18}){0,11}(:\d{1,18}(x\d{1,18}){0,11}){0,9}(_n\".*\")?", problem):
        return None
    return [tuple(map(int, shape.split("x"))) for shape in problem.split("_n")[0].split(":")]
