"""References: what kernels take on healthy hosts of one type, made from a fleet file, and who is slower than that.

A host has another type if a fact differs that decides how fast it should be: the CPU, its number of cores, the memory,
the accelerator. The file (`deepbench-reference/1`, one JSON object) has the times themselves and no number computed
from them, so that an old file can be judged by a better rule.

A check takes the lower quartile of a few processes of a kernel, as everywhere, because interference only adds time. Of
each host of the reference we compute what a check of it would find on average. The host is slow in a kernel, or in all
of them together, if its value is above the prediction interval that Student's t gives for one more host, and more than
`KERNEL_RATIO` above the mean. `benchmarks/fleet_check.py` shows how often that accuses a healthy host.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast

from deepbench.core import stats
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.judge.outliers import KERNEL_RATIO, LEAST_SPREAD
from deepbench.plan.cost import PROCESS_S
from deepbench.results.fields import Items, Text, Within, schema_of
from deepbench.results.record import SampleSeconds, Threads

SCHEMA: Literal["deepbench-reference/1"] = "deepbench-reference/1"
WANTED = "a reference that `deepbench fleet FILE --write-references FOLDER` wrote"

# Limits of the file. Many more kernels do not fit into the time of a check.
LARGEST_BYTES, MOST_KERNELS, MOST_HOSTS, MOST_RUNS = 32 * 2**20, 64, 1000, 100
LEAST_HOSTS, LEAST_RUNS = 3, 2

# Longer calls do not fit into a check, and no device is faster.
MOST_CALL_S, MOST_FLOP_PER_S = 5.0, 1e17

# Probability that a check of a healthy host finds anything at its first look. A second look follows.
ALPHA = 0.0005

# Processes of a kernel in one look, at most. There may be two looks.
MOST_ROUNDS = 3

# The whole check ends within this time. It begins and ends within START_S.
CHECK_S, START_S = 60.0, 6.0

# The share of the rest that the first look may take: the second one takes as long, and a slow host takes longer.
FIRST_LOOK = 0.4

# Equal hosts report memories that differ by less: firmware and kernels keep some.
SAME_MEMORY = 0.05

# The spread of few hosts is badly known. So many further hosts with the mean spread of all kernels, or with
# LEAST_SPREAD, are added to it (Smyth, 2004, does this for genes).
ADDED_HOSTS = 3

# Variance of the lower quartile of one, two or three normal numbers, over their variance.
QUARTILE_VARIANCE = {1: 1.0, 2: 0.545, 3: 0.390}

# The median of the absolute difference of two normal numbers, over their standard deviation.
MEDIAN_DIFFERENCE = 0.9539

# Facts of a machine that may explain why it is slower than others of its type.
EXPLAINING = (
    *("cpu_ids", "instructions", "caches", "numa_nodes", "governor", "turbo_off", "huge_pages", "hypervisor"),
    *("kernel", "system"),
)

# Characters of a fact.
LONGEST_FACT = 1000

Name = Annotated[str, Text(shortest=1, longest=300)]


class TypeFields(TypedDict):
    """A type of machine."""

    cpu: Name
    cores_allowed: Threads
    cpu_quota: Annotated[float, Within(most=1e6, above=0)] | None
    memory_bytes: Annotated[int, Within(1, 10**18)]
    devices: dict[str, Name]


class KernelFields(TypedDict):
    """A kernel on all hosts."""

    case: Annotated[str, Text(shortest=1, longest=1000)]
    duration_s: Annotated[float, Within(most=600, above=0)]
    times_s: Annotated[
        list[Annotated[list[SampleSeconds], Items(MOST_RUNS, LEAST_RUNS)]], Items(MOST_HOSTS, LEAST_HOSTS)
    ]


class ReferenceFields(TypedDict):
    """The file."""

    schema: Literal["deepbench-reference/1"]
    tool: Name
    made: Name
    machine: TypeFields
    libraries: dict[str, Name]
    facts: dict[str, Annotated[list[Annotated[str, Text(longest=LONGEST_FACT)]], Items(1000)]]
    mode: Literal["default", "quick"]
    kernels: Annotated[list[KernelFields], Items(MOST_KERNELS, 1)]


@dataclass(frozen=True)
class MachineType:
    """What must be equal before two hosts are compared."""

    cpu: str
    cores_allowed: int
    cpu_quota: float | None
    memory_bytes: int
    devices: tuple[tuple[str, str], ...] = ()
    """The name of the accelerator by the library that uses it, sorted; empty on CPUs."""

    @classmethod
    def of(cls, machine: Mapping[str, Any], devices: Mapping[str, str]) -> MachineType | None:
        """From the description of a machine, which may come from anyone; None where facts are missing."""
        cpu, cores, quota, size = (machine.get(n) for n in ("cpu", "cores_allowed", "cpu_quota", "memory_bytes"))
        if not isinstance(cpu, str) or not cpu or type(cores) is not int or type(size) is not int:
            return None
        quota = float(quota) if isinstance(quota, int | float) else None
        return cls(shorten(cpu, 300), cores, quota, size, tuple(sorted(devices.items())))

    def difference(self, here: MachineType) -> str | None:
        """What this type has and the one here has not, such as `64 cores, and here are 32`; None if they are equal."""
        for what, of_reference, of_host in (
            ("CPU", self.cpu, here.cpu),
            ("cores", self.cores_allowed, here.cores_allowed),
            ("CPU quota", self.cpu_quota or "none", here.cpu_quota or "none"),
            ("devices", dict(self.devices) or "none", dict(here.devices) or "none"),
        ):
            if of_reference != of_host:
                return f"{what}: wanted {of_reference}, found {of_host}"
        if not self._has_memory_of(here):
            wanted, found = (f"{t.memory_bytes / 2**30:.3g} GiB" for t in (self, here))
            return f"memory: wanted {wanted}, found {found}"
        return None

    def _has_memory_of(self, other: MachineType) -> bool:
        return abs(math.log(self.memory_bytes / other.memory_bytes)) < SAME_MEMORY


def devices_of(libraries: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The accelerator that each of these libraries names, from their facts in a header; none for CPUs."""
    found = {}
    for name in names:
        facts = (libraries.get(name) or {}).get("library") or {}
        card = facts.get("card")
        device = (card.get("name") if isinstance(card, dict) else None) or facts.get("device")
        if isinstance(device, str) and device:
            found[name] = shorten(device, 300)
    return found


def version_of(libraries: Mapping[str, Any], name: str) -> str:
    """What a library calls itself with its version, from the facts in a header; `missing` where it is not there."""
    facts = (libraries.get(name) or {}).get("library")
    return shorten(f"{facts['name']} {facts['version']}", 300) if facts else "missing"


def explaining_facts(machine: Mapping[str, Any]) -> dict[str, str]:
    """Facts of a machine as short texts, which are equal for equal facts: `{"governor": "performance", …}`."""
    flat: dict[str, object] = {}
    for name in EXPLAINING:
        value = machine.get(name)
        flat |= value if isinstance(value, dict) else {name: value}
    texts = {n: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for n, v in flat.items()}
    return {shorten(name): shorten(text, LONGEST_FACT) for name, text in texts.items()}


class KernelFinding(NamedTuple):
    """How a look at a host compares with its reference."""

    case: str | None
    """The kernel; None: all of them together."""
    ratio: float
    """Time here over the mean of the hosts of the reference."""
    limit: float
    """A higher ratio is slow."""

    @property
    def is_slow(self) -> bool:
        """Whether it is above the limit."""
        return self.ratio > self.limit


@dataclass(frozen=True)
class ReferenceKernel:
    """A kernel with its times on healthy hosts."""

    case: Case
    duration_s: float
    """What a process of it takes there, all in all."""
    times_s: tuple[tuple[float, ...], ...]
    """Seconds per call, by host and run. The order of hosts is the same in all kernels."""

    @cached_property
    def run_spread(self) -> float:
        """Standard deviation of log times between runs of a host.

        The larger of two estimates: the usual one, to which the few slow runs of a skewed kernel count in full, and one
        from steps between runs, to which a slow drift of a host counts little.
        """
        logs = [list(map(math.log, runs)) for runs in self.times_s]
        steps = [abs(a - b) for runs in logs for a, b in pairwise(runs)]
        freedom = sum(len(runs) - 1 for runs in logs)
        within = sum(_variance(runs) * (len(runs) - 1) for runs in logs if len(runs) > 1)
        return max(median(steps) / MEDIAN_DIFFERENCE, math.sqrt(within / freedom)) if steps else 0.0

    def values(self, rounds: int) -> list[float]:
        """Of each host: the log of what so many processes find there on average."""
        return [expected_quartile(runs, rounds) for runs in self.times_s]


def quartile(times_s: Sequence[float]) -> float:
    """The log of the lower quartile of a few times in seconds."""
    return stats.lower_quartile([math.log(t) for t in times_s])


def expected_quartile(times_s: Sequence[float], rounds: int) -> float:
    """The mean of `quartile` over all ways to draw so many (1 to 3) of these times."""
    logs, n = sorted(map(math.log, times_s)), len(times_s)
    return sum(w * x for w, x in zip(_weights(n, min(rounds, n)), logs, strict=True))


@cache
def _weights(n: int, drawn: int) -> list[float]:
    """The share of each of n sorted values in the mean lower quartile of so many of them (1 to 3)."""
    share, found = (drawn - 1) / 4, []  # the lower quartile lies between the fastest and the next one
    for i in range(n):
        fastest = math.comb(n - 1 - i, drawn - 1)
        second = i * math.comb(n - 1 - i, drawn - 2) if drawn > 1 else 0
        found.append(((1 - share) * fastest + share * second) / math.comb(n, drawn))
    return found


def _variance(values: Sequence[float]) -> float:
    center = fmean(values)
    return sum((v - center) ** 2 for v in values) / (len(values) - 1)


@dataclass(frozen=True)
class _Usual:
    """What a look at healthy hosts finds. All numbers are logarithms."""

    centers: list[float]
    """Mean over hosts of each kernel that was measured."""
    limits: list[float]
    """How far above it a host may be."""
    overall: float | None
    """The same for the mean over kernels; None with a single kernel."""


@dataclass(frozen=True)
class HostReference:
    """The kernels of healthy hosts of one type."""

    machine: MachineType
    libraries: dict[str, str]
    """The version of each library by its backend."""
    facts: dict[str, list[str]]
    """Facts that may explain a difference, such as the microcode: the values that the healthy hosts have."""
    mode: str
    """How processes sample: `quick` or `default`."""
    kernels: list[ReferenceKernel]
    path: Path = Path()
    _known: dict[tuple[tuple[str, int], ...], _Usual] = field(default_factory=dict, repr=False, compare=False)

    @property
    def hosts(self) -> int:
        """How many healthy hosts it comes from."""
        return len(self.kernels[0].times_s)

    def findings(self, times_s: Mapping[str, Sequence[float]]) -> list[KernelFinding]:
        """Compare one look at a host: all kernels together, then each one.

        `times_s` has the seconds per call of each process by the text of the case. Kernels without times are left out.
        """
        looked = [(k, times_s[k.case.text][:MOST_ROUNDS]) for k in self.kernels if times_s.get(k.case.text)]
        usual = self._usual(tuple((k.case.text, len(times)) for k, times in looked))
        deviations = [quartile(times) - center for (_, times), center in zip(looked, usual.centers, strict=True)]
        found = [
            KernelFinding(k.case.text, math.exp(d), math.exp(limit))
            for (k, _), d, limit in zip(looked, deviations, usual.limits, strict=True)
        ]
        if usual.overall is not None:
            found.insert(0, KernelFinding(None, math.exp(fmean(deviations)), math.exp(usual.overall)))
        return found

    def slow_in_both(
        self, first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]
    ) -> list[KernelFinding]:
        """In what a host is slow at two looks, as the second one shows it; each has the times that `findings` takes."""
        suspicious = {finding.case for finding in self.findings(first) if finding.is_slow}
        return [finding for finding in self.findings(second) if finding.is_slow and finding.case in suspicious]

    def detectable(self, rounds: int = MOST_ROUNDS) -> float:
        """A host that is slower by more than this share in all kernels is found in nearly all checks."""
        usual = self._usual(tuple((k.case.text, rounds) for k in self.kernels))
        limit = min(usual.limits) if usual.overall is None else min(usual.overall, *usual.limits)
        run_spread = fmean(k.run_spread for k in self.kernels)
        return math.exp(limit + 2 * run_spread * math.sqrt(QUARTILE_VARIANCE[rounds])) - 1

    def _usual(self, looked: tuple[tuple[str, int], ...]) -> _Usual:
        """What a look at healthy hosts finds, by the kernels that it measured and how many processes of each."""
        if looked not in self._known:
            by_text = {k.case.text: k for k in self.kernels}
            kernels, rounds = [by_text[text] for text, _ in looked], [n for _, n in looked]
            values = [k.values(n) for k, n in zip(kernels, rounds, strict=True)]
            centers = [fmean(of_hosts) for of_hosts in values]
            pairs = zip(kernels, values, rounds, strict=True)
            limits = [self._limit(of_hosts, k.run_spread, n) for k, of_hosts, n in pairs]
            overall = None
            if len(looked) > 1:
                # Kernels of one run are disturbed together, so that their mean varies as much as each of them.
                run_spread = fmean(k.run_spread for k in kernels)
                of_hosts = [
                    fmean(v - c for v, c in zip(of_host, centers, strict=True)) for of_host in zip(*values, strict=True)
                ]
                overall = self._limit(of_hosts, run_spread, min(rounds))
            self._known[looked] = _Usual(centers, limits, overall)
        return self._known[looked]

    @cached_property
    def _added_variance(self) -> float:
        return max(LEAST_SPREAD**2, fmean(_variance(k.values(MOST_ROUNDS)) for k in self.kernels))

    def _limit(self, usual: Sequence[float], run_spread: float, rounds: int) -> float:
        """The log ratio to the mean of the reference that one more healthy host exceeds with a low probability.

        This is `ALPHA`, corrected for all kernels and for their mean.
        """
        n, tests = len(usual), len(self.kernels) + 1
        freedom = n - 1 + ADDED_HOSTS
        of_hosts = ((n - 1) * _variance(usual) + ADDED_HOSTS * self._added_variance) / freedom
        spread = math.sqrt(of_hosts * (1 + 1 / n) + QUARTILE_VARIANCE[rounds] * run_spread**2)
        return max(math.log(KERNEL_RATIO), stats.t_critical(freedom, 1 - 2 * ALPHA / tests) * spread)

    def differences(self, machine: Mapping[str, Any]) -> list[str]:
        """Facts of a machine that no healthy host has, such as `microcode is 0x1 and not 0x2`."""
        here = explaining_facts(machine)
        return [
            f"{name.replace('_', ' ')} is {shorten(here.get(name, 'missing'))} and not {shorten(values[0])}"
            for name, values in self.facts.items()
            if values and here.get(name, "missing") not in values
        ]

    def rounds_in(self, seconds: float) -> int:
        """How many processes of each kernel fit into a first look, if a check has so many seconds; at least one."""
        round_s = sum(k.duration_s + PROCESS_S for k in self.kernels)
        return max(1, min(MOST_ROUNDS, int(FIRST_LOOK * seconds / round_s)))

    @property
    def as_fields(self) -> ReferenceFields:
        """What the file has, but for `tool` and `made`, which are empty."""
        machine = {**vars(self.machine), "devices": dict(self.machine.devices)}
        kernels = [
            {"case": k.case.text, "duration_s": k.duration_s, "times_s": list(map(list, k.times_s))}
            for k in self.kernels
        ]
        names = {"schema": SCHEMA, "tool": "", "made": "", "machine": machine, "libraries": self.libraries}
        return cast(ReferenceFields, names | {"facts": self.facts, "mode": self.mode, "kernels": kernels})


# ---- reading


def read_reference(path: Path) -> HostReference:
    """Read and check a reference; `BadInput` says what is wrong with it. Nothing in it is executed."""
    content = read_regular(path, LARGEST_BYTES, WANTED)
    name = shorten(printable(str(path)), 300)
    try:
        value = sanitized(from_line(content))
        if reason := _schema_error(value):
            raise ValueError(reason)
        return _reference(path, cast(ReferenceFields, value))
    except BadInput as error:
        reason = str(error)
    except RecursionError:
        reason = "its parts are nested too deeply"
    except ValueError as error:
        reason = printable(str(error).strip().partition("\n")[0])
    raise BadInput(f"{name} is no reference: {shorten(reason, 300)}; expected {WANTED}")


@cache
def _schema_check() -> Any:
    import fastjsonschema

    return fastjsonschema.compile(schema_of(ReferenceFields))


def _schema_error(value: Any) -> str | None:
    import fastjsonschema

    try:
        _schema_check()(value)
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error.message)
    return None


def _reference(path: Path, value: ReferenceFields) -> HostReference:
    machine = MachineType.of(value["machine"], value["machine"]["devices"])
    assert machine is not None, "the schema has all of its facts"
    kernels = [
        ReferenceKernel(parse_case(k["case"]), k["duration_s"], tuple(map(tuple, k["times_s"])))
        for k in value["kernels"]
    ]
    for kernel in kernels:
        if reason := kernel_error(kernel, machine):
            raise ValueError(f"{shorten(kernel.case.text)}: {reason}")
        if kernel.case.backend not in value["libraries"]:
            raise ValueError(f"it does not say which version of {kernel.case.backend} was measured")
    if len({k.case.text for k in kernels}) < len(kernels):
        raise ValueError("it has a kernel twice")
    if len({len(k.times_s) for k in kernels}) > 1:
        raise ValueError("its kernels come from different numbers of hosts")
    return HostReference(machine, value["libraries"], value["facts"], value["mode"], kernels, path)


def kernel_error(kernel: ReferenceKernel, machine: MachineType) -> str | None:
    """Why no check can measure this kernel, or why its times cannot be; None if all is well."""
    case, op = kernel.case, kernel.case.operation
    if op.is_group:
        return "several processes take part in it, and a check is of one host"
    if not case.library.computes:
        return f"{case.library.title} computes nothing"
    if case.threads > machine.cores_allowed:
        return f"it has {case.threads} threads, and the machine {machine.cores_allowed} cores"
    if case.device == "cpu" and op.operand_bytes(case) > machine.memory_bytes / 2:
        return f"its operands take more than half of the memory of {machine.memory_bytes} bytes"
    times_s = [t for runs in kernel.times_s for t in runs]
    if max(times_s) > MOST_CALL_S:
        return f"a call takes up to {max(times_s):.3g} s, and a check has time for {MOST_CALL_S:g} s"
    if op.flop(case) > MOST_FLOP_PER_S * min(times_s):
        return f"{op.flop(case):.3g} FLOP in {min(times_s):.3g} s are more than any device computes"
    return None
