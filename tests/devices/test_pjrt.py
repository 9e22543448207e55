"""PJRT: plug-ins that are none, damaged or hostile end with a reason; real ones are what the clock takes them for."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deepbench.backends.pjrt import plugin
from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.measuring.devices import find_devices, probe
from deepbench.native import hlo, protobuf
from deepbench.native.slope import SlopeTimer
from tests.devices.plugins import plugins

FAULTS = ("nothing", "old", "new", "other fields", "aborts", "hangs", "control")


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """The file of a make-believe plug-in with a fault."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("plugins")

    def made(fault):
        path = folder / f"{fault.replace(' ', '_')}.so"
        if not path.exists():
            source, number = Path(__file__).with_name("plugin.c"), FAULTS.index(fault) + 1
            command = ["cc", "-shared", "-fPIC", f"-DFAULT={number}", str(source), "-o", str(path)]
            subprocess.run(command, check=True)
        return str(path)

    return made


@pytest.mark.programs
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("nothing", "returns nothing"),
        ("old", "lacks Event_Await, Client_Create"),
        ("new", "has version 1.115 of the PJRT API; 0.… is supported"),
        ("other fields", "expects Event_Destroy of 4096 bytes, found 24"),
        ("control", "of 9 bytes"),
        ("aborts", "SIGABRT"),
        ("hangs", "no sign of life for 2 s"),
    ],
)
def test_a_plugin_that_does_not_fit_is_unavailable_with_the_reason(fake, fault, reason):
    found = probe("pjrt", fake(fault), 2.0 if fault == "hangs" else 30.0)

    assert isinstance(found, Unavailable)
    assert reason in found.reason
    assert not any(ord(c) < 32 for c in found.reason)


def test_files_that_are_no_plugin_are_named(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library")

    assert "does not load" in probe("pjrt", str(text), 30.0).reason
    assert "does not load" in probe("pjrt", "/no/such/plugin.so", 30.0).reason


def test_an_error_is_raised_with_its_text_as_one_line(fake):
    library = plugin.Plugin.__new__(plugin.Plugin)
    library.functions = {"Error_Message": lambda block: None, "Error_Destroy": lambda block: None}
    library._text_of = lambda error: "INTERNAL: it broke"
    with pytest.raises(LibraryError, match="it broke"):
        library.check("Client_Create", 1)
    library._text_of = lambda error: "UNIMPLEMENTED: no such thing"
    with pytest.raises(Unsupported, match="no such thing"):
        library.check("Client_Compile", 1)
    library.check("Client_Create", None)


# ---- messages


def test_messages_are_written_and_read():
    message = protobuf.wire_field(3, protobuf.varint_field(4, 1) + protobuf.varint_field(5, 300))

    assert b"\x1a\x05\x20\x01\x28\xac\x02" == message
    ((number, inner),) = protobuf.fields(message)
    assert (3, [(4, 1), (5, 300)]) == (number, list(protobuf.fields(inner)))


@pytest.mark.parametrize("message", [b"\x1a\x05\x20", b"\x08", b"\x80" * 12, b"\x0b", b"\x1a\xff\xff\xff\xff\x7f"])
def test_damaged_messages_are_refused_and_say_nothing_of_a_program(message):
    with pytest.raises(ValueError, match="message"):
        list(protobuf.fields(message))
    assert hlo.what_ran(message) is None
    assert hlo.keeps_loop(message) is None


def computation(number, *instructions):
    body = protobuf.varint_field(5, number)
    for code, calls in instructions:
        content = protobuf.wire_field(2, code.encode()) + b"".join(protobuf.varint_field(38, c) for c in calls)
        body += protobuf.wire_field(2, content)
    return protobuf.wire_field(3, body)


@pytest.mark.parametrize(
    ("inside", "outside", "kept"), [("dot", "add", True), ("add", "dot", False), ("add", "add", None)]
)
def test_a_product_that_was_moved_out_of_the_loop_is_seen(inside, outside, kept):
    module = protobuf.varint_field(6, 1)
    module += computation(1, ("parameter", ()), (outside, ()), ("while", (2,)))
    module += computation(2, ("fusion", (3,))) + computation(3, (inside, (3,)))  # one that calls itself ends, too
    program = protobuf.wire_field(1, module)

    assert kept == hlo.keeps_loop(program)
    assert f"{outside}, while" == hlo.what_ran(program)


# ---- real plug-ins


@pytest.mark.parametrize("path", plugins() or [None], ids=lambda path: Path(path).name if path else "none")
def test_a_real_plugin_is_found_and_its_clock_sees_no_fault(path, monkeypatch):
    if path is None:
        pytest.skip("needs a PJRT plug-in for CPUs: pip install xla-cpu-pjrt, or name one in DEEPBENCH_TEST_PJRT")
    monkeypatch.setenv("DEEPBENCH_PJRT_PATH", path)
    (cpu,) = find_devices(["pjrt"]).reached
    assert ("cpu", ["pjrt"]) == (cpu.device, list(cpu.through))
    assert "PJRT API 0." in cpu.through["pjrt"]

    backend = find_backend("pjrt")
    backend.select("cpu")
    facts = backend.open()
    assert path == facts["path"]
    case = parse_case("gemm m=96 n=80 k=64 forward f32 pjrt threads=1 beta=0")
    arrays = case.operation.operands(case)
    kernel = backend.prepare(case, arrays)
    kernel.load()
    timer = kernel.device.timer(lambda repeats: 0, 1)
    assert isinstance(timer, SlopeTimer)
    timer.once()
    kernel.store()
    np.testing.assert_allclose(arrays["c"], arrays["b"] @ arrays["a"], rtol=1e-4, atol=1e-4)
    for _ in range(3):
        assert timer(64) > 0
    found = timer.facts(1)
    assert found["clock"] in ("slope", "loop")
    assert found["queue"]["slope_s"] > 1e-6
    assert kernel.notes["implementation"]


def test_a_plugin_for_another_device_is_not_loaded(monkeypatch, tmp_path):
    path = tmp_path / "xla_cuda_plugin.so"
    path.write_text("would not load")
    monkeypatch.setenv("DEEPBENCH_PJRT_PATH", str(path) + os.pathsep)
    backend = find_backend("pjrt")
    backend.select("cpu")

    with pytest.raises(Unavailable, match="no PJRT plug-in for cpu found"):
        backend.open()
