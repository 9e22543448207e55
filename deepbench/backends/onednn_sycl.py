"""oneDNN built on SYCL: the kernels of `onednn` on the CPU through Intel's OpenCL runtime, and on Intel's GPUs.

PyPI's `onednn` is such a build, and the newest one. Calls are given to a queue, which costs the host some microseconds
each. So they are timed by the clock for devices without events (`native/slope.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.backends.onednn import NEEDS, OneDNNBackend, uses_sycl
from deepbench.core import devices
from deepbench.core.backend import DeviceBackend, FoundDevice
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import library

if TYPE_CHECKING:
    import ctypes

    from deepbench.native.onednn_device import OneDNNDevice

FILES = ("libdnnl.so.3*",)
# Libraries of the wheels, which do not say where those are that they need.
BESIDE = ("libintlc.so.?", "libimf.so", "libsvml.so", "libirng.so", "libtbb.so.??", "libsycl.so.?", "libsycl.so.??")
REMEDY = library.remedy(
    "pip install onednn (600 MB), or name a libdnnl.so.3 that uses SYCL in DEEPBENCH_ONEDNN_SYCL_PATH",
    "name a libdnnl.so.3 that uses SYCL in DEEPBENCH_ONEDNN_SYCL_PATH, because its wheel is for x86-64 only",
)

# The file of Intel's OpenCL runtime for CPUs, and the variable that names such files: the wheel's own list of them has
# the path of another machine.
OPENCL, OPENCL_FILES = "libintelocl.so", "OCL_ICD_FILENAMES"


class OneDNNSycl(OneDNNBackend, DeviceBackend):
    dnn: OneDNNDevice
    name = "onednn_sycl"
    title = "oneDNN SYCL"
    default = False
    loads_at_once = False
    reaches_shared = (devices.CPU, devices.XPU)
    path_variable = "DEEPBENCH_ONEDNN_SYCL_PATH"
    package = None  # whose versions are not those of oneDNN
    tuning_variables = (
        *("ONEDNN_*", "DNNL_*", "SYCL_*", "ONEAPI_DEVICE_SELECTOR", "UR_L0_*", "ZE_AFFINITY_MASK"),
        *("DPCPP_CPU_*", "CL_CONFIG_*"),
    )

    def is_default_on(self, device: str) -> bool:
        return super().is_default_on(device) or devices.base(device) == devices.XPU

    def candidates(self) -> list[str]:
        """The library that would be loaded."""
        found = library.candidates(self.path_variable, FILES)
        return found[:1] if os.environ.get(self.path_variable) else [path for path in found if uses_sycl(path)][:1]

    def probe(self, candidate: str) -> list[FoundDevice]:
        from deepbench.native import onednn as c
        from deepbench.native.onednn_device import count

        os.environ[self.path_variable] = candidate
        loaded = self._load()
        through = f"oneDNN {c.version_of(loaded).text}, SYCL"
        found = [FoundDevice(devices.CPU, "CPU", through, candidate)] if count(loaded, c.ENGINE_CPU) else []
        for i in range(count(loaded, c.ENGINE_GPU)):
            name = f"{devices.XPU}:{i}" if i else devices.XPU
            found.append(FoundDevice(name, devices.title(name), through, candidate))
        if not found:
            raise Unavailable(f"{through} reaches no device", self._remedy_of(devices.CPU))
        return found

    def open(self) -> dict[str, Any]:
        from deepbench.native import onednn as c
        from deepbench.native.onednn_device import OneDNNDevice, count

        wanted = self.chosen or self.device
        is_cpu, index = devices.base(wanted) == devices.CPU, devices.index(wanted)
        if is_cpu:
            _limit_threads()
        loaded = self._load()
        kind = c.ENGINE_CPU if is_cpu else c.ENGINE_GPU
        if (found := count(loaded, kind)) <= index:
            raise Unavailable(f"{self.title} finds {found} devices of the kind {wanted}", self._remedy_of(wanted))
        self.dnn = OneDNNDevice(loaded, kind, index, copies=not is_cpu)
        facts = self.facts()
        if not is_cpu:
            facts = {name: facts[name] for name in ("name", "version", "path", "build")}
            facts["device"] = devices.title(wanted)
        return facts

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.onednn_device import queued

        return queued(self.dnn, super().prepare(case, arrays), arrays, case.operation.outputs)

    def _load(self) -> ctypes.CDLL:
        """The library, and the OpenCL runtime in its folder if there is one; `Unavailable` without SYCL."""
        from deepbench.native import onednn as c

        loaded = library.load(self.title, self.path_variable, FILES, NEEDS, REMEDY, accept=uses_sycl, beside=BESIDE)
        path, version = library.path_of(loaded, "dnnl_version") or "", c.version_of(loaded)
        if c.SYCL not in (version.cpu_runtime, version.gpu_runtime):
            raise Unavailable(f"{path} is built for {version.threading}, not for SYCL", REMEDY)
        if (opencl := Path(path).with_name(OPENCL)).exists():
            os.environ.setdefault(OPENCL_FILES, str(opencl))
        return loaded

    def _remedy_of(self, device: str) -> str:
        """What to do where there is no such device."""
        if devices.base(device) == devices.CPU:
            return f"pip install intel-opencl-rt, or name the {OPENCL} of another installation in {OPENCL_FILES}"
        return "install the driver of Intel's GPUs (Level Zero), or choose --device cpu"


def _limit_threads() -> None:
    """Leave this process as many CPUs as the case has threads: TBB starts one thread per CPU, and has no variable."""
    from deepbench.machine import describe

    cores, threads = describe.cores(), library.threads_of_case()
    cpus = [*cores, *sorted(os.sched_getaffinity(0) - set(cores))]
    if threads < len(cpus):
        os.sched_setaffinity(0, cpus[:threads])


BACKEND = OneDNNSycl()
