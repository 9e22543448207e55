"""From a fleet file to references, one for each type of machine in it (`reference.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.core.json_lines import to_line
from deepbench.core.version import VERSION
from deepbench.fleets.file import FleetFile, HostRun
from deepbench.fleets.judge import judge
from deepbench.fleets.reference import (
    CHECK_S,
    FIRST_LOOK,
    LEAST_HOSTS,
    LEAST_RUNS,
    MOST_HOSTS,
    MOST_KERNELS,
    MOST_RUNS,
    START_S,
    HostReference,
    MachineType,
    ReferenceKernel,
    devices_of,
    explaining_facts,
    kernel_error,
    version_of,
)
from deepbench.plan.cost import PROCESS_S
from deepbench.results.summary import is_disturbed, process_time_s

# Different values of a fact that are kept.
MOST_VALUES = 8


@dataclass
class _Group:
    """Hosts of one type that measured in the same way."""

    machine: MachineType
    libraries: dict[str, str]
    mode: str
    hosts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """The references of a fleet file."""

    references: list[HostReference]
    left_out: list[str]
    """Types of machine that have none, and kernels that are in none, each with the reason."""


def references_of(file: FleetFile) -> Made:
    """A reference for each type of machine of which enough hosts are healthy.

    Hosts are compared with those of their own type: the slower type of a mixed fleet is not ill.
    """
    made = Made([], [])
    for group in _groups(file):
        runs = {host: [r for r in file.runs if r.host == host] for host in group.hosts}
        links = [(pair, record) for pair, record in file.links if set(pair) <= runs.keys()]
        header = {**file.header, "expected": group.hosts}
        alike = replace(file, header=header, runs=[r for of_host in runs.values() for r in of_host], links=links)
        healthy = [v.host for v in judge(alike).hosts if v.is_fine][:MOST_HOSTS]
        reference, reasons = _reference(group, {host: runs[host] for host in healthy})
        if reference is not None:
            made.references.append(reference)
        made.left_out.extend(reasons)
    return made


def write_references(file: FleetFile, folder: Path) -> tuple[list[HostReference], list[str]]:
    """Write the references of a fleet file to a folder, which is made if it is missing.

    Returns them with their paths, and what was left out. An older reference of the same type is replaced. `BadInput`
    where there is no reference to write, or where the folder cannot be written.
    """
    made = references_of(file)
    if not made.references:
        raise BadInput(f"{file.path} makes no reference: {'; '.join(made.left_out) or 'it has no host with results'}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}") from None
    written: list[HostReference] = []
    for reference in made.references:
        name = file_name(reference, {r.path.name for r in written})
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {**reference.as_fields, "tool": f"deepbench {VERSION}", "made": now}
        with replacing(folder / name) as draft:
            draft.write_text(to_line(content), encoding="utf-8")
        written.append(replace(reference, path=folder / name))
    return written, made.left_out


def file_name(reference: HostReference, taken: Iterable[str] = ()) -> str:
    """Such as `amd-epyc-9b14-96-cores-754gib.json`."""
    machine = reference.machine
    devices = dict.fromkeys(name for _, name in machine.devices)
    words = [machine.cpu, f"{machine.cores_allowed} cores", f"{machine.memory_bytes / 2**30:.3g}gib", *devices]
    words += ["quick"] if reference.mode == "quick" else []
    name = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:120]
    known, number, chosen = set(taken), 2, f"{name}.json"
    while chosen in known:
        chosen, number = f"{name}-{number}.json", number + 1
    return chosen


def _groups(file: FleetFile) -> list[_Group]:
    """The hosts with results, by type, versions of libraries and mode. Memories of nearly the same size are equal."""
    groups: list[_Group] = []
    for host in file.hosts:
        lines = next((r.lines for r in file.runs if r.host == host and r.lines), None)
        if lines is None:
            continue
        header, records = lines[0], [line for line in lines if "case" in line]
        names = sorted({r["backend"] for r in records})
        machine = MachineType.of(header["machine"], devices_of(header["libraries"], names))
        libraries = {name: version_of(header["libraries"], name) for name in names}
        mode = header["plan"]["mode"]
        if machine is None or mode not in ("default", "quick"):
            continue
        for group in groups:
            same = group.machine.difference(machine) is None
            if same and (group.libraries, group.mode) == (libraries, mode):
                group.hosts.append(host)
                break
        else:
            groups.append(_Group(machine, libraries, mode, [host]))
    return groups


def _reference(group: _Group, runs: Mapping[str, Sequence[HostRun]]) -> tuple[HostReference | None, list[str]]:
    """The reference of healthy hosts of one type, and the reasons for what it lacks."""
    title = f"{group.machine.cpu} with {group.machine.cores_allowed} cores"
    few = f"{title}: a reference needs {LEAST_HOSTS} healthy hosts with {LEAST_RUNS} undisturbed runs of each kernel"
    if len(runs) < LEAST_HOSTS:
        return None, [f"{few}, found {len(runs)} healthy of {len(group.hosts)} hosts"]
    times, durations = _times(runs)
    kernels: list[ReferenceKernel] = []
    reasons, left_s, full = [], FIRST_LOOK * (CHECK_S - START_S), 0
    complete = {h for h in runs if all(len(of_host.get(h, ())) >= LEAST_RUNS for of_host in times.values())}
    if len(complete) < LEAST_HOSTS:
        return None, [f"{few}, found {len(complete)} of {len(runs)} healthy hosts"]
    hosts = [host for host in runs if host in complete]
    for text, of_host in times.items():
        kernel = ReferenceKernel(
            parse_case(text), median(durations[text]), tuple(tuple(of_host[h][:MOST_RUNS]) for h in hosts)
        )
        if reason := kernel_error(kernel, group.machine):
            reasons.append(f"left out: {text}: {reason}")
        elif (took_s := kernel.duration_s + PROCESS_S) > left_s or len(kernels) == MOST_KERNELS:
            full += 1
        else:
            kernels.append(kernel)
            left_s -= took_s
    if full:
        reasons.append(f"left out: {full} kernels that do not fit into the time of a check")
    if not kernels:
        return None, [f"{title}: no kernel can be checked", *reasons]
    memories = sorted(_machine(of_host)["memory_bytes"] for host, of_host in runs.items() if host in complete)
    machine = replace(group.machine, memory_bytes=memories[len(memories) // 2])
    libraries = {k.case.backend: group.libraries[k.case.backend] for k in kernels}
    facts = _facts([_machine(runs[host]) for host in hosts])
    return HostReference(machine, libraries, facts, group.mode, kernels), reasons


def _times(
    runs: Mapping[str, Sequence[HostRun]],
) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[float]]]:
    """Seconds per call by case, host and undisturbed run, and the durations of all processes by case."""
    times: dict[str, dict[str, list[float]]] = {}
    durations: dict[str, list[float]] = {}
    for host, of_host in runs.items():
        for run in sorted(of_host, key=lambda r: r.run):
            for record in run.records:
                if record["status"] != "ok" or record["is_group"] or record["process"] is None:
                    continue
                by_host = times.setdefault(record["case"], {})
                durations.setdefault(record["case"], []).append(max(1e-3, record["process"]["duration_s"]))
                if not is_disturbed(record):
                    by_host.setdefault(host, []).append(float(f"{process_time_s(record):.6g}"))
    return times, durations


def _machine(runs: Sequence[HostRun]) -> Mapping[str, Any]:
    lines = next(r.lines for r in runs if r.lines)
    machine: Mapping[str, Any] = lines[0]["machine"]
    return machine


def _facts(machines: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values that these machines have of each fact; none of a fact in which they differ much."""
    values: dict[str, set[str]] = {}
    for machine in machines:
        for name, text in explaining_facts(machine).items():
            values.setdefault(name, set()).add(text)
    return {name: sorted(texts) for name, texts in values.items() if len(texts) <= MOST_VALUES}


def sentences(references: Sequence[HostReference], left_out: Sequence[str]) -> list[str]:
    """What was written, and what was not."""
    lines = []
    for r in references:
        kernels = f"{len(r.kernels)} kernel{'s' if len(r.kernels) > 1 else ''}"
        finds = f"finds a host that is slower by {units.percent(r.detectable())} or more in all of them"
        lines.append(f"{r.path}: {kernels} of {r.hosts} healthy hosts; {finds}")
    return [*lines, *left_out]
