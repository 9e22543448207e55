"""A PJRT plug-in by ctypes: its table of functions, its errors, and a client with its buffers and programs.

PJRT is OpenXLA's C interface to devices. A plug-in is one file that exports `GetPjrtApi`, which returns a table of
functions. Each takes one block of arguments: its size, an extension, then the fields below. Newer versions only append,
to the table and to blocks; a plug-in refuses blocks that are shorter than its own, and accepts longer ones. So each
block has room at its end, which newer plug-ins read as "not set".

The plug-in itself says what it expects: called with a size of 8, a function names the size that it wants. `Plugin`
asks every function in use, and refuses a plug-in that expects other fields.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from ctypes import c_int, c_int64, c_size_t, c_void_p
from typing import Any

from deepbench.core.errors import IMPORT_ERRORS, LibraryError, OutOfMemory, Unavailable, Unsupported, not_loaded
from deepbench.native.protobuf import varint_field, wire_field

OTHER_PLUGIN = "name another plug-in in DEEPBENCH_PJRT_PATH"

# Number in the table, and the fields after size and extension: p pointer, z size_t, i int, l int64.
FUNCTIONS = {
    "Error_Destroy": (0, "p error"),
    "Error_Message": (1, "p error p text z size"),
    "Plugin_Initialize": (3, ""),
    "Event_Destroy": (5, "p event"),
    "Event_Await": (8, "p event"),
    "Client_Create": (10, "p options z num_options p kv1 p kv2 p kv3 p kv4 p client p kv5 p kv6"),
    "Client_PlatformName": (12, "p client p text z size"),
    "Client_PlatformVersion": (14, "p client p text z size"),
    "Client_AddressableDevices": (16, "p client p devices z count"),
    "Client_Compile": (20, "p client p program p options z options_size p executable"),
    "Client_BufferFromHostBuffer": (
        22,
        "p client p data i type p dims z num_dims p strides z num_strides i semantics p device p memory p layout "
        "p done p buffer",
    ),
    "DeviceDescription_Kind": (26, "p description p text z size"),
    "Device_GetDescription": (29, "p device p description"),
    "Executable_OptimizedProgram": (48, "p executable p program"),
    "LoadedExecutable_GetExecutable": (51, "p loaded p executable"),
    "LoadedExecutable_Execute": (55, "p loaded p options p arguments z devices z n p outputs p events p device"),
    "Device_MemoryStats": (
        34,
        "p device l in_use l peak i peak_set l allocs i allocs_set l largest i largest_set l limit",
    ),
    "Buffer_Destroy": (58, "p buffer"),
    "Buffer_ToHostBuffer": (70, "p buffer p layout p data z size p event"),
}
OTHERS = {
    "Program": "p code z code_size p format z format_size",
    "NamedValue": "p name z name_size i kind p value z value_size",
    "ExecuteOptions": "p send p recv z num_send z num_recv i launch p keep z num_keep p context p location z num_tasks "
    "p tasks p incarnations",
}
KINDS = {"p": c_void_p, "z": c_size_t, "i": c_int, "l": c_int64}
# Words of zeros behind each block. Rows of arrays have none.
ROOM = 16
# Bytes before the first function of the table: its size, an extension, and the version.
HEAD, VERSION = 40, 32

# Types of elements, as PJRT numbers them.
TYPES = {
    **{"pred": 1, "s8": 2, "s32": 4, "s64": 5, "u8": 6, "f16": 10, "f32": 11, "f64": 12, "bf16": 13},
    **{"f8e5m2": 16, "f8e4m3": 17},
}

# CompileOptionsProto: executable_build_options (3) has num_replicas (4) and num_partitions (5), one each.
COMPILE_OPTIONS = wire_field(3, varint_field(4, 1) + varint_field(5, 1))


def _structure(name: str, words: str) -> type[ctypes.Structure]:
    parts = words.split()
    fields = [(field, KINDS[kind]) for kind, field in zip(parts[::2], parts[1::2], strict=True)]
    room = 0 if name == "NamedValue" else ROOM
    members = [("struct_size", c_size_t), ("extension", c_void_p), *fields, ("room", c_int64 * room)]
    return type(name, (ctypes.Structure,), {"_fields_": members})


BLOCKS = {name: _structure(name, words) for name, (_, words) in FUNCTIONS.items()}
BLOCKS |= {name: _structure(name, words) for name, words in OTHERS.items()}


class Plugin:
    """The functions of a plug-in."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            library = ctypes.CDLL(path)
        except IMPORT_ERRORS as error:
            raise not_loaded(f"the PJRT plug-in {path}", error, OTHER_PLUGIN) from None
        if not hasattr(library, "GetPjrtApi"):
            raise Unavailable(f"{path} exports no GetPjrtApi, so it is no PJRT plug-in", OTHER_PLUGIN)
        library.GetPjrtApi.restype = c_void_p
        api = library.GetPjrtApi()
        if not api:
            raise Unavailable(f"GetPjrtApi of {path} returns nothing", OTHER_PLUGIN)
        size = c_size_t.from_address(api).value
        self.api_version = "{}.{}".format(*(c_int * 2).from_address(api + VERSION))
        if not self.api_version.startswith("0."):
            raise Unavailable(f"{path} has version {self.api_version} of the PJRT API; 0.… is supported", OTHER_PLUGIN)
        missing = [name for name, (slot, _) in FUNCTIONS.items() if HEAD + 8 * (slot + 1) > size]
        if missing:
            raise Unavailable(f"{path} (PJRT API {self.api_version}) lacks {', '.join(missing)}", OTHER_PLUGIN)
        make = ctypes.CFUNCTYPE(c_void_p, c_void_p)
        self.functions = {
            name: make(c_void_p.from_address(api + HEAD + 8 * slot).value or 0) for name, (slot, _) in FUNCTIONS.items()
        }
        self._library = library
        if differences := self.differences():
            raise Unavailable(
                f"{path} (PJRT API {self.api_version}) expects {'; '.join(differences[:3])}", OTHER_PLUGIN
            )
        self.call("Plugin_Initialize")

    def differences(self) -> list[str]:
        """Functions that expect a block of another size than ours; newer fields at the end are no difference."""
        found = []
        for name in FUNCTIONS:
            if name.startswith(("Error_", "Plugin_")):  # they return no error
                continue
            block = self.block(name)
            block.struct_size = 8
            error = self.functions[name](ctypes.addressof(block))
            text = self._text_of(error) if error else ""
            wanted = re.search(r"expected (\d+)", text)
            ours = ctypes.sizeof(BLOCKS[name]) - 8 * ROOM
            if wanted is None or not ours - 7 <= int(wanted[1]) <= ours + 8 * ROOM:
                found.append(f"{name} of {wanted[1] if wanted else 'unknown'} bytes, found {ours}")
        return found

    def block(self, name: str, **values: Any) -> Any:
        """A block of arguments."""
        block = BLOCKS[name](**values)
        block.struct_size = ctypes.sizeof(block)
        return block

    def call(self, name: str, **values: Any) -> Any:
        """Call a function; the block with what it has written. Raises what its error says."""
        block = self.block(name, **values)
        self.check(name, self.functions[name](ctypes.addressof(block)))
        return block

    def check(self, name: str, error: int | None) -> None:
        """Raise what an error object says, and destroy it."""
        if error:
            text = self._text_of(error)
            if re.search(r"RESOURCE_EXHAUSTED|[Oo]ut of memory|[Ff]ailed to allocate", text):
                raise OutOfMemory(f"{name}: {text}")
            if re.search(r"UNIMPLEMENTED|not (?:implemented|supported)|[Uu]nsupported", text):
                raise Unsupported(f"the plug-in does not serve this: {text}")
            raise LibraryError("the PJRT plug-in", name, 1, text)

    def _text_of(self, error: int) -> str:
        message = self.block("Error_Message", error=error)
        self.functions["Error_Message"](ctypes.addressof(message))
        text = ctypes.string_at(message.text, message.size).decode(errors="replace") if message.text else ""
        destroyed = self.block("Error_Destroy", error=error)
        self.functions["Error_Destroy"](ctypes.addressof(destroyed))
        return " ".join(text.split())[:500]

    def wait(self, event: int) -> None:
        """Wait for an event, and destroy it."""
        self.call("Event_Await", event=event)
        self.call("Event_Destroy", event=event)


class Client:
    """A plug-in with its devices; programs run on the device of this number."""

    def __init__(self, plugin: Plugin, options: Mapping[str, int | bool], number: int = 0) -> None:
        self.plugin = plugin
        self._executables: dict[str, int] = {}
        try:
            self.handle = self._create(options)
        except (LibraryError, Unsupported):
            if not options:
                raise
            self.handle = self._create({})  # older plug-ins ignore unknown options, newer ones refuse them
        self.platform = self._text("Client_PlatformName", client=self.handle)
        self.version = self._text("Client_PlatformVersion", client=self.handle)
        found = plugin.call("Client_AddressableDevices", client=self.handle)
        self.devices = list((c_void_p * found.count).from_address(found.devices)) if found.count else []
        if number >= len(self.devices):
            raise Unavailable(
                f"{plugin.path} has {len(self.devices)} devices, and number {number} was asked for", OTHER_PLUGIN
            )
        self.device = self.devices[number]

    def _create(self, options: Mapping[str, int | bool]) -> int:
        rows, keep = (BLOCKS["NamedValue"] * max(1, len(options)))(), []
        for row, (name, value) in zip(rows, options.items(), strict=False):
            text = ctypes.create_string_buffer(name.encode())
            keep.append(text)
            row.struct_size, row.name, row.name_size = ctypes.sizeof(row), ctypes.addressof(text), len(name)
            row.kind, row.value, row.value_size = 4 if isinstance(value, bool) else 1, int(value), 1
        handle: int = self.plugin.call("Client_Create", options=ctypes.addressof(rows), num_options=len(options)).client
        return handle

    def _text(self, name: str, **values: Any) -> str:
        found = self.plugin.call(name, **values)
        return ctypes.string_at(found.text, found.size).decode(errors="replace") if found.text else ""

    def kind(self, device: int) -> str:
        """What a device calls itself, such as `TPU v4`."""
        description = self.plugin.call("Device_GetDescription", device=device).description
        return self._text("DeviceDescription_Kind", description=description)

    def compile(self, text: str) -> int:
        """The executable of a program in StableHLO, made once; `Unsupported` with the reason of the compiler."""
        if text not in self._executables:
            self._executables[text] = self._compile(text)
        return self._executables[text]

    def _compile(self, text: str) -> int:
        code, form, options = (
            ctypes.create_string_buffer(part, len(part)) for part in (text.encode(), b"mlir", COMPILE_OPTIONS)
        )
        program = self.plugin.block(
            "Program", code=ctypes.addressof(code), code_size=len(code), format=ctypes.addressof(form), format_size=4
        )
        try:
            executable: int = self.plugin.call(
                "Client_Compile",
                client=self.handle,
                program=ctypes.addressof(program),
                options=ctypes.addressof(options),
                options_size=len(options),
            ).executable
        except LibraryError as error:
            raise Unsupported(f"the plug-in does not compile this: {error}") from None
        return executable

    def optimized_program(self, executable: int) -> bytes:
        """What the compiler made of a program: a serialized HLO module; empty if the plug-in does not tell."""
        call = self.plugin.call
        try:
            loaded = call("LoadedExecutable_GetExecutable", loaded=executable).executable
            program = self.plugin.block("Program")
            call("Executable_OptimizedProgram", executable=loaded, program=ctypes.addressof(program))
            code = ctypes.create_string_buffer(program.code_size)
            program.code = ctypes.addressof(code)
            call("Executable_OptimizedProgram", executable=loaded, program=ctypes.addressof(program))
        except (LibraryError, Unsupported):
            return b""
        return code.raw

    def buffer(self, array: Any, kind: str) -> int:
        """A buffer of the device with a copy of a row-major array."""
        dims = (c_int64 * max(1, array.ndim))(*array.shape)
        made = self.plugin.call(
            "Client_BufferFromHostBuffer",
            client=self.handle,
            data=array.ctypes.data,
            type=TYPES[kind],
            dims=ctypes.addressof(dims),
            num_dims=array.ndim,
            device=self.device,
        )
        self.plugin.wait(made.done)
        return int(made.buffer)

    def read(self, buffer: int, array: Any) -> None:
        """Copy a buffer to a row-major array of its shape and type."""
        copied = self.plugin.call("Buffer_ToHostBuffer", buffer=buffer, data=array.ctypes.data, size=array.nbytes)
        self.plugin.wait(copied.event)

    def destroy(self, buffers: Sequence[int]) -> None:
        """Free buffers."""
        for buffer in buffers:
            self.plugin.call("Buffer_Destroy", buffer=buffer)
