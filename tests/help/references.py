"""References of hosts, made by hand."""

import math
import random

from deepbench.core.case import parse_case
from deepbench.core.json_lines import to_line
from deepbench.fleets.reference import HostReference, MachineType, ReferenceKernel

MACHINE = MachineType("A CPU", 2, None, 2**34)
ONE, TWO = (f"gemm m={m} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1" for m in (2, 5))


def times(rng, hosts, runs=5, seconds=1e-3, of_hosts=0.01, of_runs=0.01):
    """Seconds by host and run; the spreads are standard deviations of logarithms."""
    levels = [rng.gauss(math.log(seconds), of_hosts) for _ in range(hosts)]
    return tuple(tuple(math.exp(rng.gauss(level, of_runs)) for _ in range(runs)) for level in levels)


def reference(texts=(ONE, TWO), hosts=6, machine=MACHINE, libraries=None, duration_s=1.0, seed=1, **spreads):
    """A reference of these cases."""
    rng = random.Random(seed)
    kernels = [ReferenceKernel(parse_case(text), duration_s, times(rng, hosts, **spreads)) for text in texts]
    names = {k.case.backend: "MKL 1.0" for k in kernels} if libraries is None else libraries
    return HostReference(machine, names, {"microcode": ["0x2"], "governor": ["performance"]}, "quick", kernels)


def fields(made=None):
    """What its file has, as plain values."""
    return {**(made or reference()).as_fields, "tool": "deepbench test", "made": "2026-11-27T00:00:00+00:00"}


def write(path, made=None):
    """Write its file; returns the path."""
    path.write_text(to_line(fields(made)))
    return path
