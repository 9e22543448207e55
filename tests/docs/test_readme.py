"""The README shows what the program prints today."""

import importlib.util

from tests.conftest import ROOT


def test_the_sample_table_is_what_the_script_writes():
    spec = importlib.util.spec_from_file_location("make_readme", ROOT / "docs" / "make_readme.py")
    make_readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_readme)

    assert "oneDNN" in make_readme.sample()
    assert (ROOT / "README.md").read_text() == make_readme.readme(), "run python docs/make_readme.py"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 170
