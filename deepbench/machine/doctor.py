"""What about this machine makes numbers worse than they need be, and what to do about it. Changes nothing itself.

Everything is read from files under /proc and /sys; what cannot be read is not complained about.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.machine import describe

# Shares of the machine's time, over the moment that is watched.
WATCH_S, MOST_STEAL, MOST_LOAD = 1.0, 0.01, 0.10

HOT_C = 90.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    text: str
    """One sentence: what was found."""
    remedy: str | None = None


def examine(root: Path = Path("/"), watch_s: float = WATCH_S) -> list[Finding]:
    """Everything, in the order in which it usually matters. `root` is where /proc and /sys are."""
    before = _cpu_times(root)
    time.sleep(watch_s)
    after = _cpu_times(root)
    found = [
        _governor(root),
        _turbo(root),
        _threads_of_cores(root),
        _quota(),
        *_time_of_others(before, after),
        _programs(root, watch_s),
        _huge_pages(root),
        _nodes(root),
        _denormals(),
        _heat(root),
        _swap(root),
        _scheduler(root),
    ]
    return [f for f in found if f is not None]


def _governor(root: Path) -> Finding | None:
    found = {_read(p) for p in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    if not found:
        return Finding("governor", True, "the clock's policy is not visible here, as in most virtual machines")
    if found == {"performance"}:
        return Finding("governor", True, "all cores run under the governor `performance`")
    names = ", ".join(sorted(map(str, found)))
    return Finding(
        "governor",
        False,
        f"the clock follows the load (governor {names}): short kernels are timed while it rises",
        "sudo cpupower frequency-set -g performance",
    )


def _turbo(root: Path) -> Finding | None:
    off, boost = (_read(root / "sys/devices/system/cpu" / name) for name in ("intel_pstate/no_turbo", "cpufreq/boost"))
    if off is None and boost is None:
        return None
    on = off == "0" if off is not None else boost == "1"
    if not on:
        return Finding("turbo", True, "turbo is off, so the clock does not depend on heat and neighbours")
    path = "intel_pstate/no_turbo" if off is not None else "cpufreq/boost"
    value = "1" if off is not None else "0"
    return Finding(
        "turbo",
        False,
        "turbo is on: the clock depends on heat and on how many cores work, so two runs may differ by some percent",
        f"for comparisons: echo {value} | sudo tee /sys/devices/system/cpu/{path}",
    )


def _threads_of_cores(root: Path) -> Finding | None:
    active = _read(root / "sys/devices/system/cpu/smt/active")
    if active != "1":
        return Finding("hardware threads", True, "one hardware thread a core") if active == "0" else None
    return Finding(
        "hardware threads",
        True,
        "cores have two hardware threads; deepbench counts cores, and starts as many threads",
    )


def _quota() -> Finding | None:
    quota = describe.cpu_quota()
    if quota is None:
        return Finding("quota", True, "no CPU quota of a container")
    allowed = len(os.sched_getaffinity(0))
    if quota >= allowed and abs(quota - round(quota)) < 0.01:
        return Finding("quota", True, f"the container may use {quota:g} CPUs, as many as it sees")
    return Finding(
        "quota",
        False,
        f"a container's quota grants {quota:g} of {allowed} CPUs: whoever uses more is stopped for milliseconds",
        "give the container whole CPUs of its own (cpuset), not a share of time",
    )


def _time_of_others(before: Mapping[str, int], after: Mapping[str, int]) -> list[Finding]:
    spent = {name: after[name] - before[name] for name in after if name in before}
    whole = sum(spent.values())
    if whole <= 0:
        return []
    steal = spent.get("steal", 0) / whole
    busy = 1 - (spent.get("idle", 0) + spent.get("iowait", 0)) / whole
    found = [
        Finding("steal", True, f"the host took {100 * steal:.1f} % of the time away")
        if steal <= MOST_STEAL
        else Finding(
            "steal",
            False,
            f"the host took {100 * steal:.1f} % of the time away for other guests",
            "use a machine with dedicated CPUs, or measure in a calmer hour; selftest says what is left",
        ),
        Finding("other load", True, f"the CPUs were {100 * (1 - busy):.0f} % idle just now")
        if busy - steal <= MOST_LOAD
        else Finding(
            "other load",
            False,
            f"other programs kept the CPUs {100 * (busy - steal):.0f} % busy just now",
            "end them before measuring",
        ),
    ]
    return found


def _programs(root: Path, watch_s: float) -> Finding | None:
    """The programs that have taken most of the CPU so far, if any runs now."""
    running = []
    for stat in root.glob("proc/[0-9]*/stat"):
        text = _read(stat) or ""
        name, _, rest = text.partition("(")[2].rpartition(")")
        words = rest.split()
        if words and words[0] == "R" and stat.parent.name != str(os.getpid()):
            running.append(name)
    if not running:
        return None
    names = ", ".join(sorted(set(running))[:5])
    return Finding("running now", len(running) < 2, f"running at this moment beside deepbench: {names}")


def _huge_pages(root: Path) -> Finding | None:
    text = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", text or "")
    if found is None:
        return None
    if found[1] in ("always", "madvise"):
        return Finding("huge pages", True, f"transparent huge pages: {found[1]} (NumPy asks for them)")
    return Finding(
        "huge pages",
        False,
        "transparent huge pages are off: large matrices miss the translation cache, some 10 % on memory",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def _nodes(root: Path) -> Finding | None:
    nodes = list(root.glob("sys/devices/system/node/node[0-9]*"))
    if len(nodes) < 2:
        return Finding("NUMA", True, "one memory node") if nodes else None
    balancing = _read(root / "proc/sys/kernel/numa_balancing")
    if balancing == "1":
        return Finding(
            "NUMA",
            False,
            f"{len(nodes)} memory nodes, and the kernel moves pages between them while kernels are timed",
            "echo 0 | sudo tee /proc/sys/kernel/numa_balancing; numactl --cpunodebind=0 --membind=0 deepbench run …",
        )
    return Finding(
        "NUMA",
        False,
        f"{len(nodes)} memory nodes: what one library places on one node, another spreads",
        "compare within a node: numactl --cpunodebind=0 --membind=0 deepbench run …",
    )


def _denormals() -> Finding:
    """Whether a multiplication of the smallest numbers is as fast as others is a matter of the CPU's mode."""
    tiny = 5e-324
    kept = tiny / 2 == 0.0 and tiny * 1.0 == tiny
    text = "numbers next to zero are kept as they are" if kept else "numbers next to zero become zero"
    return Finding("denormals", True, f"{text}; contents of operands avoid them")


def _heat(root: Path) -> Finding | None:
    throttled = sum(
        int(_read(p) or 0) for p in root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    )
    hottest = max(
        (int(t) / 1000 for p in root.glob("sys/class/thermal/thermal_zone*/temp") if (t := _read(p)) and t.isdecimal()),
        default=None,
    )
    if throttled == 0 and hottest is None:
        return None
    if throttled or (hottest or 0.0) >= HOT_C:
        heat = f", the hottest sensor shows {hottest:.0f} °C" if hottest is not None else ""
        return Finding(
            "heat",
            False,
            f"cores have been slowed down for heat {throttled} times since boot{heat}",
            "cool the machine, or lower its power limit so that it stays below its thermal one",
        )
    shown = f"the hottest sensor shows {hottest:.0f} °C" if hottest is not None else "no core was slowed down for heat"
    return Finding("heat", True, shown)


def _swap(root: Path) -> Finding | None:
    text = _read(root / "proc/meminfo") or ""
    total, free = (re.search(rf"^{n}:\s+(\d+) kB$", text, re.MULTILINE) for n in ("SwapTotal", "SwapFree"))
    if total is None or free is None or int(total[1]) - int(free[1]) < 100 * 1024:
        return None
    used = (int(total[1]) - int(free[1])) / 1024
    text = f"{used:.0f} MB lie in swap: memory is short"
    return Finding("swap", False, text, "end what uses it; deepbench refuses cases that do not fit")


def _scheduler(root: Path) -> Finding | None:
    isolated = _read(root / "sys/devices/system/cpu/isolated")
    return Finding("isolated CPUs", True, f"CPUs {isolated} are isolated from the scheduler") if isolated else None


def _cpu_times(root: Path) -> dict[str, int]:
    """Ticks of all CPUs by kind."""
    line = (_read(root / "proc/stat") or "").partition("\n")[0].split()[1:]
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, line), strict=False))


def openmp(libraries: Mapping[str, Any]) -> Finding:
    """Two OpenMP runtimes in one process fight for the cores. Workers load one library, so only its own count."""
    loaded = {name: answer.get("openmp") or [] for name, answer in libraries.items()}
    several = {name: found for name, found in loaded.items() if len(found) > 1}
    if several:
        listed = "; ".join(f"{name}: {', '.join(found)}" for name, found in several.items())
        return Finding(
            "OpenMP",
            False,
            f"a library brings two OpenMP runtimes into one process ({listed}): their threads fight for the cores",
            "name a build that brings one, such as DEEPBENCH_ONEDNN_PATH=…",
        )
    kinds = sorted({runtime.partition(".")[0] for found in loaded.values() for runtime in found})
    if len(kinds) > 1:
        text = f"libraries here bring {' and '.join(kinds)}; each runs in a process of its own, so they never meet"
        return Finding("OpenMP", True, f"{text} (in one program of yours they would)")
    return Finding("OpenMP", True, f"one OpenMP runtime: {kinds[0]}" if kinds else "no library here uses OpenMP")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
