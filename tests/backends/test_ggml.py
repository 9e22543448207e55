"""ggml: which versions are loaded, its formats next to ours, and what its records say."""

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from deepbench.backends import ggml
from deepbench.core.case import parse_case
from deepbench.core.errors import Unavailable
from deepbench.measuring.heat import measure_case
from deepbench.native import library
from deepbench.ops.weight_only_gemm.formats import FORMATS, Blocks
from deepbench.plan.modes import Rules

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)


class Traits(ctypes.Structure):
    """struct ggml_type_traits."""

    _fields_ = (
        *(("name", ctypes.c_char_p), ("block", ctypes.c_int64), ("interleave", ctypes.c_int64)),
        *(("bytes", ctypes.c_size_t), ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p)),
    )


@pytest.fixture
def loaded():
    """The backend with its library, but without threads."""
    backend = ggml.GGML()
    try:
        backend.library = library.load(backend.title, backend.path_variable, ggml.FILES, needs=(), remedy=ggml.REMEDY)
    except Unavailable as error:
        pytest.skip(error.reason)
    return backend


@pytest.mark.parametrize("name", FORMATS)
def test_the_library_reads_the_same_weights_in_a_format(loaded, name):
    loaded.check_version()
    form, (m, blocks) = FORMATS[name], (7, 5)
    a = np.resize(form.quantized(m, blocks * form.block)[1], (m, blocks * form.block_bytes))
    theirs = np.full((m, blocks * form.block), np.nan, np.float32)
    get = loaded.library.ggml_get_type_traits
    get.restype = ctypes.POINTER(Traits)
    to_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    to_float(get(ggml.TYPES[name]).contents.to_float)(a.ctypes.data, theirs.ctypes.data, theirs.size)

    np.testing.assert_allclose(Blocks(a, form)[:].T, theirs, rtol=1e-6, atol=1e-6)


def test_versions_that_were_not_tried_are_refused(loaded, monkeypatch):
    version = loaded.check_version()
    monkeypatch.setattr(ggml, "TRIED", ("0.0.1",))

    with pytest.raises(Unavailable, match=f"0.0.1 was tried, found {version}"):
        loaded.check_version()


def test_types_that_have_changed_are_refused(loaded, monkeypatch):
    monkeypatch.setitem(FORMATS, "q4_k", replace(FORMATS["q4_k"], block_bytes=148))

    with pytest.raises(Unavailable, match=r"type 12 of this ggml is .*144.*, wanted .*148"):
        loaded.check_version()


def test_a_library_without_a_version_is_refused():
    backend = ggml.GGML()
    backend.library = SimpleNamespace()

    with pytest.raises(Unavailable, match="found one without a version"):
        backend.check_version()


@pytest.mark.programs
@pytest.mark.parametrize("threads", [1, 2])
def test_the_record_says_what_ran(threads):
    text = f"weight_only_gemm m=64 n=3 k=512 group=32 bits=4 forward f32 ggml threads={threads} format=q4_k"
    record = measure_case(parse_case(text), 1, SHORT, 60.0)
    if record["status"] == "unavailable":
        pytest.skip(record["reason"])

    assert "ok" == record["status"], record["reason"]
    assert "q8_k" == record["notes"]["activations"]
    assert record["notes"]["implementation"].startswith("mul_mat")
    assert record["library"]["cpu_kernels"]
