"""Describe the machine: CPU, caches, memory, cores this process may use, clock policy, operating system.

Everything is read from files under /proc and /sys; what cannot be read is None. Nothing is changed.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

# The parts of a machine's description that must agree before `--resume` adds to a file.
IDENTITY = ("host", "cpu", "instructions", "cpus_allowed", "memory_bytes", "kernel")

# Instruction sets that decide which kernels a library picks. Names as the kernel writes them.
INSTRUCTIONS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl"),
    *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme"),
)

# Which of these multiply a precision without converting it to f32 first. AVX2 multiplies 8-bit numbers (vpmaddubsw).
MULTIPLIES = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16", "svebf16", "sme"},
    "f16": {"avx512_fp16", "amx_fp16", "asimdhp", "sve", "sme"},
    "i8": {"avx2", "avx512bw", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm", "svei8mm", "sme"},
    "i8u8": {"avx2", "avx512bw", "avx_vnni", "avx512_vnni", "amx_int8", "i8mm", "svei8mm", "sme"},
}


def describe_machine() -> dict[str, Any]:
    """The machine as the first line of a result file has it."""
    cpuinfo = _read("/proc/cpuinfo") or ""
    return {
        "host": socket.gethostname(),
        "cpu": _cpu_name(cpuinfo),
        "cpu_ids": {k: _field(cpuinfo, k) for k in ("cpu family", "model", "stepping", "microcode")},
        "architecture": platform.machine(),
        "instructions": instructions(cpuinfo),
        "cpus": os.cpu_count(),
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "cores_allowed": len(cores()),
        "cpu_quota": cpu_quota(),
        "caches": caches(),
        "memory_bytes": memory_total(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo_off": _read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "huge_pages": _bracketed(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "hypervisor": "hypervisor" in cpuinfo,
        "load_1min": os.getloadavg()[0],
        "system": _os_name(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def instructions(cpuinfo: str | None = None) -> list[str]:
    """Those of INSTRUCTIONS that this CPU has."""
    text = _read("/proc/cpuinfo") or "" if cpuinfo is None else cpuinfo
    flags = set((_field(text, "flags") or _field(text, "Features") or "").split())
    return [name for name in INSTRUCTIONS if name in flags]


def has_multiplier(precision: str, found: list[str]) -> bool:
    """Whether a CPU with these instructions multiplies this precision in hardware; f32 always."""
    return precision not in MULTIPLIES or bool(MULTIPLIES[precision] & set(found))


def cores() -> list[int]:
    """One logical CPU of each core in the affinity mask: two hardware threads share one multiplier."""
    seen: set[str] = set()
    chosen = []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = _read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        key = siblings or f"cpu{cpu}"
        if key not in seen:
            seen.add(key)
            chosen.append(cpu)
    return chosen


def default_threads() -> int:
    """All cores of the affinity mask, or fewer where a container's quota grants less."""
    quota = cpu_quota()
    count = len(cores())
    return max(1, min(count, int(quota))) if quota else count


def cpu_quota() -> float | None:
    """CPUs that the container's quota grants, None without one (cgroup version 2)."""
    words = (_read(f"{_cgroup()}/cpu.max") or "max").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def memory_total() -> int | None:
    """Bytes of memory of this machine."""
    return _meminfo("MemTotal")


def memory_available() -> int | None:
    """Bytes that can be allocated without swapping, within the container's limit; None where unknown."""
    free = [_meminfo("MemAvailable")]
    limit, used = _read(f"{_cgroup()}/memory.max"), _read(f"{_cgroup()}/memory.current")
    if limit and used and limit != "max":
        free.append(int(limit) - int(used))
    known = [f for f in free if f is not None]
    return min(known) if known else None


def kills_for_memory() -> int | None:
    """How often the kernel has killed a process for memory since boot."""
    found = re.search(r"^oom_kill (\d+)$", _read("/proc/vmstat") or "", re.MULTILINE)
    return int(found[1]) if found else None


def caches(cpu: int = 0) -> list[dict[str, Any]]:
    """Data and unified caches of a CPU, each with level, bytes and the CPUs that share it."""
    found = []
    for index in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*")):
        kind, text = _read(index / "type"), _read(index / "size") or ""
        if kind in ("Data", "Unified") and text.endswith("K"):
            found.append(
                {
                    "level": int(_read(index / "level") or 0),
                    "bytes": int(text[:-1]) * 1024,
                    "shared_by": _read(index / "shared_cpu_list"),
                }
            )
    return found


# What was measured of the caches, where that is less than what the CPU says: guests are told of what they cannot use.
MEASURED_CACHES = "DEEPBENCH_CACHE_BYTES"


def cache_bytes() -> int | None:
    """Bytes of all caches from level 2 up that the allowed CPUs can use together; None where unknown.

    `DEEPBENCH_CACHE_BYTES` says otherwise.
    """
    named = os.environ.get(MEASURED_CACHES, "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    found: dict[tuple[int, str], int] = {}
    for cpu in os.sched_getaffinity(0):
        for cache in caches(cpu):
            if cache["level"] > 1:
                found[cache["level"], cache["shared_by"] or ""] = cache["bytes"]
    return sum(found.values()) or None


def interconnect() -> dict[str, Any]:
    """What ranks on this host may talk through: NUMA nodes, network interfaces with Mbit/s, InfiniBand devices."""
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    networks = {}
    for folder in sorted(Path("/sys/class/net").glob("*")):
        speed = _read(folder / "speed") or ""  # -1 where the driver does not know
        if folder.name != "lo" and _read(folder / "operstate") != "down":
            networks[folder.name] = int(speed) if speed.isdecimal() and int(speed) else None
    devices = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))
    return {"numa_nodes": len(nodes) or None, "networks_mbit_per_s": networks, "infiniband": devices}


def openmp_runtimes() -> list[str]:
    """OpenMP libraries that this process has loaded; more than one fight for the cores."""
    maps = _read("/proc/self/maps") or ""
    return sorted(set(re.findall(r"/(lib(?:gomp|iomp5|omp)[^/\s]*\.so[.0-9]*)$", maps, re.MULTILINE)))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What of the identity of two machines differs, in words."""
    return [
        f"{name.replace('_', ' ')} was {one.get(name)!r} and is {other.get(name)!r}"
        for name in IDENTITY
        if one.get(name) != other.get(name)
    ]


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cgroup() -> str:
    found = re.search(r"^0::(.*)$", _read("/proc/self/cgroup") or "", re.MULTILINE)
    own = f"/sys/fs/cgroup{found[1]}" if found else ""
    return own if own and Path(own, "memory.max").exists() else "/sys/fs/cgroup"


def _field(cpuinfo: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else None


def _cpu_name(cpuinfo: str) -> str:
    return _field(cpuinfo, "model name") or _field(cpuinfo, "Model") or platform.machine()


def _meminfo(name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _read("/proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _bracketed(text: str | None) -> str | None:
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


# Ticks are 10 ms, so a shorter look says nothing; one of this length is good to a fifth of a CPU.
LEAST_LOOK_S = 0.1


class OtherPrograms:
    """How many of these CPUs other programs keep busy, from now until `cpus` is asked.

    They are those that the process may use; a library that pins its threads narrows the mask of the first one.
    """

    def __init__(self, allowed: Collection[int]) -> None:
        self._allowed = allowed
        self._begin = self._now()

    def cpus(self) -> float | None:
        """On average, such as 0.97; None where the system does not say, or the look was too short."""
        end = self._now()
        if self._begin is None or end is None or end[0] - self._begin[0] < LEAST_LOOK_S:
            return None
        wall_s, busy_s, own_s = (e - b for e, b in zip(end, self._begin, strict=True))
        return float(f"{max(0.0, busy_s - own_s) / wall_s:.3g}")

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds: by the clock, that the CPUs were at work, and that this process was."""
        busy = busy_ticks(_read("/proc/stat") or "", self._allowed)
        if busy is None:  # not Linux, or hidden by the container
            return None
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), time.process_time()


def busy_ticks(stat: str, cpus: Collection[int]) -> int | None:
    """Ticks that these CPUs have worked, by the text of /proc/stat; None where it does not name them."""
    wanted, found = {f"cpu{n}" for n in cpus}, 0
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name in wanted:
            wanted.discard(name)
            user, nice, kernel, _, _, irq, softirq = map(int, rest.split()[:7])
            found += user + nice + kernel + irq + softirq
    return None if wanted else found
