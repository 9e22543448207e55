"""Which cases a conformance report measures."""

import pytest

from deepbench.api.filters import make_choices
from deepbench.core.backend import find_backend
from deepbench.plan.conformance import PRODUCT_S, conformance_cases, pilot


def texts(device="cpu", rate=None, **filters):
    choices = make_choices(device=device, **filters)
    names = choices.backends or ("pjrt",)
    return [p.case.text for p in conformance_cases(choices, 2, {names[0]: rate} if rate else {})]


def test_every_precision_and_direction_that_is_marked_has_two_small_problems():
    backend = find_backend("onednn")
    cases = [t.split() for t in texts(backends="onednn", ops="softmax")]

    assert all(backend.supports("softmax", words[-3], words[-4]) for words in cases)
    for precision in ("f32", "bf16", "f16"):
        for direction in ("forward", "backward"):
            assert 2 == sum(precision in words and direction in words for words in cases)


def test_each_kind_is_measured():
    found = texts(backends="torch", ops="elementwise", precisions="f32", directions="forward")

    assert len({text.split()[1] for text in found}) >= 16


def test_other_settings_are_tried_once_and_types_of_results_in_every_precision():
    found = texts(backends="onednn", ops="gemm")

    assert 1 == sum("weights=packed" in text for text in found)
    assert 1 == sum("beta=0" in text for text in found)
    assert {"bf16", "f16"} == {text.split()[7] for text in found if "result=narrow" in text}


def test_nothing_appears_twice():
    found = texts(backends="onednn")

    assert len(found) == len({*found})


def test_filters_hold_for_large_products_and_copies_too():
    assert texts(backends="loops", ops="softmax")
    assert all(text.startswith("softmax") for text in texts(backends="loops", ops="softmax"))
    assert any("kind=copy n=50331648" in text for text in texts(backends="loops", ops="memory"))
    assert all(" bf16 " in text for text in texts(device="pjrt:tpu", rate=1e15, precisions="bf16"))


def flop(text):
    m, n, k = (int(word.partition("=")[2]) for word in text.split()[1:4])
    return 2 * m * n * k


@pytest.mark.parametrize("rate", [1e10, 1e12, 1e15])
def test_products_are_as_large_as_the_device_is_fast(rate):
    largest = max(map(flop, texts(device="pjrt:tpu", ops="gemm", rate=rate)))

    assert largest <= PRODUCT_S * rate
    assert largest >= min(2 * 8192**3, PRODUCT_S * rate / 8)


def test_a_device_whose_rate_is_unknown_gets_no_large_product():
    assert max(map(flop, texts(device="pjrt:tpu", ops="gemm"))) < 1e6


def test_the_pilot_is_a_product_of_medium_size_in_a_precision_that_is_asked_for():
    choices = make_choices(device="pjrt:tpu", precisions="bf16")
    case = pilot(find_backend("pjrt"), choices, 2)

    assert "bf16" == case.precision.name
    assert "pjrt:tpu" == case.device
    assert 1e8 < flop(case.text) < 1e9
    assert pilot(find_backend("loops"), make_choices(), 2) is None
    assert pilot(find_backend("pjrt"), make_choices(device="pjrt:tpu", ops="softmax"), 2) is None
