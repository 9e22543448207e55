"""The compiled loop of PJRT executions, `pjrt.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int64, c_void_p
from typing import Any, Protocol

from deepbench.core.errors import Unavailable
from deepbench.native.library import compiled


class Functions(Protocol):
    """The functions of a plug-in, and their blocks of arguments."""

    @property
    def functions(self) -> Mapping[str, Any]:
        """By name."""

    def block(self, name: str, **values: Any) -> Any:
        """A block of arguments of a function."""

    def check(self, name: str, error: int | None) -> None:
        """Raise what an error object says."""


class _Chain(ctypes.Structure):
    """struct chain of `native/pjrt.c`."""

    _fields_ = (
        *((name, c_void_p) for name in ("execute", "wait", "event_destroy", "buffer_destroy", "call", "donated")),
        ("outputs", c_int64),
        ("event", c_void_p),
        ("old", c_void_p),
        ("count", c_int64),
        ("capacity", c_int64),
    )


def native() -> ctypes.CDLL:
    """The compiled loop of executions."""
    library = compiled("pjrt")
    if library is None:
        raise Unavailable("the loop of PJRT executions is not compiled", "install a C compiler, then DeepBench again")
    for name in ("enqueue", "wait", "rest"):
        function = getattr(library, f"deepbench_pjrt_{name}")
        function.restype = c_void_p
        function.argtypes = [ctypes.POINTER(_Chain), *([c_int64] if name == "enqueue" else [])]
    return library


class Chain:
    """Executions of a program, each on the outputs of the one before."""

    def __init__(self, plugin: Functions, executable: int, row: Any, places: Sequence[int]) -> None:
        """`row` has the buffers of the arguments, and `places` which of them each output replaces."""
        self._plugin, self._native, self._row = plugin, native(), row
        self._donated, self._out = (c_int64 * len(places))(*places), (c_void_p * len(places))()
        self._lists = (c_void_p * 2)(ctypes.addressof(row), ctypes.addressof(self._out))
        self._options = plugin.block("ExecuteOptions")
        self._call = plugin.block(
            "LoadedExecutable_Execute",
            loaded=executable,
            options=ctypes.addressof(self._options),
            arguments=ctypes.addressof(self._lists),
            devices=1,
            n=len(row),
            outputs=ctypes.addressof(self._lists) + ctypes.sizeof(c_void_p),
        )
        self._chain = _Chain(
            *(
                ctypes.cast(plugin.functions[name], c_void_p)
                for name in ("LoadedExecutable_Execute", "Event_Await", "Event_Destroy", "Buffer_Destroy")
            ),
            ctypes.addressof(self._call),
            ctypes.addressof(self._donated),
            len(places),
        )

    def enqueue(self, calls: int) -> None:
        """Give the device so many executions."""
        if calls:
            self._check("LoadedExecutable_Execute", self._native.deepbench_pjrt_enqueue(self._chain, calls))

    def wait(self) -> None:
        """Wait for the last one."""
        self._check("Event_Await", self._native.deepbench_pjrt_wait(self._chain))

    def rest(self) -> None:
        """Free what outputs replaced."""
        self._check("Buffer_Destroy", self._native.deepbench_pjrt_rest(self._chain))

    def _check(self, name: str, error: int | None) -> None:
        self._plugin.check(name, error)
