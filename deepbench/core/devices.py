"""Names of devices: what a case runs on, as a backend reports it.

    cpu            the processors of this machine, also where a generic interface such as PJRT reaches them
    cuda, hip, xpu a GPU of NVIDIA, AMD or Intel; `cuda:1` is the second one that this process sees
    simulated      hardware of which a simulator or a model says the times
    pjrt:tpu       a device that only one backend reaches: the backend, and what the device calls itself

Cases compete only on devices of one name. So hardware that several libraries reach has one name in all of them: the
CPU plug-in of PJRT computes on `cpu`, next to oneDNN, and NVIDIA's on `cuda`, next to cuBLAS. `pjrt:cuda` may be typed
for such a device too: it is `cuda` through the backend `pjrt`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten

CPU, XPU = "cpu", "xpu"

# Hardware of which only a simulator or a model says the times. The backend of such times has the same name.
SIMULATED = "simulated"

# Devices that libraries of several makers reach, and how interfaces call them.
SHARED = {"cpu": CPU, "host": CPU, "cuda": "cuda", "hip": "hip", "rocm": "hip", "xpu": XPU}

TITLES = {CPU: "CPU", "cuda": "NVIDIA GPU", "hip": "AMD GPU", XPU: "Intel GPU"}

MOST_CHARACTERS = 50
PATTERN = r"^[a-z][a-z0-9_]{0,23}(:[a-z0-9][a-z0-9_.-]{0,23}){0,2}$"
_NAME = re.compile(PATTERN)


class Wanted(NamedTuple):
    """What `--device` asks for."""

    device: str
    backend: str | None
    """The backend that is named with it, as in `pjrt:tpu`."""


def is_name(text: object) -> bool:
    """Whether this may be the name of a device."""
    return isinstance(text, str) and len(text) <= MOST_CHARACTERS and _NAME.fullmatch(text) is not None


def base(device: str) -> str:
    """The kind of a device: `cuda` of `cuda:1`, `pjrt:tpu` of `pjrt:tpu:1`."""
    words = device.split(":")
    return ":".join(words[:-1]) if len(words) > 1 and words[-1].isdigit() else device


def index(device: str) -> int:
    """Which of several devices of this kind: 1 of `cuda:1`, 0 of `cuda`."""
    last = device.split(":")[-1]
    return int(last) if last.isdigit() else 0


def named(backend: str, platform: str) -> str:
    """The name of a device that a backend reaches, from what the interface calls its platform."""
    word = re.sub(r"[^a-z0-9_.-]+", "-", platform.lower()).strip("-._")[:24] or "unknown"
    return SHARED.get(word, f"{backend}:{word}")


def parse(text: str, backends: tuple[str, ...]) -> Wanted:
    """The device that a word asks for; `BadInput` if it cannot be a name, or begins with no backend."""
    word = text.strip().lower()
    if not is_name(word):
        raise BadInput(f"a device is a name such as cpu, cuda, cuda:1 or pjrt:tpu, found {shorten(text)!r}")
    first, _, rest = word.partition(":")
    if first in TITLES and (not rest or rest.isdigit()):
        return Wanted(word, None)
    if rest and first in backends:
        platform, colon, number = rest.partition(":")
        return Wanted(named(first, platform) + colon + number, first)
    known = ", ".join([*TITLES, *(f"{name}:…" for name in backends)])
    hint = did_you_mean(text, TITLES)
    raise BadInput(
        f"unknown device {shorten(text)!r}; there are {known}{hint} (deepbench info --devices lists those here)"
    )


def title(device: str) -> str:
    """What a person calls it: `CPU`, `NVIDIA GPU`, else its name."""
    return TITLES.get(base(device), device)
