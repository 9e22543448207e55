"""PJRT: any device with a plug-in for OpenXLA's C interface, without Python of its maker and without JAX.

Plug-ins are found in installed packages, or named in `DEEPBENCH_PJRT_PATH` (several, separated by `:`). Operations are
texts in StableHLO (`native/stablehlo/`), which the plug-in compiles. So a time is that of the compiler's code too.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from deepbench.core import devices
from deepbench.core.backend import DeviceBackend, FoundDevice, Mark
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import stablehlo

PATH_VARIABLE = "DEEPBENCH_PJRT_PATH"
REMEDY = f"pip install the PJRT plug-in of your device, or name its file in {PATH_VARIABLE}"

# Packages whose folders have plug-ins, and the words of a file's path that tell its device before it is loaded.
PACKAGES = ("jax_plugins", "xla_plugins", "libtpu", "pjrt_plugins")
WORDS = {"cpu": "cpu", "cuda": "cuda", "rocm": "hip", "tpu": "pjrt:tpu"}

# Only these devices take these options: a pool as large as the device would leave nothing to other libraries.
OPTIONS: dict[str, dict[str, int | bool]] = {
    "cpu": {"cpu_device_count": 1},
    "cuda": {"preallocate": False},
    "hip": {"preallocate": False},
}


class PJRT(DeviceBackend):
    name = "pjrt"
    title = "PJRT"
    default = False
    path_variable = PATH_VARIABLE
    thread_variables = ("NPROC",)
    override_variables = ("PJRT_NPROC",)
    fixed_variables = {"TPU_SKIP_MDS_QUERY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}  # noqa: RUF012
    tuning_variables = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")

    def candidates(self) -> list[str]:
        """The files of plug-ins, those that are named first."""
        if named := os.environ.get(PATH_VARIABLE):
            return [path for path in named.split(os.pathsep) if path]
        found: dict[str, None] = {}
        for package in PACKAGES:
            spec = importlib.util.find_spec(package)
            for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
                for path in sorted(Path(folder).rglob("*.so")):
                    if _exports(path):
                        found[str(path)] = None
        return list(found)

    def probe(self, candidate: str) -> list[FoundDevice]:
        from deepbench.backends.pjrt.plugin import Client, Plugin

        plugin = Plugin(candidate)
        client = Client(plugin, OPTIONS.get(_told(candidate) or "", {}))
        name, through = devices.named(self.name, client.platform), f"{client.platform}, PJRT API {plugin.api_version}"
        return [
            FoundDevice(name if i == 0 else f"{name}:{i}", client.kind(device) or client.platform, through, candidate)
            for i, device in enumerate(client.devices)
        ]

    def open(self) -> dict[str, Any]:
        from deepbench.backends.pjrt.plugin import Client, Plugin
        from deepbench.native.pjrt import native

        native()
        wanted, files = devices.base(self.chosen or self.device), self.candidates()
        # One that is made for another device is not loaded: it may hang or abort without it.
        files = sorted((f for f in files if _told(f) in (wanted, None)), key=lambda f: _told(f) is None)
        if not files:
            raise Unavailable(f"no PJRT plug-in for {wanted} found", REMEDY)
        reached = []
        for path in files:
            plugin = Plugin(path)
            client = Client(plugin, OPTIONS.get(wanted, {}), devices.index(self.chosen or ""))
            if devices.named(self.name, client.platform) == wanted:
                break
            reached.append(f"{path} reaches {devices.named(self.name, client.platform)}")
        else:
            raise Unavailable(f"no PJRT plug-in for {wanted} found: {'; '.join(reached)}", REMEDY)
        self.client = client
        return {
            "name": self.title,
            "version": client.version.partition("\n")[0][:200] or None,
            "path": plugin.path,
            "build": f"{client.platform}, PJRT API {plugin.api_version}",
            "device": client.kind(client.device) or client.platform,
        }

    def memory_free(self) -> int | None:
        from deepbench.core.errors import LibraryError, Unsupported

        if (self.chosen or self.device) == devices.CPU:
            return None
        try:
            found = self.client.plugin.call("Device_MemoryStats", device=self.client.device)
        except (LibraryError, Unsupported):
            return None
        return max(0, found.limit - found.in_use) if found.limit > 0 else None

    def marks(self) -> list[Mark]:
        return [mark for text in stablehlo.texts().values() for mark in text.marks]

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.pjrt.queue import Arguments, ProgramQueue
        from deepbench.native.hlo import what_ran
        from deepbench.native.slope import QueueDevice

        self.refuse_unmarked(case)
        program = stablehlo.program(case, arrays)
        arguments = Arguments(self.client, arrays, list(program.types), program.outputs)
        arguments.load()
        queue = ProgramQueue(self.client, program, arguments, case.device == devices.CPU)
        ran = what_ran(self.client.optimized_program(queue.executable))
        notes: dict[str, Any] = {"implementation": ran or "unknown to the plug-in"}
        own = (case.precision.weights, case.precision.data)
        if other := [kind for kind in re.findall(r" of (\w+)", ran or "") if kind not in own]:
            notes["computes_in"] = " and ".join(dict.fromkeys(other))
        return Kernel(
            load=arguments.load,
            store=arguments.store,
            private_buffers=tuple(arrays),
            keep=(queue, arrays),
            notes=notes,
            device=QueueDevice(queue),
        )


def _told(path: str) -> str | None:
    """The device for which a plug-in is made, from its path; None if that does not tell."""
    words = set(re.split(r"[^a-z]+", "/".join(Path(path).parts[-3:]).lower()))
    return next((device for word, device in WORDS.items() if word in words), None)


def _exports(path: Path) -> bool:
    """Whether a file mentions the function of a plug-in."""
    import mmap

    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"GetPjrtApi") >= 0
    except (OSError, ValueError):
        return False


BACKEND = PJRT()
