"""PyTorch compiled: it compiles once, before timing, leaves nothing behind, and says why it cannot compile."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from deepbench.core.backend import find_backend
from deepbench.core.case import parse_case
from deepbench.core.errors import DeepBenchError
from deepbench.core.kernel import Kernel
from deepbench.measuring import launch
from deepbench.measuring.heat import measure_case
from deepbench.measuring.parent import open_backend
from deepbench.plan.modes import Rules
from deepbench.reporting.notes import notes_of
from deepbench.results.summary import summarize

pytestmark = [pytest.mark.torch, pytest.mark.costly]

torch = pytest.importorskip("torch")
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
SHORT = Rules(least_samples=2, least_s=0.0, most_s=0.002, warm_up_s=0.001)
CASE = "elementwise kind=swiglu n=4096 forward f32 torch_compiled threads=1"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files of this process and its workers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def compiled(monkeypatch):
    """The library in this process. It calls what PyTorch has traced, without translating that to C++."""
    backend = find_backend("torch_compiled")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    backend.open()
    monkeypatch.setattr(backend, "_graphs", 0)

    def compiler(graph, inputs):
        backend._graphs += 1
        return graph.forward

    monkeypatch.setattr(backend, "_compiler", compiler)
    yield backend
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


def compiler(folder, script):
    """A program that takes the place of the C++ compiler, but states a version."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "g++ 99.1"; exit 0; fi\n{script}\n')
    path.chmod(0o755)
    return str(path)


@needs_compiler
def test_it_compiles_before_timing_and_leaves_nothing_behind(temporary):
    record = measure_case(parse_case(CASE), 1, SHORT, 120.0)

    assert "ok" == record["status"], record["reason"]
    assert record["check"]["before"]["passed"]
    assert record["check"]["after"]["passed"]
    assert 0.1 < record["notes"]["compile_s"] < record["process"]["duration_s"]
    assert max(record["measurement"]["samples_s"]) < record["notes"]["compile_s"] / 10
    assert "compiled silu and mul" == record["notes"]["implementation"]
    assert len(record["process"]["openmp_runtimes"]) == 1
    assert "compile_s" in [note.code for note in notes_of(summarize([record])[0])]
    assert "PyTorch compiled" == record["library_title"]
    assert [] == os.listdir(temporary)


@needs_compiler
def test_buffers_that_take_turns_share_what_is_compiled(temporary):
    text = "rms_norm rows=64 columns=100000 backward f32 torch_compiled threads=1 cache=cold"
    record = measure_case(parse_case(text), 1, SHORT, 300.0)

    assert "ok" == record["status"], record["reason"]
    assert record["notes"]["buffer_sets"] >= 2


def test_without_a_compiler_it_is_unavailable(temporary):
    variables = {"CXX": "/nowhere/g++"}
    answer = open_backend("torch_compiled", 60.0, variables)["unavailable"]
    record = measure_case(parse_case(CASE), 1, SHORT, 60.0, variables=variables)

    assert "PyTorch found no C++ compiler, with which it compiles" == answer["reason"]
    assert "apt install g++" in answer["remedy"]
    assert ("unavailable", f"{answer['reason']}; {answer['remedy']}") == (record["status"], record["reason"])


def test_a_compiler_that_does_not_work_is_quoted(temporary):
    script = "echo '1.cpp:2:10: fatal error: cmath: No such file or directory' >&2; exit 1"
    record = measure_case(parse_case(CASE), 1, SHORT, 60.0, variables={"CXX": compiler(temporary, script)})

    assert "unavailable" == record["status"]
    assert record["reason"].startswith("the C++ compiler failed (1.cpp:2:10: fatal error: cmath: No such file")
    assert ["compiler"] == os.listdir(temporary)


def test_a_compiler_that_hangs_ends_with_the_time_limit(temporary):
    script = f"echo $$ > {temporary}/number; exec sleep 600"
    record = measure_case(parse_case(CASE), 1, SHORT, 20.0, variables={"CXX": compiler(temporary, script)})

    assert ("timeout", "no sign of life for 20 s during: prepare") == (record["status"], record["reason"])
    started, deadline = Path("/proc", (temporary / "number").read_text().strip()), time.monotonic() + 5
    while started.exists() and "Z" not in (started / "stat").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not started.exists() or "Z" in (started / "stat").read_text()
    assert {"compiler", "number"} == set(os.listdir(temporary))


def test_variables_that_disable_the_compiler_do_not_reach_workers():
    inherited = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1", "TORCHINDUCTOR_CACHE_DIR": "/tmp/planted"}
    environment = launch.worker_environment(1, "none", [], inherited)

    assert set() == set(inherited) & set(environment)


def test_a_function_that_is_not_one_graph_is_an_error(compiled):
    x = torch.ones(4)

    def function():
        print("not part of a graph")
        return x + 1

    with pytest.raises(DeepBenchError, match=r"^PyTorch cannot compile this: .*print"):
        compiled._after_first_call(lambda: Kernel(run=compiled._compile(function), notes={"implementation": "add"}))


def test_compiling_again_is_an_error(compiled):
    x = [torch.ones(4)]
    function = compiled._compile(lambda: x[0] + 1)
    kernel = compiled._after_first_call(lambda: Kernel(run=function, notes={"implementation": "add"}))
    kernel.run()
    x[0] = torch.ones(5)

    with pytest.raises(DeepBenchError, match="Detected recompile"):
        kernel.run()
    assert 1 == compiled._graphs


def test_operators_that_were_not_compiled_are_an_error(compiled, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    x = torch.ones(4)
    function = compiled._compile(lambda: x + 1)

    with pytest.raises(DeepBenchError, match="compiled nothing"):
        compiled._after_first_call(lambda: Kernel(run=function, notes={"implementation": "add"}))
