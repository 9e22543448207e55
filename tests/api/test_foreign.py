"""Results of other programs as a function."""

import pytest

import deepbench
from tests.conftest import ROOT

IMPORTS = ROOT / "tests" / "data" / "imports"


def test_results_of_another_program_become_results(tmp_path):
    source = next(path for path in sorted(IMPORTS.rglob("*.json")) if "nccl" in path.name)
    found = deepbench.import_results(source, tmp_path / "out.jsonl")

    assert len(found) > 0
    assert "imported" == found.header["plan"]["mode"]
    with pytest.raises(deepbench.BadInput, match="exists"):
        deepbench.import_results(source, tmp_path / "out.jsonl")
