"""Data sheets of GPUs: peaks, memory, power and links, as the package of tables states them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from deepbench.core.errors import BadInput, Unavailable, shorten
from deepbench.core.files import read_regular
from deepbench.core.json_lines import printable
from deepbench.gpus import package

# The largest sheet of version 0.12.0 has 2,266 bytes. Nested lists take a time that grows with its square.
MOST_BYTES = 2**14

# What YAML calls nothing.
_NOTHING = (None, "", "~", "null", "Null", "NULL")

# Keys of sheets for our precisions.
PEAKS = {
    "bf16": "bfloat16_tc_flops",
    "f8e4m3": "fp8_tc_flops",
    "nvfp4": "fp4_tc_flops",
    "i8": "int8_tc_flops",
}


@dataclass(frozen=True)
class Chip:
    """What the sheets leave out, from the vendors' descriptions of the architectures."""

    title: str
    units: int
    """Streaming multiprocessors; of Intel, vector engines / 8."""
    cache_bytes: float
    """Of the L2 cache."""


# NVIDIA's white papers of Ampere, Hopper, Ada and Blackwell; Intel's description of the Arc Pro B60.
CHIPS = {
    "a100_sxm": Chip("NVIDIA A100 SXM 80GB", 108, 40e6),
    "h100_sxm": Chip("NVIDIA H100 SXM 80GB", 132, 50e6),
    "h200_sxm": Chip("NVIDIA H200 SXM 141GB", 132, 50e6),
    "b200_sxm": Chip("NVIDIA B200 SXM 180GB", 148, 126e6),
    "b300_sxm": Chip("NVIDIA B300 SXM 270GB", 148, 126e6),
    "gb200": Chip("NVIDIA GB200 (a GPU of it)", 152, 126e6),
    "gb300": Chip("NVIDIA GB300 (a GPU of it)", 152, 126e6),
    "l40s": Chip("NVIDIA L40S 48GB", 142, 96e6),
    "rtx_pro_6000_server": Chip("NVIDIA RTX PRO 6000 Server 96GB", 188, 128e6),
    "b60": Chip("Intel Arc Pro B60 24GB", 20, 18e6),
}

# For a GPU that is not in the list: the median of those that are.
OTHER = Chip("", 132, 50e6)


@dataclass(frozen=True)
class Sheet:
    """A data sheet, in SI units; what it does not state is None, or absent from `peak`."""

    machine: str
    peak: dict[str, float] = field(default_factory=dict)
    """FLOP/s of dense products by precision."""
    bytes_per_s: float = 0.0
    memory_bytes: float | None = None
    power_w: float | None = None
    link_bytes_per_s: float | None = None
    """Of a GPU to others of its node, in one direction."""
    devices_per_node: int | None = None

    @property
    def chip(self) -> Chip:
        """What the sheet leaves out."""
        return CHIPS.get(self.machine, OTHER)

    @property
    def title(self) -> str:
        """`NVIDIA H100 SXM 80GB`."""
        return title_of(self.machine)

    def peak_of(self, precision: str) -> float:
        """FLOP/s; a precision that the GPU does not multiply has the peak of 16 bits, as libraries convert it."""
        return (
            self.peak.get(precision) or self.peak.get("f8e4m3" if precision == "nvfp4" else "bf16") or self.peak["bf16"]
        )


def title_of(machine: str) -> str:
    """`NVIDIA H100 SXM 80GB`, without reading its sheet."""
    return CHIPS.get(machine, OTHER).title or machine


@cache
def sheet(machine: str) -> Sheet:
    """The data sheet of a GPU; `BadInput` in one sentence for a file that is none."""
    try:
        import yaml
    except ImportError:
        raise Unavailable("data sheets of GPUs need PyYAML", remedy=package.REMEDY) from None
    path = package.require_folder() / f"{machine}.yaml"
    named = printable(str(path))
    content = read_regular(path, MOST_BYTES, "a data sheet of a GPU in YAML")
    try:
        # This loader makes texts, lists and tables, and nothing else: no dates, no sets, no merged tables.
        table = yaml.load(content, yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"{named} is no YAML: {shorten(printable(str(error)))}") from None
    gpu, node = (_part(table, name) for name in ("gpu", "node"))

    def value(part: dict[str, Any], name: str) -> float | None:
        found = part.get(name)
        if found in _NOTHING:
            return None
        text = found if isinstance(found, str) else "a list or a table"
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < 1e21:
            raise BadInput(f"{named}: {name} must be a number above 0, found {shorten(printable(text))}")
        return number

    peak = {name: rate for name, key in PEAKS.items() if (rate := value(gpu, key)) is not None}
    rate = value(gpu, "mem_bw")
    if "bf16" not in peak or rate is None:
        raise BadInput(f"{named} needs gpu with bfloat16_tc_flops (FLOP/s) and mem_bw (bytes per second)")
    count = value(node, "num_gpus_per_node")
    return Sheet(
        machine,
        peak,
        rate,
        value(gpu, "mem_capacity"),
        value(gpu, "power"),
        value(node, "intra_node_bw"),
        int(count) if count else None,
    )


def _part(table: object, name: str) -> dict[str, Any]:
    found = table.get(name) if isinstance(table, dict) else None
    return found if isinstance(found, dict) else {}
