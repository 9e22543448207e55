"""Find ops and backends by their files: a file in the folder is an op or a backend, and so is a folder of files.

`DEEPBENCH_PLUGINS` may name folders (separated as in `PATH`) that hold `ops/*.py` and `backends/*.py` of one's
own; they are Python programs and run with your rights, so name only folders you trust.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from deepbench.errors import BadInput

PLUGINS = "DEEPBENCH_PLUGINS"


def named(kind: str, attribute: str) -> dict[str, Any]:
    """The object that each module of `deepbench/<kind>` and of the plug-in folders ends in, by its `name`."""
    found = {}
    for module in _modules(kind):
        if not hasattr(module, attribute):
            raise BadInput(f"{module.__file__} does not end in {attribute} = …; see docs/")
        thing = getattr(module, attribute)
        if not isinstance(getattr(thing, "name", None), str):
            raise BadInput(f"{module.__file__}: {attribute} has no name; see docs/")
        found[thing.name] = thing
    return found


def _modules(kind: str) -> list[ModuleType]:
    here = Path(__file__).parent / kind
    names = {path.stem for path in here.glob("[!_]*.py")} | {
        path.parent.name for path in here.glob("[!_]*/__init__.py")
    }
    found = [importlib.import_module(f"deepbench.{kind}.{name}") for name in sorted(names)]
    for folder in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        if not os.path.isdir(folder):
            raise BadInput(f"{PLUGINS} names {folder!r}, which is not a folder; correct or unset it")
        found += [_load(kind, path) for path in sorted((Path(folder) / kind).glob("[!_]*.py"))]
    return found


def _load(kind: str, path: Path) -> ModuleType:
    name = f"deepbench_plugins.{kind}.{abs(hash(path.resolve()))}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} is a .py file"
    assert spec.loader is not None, f"{path} is a .py file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadInput(f"{PLUGINS}: {path} does not load: {type(error).__name__}: {error}") from error
    return module
