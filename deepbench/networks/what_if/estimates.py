"""Times of problems on hardware that nobody measured, by the time model without fitted constants.

That is the roofline with the cost of a call, and with the cycles of a systolic array where the hardware has one. It
says what the hardware allows, not what software will reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepbench.core.devices import SIMULATED
from deepbench.core.precision import find_precision
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
    without_peak = dict[str, int]()
    for problem in problems:
        case = replace(problem.case, backend=SIMULATED)
        name = peak_name(case)
        if case.operation.is_group:
            found.left_out.append(f"{problem.text}: a collective depends on a network, which the hardware has not")
        elif hardware.peak_of(name) is None and case.operation.flop(case):
            found.left_out.append(f"{problem.text}: {hardware.name} states no peak of {name}, nor of {F32}")
        else:
            if name not in hardware.peak and find_precision(name).name != F32:
                without_peak[name] = without_peak.get(name, 0) + 1
            time = parts_of(demand_of(case, hardware.capacities), hardware, _constants(hardware), None)
            shares = {cause: float(f"{share:.3g}") for cause, share in time.shares.items()}
            notes = {"model_shares": shares}
            found.cases.append(ImportedCase(case.text, [[time.seconds]], notes, sources=problem.sources))
    for name, count in without_peak.items():
        found.remarks.append(f"{hardware.name} states no peak of {name}; that of {F32} counts for {count} problems")
    return found


def _constants(hardware: Hardware) -> Constants:
    """Nothing is fitted: full rates, and a call costs what the file says."""
    return Constants(step_s=hardware.overhead.call_s or 0.0)
