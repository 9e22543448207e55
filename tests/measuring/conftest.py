"""Puts each liar into a folder of plug-ins, as a user's own library would be."""

import sys
from pathlib import Path

import pytest

from tests.conftest import NO_LIBRARIES, ROOT, lines_of
from tests.help.group_liars import GROUP_LIARS
from tests.help.liars import LIARS


@pytest.fixture(scope="session")
def plugins(tmp_path_factory):
    """A folder with a backend file a liar."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "backends").mkdir()
    for name, cls in {**LIARS, **GROUP_LIARS}.items():
        text = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            f"from {cls.__module__} import {cls.__name__}\n"
            f"class Backend({cls.__name__}):\n    name = title = {name!r}\n"
            "BACKEND = Backend()\n"
        )
        (folder / "backends" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def run_liar(deepbench, plugins, tmp_path):
    """Run one small case on a liar; returns the process and the records."""

    def run(name, *words, timeout="20"):
        done = deepbench(
            *("run", "gemm m=33 n=17 k=9 i8", "--backend", name),
            *("--quick", "--timeout", timeout, "-o", "out.jsonl", *words),
            DEEPBENCH_PLUGINS=str(plugins),
            **NO_LIBRARIES,
        )
        assert "Traceback" not in done.stderr, done.stderr
        path = Path(tmp_path) / "out.jsonl"
        return done, lines_of(path) if path.exists() else []

    return run


sys.path.insert(0, str(ROOT))
