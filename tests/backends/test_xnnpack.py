"""XNNPACK: which releases are loaded, how a changed one is found, and what its records say about layouts."""

import ctypes
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deepbench.backends import xnnpack
from deepbench.backends.xnnpack import operators
from deepbench.core.case import check_settings, parse_case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.measuring.heat import measure_case
from deepbench.plan.modes import Rules

SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)

CONV = "conv n=1 c=8 h=9 w=7 k=16 r=3 s=3 pad_h=1 pad_w=1 forward f32 xnnpack threads=2"


def test_releases_that_were_not_tried_are_refused():
    for version in ("1.5.1", "1.5", None):
        xnnpack.check_version(version)
    for version in ("1.6.0", "1.4.1", "1.50.1"):
        with pytest.raises(Unavailable, match=f"1.5 was tried, found {version}"):
            xnnpack.check_version(version)


def test_the_version_is_that_of_the_package_around_the_library(tmp_path):
    (tmp_path / "lib").mkdir()
    file = str(tmp_path / "lib" / "libexecutorch_backend_xnnpack.so")
    assert xnnpack.package_version(file) is None
    assert xnnpack.package_version(None) is None
    (tmp_path / "version.py").write_text('from typing import Optional\n__version__ = "1.5.1+cpu"\n')

    assert "1.5.1" == xnnpack.package_version(file)


def test_a_library_whose_small_product_is_wrong_is_refused(monkeypatch):
    changed = xnnpack.XNNPACK()
    functions = SimpleNamespace(xnn_run_operator=None)
    changed.xnn = SimpleNamespace(library=functions, pool=ctypes.c_void_p(), call=lambda *arguments: None)
    monkeypatch.setattr(xnnpack, "run", lambda calls: None)  # computes nothing

    with pytest.raises(Unavailable, match="a small product of this XNNPACK is wrong"):
        changed.try_products()

    def missing(*arguments):
        raise Unsupported("this build of XNNPACK has no xnn_reshape")

    changed.xnn.call = missing
    with pytest.raises(Unavailable, match=r"a small product of this XNNPACK fails: .* no xnn_reshape"):
        changed.try_products()


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (5, Unsupported, "instructions of this CPU"),
        (4, Unsupported, "does not support"),
        (2, LibraryError, "parameter"),
    ],
)
def test_a_status_that_is_no_success_ends_the_case(monkeypatch, status, error, text):
    xnn = object.__new__(operators.XNNLibrary)
    xnn.library = None
    monkeypatch.setattr(operators.library, "first_symbol", lambda loaded, names: Function(status))

    with pytest.raises(error, match=text):
        xnn.call("create_softmax_nc", "f32", 0, None)
    monkeypatch.setattr(operators.library, "first_symbol", lambda loaded, names: None)
    with pytest.raises(Unsupported, match="this build of XNNPACK has no xnn_create_softmax_nc_f32"):
        xnn.call("create_softmax_nc", "f32", 0, None)


class Function:
    """A C function with this status."""

    def __init__(self, status):
        self.status = status

    def __call__(self, *arguments):
        assert len(self.argtypes) == len(arguments)
        return self.status


def test_every_elementwise_function_ends_in_its_result():
    from deepbench.ops.elementwise import KINDS

    for kind, steps in operators.STEPS.items():
        assert "y" == steps[-1][-1]
        assert {*KINDS[kind].inputs, "y"} == {name for _, *names in steps for name in names}
        for operator, *names in steps:
            assert (operator in operators.BINARY) == (len(names) == 3)
            assert operator in operators.UNARY or operator in operators.BINARY
    assert (0.0, math.inf) == operators.PARAMETERS.get("relu", operators.RELU)


@pytest.mark.programs
def test_conversions_are_part_of_a_call_unless_the_library_chooses_the_layout():
    case = parse_case(CONV)
    records = {
        layout: measure_case(replace(case, overrides=check_settings("conv", {"layout": layout})), 1, SHORT, 60.0)
        for layout in ("nchw", "any", "nhwc")
    }
    if records["nhwc"]["status"] == "unavailable":
        pytest.skip(records["nhwc"]["reason"])

    assert ["ok"] * 3 == [record["status"] for record in records.values()]
    notes = {layout: record["notes"] for layout, record in records.items()}
    assert "transpose_nd_x32, convolution2d_nhwc_f32, transpose_nd_x32" == notes["nchw"]["implementation"]
    assert {"convolution2d_nhwc_f32"} == {notes[layout]["implementation"] for layout in ("any", "nhwc")}
    assert {"nchw"} == {layout for layout in notes if "conversion_s" in notes[layout]}
    assert {"any"} == {layout for layout in notes if "convert_s" in notes[layout]}
    assert all(of["pack_s"] > 0 for of in notes.values())
