"""A check compares with a reference that is right, and says what it found."""

import numpy as np
import pytest

from deepbench.core.errors import Unavailable
from deepbench.measuring import check
from deepbench.measuring.check import Verdict


class WrongProducts(np.ndarray):
    """Matrices whose products by BLAS are wrong, as with OpenBLAS on some processors."""

    def __matmul__(self, other):
        return np.zeros((self.shape[0], other.shape[1]))


@pytest.fixture
def fresh():
    check.require_right_products.cache_clear()
    yield
    check.require_right_products.cache_clear()


def test_right_products_pass(fresh):
    check.require_right_products()


def test_a_wrong_reference_accuses_no_library(fresh, monkeypatch):
    usual = np.arange

    def arange(*arguments, **options):
        array = usual(*arguments, **options)
        return array.view(WrongProducts)

    monkeypatch.setattr(check.np, "arange", arange)
    with pytest.raises(Unavailable, match="multiplies matrices wrongly on this processor") as caught:
        check.require_right_products()
    assert "OPENBLAS_CORETYPE" in caught.value.remedy


@pytest.mark.parametrize(
    ("got", "want", "error", "text"),
    [
        (1.0, 2.0, 3.0, "all: found 1, wanted 2, error 3 times the tolerance"),
        (None, 2.0, None, "all: found NaN or infinity, wanted 2, not a number"),
        (1.0, None, None, "all: found 1, wanted NaN or infinity, no error is allowed"),
        (1.0, 2.0, None, "all: found 1, wanted 2, no error is allowed"),
    ],
)
def test_a_verdict_is_a_sentence_whatever_was_found(got, want, error, text):
    assert text == Verdict(False, "all", error, got, want, 1, 1).sentence
