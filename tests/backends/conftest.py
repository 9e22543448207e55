"""Which libraries are installed here, for all tests of libraries."""

import pytest

from deepbench.core.backend import all_backends
from tests.conftest import made_once


@pytest.fixture(scope="session")
def opened(shared_folder):
    """The answers of `open` for all libraries."""
    from deepbench.measuring.session import open_libraries

    return made_once(shared_folder / "opened.json", lambda: open_libraries(list(all_backends())))
