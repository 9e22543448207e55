"""The pages on models say what the code does."""

import importlib.util
import re

from deepbench.plan.suites import phases_of, read_suite, suite_files
from tests.conftest import ROOT


def test_the_table_of_models_has_every_model_with_its_phases_and_problems():
    text = (ROOT / "docs" / "models.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_]+/[a-z0-9_]+)` \| ([a-z, ]+) \| .* \| ([0-9]+) \|$", text, re.MULTILINE)
    models = {name: phases for name in suite_files() if "/" in name and (phases := phases_of(name))}

    assert {name: ", ".join(phases) for name, phases in models.items()} == {name: phases for name, phases, _ in rows}
    everything = set()
    for name, phases, count in rows:
        entries = [e for phase in phases.split(", ") for e in read_suite(f"{name}:phase={phase}")]
        problems = {(e.pattern.op, e.pattern.problem) for e in entries}
        everything |= problems
        assert int(count) == len(problems), name
    assert f"There are {len(rows)} networks" in " ".join(text.split())
    assert f"{len(everything):,} in all" in text


def test_every_kernel_that_is_not_covered_has_a_reason():
    spec = importlib.util.spec_from_file_location("make_coverage", ROOT / "docs" / "make_coverage.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)

    lines = "\n".join(page.not_covered())

    assert "- `roi_align` (" in lines
    assert "no operation yet" not in lines
