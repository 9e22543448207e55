"""The small package of tables, for the tests of this folder."""

import pytest

from tests.gpus import small_tables


@pytest.fixture(scope="session")
def small_package(tmp_path_factory):
    """The folder of the small package, and one for what is remembered of it. Tests do not change them."""
    root = tmp_path_factory.mktemp("gpus")
    return small_tables.write_package(root / "systems"), root / "state"


@pytest.fixture
def gpus(small_package, monkeypatch):
    """The small package is the one that is installed; fitted models are kept between tests."""
    tables, state = small_package
    monkeypatch.setenv("DEEPBENCH_GPU_TABLES", str(tables))
    monkeypatch.setenv("DEEPBENCH_STATE", str(state))
    small_tables.forget()
    yield tables
    small_tables.forget()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is the package; whoever writes into it after a look calls `forget`."""
    root = tmp_path / "systems"
    (root / "data").mkdir(parents=True)
    monkeypatch.setenv("DEEPBENCH_GPU_TABLES", str(root))
    monkeypatch.setenv("DEEPBENCH_STATE", str(tmp_path / "state"))
    small_tables.forget()
    yield root
    small_tables.forget()
