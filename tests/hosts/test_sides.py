"""A comparison for real: opt-in, because it takes a quarter of a minute."""

import os

import pytest

from tests.conftest import records_of

if not os.environ.get("DEEPBENCH_TEST_HOSTS"):
    pytest.skip("long tests are opt-in: make test-hosts", allow_module_level=True)


def test_a_library_robbed_of_a_thread_fails_the_gate(deepbench, tmp_path):
    """For real: both sides of one run, and what each of them is to the other."""
    words = ["gemm m=512 n=512 k=512 f32 openblas", "--ab", "threads=2,1", "--rounds", "5", "--quick", "-o", "two"]
    done = deepbench("run", *words)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Measured in turn" in done.stdout
    files = [tmp_path / f"two.{side}.jsonl" for side in "ab"]
    assert [5, 5] == [len(records_of(f)) for f in files]

    assert 0 == deepbench("gate", "two.a.jsonl", "two.a.jsonl").returncode
    gate = deepbench("gate", "two.a.jsonl", "two.b.jsonl")
    assert gate.returncode in (1, 2), gate.stdout  # a busy machine may hide it, but never pass it
    assert "threads: 2 and 1" in gate.stdout
