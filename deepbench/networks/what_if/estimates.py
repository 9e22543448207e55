"""Times of problems on hardware that is only described, by the time model without fitted constants.

That is the roofline with the cost of a call, and with the cycles of a systolic array where the hardware has one. It
says what the hardware allows, not what software will reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from deepbench.core.devices import SIMULATED
from deepbench.formats import ImportedCase, ImportedFile
from deepbench.judge.demand import demand_of
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.time_model import Constants, parts_of, peak_name
from deepbench.plan.problems import ExportedProblem
from deepbench.results.peaks import F32

PROGRAM = "time model"


def estimated(problems: Sequence[ExportedProblem], hardware: Hardware) -> ImportedFile:
    """The time of each problem, as a file of another program has times; collectives are left out."""
    facts = {"origin": hardware.origin, **({"source": hardware.source} if hardware.source else {})}
    found = ImportedFile(PROGRAM, f"{PROGRAM}, {hardware.name}", cpu=hardware.name, facts=facts)
    without_peak = Counter[str]()
    # Nothing is fitted: full rates, and a call costs what the file says.
    constants = Constants(step_s=hardware.overhead.call_s or 0.0)
    for problem in problems:
        case = replace(problem.case, backend=SIMULATED)
        name = peak_name(case)
        if case.operation.is_group:
            found.left_out.append(f"{problem.text}: a collective needs a network, and files of hardware describe none")
        elif hardware.peak_of(name) is None and case.operation.flop(case):
            found.left_out.append(f"{problem.text}: {hardware.name} states no peak of {name}, nor of {F32}")
        else:
            without_peak[name] += name not in hardware.peak
            time = parts_of(demand_of(case, hardware.capacities), hardware, constants, None)
            found.cases.append(ImportedCase(case.text, [[time.seconds]], sources=problem.sources))
    for name, count in (+without_peak).items():
        found.remarks.append(f"{hardware.name} states no peak of {name}; that of {F32} counts for {count} problems")
    return found
