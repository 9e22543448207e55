"""A name that a person or a file gives may belong to anything: nothing waits for it or reads it without end."""

import os
import signal
import socket
from pathlib import Path

import pytest

from deepbench.api.results import load
from deepbench.core.errors import BadInput
from deepbench.core.files import open_regular, read_regular
from deepbench.formats import ImportOptions, import_file
from deepbench.machine import remembered
from deepbench.plan.suites import read_suite
from deepbench.results.file import Store, read_results


@pytest.fixture(autouse=True)
def _no_wait():
    """A call that waits ends with an error after five seconds."""

    def stop(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo.csv")
    return tmp_path / "fifo.csv"


def test_only_a_regular_file_of_bounded_size_is_read(tmp_path, fifo):
    (tmp_path / "large").write_bytes(b"12345")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    expected = {
        fifo: "is not a regular file; expected a list",
        Path("/dev/zero"): "is not a regular file",
        Path("/dev/tty"): "expected a list",
        tmp_path / "socket": "cannot read",
        tmp_path: "is a folder",
        tmp_path / "none": "does not exist",
        tmp_path / "nul\0byte": "cannot read",
        tmp_path / "large": "has 5 bytes, and at most 4 are read",
        Path("/proc/self/status"): "has more than 4 bytes",  # the system states a size of 0
    }
    for path, sentence in expected.items():
        with pytest.raises(BadInput, match=sentence):
            read_regular(path, 4, "a list")
    server.close()

    assert b"12345" == read_regular(tmp_path / "large", 5, "a list")
    assert b"12345" == read_regular(tmp_path / "large", 2**60, "a list")  # no memory is taken for the limit
    with open_regular(tmp_path / "large", 5, "a list") as file:
        assert b"1" == file.read(1)


def test_no_reader_waits_for_a_fifo(fifo, tmp_path):
    readers = (
        lambda: read_results(fifo),
        lambda: Store.reopen(fifo),
        lambda: read_suite(str(fifo)),
        lambda: import_file(fifo, tmp_path / "out.jsonl", ImportOptions()),
    )
    for read in readers:
        with pytest.raises(BadInput, match="is not a regular file"):
            read()
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(BadInput, match="is not a regular file"):
            load(path)
    assert not (tmp_path / "out.jsonl").exists()


def test_what_is_remembered_of_a_machine_may_be_anything(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    path = remembered.remember({}, "limits", {"n": 1})
    for target in ("/dev/zero", "/dev/full"):
        path.unlink()
        path.symlink_to(target)
        assert [] == remembered.remembered({}, "limits")
        assert remembered.remember({}, "limits", {"n": 2}) is None
    path.unlink()
    os.mkfifo(path)

    assert [] == remembered.remembered({}, "limits")
    assert remembered.remember({}, "limits", {"n": 2}) is None
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse file occupies no disk space
    assert [] == remembered.remembered({}, "limits")


def test_what_is_remembered_goes_through_no_link(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path / "state"))
    path = remembered.remember({}, "limits", {"n": 1})
    (tmp_path / "victim").write_text("precious")
    path.unlink()
    path.symlink_to(tmp_path / "victim")

    assert remembered.remember({}, "limits", {"n": 2}) is None
    assert "precious" == (tmp_path / "victim").read_text()


def test_a_file_that_was_written_in_part_is_remembered_in_part(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    path = remembered.remember({}, "limits", {"n": 1})
    path.write_bytes(path.read_bytes() + b'\xff\xfe{"n":[[[[\n[1]\n{"n":2}\n')

    assert [{"n": 1}, {"n": 2}] == remembered.remembered({}, "limits")
