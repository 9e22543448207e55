"""Finds the devices that backends reach here, each candidate in a process of its own with a limit of time.

What a plug-in does when it is loaded is not known before: some abort without their device, ask the network, or take
many seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from deepbench.core import devices
from deepbench.core.backend import FoundDevice, all_backends, all_device_backends
from deepbench.core.errors import Unavailable
from deepbench.core.json_lines import sanitized
from deepbench.measuring.parent import Worker, open_backends

PROBE_S = 30.0
# A candidate is data: so many devices of it count, and so many characters of each text.
MOST_DEVICES, MOST_CHARACTERS = 64, 200


@dataclass
class Reached:
    """A device, and the backends that reach it."""

    device: str
    title: str
    through: dict[str, str] = field(default_factory=dict)
    """Backend → what reaches the device, with its version."""


class Failed(TypedDict):
    """A candidate that reaches no device here."""

    backend: str
    candidate: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Devices:
    """What was found."""

    reached: list[Reached]
    failed: list[Failed]


def find_devices(backends: Iterable[str] | None = None, timeout_s: float = PROBE_S) -> Devices:
    """Every device that these backends (None: all) reach here."""
    wanted = set(all_backends() if backends is None else backends)
    found: dict[str, Reached] = {}
    failed: list[Failed] = []

    def add(backend: str, device: FoundDevice) -> None:
        if devices.is_name(device.device):
            row = found.setdefault(device.device, Reached(device.device, device.title[:MOST_CHARACTERS]))
            row.through.setdefault(backend, device.through[:MOST_CHARACTERS])

    for backend, fixed in _of_vendors(wanted, timeout_s):
        add(backend, fixed)
    for name, interface in all_device_backends().items():
        for candidate in interface.candidates() if name in wanted else ():
            answer = probe(name, candidate, timeout_s)
            if isinstance(answer, Unavailable):
                failed.append(Failed(backend=name, candidate=candidate, reason=answer.reason, remedy=answer.remedy))
                continue
            for device in answer:
                add(name, device)
    order = [devices.CPU, *devices.TITLES]
    rows = sorted(found.values(), key=lambda r: (*(base_order(r.device, order)), r.device))
    return Devices(rows, failed)


def base_order(device: str, order: list[str]) -> tuple[int, int]:
    """The CPU first, then GPUs, then what only one interface reaches."""
    kind = devices.base(device)
    return (order.index(kind) if kind in order else len(order)), devices.index(device)


def _of_vendors(wanted: set[str], timeout_s: float) -> Iterator[tuple[str, FoundDevice]]:
    """The devices of backends with one kind: the CPU, and the GPUs of a maker."""
    own = [n for n, b in all_backends().items() if n in wanted and b.computes and not b.is_group]
    names = [n for n in own if n not in all_device_backends()]
    for name, answer in open_backends(names, timeout_s).items():
        backend, library = all_backends()[name], answer.get("library")
        if library is None:
            continue
        card, through = library.get("card") or {}, " ".join(filter(None, (library["name"], library["version"])))
        title = str(card.get("name") or devices.title(backend.device))
        for i in range(min(MOST_DEVICES, int(card.get("cards") or 1))):
            device = f"{backend.device}:{i}" if i else backend.device
            yield name, FoundDevice(device, title if not i else devices.title(device), through, library["path"])


def probe(backend: str, candidate: str, timeout_s: float) -> list[FoundDevice] | Unavailable:
    """The devices of one candidate, from a new process; why there are none."""
    remedy = "use another build of it, or leave it out"
    try:
        with Worker(1, "none", os.environ) as worker:
            ending = worker.ask(
                {"probe": backend, "candidate": candidate, "cpus": None}, {"devices", "unavailable"}, timeout_s
            )
    except Unavailable as error:
        return error
    if ending.answer is None:
        return Unavailable(f"the process that probed it failed: {ending.reason}", remedy)
    if (missing := ending.answer.get("unavailable")) is not None:
        return Unavailable(str(missing.get("reason")), str(missing.get("remedy")))
    rows = sanitized(ending.answer["devices"])
    try:
        return [FoundDevice(*(str(row[name]) for name in ("device", "title", "through", "path"))) for row in rows][
            :MOST_DEVICES
        ]
    except (KeyError, TypeError):
        return Unavailable(f"what {backend} says of its devices is damaged", remedy)
