"""Boxes: how much they overlap, default boxes, what these are trained to, and how good the boxes that were found are.

A box is left, top, right, bottom as shares of the width and height of its picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.floating[Any]]
Found = Sequence[float]
"""Class, score, left, top, right, bottom."""

# How errors of centres and of sizes are weighted against each other (Liu and others, 2016, in their program).
CENTRE, SIZE = 0.1, 0.2


class Map(NamedTuple):
    """The default boxes of one feature map: some at each of its places."""

    rows: int
    columns: int
    sizes: tuple[tuple[float, float], ...]
    """Width and height of each."""


def default_boxes(maps: Sequence[Map]) -> Boxes:
    """All default boxes, in the order of maps, rows, columns and sizes. They may leave the picture."""
    found = []
    for rows, columns, sizes in maps:
        for row, column, (width, height) in product(range(rows), range(columns), sizes):
            x, y = (column + 0.5) / columns, (row + 0.5) / rows
            found.append((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return np.array(found, np.float32)


def ssd_maps() -> list[Map]:
    """The 8,732 default boxes for COCO at 300 × 300 (Liu and others, 2016, sections 2.2 and 3.4).

    Scales are 0.07, and from 0.15 to 1.05 in equal steps. A place has a square of its scale, one of the geometric mean
    with the next scale, and for each ratio two boxes of the same area as the first.
    """
    sides, scales = (38, 19, 10, 5, 3, 1), (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)
    found = []
    for number, (side, scale, after) in enumerate(zip(sides, scales, scales[1:], strict=False)):
        ratios = (2.0, 3.0) if number in (1, 2, 3) else (2.0,)
        between = (scale * after) ** 0.5
        sizes = [(scale, scale), (between, between)]
        for ratio in ratios:
            wide = (scale * ratio**0.5, scale / ratio**0.5)
            sizes += [wide, wide[::-1]]
        found.append(Map(side, side, tuple(sizes)))
    return found


def overlap(a: Boxes, b: Boxes) -> NDArray[np.float32]:
    """Area of the intersection over area of the union, for each box of `a` (rows) with each of `b` (columns)."""
    left, top, right, bottom = (a[:, i, None] for i in range(4))
    width = np.minimum(right, b[:, 2]) - np.maximum(left, b[:, 0])
    height = np.minimum(bottom, b[:, 3]) - np.maximum(top, b[:, 1])
    both = width.clip(0) * height.clip(0)
    union = _areas(a)[:, None] + _areas(b) - both
    return np.asarray(both / np.maximum(union, 1e-12), np.float32)


def _areas(boxes: Boxes) -> Boxes:
    areas: Boxes = (boxes[:, 2] - boxes[:, 0]).clip(0) * (boxes[:, 3] - boxes[:, 1]).clip(0)
    return areas


def match(defaults: Boxes, boxes: Boxes, least: float) -> NDArray[np.int64]:
    """Which box each default box is trained to find: an index of `boxes`, or −1 for none.

    A default box gets the box that it overlaps most, if by at least `least`. Every box gets the default box that
    overlaps it most, whatever that has otherwise.
    """
    if not len(boxes):
        return np.full(len(defaults), -1, np.int64)
    overlaps = overlap(defaults, boxes)
    best = overlaps.argmax(1)
    found = np.where(overlaps[np.arange(len(defaults)), best] >= least, best, -1)
    found[overlaps.argmax(0)] = np.arange(len(boxes))
    return found


def suppressed(found: NDArray[np.float32], most_overlap: float) -> NDArray[np.float32]:
    """The boxes, sorted by score, without those that overlap a better one of their class by more than `most_overlap`.

    Rows are class, score, left, top, right, bottom. Of equal scores the earlier row is better.
    """
    found = found[np.argsort(-found[:, 1], kind="stable")]
    rivals = (overlap(found[:, 2:], found[:, 2:]) > most_overlap) & (found[:, None, 0] == found[None, :, 0])
    kept = np.ones(len(found), bool)
    for number in range(len(found)):
        if kept[number]:
            kept[number + 1 :] &= ~rivals[number, number + 1 :]
    return found[kept]


def average_precision(
    found: Sequence[Sequence[Found]],
    boxes: Sequence[Boxes],
    classes: Sequence[NDArray[Any]],
    thresholds: Sequence[float],
) -> float:
    """The mean over thresholds and classes of the area under the curve of precision over recall (Everingham and others,
    2010, section 4.2, with all points of the curve).

    The boxes that were found on all pictures are sorted by score; of equal scores that of the earlier picture, and
    there the earlier one, is first. One is right if it overlaps a true box of its class by at least the threshold, and
    if that one, which is the one that it overlaps most, is not taken by an earlier box. The precision at a recall is
    the best one at this recall or more. Classes that no picture has do not count; without any box the value is 0.

    Args:
        found: of each picture.
        boxes, classes: the true ones of each picture.
        thresholds: of the intersection over union.
    """
    values = []
    for kind in sorted({int(c) for of_picture in classes for c in of_picture}):
        truths = [b[c == kind] for b, c in zip(boxes, classes, strict=True)]
        rows = [_of_class(of_picture, kind) for of_picture in found]
        best, value = _best_truths(rows, truths)
        order = np.argsort(-np.concatenate(rows)[:, 0], kind="stable")
        best, value = best[order], value[order]
        for threshold in thresholds:
            enough = np.flatnonzero(value >= threshold)
            right = np.zeros(len(value), bool)
            right[enough[np.unique(best[enough], return_index=True)[1]]] = True
            values.append(_area(right, sum(map(len, truths))))
    return float(np.mean(values)) if values else 0.0


def _of_class(found: Sequence[Found], kind: int) -> NDArray[np.float64]:
    """Score, left, top, right, bottom of what was found of a class on one picture."""
    return np.array([row[1:] for row in found if row[0] == kind], np.float64).reshape(-1, 5)


def _best_truths(
    rows: Sequence[NDArray[np.float64]], truths: Sequence[Boxes]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each row of each picture the number of the true box that it overlaps most, and by how much."""
    numbers, values, before = [], [], 0
    for row, truth in zip(rows, truths, strict=True):
        overlaps = overlap(row[:, 1:], truth) if len(truth) else np.zeros((len(row), 1), np.float32)
        numbers.append(before + overlaps.argmax(1))
        values.append(overlaps.max(1))
        before += len(truth)
    return np.concatenate(numbers), np.concatenate(values)


def _area(right: NDArray[np.bool_], wanted: int) -> float:
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    best_later = np.maximum.accumulate(precision[::-1])[::-1]
    return float(best_later[right].sum() / wanted)
