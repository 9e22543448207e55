"""Find what makes measurements on this machine worse than necessary, and name the remedy. Changes nothing.

Everything is read from files under /proc and /sys. What cannot be read is not reported as a problem.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.machine import describe
from deepbench.machine.describe import read_text
from deepbench.machine.system import allowed_cpus

# How long to watch the CPUs, and the largest shares of CPU time that are no problem.
WATCH_S, MOST_STEAL, MOST_LOAD = 1.0, 0.01, 0.10

HOT_C = 90.0


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    good: bool
    text: str
    """What was found, in one sentence."""
    remedy: str | None = None


def examine(root: Path = Path("/"), watch_s: float = WATCH_S) -> list[Finding]:
    """All checks of the machine, the most important first. `root` is the folder with /proc and /sys."""
    before = _cpu_ticks(root)
    time.sleep(watch_s)
    after = _cpu_ticks(root)
    findings = [
        _governor(root),
        _turbo(root),
        _hardware_threads(root),
        _quota(),
        *_load(before, after),
        _running_programs(root),
        _huge_pages(root),
        _numa(root),
        _denormals(),
        _heat(root),
        _swap(root),
        _isolated_cpus(root),
    ]
    return [f for f in findings if f is not None]


# How long to watch the CPUs before a run, at least. Ticks are 10 ms, so one CPU has about 30 of them.
LOOK_S = 0.3


@dataclass(frozen=True)
class Load:
    """What other programs use while this one waits. None: hidden, or there is no such limit."""

    cpus: int
    """How many this process may use."""
    busy_cpus: float | None
    """How many of them other programs use, also those of other containers."""
    steal: float | None = None
    """Share of their time that the host took for other virtual machines."""
    quota: float | None = None
    """How many CPUs this container may use at once."""
    busy_of_quota: float | None = None
    """How many of them its other programs use."""

    @property
    def slowdown(self) -> float:
        """How much longer programs take that use all CPUs, if all share them equally."""
        return 1 + (self.busy_cpus or 0.0) / max(1, self.cpus)

    @property
    def sentence(self) -> str | None:
        """What disturbs measurements; None if nothing does.

        Other programs that leave enough CPUs for the whole quota do not, because the scheduler avoids them.
        """
        parts = []
        wanted = self.cpus if self.quota is None else min(self.cpus, self.quota)
        if self.busy_cpus is not None and wanted - (self.cpus - self.busy_cpus) > MOST_LOAD * wanted:
            parts.append(f"other programs use {self.busy_cpus:.1f} of {self.cpus} CPUs")
        elif self.quota and self.busy_of_quota is not None and self.busy_of_quota > MOST_LOAD * self.quota:
            parts.append(f"other programs use {self.busy_of_quota:.1f} of the container's {self.quota:g} CPUs")
        if self.steal is not None and self.steal > MOST_LOAD:
            parts.append(f"the host takes {100 * self.steal:.0f} % of the CPU time for other virtual machines")
        return " and ".join(parts) or None


@dataclass(frozen=True)
class _Clocks:
    """Readings that a watch compares. None: hidden."""

    wall_s: float
    own_s: float
    """CPU seconds of this process."""
    children_s: float
    """CPU seconds of the children that it waited for."""
    steal_ticks: int | None
    group_s: float | None
    """CPU seconds of the control group."""


class LoadWatch:
    """Watches the CPUs that this process may use, from construction until `load` is called.

    Work that this process and the children that it waits for do meanwhile does not count, so that the watch costs no
    time while a run is prepared.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._cpus = root, allowed_cpus()
        self._others = describe.OtherPrograms(self._cpus)
        self._begin = self._now()

    def load(self, least_s: float = LOOK_S) -> Load:
        """The load since the beginning; waits until the watch has taken `least_s`."""
        time.sleep(max(0.0, least_s - (time.monotonic() - self._begin.wall_s)))
        begin, end = self._begin, self._now()
        wall_s, children_s = end.wall_s - begin.wall_s, end.children_s - begin.children_s
        steal = in_group = None
        if begin.steal_ticks is not None and end.steal_ticks is not None:
            steal_s = (end.steal_ticks - begin.steal_ticks) / os.sysconf("SC_CLK_TCK")
            steal = steal_s / wall_s / len(self._cpus)
        if begin.group_s is not None and end.group_s is not None:
            ours_s = end.own_s - begin.own_s + children_s
            in_group = max(0.0, end.group_s - begin.group_s - ours_s) / wall_s
        busy = self._others.cpus(children_s)
        return Load(len(self._cpus), busy, steal, describe.cpu_quota(self._root), in_group)

    def _now(self) -> _Clocks:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return _Clocks(
            time.monotonic(),
            time.process_time(),
            children.ru_utime + children.ru_stime,
            _steal(self._root, self._cpus),
            _group_cpu_s(self._root),
        )


def _steal(root: Path, cpus: Collection[int]) -> int | None:
    """Ticks that the host took from these CPUs."""
    wanted, ticks = {f"cpu{n}" for n in cpus}, 0
    for line in (read_text(root / "proc/stat") or "").splitlines():
        name, *values = line.split()
        if name in wanted and len(values) > 7:
            wanted.discard(name)
            ticks += int(values[7])
    return None if wanted else ticks


def _group_cpu_s(root: Path) -> float | None:
    """CPU seconds of the control group of this process, whose quota it shares."""
    for folder in describe.control_groups("cpu", root):
        found = re.search(r"^usage_usec (\d+)$", read_text(folder / "cpu.stat") or "", re.MULTILINE)
        if found:
            return int(found[1]) / 1e6
    return None


def _governor(root: Path) -> Finding | None:
    governors = {read_text(p) for p in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    if not governors:
        return Finding("governor", True, "not visible here, as in most virtual machines")
    if governors == {"performance"}:
        return Finding("governor", True, "all cores use the performance governor")
    names = ", ".join(sorted(map(str, governors)))
    text = f"the governor is {names}: the clock rate follows the load, and still rises while short kernels are timed"
    return Finding("governor", False, text, "sudo cpupower frequency-set -g performance")


def _turbo(root: Path) -> Finding | None:
    cpu = root / "sys/devices/system/cpu"
    off, boost = read_text(cpu / "intel_pstate/no_turbo"), read_text(cpu / "cpufreq/boost")
    if off is None and boost is None:
        return None
    if off == "1" or (off is None and boost != "1"):
        return Finding("turbo", True, "turbo is off, so the clock rate does not depend on temperature or other cores")
    command = "echo 1 | sudo tee {}/intel_pstate/no_turbo" if off is not None else "echo 0 | sudo tee {}/cpufreq/boost"
    text = "turbo is on: the clock rate depends on temperature and on the number of busy cores"
    remedy = f"for comparisons, turn it off: {command.format('/sys/devices/system/cpu')}"
    return Finding("turbo", False, f"{text}, so two runs may differ by some percent", remedy)


def _hardware_threads(root: Path) -> Finding | None:
    active = read_text(root / "sys/devices/system/cpu/smt/active")
    if active == "1":
        return Finding("hardware threads", True, "two per core; deepbench starts one thread per core")
    return Finding("hardware threads", True, "one per core") if active == "0" else None


def _quota() -> Finding:
    quota, allowed = describe.cpu_quota(), len(allowed_cpus())
    if quota is None:
        return Finding("quota", True, "no CPU quota")
    if quota >= allowed and abs(quota - round(quota)) < 0.01:
        return Finding("quota", True, f"the container's quota of {quota:g} CPUs covers all {allowed} CPUs")
    text = f"the container's quota is {quota:g} of {allowed} CPUs: programs that use more are paused for milliseconds"
    return Finding("quota", False, text, "give the container dedicated CPUs (cpuset) instead of a share of CPU time")


def _load(before: Mapping[str, int], after: Mapping[str, int]) -> list[Finding]:
    """Steal and other programs, from the CPU time between two readings."""
    ticks = {name: after[name] - before[name] for name in after if name in before}
    total = sum(ticks.values())
    if total <= 0:
        return []
    steal = ticks.get("steal", 0) / total
    idle = (ticks.get("idle", 0) + ticks.get("iowait", 0)) / total
    others = 1 - idle - steal
    text = f"the host took {100 * steal:.1f} % of the CPU time for other virtual machines"
    remedy = "use a machine with dedicated CPUs, or measure when it is quieter; deepbench selftest shows the effect"
    stolen = Finding("steal", True, text) if steal <= MOST_STEAL else Finding("steal", False, text, remedy)
    if others <= MOST_LOAD:
        return [stolen, Finding("other load", True, f"the CPUs are {100 * idle:.0f} % idle")]
    text = f"other programs use {100 * others:.0f} % of the CPU time"
    return [stolen, Finding("other load", False, text, "stop them before you measure")]


def _running_programs(root: Path) -> Finding | None:
    running = []
    for stat in root.glob("proc/[0-9]*/stat"):
        name, _, rest = (read_text(stat) or "").partition("(")[2].rpartition(")")
        if rest.split()[:1] == ["R"] and stat.parent.name != str(os.getpid()):
            running.append(name)
    if not running:
        return None
    text = f"other programs are running: {', '.join(sorted(set(running))[:5])}"
    return Finding("running now", len(running) < 2, text)


def _huge_pages(root: Path) -> Finding | None:
    mode = describe.huge_pages(root)
    if mode is None:
        return None
    if mode in ("always", "madvise"):
        return Finding("huge pages", True, f"transparent huge pages are set to {mode}, and NumPy requests them")
    text = "transparent huge pages are off: TLB misses slow bandwidth-bound kernels on large matrices by about 10 %"
    return Finding("huge pages", False, text, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")


def _numa(root: Path) -> Finding | None:
    nodes = list(root.glob("sys/devices/system/node/node[0-9]*"))
    if len(nodes) < 2:
        return Finding("NUMA", True, "one node") if nodes else None
    one_node = "numactl --cpunodebind=0 --membind=0 deepbench run …"
    if read_text(root / "proc/sys/kernel/numa_balancing") == "1":
        text = f"{len(nodes)} nodes, and the kernel moves pages between them during measurements"
        return Finding("NUMA", False, text, f"echo 0 | sudo tee /proc/sys/kernel/numa_balancing; {one_node}")
    text = f"{len(nodes)} nodes: some libraries place their data on one node, others spread it"
    return Finding("NUMA", False, text, f"compare libraries on one node: {one_node}")


def _denormals() -> Finding:
    tiny = 5e-324
    kept = tiny / 2 == 0.0 and tiny * 1.0 == tiny
    text = "the CPU keeps denormal numbers" if kept else "the CPU flushes denormal numbers to zero"
    return Finding("denormals", True, f"{text}; operands contain none")


def _heat(root: Path) -> Finding | None:
    counters = root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    throttled = sum(int(read_text(p) or 0) for p in counters)
    temperatures = [read_text(p) or "" for p in root.glob("sys/class/thermal/thermal_zone*/temp")]
    hottest = max((int(t) / 1000 for t in temperatures if t.isdecimal()), default=None)
    if throttled == 0 and hottest is None:
        return None
    parts = [f"cores have been throttled {throttled} times since boot" if throttled else "no core has been throttled"]
    parts += [f"the hottest sensor shows {hottest:.0f} °C"] if hottest is not None else []
    if throttled or (hottest or 0.0) >= HOT_C:
        remedy = "cool the machine, or lower its power limit until it no longer throttles"
        return Finding("heat", False, ", ".join(parts), remedy)
    return Finding("heat", True, ", ".join(parts))


def _swap(root: Path) -> Finding | None:
    total, free = (describe.meminfo(name, root) for name in ("SwapTotal", "SwapFree"))
    if total is None or free is None or total - free < 100 * 2**20:
        return None
    text = f"{(total - free) / 2**20:.0f} MiB are swapped out, so memory is short"
    return Finding("swap", False, text, "stop programs that use much memory; deepbench refuses cases that do not fit")


def _isolated_cpus(root: Path) -> Finding | None:
    isolated = read_text(root / "sys/devices/system/cpu/isolated")
    return Finding("isolated CPUs", True, f"the scheduler does not use CPUs {isolated}") if isolated else None


def _cpu_ticks(root: Path) -> dict[str, int]:
    """Ticks of all CPUs together, by kind."""
    ticks = (read_text(root / "proc/stat") or "").partition("\n")[0].split()[1:]
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, ticks), strict=False))


def openmp(libraries: Mapping[str, Any]) -> Finding:
    """Whether a library loads two OpenMP runtimes. Each library has its own process, so it is checked alone."""
    runtimes = {name: answer.get("openmp") or [] for name, answer in libraries.items()}
    several = [f"{name}: {', '.join(loaded)}" for name, loaded in runtimes.items() if len(loaded) > 1]
    if several:
        text = f"a library loads two OpenMP runtimes ({'; '.join(several)}), whose threads compete for the cores"
        return Finding("OpenMP", False, text, "choose a build that loads one, for example with DEEPBENCH_ONEDNN_PATH=…")
    kinds = sorted({runtime.partition(".")[0] for loaded in runtimes.values() for runtime in loaded})
    if len(kinds) > 1:
        text = f"libraries use {' and '.join(kinds)}; deepbench runs each library in its own process"
        return Finding("OpenMP", True, f"{text}, but in one program they would compete for the cores")
    return Finding("OpenMP", True, f"one runtime: {kinds[0]}" if kinds else "no library uses OpenMP")
