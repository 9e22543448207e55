"""CITATION.cff has the required keys, and they agree with the project. Only as much YAML is read as it has."""

import re
import tomllib

from deepbench.core.version import VERSION
from tests.conftest import ROOT

REQUIRED = {"cff-version", "message", "title", "authors", "type", "version", "license"}


def read_citation():
    """Keys with a text, or with a list of texts."""
    values, key = {}, None
    for line in (ROOT / "CITATION.cff").read_text().splitlines():
        if found := re.fullmatch(r"([a-z][a-z-]*):(?: (\S.*))?", line):
            key = found[1]
            assert key not in values
            values[key] = found[2] if found[2] is not None else []
            # In YAML such a text would have to be in quotes.
            assert not isinstance(values[key], str) or not re.search(r": | #|^[&*!|>%@`\[{'\"]", values[key])
        else:
            item = re.fullmatch(r"  - (\S.*)", line)
            assert item, line
            values[key].append(item[1])
    return values


def test_the_citation_has_the_required_keys_and_agrees_with_the_project():
    values = read_citation()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(values) >= REQUIRED
    assert "1.2.0" == values["cff-version"]
    assert "software" == values["type"]
    assert ["name: The DeepBench authors"] == values["authors"]
    assert VERSION == values["version"]
    assert project["license"] == values["license"]
    assert re.search(rf"^## {re.escape(VERSION)} \({values['date-released']}\)$", changelog(), re.M)
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_citation_invents_no_address():
    assert not re.search(r"://|doi|10\.\d{4}/", (ROOT / "CITATION.cff").read_text())


def changelog():
    return (ROOT / "CHANGELOG.md").read_text()
