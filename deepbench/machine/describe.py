"""Describe the machine: CPU, caches, memory, allowed cores, frequency policy, operating system, other programs' load.

Everything is read from files under /proc and /sys. What cannot be read is None.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import socket
import struct
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from deepbench.machine import microarchitecture
from deepbench.machine.system import allowed_cpus, emulator

# Parts of a machine's description that must agree before `--resume` appends to a file.
IDENTITY = ("host", "cpu", "instructions", "cpus_allowed", "memory_bytes", "kernel")

# Instruction sets by which libraries choose kernels, named as in /proc/cpuinfo.
INSTRUCTIONS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl"),
    *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "atomics", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme", "sme2"),
)

# Those that multiply a precision without conversion to f32. AVX2 multiplies 8-bit numbers (vpmaddubsw).
MULTIPLIES = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16", "svebf16", "sme"},
    "f16": {"avx512_fp16", "amx_fp16", "asimdhp", "sve", "sme"},
    "i8": {"avx2", "avx512bw", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm", "svei8mm", "sme"},
    "i8u8": {"avx2", "avx512bw", "avx_vnni", "avx512_vnni", "amx_int8", "i8mm", "svei8mm", "sme"},
}


def describe_machine() -> dict[str, Any]:
    """The description in the header of a result file."""
    cpuinfo = read_text("/proc/cpuinfo") or ""
    known = {
        "cpu": cpu_name(cpuinfo),
        "cpu_ids": cpu_ids(cpuinfo),
        "instructions": instructions(cpuinfo),
    }
    return {
        "host": socket.gethostname(),
        **known,
        "microarchitecture": microarchitecture.of_machine(known),
        "architecture": platform.machine(),
        "emulated": emulator(),
        "sve_bits": sve_bits(),
        "cpus": os.cpu_count(),
        "cpus_allowed": sorted(allowed_cpus()),
        "cores_allowed": len(cores()),
        "cpu_quota": cpu_quota(),
        "caches": caches(),
        "memory_bytes": meminfo("MemTotal") or (_physical_bytes() if sys.platform == "darwin" else None),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo_off": read_text("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "huge_pages": huge_pages(),
        # Only x86 tells programs.
        "hypervisor": "hypervisor" in cpuinfo if _field(cpuinfo, "flags") else None,
        "load_1min": os.getloadavg()[0],
        "system": _os_name(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def cpu_name(cpuinfo: str, root: Path = Path("/")) -> str:
    """What the CPU, or the board that it is on, calls itself; else its architecture.

    Arm's cores have numbers and no names, and Linux calls all of them "ARMv8 Processor" if it calls them anything.
    """
    if sys.platform == "darwin":
        return _sysctl_text("machdep.cpu.brand_string") or platform.machine()
    name = _field(cpuinfo, "model name")
    if name and not name.startswith("ARMv"):
        return name
    board = _field(cpuinfo, "Model") or (read_text(root / "proc/device-tree/model") or "").strip("\0") or None
    core = microarchitecture.core_name(cpu_ids(cpuinfo))
    return ", ".join(filter(None, (board, core))) or name or platform.machine()


def _sysctl_text(name: str) -> str | None:
    """A text of the kernel of macOS; None where there is no such kernel."""
    import ctypes

    text, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    try:
        answer = ctypes.CDLL(None).sysctlbyname(name.encode(), text, ctypes.byref(size), None, 0)
    except AttributeError:
        return None
    return text.value.decode(errors="replace") or None if answer == 0 else None


PR_SVE_GET_VL, SVE_VL_MASK = 51, 0xFFFF  # linux/prctl.h: the length in bytes is the lower half of the answer


def sve_bits() -> int | None:
    """Bits of a vector of Arm's SVE; None where there is no SVE."""
    if platform.machine() != "aarch64" or not sys.platform.startswith("linux"):
        return None
    import ctypes

    answer = ctypes.CDLL(None).prctl(PR_SVE_GET_VL, 0, 0, 0, 0)
    return (answer & SVE_VL_MASK) * 8 if answer > 0 else None


def _physical_bytes() -> int | None:
    """Main memory where there is no /proc."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def cpu_ids(cpuinfo: str) -> dict[str, str | None]:
    """The numbers by which CPUs of one name differ; those of Arm where the system tells them."""
    ids = {name: _field(cpuinfo, name) for name in ("cpu family", "model", "stepping", "microcode")}
    if implementer := _field(cpuinfo, "CPU implementer"):
        parts = dict.fromkeys(re.findall(r"^CPU part\s*: (\S+)", cpuinfo, re.MULTILINE))
        ids |= {"CPU implementer": implementer, "CPU part": " ".join(parts)}
    return ids


def instructions(cpuinfo: str | None = None) -> list[str]:
    """The INSTRUCTIONS that this CPU has."""
    text = read_text("/proc/cpuinfo") or "" if cpuinfo is None else cpuinfo
    flags = set((_field(text, "flags") or _field(text, "Features") or "").split())
    return [name for name in INSTRUCTIONS if name in flags]


def cores() -> list[int]:
    """One logical CPU per core in the affinity mask, because hardware threads share the multipliers of their core."""
    first_cpus: dict[str, int] = {}
    for cpu in sorted(allowed_cpus()):
        siblings = read_text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first_cpus.setdefault(siblings or f"cpu{cpu}", cpu)
    return list(first_cpus.values())


def default_threads() -> int:
    """Number of cores in the affinity mask, or fewer if a container's quota is smaller."""
    quota = cpu_quota()
    count = len(cores())
    return max(1, min(count, int(quota))) if quota else count


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The container's CPU quota in CPUs; None if there is none."""
    quotas = []
    for folder in control_groups("cpu", root):
        words = (read_text(folder / "cpu.max") or "").split()  # version 2, else version 1
        words = words or [read_text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that this process can allocate without swapping, within all limits; None if unknown.

    Limits are those of the container and that of the address space (`ulimit -v`).
    """
    free = [meminfo("MemAvailable", root), _address_space_available(root)]
    for folder in control_groups("memory", root):
        for limit_file, used_file, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = read_text(folder / limit_file) or "", read_text(folder / used_file) or ""
            if limit.isdecimal() and used.isdecimal():
                # The kernel counts files that it keeps in memory, and drops them when memory is needed.
                line = re.search(rf"^{cached} (\d+)$", read_text(folder / "memory.stat") or "", re.MULTILINE)
                free.append(max(0, int(limit) - int(used) + (int(line[1]) if line else 0)))
    return min((f for f in free if f is not None), default=None)


def _address_space_available(root: Path) -> int | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = (read_text(root / "proc/self/statm") or "").split()[:1]
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return max(0, limit - int(pages[0]) * resource.getpagesize())


def kills_for_memory() -> int | None:
    """Number of processes that the kernel has killed since boot because memory was short; None if unknown."""
    count = re.search(r"^oom_kill (\d+)$", read_text("/proc/vmstat") or "", re.MULTILINE)
    return int(count[1]) if count else None


def caches(cpu: int = 0) -> list[dict[str, Any]]:
    """Data and unified caches of a CPU, each with its level, bytes and the CPUs that share it."""
    caches = []
    for index in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*")):
        kind, text = read_text(index / "type"), read_text(index / "size") or ""
        if kind in ("Data", "Unified") and text.endswith("K"):
            level, shared_by = int(read_text(index / "level") or 0), read_text(index / "shared_cpu_list")
            caches.append({"level": level, "bytes": int(text[:-1]) * 1024, "shared_by": shared_by})
    return caches


# Measured size of the caches, if smaller than what the CPU reports: virtual machines may not get all of it.
MEASURED_CACHES = "DEEPBENCH_CACHE_BYTES"

# If the system does not report the size of the caches.
GUESSED_CACHE_BYTES = 64 * 2**20


def cache_bytes() -> int | None:
    """Total bytes of the caches of the allowed CPUs, from level 2 up; None if unknown.

    `DEEPBENCH_CACHE_BYTES` overrides it.
    """
    override = os.environ.get(MEASURED_CACHES, "")
    if override.isdecimal() and int(override) > 0:
        return int(override)
    distinct = {(c["level"], c["shared_by"]): c["bytes"] for cpu in allowed_cpus() for c in caches(cpu)}
    return sum(size for (level, _), size in distinct.items() if level > 1) or None


def interconnect() -> dict[str, Any]:
    """Connections that ranks on this host may use: NUMA nodes, network interfaces in Mbit/s, InfiniBand devices."""
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    networks = {}
    for folder in sorted(Path("/sys/class/net").glob("*")):
        speed = read_text(folder / "speed") or ""  # -1 if the driver does not know
        if folder.name != "lo" and read_text(folder / "operstate") != "down":
            networks[folder.name] = int(speed) if speed.isdecimal() and int(speed) else None
    devices = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))
    return {"numa_nodes": len(nodes) or None, "networks_mbit_per_s": networks, "infiniband": devices}


SIOCGIFADDR = 0x8915  # linux/sockios.h


def network_addresses() -> dict[str, str]:
    """The IPv4 address of each network interface that has one."""
    import fcntl

    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses[name] = socket.inet_ntoa(answer[20:24])
    return addresses


def openmp_runtimes() -> list[str]:
    """OpenMP runtimes that this process has loaded; if there are several, they compete for the cores."""
    maps = read_text("/proc/self/maps") or ""
    return sorted(set(re.findall(r"/(lib(?:gomp|iomp5|omp)[^/\s]*\.so[.0-9]*)$", maps, re.MULTILINE)))


def shared_libraries() -> set[str]:
    """Paths of the shared libraries in this process; empty where they cannot be read."""
    return set(re.findall(r" (/.*\.so[.0-9]*)$", read_text("/proc/self/maps") or "", re.MULTILINE))


def resident_bytes() -> int:
    """Memory of this process that is present; 0 where it cannot be read."""
    pages = (read_text("/proc/self/statm") or "").split()[1:2]
    return int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def peak_memory_bytes() -> int:
    """The most memory that this process has had at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Differences between the IDENTITY of two machines, one sentence each."""
    return [
        f"{name.replace('_', ' ')} was {one.get(name)!r} and is {other.get(name)!r}"
        for name in IDENTITY
        if one.get(name) != other.get(name)
    ]


def read_text(path: str | Path) -> str | None:
    """The stripped contents of a file; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def meminfo(name: str, root: Path = Path("/")) -> int | None:
    """Bytes by a line of /proc/meminfo, such as `MemTotal`; None if unknown."""
    value = re.search(rf"^{name}:\s+(\d+) kB$", read_text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(value[1]) * 1024 if value else None


def huge_pages(root: Path = Path("/")) -> str | None:
    """`always`, `madvise` or `never`: where the kernel uses transparent huge pages; None if unknown."""
    mode = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or "")
    return mode[1] if mode else None


def control_groups(controller: str, root: Path) -> list[Path]:
    """The folders of the control groups that limit this process, in version 2 and in version 1, the innermost first.

    The limits of every outer group count too. A container may see its own group as the root, although
    /proc/self/cgroup names it as the host does.
    """
    mount, folders = root / "sys/fs/cgroup", []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" or controller in controllers.split(","):
            base = mount if number == "0" else mount / controller
            inner = base / name.strip("/")
            folders += [inner, *(p for p in inner.parents if p == base or base in p.parents)]
    return list(dict.fromkeys([*folders, mount]))


def _field(cpuinfo: str, name: str) -> str | None:
    value = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return value[1].strip() if value else None


def _os_name() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}".strip()
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


# Ticks are 10 ms, so shorter intervals say nothing; this one is accurate to a fifth of a CPU.
LEAST_INTERVAL_S = 0.1


class OtherPrograms:
    """The load of other programs on these CPUs, from construction until `cpus` is called.

    The CPUs are an argument because a library that pins its threads reduces the affinity mask of the main thread.
    """

    def __init__(self, allowed: Collection[int], earlier: OtherPrograms | None = None) -> None:
        self._allowed, self._earlier = allowed, earlier
        self._own = self._now()

    def from_now(self) -> OtherPrograms:
        """The load from now on, or since the beginning of this one while that would be too short."""
        return OtherPrograms(self._allowed, self)

    @property
    def _begin(self) -> tuple[float, float, float] | None:
        too_short = self._own is not None and time.monotonic() - self._own[0] < LEAST_INTERVAL_S
        return self._earlier._begin if too_short and self._earlier is not None else self._own

    def complete(self) -> None:
        """Wait until `cpus` can answer."""
        if (begin := self._begin) is not None:
            time.sleep(max(0.0, LEAST_INTERVAL_S + 1e-3 - (time.monotonic() - begin[0])))

    def cpus(self, rivals_s: float = 0.0) -> float | None:
        """Average number of busy CPUs, such as 0.97; None if unknown or if the interval is too short.

        `rivals_s` are the CPU seconds of other processes that are not counted, because they belong to the measurement.
        """
        begin, end = self._begin, self._now()
        if begin is None or end is None or end[0] - begin[0] < LEAST_INTERVAL_S:
            return None
        wall_s, busy_s, own_s = (e - b for e, b in zip(end, begin, strict=True))
        return float(f"{max(0.0, busy_s - own_s - rivals_s) / wall_s:.3g}")

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds of wall time, of CPU time of all programs, and of CPU time of this process."""
        busy = busy_ticks(read_text("/proc/stat") or "", self._allowed)
        if busy is None:  # not Linux, or hidden by a container
            return None
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), time.process_time()


def busy_ticks(stat: str, cpus: Collection[int]) -> int | None:
    """Busy ticks of these CPUs in the text of /proc/stat; None if a CPU is missing there."""
    wanted, busy = {f"cpu{n}" for n in cpus}, 0
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name in wanted:
            wanted.discard(name)
            user, nice, kernel, _, _, irq, softirq = map(int, rest.split()[:7])
            busy += user + nice + kernel + irq + softirq
    return None if wanted else busy
