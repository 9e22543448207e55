"""Windows that move over one dimension of an image with its padding: what convolution and pooling count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Windows:
    """Windows of `size` elements, `dilation` apart, one for every `stride` elements of an image padded at both ends."""

    image: int
    size: int
    pad: int
    stride: int
    dilation: int = 1

    @property
    def count(self) -> int:
        """How many windows there are: the size of the output, below 1 if a window is larger than the padded image."""
        return 1 + (self.image + 2 * self.pad - self.dilation * (self.size - 1) - 1) // self.stride

    @property
    def pairs(self) -> int:
        """How many elements of all windows are elements of the image rather than padding."""
        return sum(last - first + 1 for _, first, last in self._inside())

    @property
    def seen(self) -> int:
        """How many elements of the image are in a window."""
        # Elements of windows that are as far from a multiple of the stride meet the same elements of the image.
        ranges: dict[int, list[tuple[int, int]]] = {}
        for offset, first, last in self._inside():
            step, rest = divmod(offset, self.stride)
            ranges.setdefault(rest, []).append((first + step, last + step))
        return sum(map(_united, ranges.values()))

    @property
    def useful(self) -> int:
        """How many windows have an element of the image."""
        return _united([(first, last) for _, first, last in self._inside()])

    @property
    def useful_elements(self) -> int:
        """How many of the elements of a window are an element of the image in some window."""
        return sum(1 for _ in self._inside())

    def _inside(self) -> Iterator[tuple[int, int, int]]:
        """Of each element of a window: where it is in the first window, and the windows in which it is in the image."""
        for number in range(self.size):
            offset = number * self.dilation - self.pad
            first = max(0, -(offset // self.stride))
            last = min(self.count - 1, (self.image - 1 - offset) // self.stride)
            if last >= first:
                yield offset, first, last


def _united(ranges: list[tuple[int, int]]) -> int:
    """How many whole numbers are in any of these ranges, both ends included."""
    total, end = 0, None
    for first, last in sorted(ranges):
        start = first if end is None else max(first, end + 1)
        if last >= start:
            total += last - start + 1
            end = last
    return total
