"""A compiled program as the clock for asynchronous devices sees it, and what the compiler made of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np

from deepbench.backends.pjrt.plugin import Client
from deepbench.core.kernel import Queue
from deepbench.native.hlo import keeps_loop
from deepbench.native.pjrt import Chain
from deepbench.native.stablehlo import EMPTY, EMPTY_SIZE, HloProgram, element_of, first_element


class Arguments:
    """The buffers of a program, in the order of its arguments. Executions replace those of outputs."""

    def __init__(self, client: Client, arrays: Mapping[str, Any], names: Sequence[str], outputs: Sequence[str]) -> None:
        self.client, self.arrays, self.names, self.outputs = client, arrays, list(names), list(outputs)
        self.row = (c_void_p * len(names))()

    def load(self) -> None:
        """Copy all arrays to the device."""
        self.client.destroy([buffer for buffer in self.row if buffer])
        for i, name in enumerate(self.names):
            self.row[i] = self.client.buffer(self.arrays[name], element_of(self.arrays[name]))

    def chain(self, executable: int) -> Chain:
        """Executions of a program on these buffers."""
        places = [self.names.index(name) for name in self.outputs]
        return Chain(self.client.plugin, executable, self.row, places)

    def store(self) -> None:
        """Copy the outputs back."""
        for name in self.outputs:
            self.client.read(self.row[self.names.index(name)] or 0, self.arrays[name])


class ProgramQueue(Queue):
    """The calls of a program: single executions, and a loop of many in one."""

    def __init__(self, client: Client, program: HloProgram, arguments: Arguments, on_host: bool) -> None:
        self._client, self._program, self.arguments, self.on_host = client, program, arguments, on_host
        self.executable = client.compile(program.whole())
        self._chain = arguments.chain(self.executable)
        self._loops: dict[int, Chain] = {}
        self._kept: bool | None = None
        self._first = client.compile(first_element(program.types[program.outputs[0]]))
        self._empty: EmptyQueue | None = None

    def enqueue(self, calls: int) -> None:
        """Give the device so many executions."""
        self._chain.enqueue(calls)

    def wait(self) -> None:
        """Wait for all executions, those of loops too."""
        for chain in (self._chain, *self._loops.values()):
            chain.wait()

    def rest(self) -> None:
        """Free what they left."""
        for chain in (self._chain, *self._loops.values()):
            chain.rest()

    def fetch(self) -> None:
        """Read the first element of the first output."""
        arguments, plugin = self.arguments, self._client.plugin
        output = arguments.outputs[0]
        row, out = (c_void_p * 1)(arguments.row[arguments.names.index(output)]), (c_void_p * 1)()
        lists = (c_void_p * 2)(ctypes.addressof(row), ctypes.addressof(out))
        options = plugin.block("ExecuteOptions")
        plugin.call(
            "LoadedExecutable_Execute",
            loaded=self._first,
            options=ctypes.addressof(options),
            arguments=ctypes.addressof(lists),
            devices=1,
            n=1,
            outputs=ctypes.addressof(lists) + ctypes.sizeof(c_void_p),
        )
        one = np.empty(1, arguments.arrays[output].dtype)
        self._client.read(out[0] or 0, one)
        self._client.destroy([out[0] or 0])

    def empty(self) -> Queue:
        if self._empty is None:
            self._empty = EmptyQueue(self._client, self.on_host)
        return self._empty

    def count(self, calls: int) -> int:
        return EmptyQueue(self._client, self.on_host).after(calls)

    def loop(self, turns: int) -> Callable[[], object]:
        if turns not in self._loops:
            executable = self._client.compile(self._program.loop(turns))
            self._kept = keeps_loop(self._client.optimized_program(executable))
            self._loops[turns] = self.arguments.chain(executable)
        chain = self._loops[turns]
        return lambda: chain.enqueue(1)

    def keeps_loop(self) -> bool | None:
        return self._kept


class EmptyQueue(Queue):
    """A program that adds 1 to numbers."""

    def __init__(self, client: Client, on_host: bool) -> None:
        shape = (EMPTY_SIZE, EMPTY_SIZE)
        self.on_host, self._numbers = on_host, np.zeros(shape, np.float32)
        arrays = {"y": np.eye(EMPTY_SIZE, dtype=np.float32), "x": self._numbers}
        self._arguments = Arguments(client, arrays, ["y", "x"], ["x"])
        self._arguments.load()
        self._chain = self._arguments.chain(client.compile(EMPTY))

    def enqueue(self, calls: int) -> None:
        """Give the device so many executions."""
        self._chain.enqueue(calls)

    def wait(self) -> None:
        """Wait for the last one."""
        self._chain.wait()

    def rest(self) -> None:
        """Free what they left."""
        self._chain.rest()

    def fetch(self) -> None:
        self._arguments.store()

    def after(self, calls: int) -> int:
        """The number after so many executions."""
        self.enqueue(calls)
        self.fetch()
        self.wait()
        self.rest()
        return round(float(self._numbers[0, 0]))
