"""Write the reference curves of applications from result files with ten seeds or more.

    deepbench train all --seeds 10 -o seeds.jsonl
    python benchmarks/references.py seeds.jsonl

It replaces the references of the same rungs and batches in deepbench/applications/references.json.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from deepbench.judge.trained import runs_of, trained
from deepbench.results.file import read_results

PATH = Path(__file__).parents[1] / "deepbench" / "applications" / "references.json"

LEAST_SEEDS = 10


def main(files: list[str]) -> None:
    known = {_key(r): r for r in json.loads(PATH.read_text())} if PATH.exists() else {}
    for file in files:
        for one in trained(runs_of(read_results(Path(file)))):
            name = f"{one.setup['application']}, {one.setup['rung']}"
            if len(one.whole) < LEAST_SEEDS:
                print(f"{name}: {len(one.whole)} seeds, wanted {LEAST_SEEDS}; left out")
                continue
            reached = [run.samples_to_target for run in one.whole if run.samples_to_target is not None]
            curve = []
            for at in zip(*(run.points for run in one.whole), strict=True):
                values = [point.quality for point in at]
                spread = [statistics.fmean(values), statistics.stdev(values)]
                curve.append([at[0].samples, *(float(f"{v:.5g}") for v in spread)])
            found = {
                "application": one.setup["application"],
                "rung": one.setup["rung"],
                "batch": one.setup["batch"],
                "target": one.setup["target"],
                "runs": len(one.whole),
                "samples_to_target": sorted(round(s) for s in reached),
                "run_s": round(sum(one.parts_s.values()), 1),
                "curve": curve,
            }
            known[_key(found)] = found
            print(f"{name}: {len(reached)} of {len(one.whole)} seeds reached {one.setup['target']}")
    lines = ",\n".join(json.dumps(known[key]) for key in sorted(known))
    PATH.write_text(f"[\n{lines}\n]\n")


def _key(reference: dict) -> tuple:
    return reference["application"], reference["rung"], reference["batch"]


if __name__ == "__main__":
    main(sys.argv[1:])
