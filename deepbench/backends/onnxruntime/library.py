"""The C API of ONNX Runtime: a table of functions, loaded without its Python module.

`OrtGetApiBase()->GetApi(n)` returns the table of version n of the API, or null if the library is older. Functions are
only ever appended to it, so their numbers below stay valid. A number can be checked: called with null pointers, most
functions return an error that names them (`tests/backends/test_onnxruntime.py` does so). Numbers of versions that are
not released yet do change: never take them from the development branch.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from deepbench.core.errors import DeepBenchError, LibraryError, Unavailable
from deepbench.native import library

TITLE = "ONNX Runtime"
PATH_VARIABLE = "DEEPBENCH_ONNXRUNTIME_PATH"
REMEDY = "pip install 'onnxruntime>=1.24'"

# The version of the API that has all entries below.
API_VERSION = 24

# Numbers of the functions that return a status, which is null for success.
ENTRIES = {
    "CreateSessionFromArray": 8,
    "CreateSessionOptions": 10,
    "SetOptimizedModelFilePath": 11,
    "SetSessionGraphOptimizationLevel": 23,
    "CreateTensorAsOrtValue": 48,
    "CreateTensorWithDataAsOrtValue": 49,
    "CreateCpuMemoryInfo": 69,
    "CreateEnvWithGlobalThreadPools": 119,
    "DisablePerSessionThreads": 120,
    "CreateThreadingOptions": 121,
    "AddSessionConfigEntry": 130,
    "RunWithBinding": 133,
    "CreateIoBinding": 134,
    "BindInput": 136,
    "BindOutput": 137,
    "SetGlobalIntraOpNumThreads": 147,
    "SetGlobalInterOpNumThreads": 148,
    "SetGlobalSpinControl": 149,
    "SynchronizeBoundOutputs": 203,
    "RegisterExecutionProviderLibrary": 301,
    "GetEpDevices": 303,
    "SessionOptionsAppendExecutionProvider_V2": 304,
    "GetSharedAllocator": 376,
    "CopyTensors": 386,
    "Session_GetEpGraphAssignmentInfo": 407,
    "EpAssignedSubgraph_GetEpName": 408,
    "EpAssignedSubgraph_GetNodes": 409,
    "EpAssignedNode_GetOperatorType": 412,
}
# Those that return a value, or nothing.
PLAIN_ENTRIES: dict[str, tuple[int, Any]] = {
    "GetErrorCode": (1, ctypes.c_int),
    "GetErrorMessage": (2, ctypes.c_char_p),
    "ReleaseEnv": (92, None),
    "ReleaseStatus": (93, None),
    "ReleaseSession": (95, None),
    "ReleaseValue": (96, None),
    "ReleaseSessionOptions": (100, None),
    "ReleaseThreadingOptions": (122, None),
    "ReleaseIoBinding": (135, None),
    "GetBuildInfoString": (254, ctypes.c_char_p),
    "GetKeyValuePairs": (298, None),
    "HardwareDevice_Type": (307, ctypes.c_int),
    "HardwareDevice_Vendor": (309, ctypes.c_char_p),
    "HardwareDevice_Metadata": (311, ctypes.c_void_p),
    "EpDevice_EpName": (312, ctypes.c_char_p),
    "EpDevice_EpVendor": (313, ctypes.c_char_p),
    "EpDevice_EpMetadata": (314, ctypes.c_void_p),
    "EpDevice_Device": (316, ctypes.c_void_p),
    "EpDevice_MemoryInfo": (374, ctypes.c_void_p),
}

NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
"""Without it, version 1.32 makes an identifier of this machine, keeps it in the home folder, and has a thread that
sends events to its makers."""

NOT_IMPLEMENTED = 9
"""The code of the error of a graph with an operator or a type that has no kernel."""
ERRORS_ONLY = 3
"""Severity of what the library may print to standard error."""


class OnnxRuntime:
    """The loaded library. `ort("Name", …)` calls a function and raises `LibraryError` if it returns an error."""

    def __init__(self) -> None:
        os.environ.update(NO_TELEMETRY)
        self._library = library.load(
            TITLE,
            PATH_VARIABLE,
            ("onnxruntime/capi/libonnxruntime.so*", "libonnxruntime.so*"),
            needs=("OrtGetApiBase",),
            remedy=f"{REMEDY}, or name a libonnxruntime.so in {PATH_VARIABLE}",
        )
        self.path = library.path_of(self._library, "OrtGetApiBase")
        get_base = self._library.OrtGetApiBase
        get_base.restype = ctypes.c_void_p
        base = get_base()
        if not base:
            raise Unavailable(f"OrtGetApiBase of {self.path} returns null, so it is no {TITLE}", REMEDY)
        get_api, get_version = (address or 0 for address in (ctypes.c_void_p * 2).from_address(base))
        self.version = (ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)() or b"").decode(errors="replace")
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(API_VERSION)
        if not table:
            reason = f"{TITLE} {self.version} ({self.path}) lacks version {API_VERSION} of its API"
            raise Unavailable(reason, REMEDY)
        self.functions: dict[str, Any] = {}
        kinds = {name: (number, ctypes.c_void_p) for name, number in ENTRIES.items()} | PLAIN_ENTRIES
        for name, (number, result) in kinds.items():
            address = ctypes.c_void_p.from_address(table + number * ctypes.sizeof(ctypes.c_void_p)).value
            # The one that is timed has argument types, because a Python loop passes it plain integers.
            arguments = (ctypes.c_void_p,) * 3 if name == "RunWithBinding" else ()
            self.functions[name] = ctypes.CFUNCTYPE(result, *arguments)(address or 0)
            self.functions[name].__name__ = name
        self.build = (self("GetBuildInfoString") or b"").decode(errors="replace")
        self.cpu_memory = self.made("CreateCpuMemoryInfo", 0, 0)
        self.threads: int | None = None
        """How many threads the environment has; None before `start`."""
        self.environment = 0

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call a function. Integers are passed as machine words."""
        result = self.functions[name](*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments))
        if name in ENTRIES and result:
            text = self("GetErrorMessage", result).decode(errors="replace")
            code = int(self("GetErrorCode", result))
            self("ReleaseStatus", result)
            raise LibraryError(f"{TITLE} {self.version}", name, code, text)
        return result

    def made(self, name: str, *arguments: Any) -> int:
        """The address of the object that a function makes."""
        made = ctypes.c_void_p()
        self(name, *arguments, ctypes.byref(made))
        return made.value or 0

    def listed(self, name: str, *arguments: Any) -> list[int]:
        """The addresses of the objects that a function lists."""
        first, count = ctypes.c_void_p(), ctypes.c_size_t()
        self(name, *arguments, ctypes.byref(first), ctypes.byref(count))
        return [a or 0 for a in (ctypes.c_void_p * count.value).from_address(first.value)] if first.value else []

    def text(self, name: str, *arguments: Any) -> str:
        """The text that a function returns through its last argument."""
        found = ctypes.c_char_p()
        self(name, *arguments, ctypes.byref(found))
        return (found.value or b"").decode(errors="replace")

    def start(self, threads: int) -> None:
        """Create the environment with so many threads, which all sessions of this process share.

        With a pool for each session, the pools of kernels that take turns (`cache=cold`) would spin at the same time.
        """
        if self.threads is not None and self.threads != threads:
            raise DeepBenchError(f"{TITLE} has {self.threads} threads in this process, so {threads} need another one")
        if self.threads is not None:
            return
        options = self.made("CreateThreadingOptions")
        self("SetGlobalIntraOpNumThreads", options, threads)
        self("SetGlobalInterOpNumThreads", options, 1)
        self("SetGlobalSpinControl", options, 1)  # the default
        before = _process_threads()
        self.environment = self.made("CreateEnvWithGlobalThreadPools", ERRORS_ONLY, b"deepbench", options)
        self("ReleaseThreadingOptions", options)
        started = _process_threads() - before
        if started != threads - 1:
            raise DeepBenchError(f"{TITLE} started {started} threads besides the caller, but {threads - 1} are wanted")
        self.threads = threads

    def release(self, objects: list[tuple[str, int]]) -> None:
        """Release objects, the last one first: each with the word in the name of the function, such as `Session`."""
        for kind, address in reversed(objects):
            self(f"Release{kind}", address)


@cache
def opened(path: str | None) -> OnnxRuntime:
    """The library that the value of `PATH_VARIABLE` names, loaded once: it has one environment in a process."""
    return OnnxRuntime()


def _process_threads() -> int:
    return len(os.listdir("/proc/self/task"))
