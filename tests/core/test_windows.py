"""Windows over one dimension of an image, against sliding them step by step."""

import itertools

import pytest

from deepbench.core.windows import Windows

SIZES = [
    sizes
    for sizes in itertools.product((1, 2, 7, 12), (1, 2, 3, 5), (0, 1, 3), (1, 2, 3, 5), (1, 2, 3))
    if Windows(*sizes).count >= 1
]


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_windows_meet_what_they_meet_when_they_slide(dilation):
    for image, size, pad, stride, own in SIZES:
        if own == dilation:
            starts = range(-pad, image + pad - dilation * (size - 1), stride)
            met = [
                (start, element, start + element * dilation)
                for start in starts
                for element in range(size)
                if 0 <= start + element * dilation < image
            ]
            windows = Windows(image, size, pad, stride, dilation)
            assert len(starts) == windows.count
            assert len(met) == windows.pairs
            assert len({place for *_, place in met}) == windows.seen
            assert len({start for start, *_ in met}) == windows.useful
            assert len({element for _, element, _ in met}) == windows.useful_elements


def test_the_largest_image_is_counted_at_once():
    windows = Windows(2**31 - 1, 4096, 0, 5000)

    assert windows.count == 429496
    assert windows.seen == windows.pairs == 429496 * 4096
