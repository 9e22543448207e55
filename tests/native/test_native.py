"""C declarations compared with the real libraries, the loader's messages, and the timing loop in C and in Python."""

import ctypes
import ctypes.util
import inspect
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deepbench.core.errors import LibraryError, Unavailable
from deepbench.core.kernel import Call, Kernel
from deepbench.native import callloop, library, onednn


def loops():
    return ["python"] if callloop.native_library() is None else ["python", "native"]


def timer_of(kernel, kind, monkeypatch):
    if kind == "python":
        monkeypatch.setattr(callloop, "native_library", lambda: None)
    timer, actual_kind = callloop.timer(kernel)
    assert kind == actual_kind
    return timer


@pytest.mark.parametrize("kind", loops())
@pytest.mark.parametrize("count", [0, 1, 4, 8, 9, 13, 17, 20])
def test_every_number_of_arguments_arrives(kind, count, monkeypatch):
    seen = []
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)
    function = prototype(lambda *words: seen.append(words) or 0)
    words = [(i + 1) << (3 * i) for i in range(count)]

    elapsed = timer_of(Kernel(calls=(Call(function, *words),)), kind, monkeypatch)(3)

    assert [tuple(words)] * 3 == seen
    assert elapsed > 0


@pytest.mark.parametrize("kind", loops())
@pytest.mark.parametrize("count", [0, 2, 6, 10, 13, 15])
def test_floats_arrive_at_any_position(kind, count, monkeypatch):
    """As in `mkl_sparse_s_mm(operation, alpha, …, beta, y, ldy)`. Words may be passed on the stack, floats not."""
    seen = []
    types = [ctypes.c_void_p] * count
    types[count // 2 : count // 2] = [ctypes.c_float]
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *types, ctypes.c_float)
    function = prototype(lambda *words: seen.append(words) or 0)
    words = [(i + 1) << (3 * i) for i in range(count)]
    arguments = [*words[: count // 2], 1.5, *words[count // 2 :], -0.25]

    timer_of(Kernel(calls=(Call(function, *arguments),)), kind, monkeypatch)(2)

    assert [tuple(arguments)] * 2 == seen


@pytest.mark.parametrize("kind", loops())
def test_calls_of_a_kernel_are_made_in_order(kind, monkeypatch):
    seen = []
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    function = prototype(lambda word: seen.append(word) or 0)

    timer_of(Kernel(calls=(Call(function, 1), Call(function, 2))), kind, monkeypatch)(2)

    assert [1, 2, 1, 2] == seen


@pytest.mark.parametrize("kind", loops())
@pytest.mark.parametrize("others", [0, 1])
def test_a_bad_status_stops_the_timing_and_is_reported(kind, others, monkeypatch):
    prototype = ctypes.CFUNCTYPE(ctypes.c_int)
    bad = prototype(lambda: 7)
    good = prototype(lambda: 0)
    calls = (*[Call(good, status=True)] * others, Call(bad, status=True))

    with pytest.raises(LibraryError, match="returned 7"):
        timer_of(Kernel(calls=calls), kind, monkeypatch)(5)


@pytest.mark.parametrize("kind", loops())
def test_results_of_functions_without_a_status_are_ignored(kind, monkeypatch):
    prototype = ctypes.CFUNCTYPE(ctypes.c_int)
    function = prototype(lambda: 7)

    assert timer_of(Kernel(calls=(Call(function),)), kind, monkeypatch)(2) > 0


def test_arguments_go_by_value_or_by_address():
    number, handle = ctypes.c_float(1.0), ctypes.c_void_p(1234)
    call = Call(ctypes.CDLL(None).labs, 5, handle, number, b"N")

    assert [5, 1234, ctypes.addressof(number)] == call.words[:3]
    assert b"N" == ctypes.string_at(call.words[3])


def test_a_missing_library_is_unavailable_with_places_and_remedy(monkeypatch):
    monkeypatch.delenv("DEEPBENCH_X_PATH", raising=False)
    with pytest.raises(Unavailable) as error:
        library.load("X", "DEEPBENCH_X_PATH", ["libno_such_thing.so*"], ["x"], "pip install x")

    assert "DEEPBENCH_X_PATH, system, conda, wheels: no file libno_such_thing.so*" in error.value.reason
    assert "pip install x" == error.value.remedy


def test_a_named_file_is_the_only_one_tried(monkeypatch, tmp_path):
    broken = tmp_path / "libx.so"
    broken.write_text("not a library")
    monkeypatch.setenv("DEEPBENCH_X_PATH", str(broken))
    with pytest.raises(Unavailable) as error:
        library.load("X", "DEEPBENCH_X_PATH", ["libc.so*"], ["printf"], "correct the path")

    assert str(broken) in error.value.reason


@pytest.mark.programs
def test_what_a_library_needs_is_loaded_from_its_folder(tmp_path, monkeypatch):
    """As in wheels whose libraries do not say where the others are."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    needed, user = tmp_path / "libneeded-1.so", tmp_path / "libuser.so"
    for output, source, others in (
        (needed, "int needed(void) { return 7; }", ["-Wl,-soname,libneeded-1.so"]),
        (user, "int needed(void); int user(void) { return needed(); }", [str(needed)]),
    ):
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *others, "-o", str(output)]
        subprocess.run(command, input=source, text=True, check=True)
    monkeypatch.setenv("DEEPBENCH_X_PATH", str(user))

    with pytest.raises(Unavailable, match=r"libneeded-1\.so"):
        library.load("X", "DEEPBENCH_X_PATH", ["libuser.so"], ["user"], "-")
    assert 7 == library.load("X", "DEEPBENCH_X_PATH", ["libuser.so"], ["user"], "-", beside=["libneeded-*.so"]).user()


def test_the_newest_version_comes_first(monkeypatch, tmp_path):
    for name in ("libx.so.3.2", "libx.so.3.10", "libx.so.2.9"):
        (tmp_path / name).touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("DEEPBENCH_X_PATH", raising=False)

    names = [re.sub(".*/", "", p) for p in library.candidates("DEEPBENCH_X_PATH", ["libx.so*"])]

    assert ["libx.so.3.10", "libx.so.3.2", "libx.so.2.9"] == names


def test_a_library_without_the_function_is_skipped(monkeypatch):
    monkeypatch.delenv("DEEPBENCH_X_PATH", raising=False)
    with pytest.raises(Unavailable, match="has no function no_such_function"):
        library.load("X", "DEEPBENCH_X_PATH", ["libm.so.6"], ["no_such_function"], "-")


def test_onednn_has_every_function_we_declare():
    from deepbench.backends.onednn import BACKEND

    try:
        BACKEND.open()
    except Unavailable as error:
        pytest.skip(str(error))
    folder = Path(inspect.getfile(type(BACKEND))).parent
    files = [onednn.__file__, *folder.glob("*.py")]
    source = "".join(Path(file).read_text() for file in files)
    cells = ("vanilla_rnn", "lstm", "gru", "lbr_gru")
    for cell, direction in itertools.product(cells, ("forward", "backward")):
        assert hasattr(BACKEND.dnn.library, f"dnnl_{cell}_{direction}_primitive_desc_create")
    # Before these functions are called, their version is looked at: weights of 4 and 8 bits, group normalization.
    newer = {"dnnl_primitive_attr_set_scales", "dnnl_primitive_attr_set_fpmath_mode_v2"}
    newer |= {"dnnl_group_normalization_forward_primitive_desc_create"}
    names = set(re.findall(r'"(dnnl_[a-z_0-9]+)"', source)) | set(re.findall(r"library\.(dnnl_[a-z_0-9]+)", source))

    assert len(names) > 10
    assert [] == [name for name in names - newer if not hasattr(BACKEND.dnn.library, name)]


def test_mkl_has_every_routine_we_call():
    from deepbench.backends.mkl import BACKEND, ROUTINES

    try:
        BACKEND.open()
    except Unavailable as error:
        pytest.skip(str(error))
    for routine in ROUTINES.values():
        for suffix in ("", "_pack_get_size", "_pack", "_compute"):
            assert BACKEND._function(routine + suffix)


def test_the_newer_onednn_of_a_framework_is_found_after_a_library_of_its_own(tmp_path, monkeypatch):
    from deepbench.backends.onednn import FILES

    packages = tmp_path / "site-packages"
    for path in ("paddle/libs/libdnnl.so.3", "libdnnl.so.3.2"):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).touch()
    monkeypatch.setattr(library, "roots", lambda: [str(packages)])
    monkeypatch.delenv("DEEPBENCH_ONEDNN_PATH", raising=False)

    found = [Path(path).name for path in library.candidates("DEEPBENCH_ONEDNN_PATH", FILES)]

    assert ["libdnnl.so.3.2", "libdnnl.so.3"] == found


def test_an_openmp_runtime_of_this_process_is_found():
    runtime = ctypes.util.find_library("gomp")
    if runtime is None:
        pytest.skip("needs libgomp")
    ctypes.CDLL(runtime)

    assert re.search(r"/lib(gomp|iomp5|omp)", library.openmp_runtime())
