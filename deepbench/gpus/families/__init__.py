"""One file per family of tables: what its rows mean, and which case of ours each row is."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from deepbench.gpus.families.family import Family


@cache
def families() -> dict[str, Family]:
    """All families by name, found by their files."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "family")
    found = [family for name in names for family in import_module(f"{__name__}.{name}").FAMILIES]
    return {family.name: family for family in found}


def family_of(stem: str) -> Family | None:
    """The family of the table with this name; None where no operation of ours is like it."""
    return next((family for family in families().values() if stem in family.stems), None)
