"""Finds operations, libraries and formats by their files. A new one needs no list: its file is enough.

A module of `deepbench/ops`, `deepbench/backends` or `deepbench/formats` (a file or a folder) ends
in `OP = …`, `BACKEND = …` or `FORMAT = …`. An operation or library of ours has the name of its file, so that the others
need not be loaded to find it.

`DEEPBENCH_PLUGINS` may name further folders, separated as in `PATH`, with folders of the names in `ATTRIBUTES`. These
are Python programs that run with the user's rights: name only folders you trust.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput

PLUGINS = "DEEPBENCH_PLUGINS"

ATTRIBUTES = {
    "ops": "OP",
    "backends": "BACKEND",
    "formats": "FORMAT",
    "workloads": "WORKLOADS",
    "datasets": "DATASET",
    "applications": "APPLICATION",
}

# Where the package has them, if not in a folder of that name.
PACKAGES = {"datasets": "applications.datasets", "applications": "applications.tasks"}

# The base classes whose `defect` checks what a file defines.
BASES = {"ops": "Op", "backends": "Backend"}

WORDS = {
    str: "a text",
    bool: "True or False",
    tuple: "a tuple of texts",
    dict: "a dict",
    type: "a class",
    NoneType: "None",
}

NOUNS = {
    "ops": "operation",
    "backends": "backend",
    "formats": "format",
    "workloads": "format of workloads",
    "datasets": "data set",
    "applications": "application",
}

GUIDES = {
    "ops": "docs/adding-an-operation.md",
    "backends": "docs/adding-a-library.md",
    "formats": "docs/architecture.md",
    "workloads": "docs/architecture.md",
    "datasets": "docs/applications.md",
    "applications": "docs/applications.md",
}


def wrong_attribute(thing: object, types: Mapping[str, type | tuple[type, ...]]) -> str | None:
    """Which attribute is missing or not of its type, in a sentence; None if all are right.

    A `tuple` must contain texts only.
    """
    for name, wanted in types.items():
        value = getattr(thing, name, None)
        if not isinstance(value, wanted) or (isinstance(value, tuple) and not all(isinstance(v, str) for v in value)):
            words = " or ".join(WORDS[kind] for kind in (wanted if isinstance(wanted, tuple) else (wanted,)))
            return f"{name} must be {words}, found {value!r:.60}"
    return None


@cache
def registered(kind: str) -> dict[str, Any]:
    """Every object of one kind (`ops`, `backends` or `formats`) by its `name`.

    `BadInput` for a module that does not load or does not end in its object, for two objects of the same name, and for
    a kernel of an unknown operation.
    """
    objects: dict[str, Any] = {}
    files: dict[str, str | None] = {}
    for module in _modules(kind):
        thing = _object_of(kind, module)
        name = thing.name
        if name in objects:
            raise BadInput(f"{module.__file__}: the name {name!r} is taken by {files[name]}; choose another name")
        for mark in thing.marks() if kind == "backends" else ():
            if mark.op not in names("ops"):
                known = ", ".join(names("ops"))
                raise BadInput(f"{module.__file__}: @kernel({mark.op!r}) names no operation; operations are {known}")
        objects[name], files[name] = thing, module.__file__
    return objects


def _object_of(kind: str, module: ModuleType) -> Any:
    """The object in which a module ends; `BadInput` names its defect."""
    attribute, guide = ATTRIBUTES[kind], GUIDES[kind]
    if not hasattr(module, attribute):
        raise BadInput(f"{module.__file__} does not end in {attribute} = …; see {guide}")
    thing = getattr(module, attribute)
    if not isinstance(getattr(thing, "name", None), str):
        raise BadInput(f"{module.__file__}: {attribute} has no name; see {guide}")
    if kind in BASES and not hasattr(thing, "defect"):
        raise BadInput(f"{module.__file__}: {attribute} is no object of a subclass of {BASES[kind]}; see {guide}")
    if kind in BASES and (defect := thing.defect()) is not None:
        raise BadInput(f"{module.__file__}: {defect}; see {guide}")
    return thing


def names(kind: str) -> Sequence[str]:
    """The names of all operations (`ops`) or libraries (`backends`). Nothing is loaded where there is no plug-in."""
    return list(registered(kind)) if os.environ.get(PLUGINS) or kind not in BASES else _own_names(kind)


def get(kind: str, name: str) -> Any:
    """The operation or library with this name, or None. Others are loaded only where there are plug-ins."""
    if os.environ.get(PLUGINS) or kind not in BASES:  # others need not have the name of their file
        return registered(kind).get(name)
    return _own(kind, name) if name in _own_names(kind) else None


@cache
def _own(kind: str, name: str) -> Any:
    return _object_of(kind, _import(kind, name))


def find(kind: str, name: str) -> Any:
    """The operation (`ops`) or library (`backends`) with this name; `BadInput` for any other word."""
    found = get(kind, name)
    if found is None:
        known = names(kind)
        choices = f"choose one of {', '.join(known)}{did_you_mean(name, known)}"
        raise BadInput(f"unknown {NOUNS[kind]} {name!r:.60}; {choices}")
    return found


@cache
def _own_names(kind: str) -> tuple[str, ...]:
    """The modules of a folder of the package, in order."""
    here = Path(__file__).parents[1].joinpath(*PACKAGES.get(kind, kind).split("."))
    folders = (path.parent for path in here.glob("[!_]*/__init__.py"))
    return tuple(sorted({path.stem for path in (*here.glob("[!_]*.py"), *folders)}))


def _modules(kind: str) -> list[ModuleType]:
    modules = [_import(kind, name) for name in _own_names(kind)]
    for folder in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        if not os.path.isdir(folder):
            raise BadInput(f"{PLUGINS} names {folder!r}, which is not a folder; correct or unset it")
        if not any((Path(folder) / name).is_dir() for name in ATTRIBUTES):
            kinds = " or ".join(f"`{name}`" for name in ATTRIBUTES)
            raise BadInput(f"{PLUGINS} names {folder!r}, which has no folder {kinds}; add one or unset it")
        modules += [_load(kind, path) for path in sorted((Path(folder) / kind).glob("[!_]*.py"))]
    return modules


def _import(kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(f"deepbench.{PACKAGES.get(kind, kind)}.{name}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit
        text = f"deepbench/{kind}/{name} does not load: {type(error).__name__}: {error}; see {GUIDES[kind]}"
        raise BadInput(text) from error


def _load(kind: str, path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    name = f"deepbench_plugins.{kind}.{digest}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise BadInput(f"{PLUGINS}: {path} is not a regular file; see {GUIDES[kind]}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} is a .py file"
    assert spec.loader is not None, f"{path} is a .py file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # also SystemExit
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise BadInput(
            f"{PLUGINS}: {path} does not load: {type(error).__name__}: {error}; see {GUIDES[kind]}"
        ) from error
    return module
