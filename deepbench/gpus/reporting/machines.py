"""The GPUs of the published tables, for the list of machines. It starts without NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.gpus.index import Contents, version
from deepbench.gpus.sheet import title_of
from deepbench.reporting.table import Cell


def machine_rows(found: Sequence[Contents]) -> list[dict[str, Cell]]:
    """Rows of GPUs for the list of published machines."""
    source = f"aiconfigurator-core {version()}".strip()
    return [
        {
            "machine": one.machine,
            "year": None,
            "suites": None,
            "results": one.rows,
            "precisions": None,
            "ops": ", ".join([*one.families, *([f"{len(one.other)} other tables"] if one.other else [])]),
            "software": "; ".join(one.sources),
            "source": source,
            "title": title_of(one.machine),
            "by_family": ", ".join(f"{name} {rows}" for name, rows in one.families.items()),
            "not_mapped": ", ".join(f"{name} {rows}" for name, rows in one.other.items()),
        }
        for one in found
    ]
