"""Result files with trained applications, as tests need them: curves without the training."""

from __future__ import annotations

import json
from pathlib import Path

from deepbench.results.file import read_results

HEADER = {
    "schema": "deepbench/1",
    "tool": "deepbench 0.1.0",
    "started": "2026-11-23T20:00:00+00:00",
    "command": ["train", "image"],
    "machine": {"host": "here", "cpu": "Test CPU", "system": "Test OS"},
    "libraries": {},
}

PLAN = {
    "rounds": {"least": 1, "most": 1, "precision": 0.03, "budget_s": 0.0},
    "mode": "training",
    "order_seed": 0,
    "timeout_s": 600.0,
    "cases": [],
}

SETUP = {
    "application": "image",
    "rung": "mini",
    "framework": "torch",
    "device": "cpu",
    "precision": "f32",
    "ranks": 1,
    "threads": 2,
    "seed": 0,
    "batch": 100,
    "samples": 4000,
    "every": 1000,
    "metric": "accuracy",
    "higher_is_better": True,
    "is_share": True,
    "target": 0.9,
    "settings": {"rate": 0.1, "widths": [16, 32]},
}

START = {
    "samples": 0,
    "parameters": 77,
    "examples": 600,
    "tests": 100,
    "versions": {"torch": "2.13.0"},
    "environment": {"OMP_WAIT_POLICY": "passive"},
    "load_s": 1.0,
    "initialise_s": 2.0,
}

GOOD = (0.5, 0.8, 0.9, 0.92)


def events(run, qualities=GOOD, chunk_s=10.0, end="ok", reason=None, at="2026-11-23T20:00:10.500+00:00"):
    """The events of one run: `qualities` at its evaluations, each behind `chunk_s` seconds of training."""
    yield {"run": run, "at": at, "start": START}
    for i, quality in enumerate(qualities, 1):
        times = {"train_s": chunk_s, "first_step_s": chunk_s / 10, "steps": 10, "evaluate_s": 1.0}
        yield {"run": run, "at": at, "point": {"samples": 1000 * i, "quality": quality, "loss": 0.5, **times}}
    if end is not None:
        yield {"run": run, "at": at, "end": {"status": end, "reason": reason}}


def write(path: Path, runs, **header):
    """A file with these runs: pairs of what differs from `SETUP`, and arguments of `events`. It is read again."""
    from dataclasses import asdict

    from deepbench.plan.modes import Rounds, Rules

    plan = {**PLAN, "rounds": asdict(Rounds(1, 1, 0.03, 0.0)), "rules": asdict(Rules())}
    plan["training"] = [{**SETUP, **setup} for setup, _ in runs]
    lines = [{**HEADER, **header, "plan": plan}]
    lines += [{"training": event} for i, (_, values) in enumerate(runs) for event in events(i, **values)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_results(path)


def seeds(count=3, chunk_s=10.0, shift=0.0, **setup):
    """Runs of one setup whose curves and rates differ a little from seed to seed."""
    return [
        (
            {"seed": s, **setup},
            {"qualities": [q + shift + 0.001 * (s % 3) for q in GOOD], "chunk_s": chunk_s * (1 + 0.002 * (s % 2))},
        )
        for s in range(count)
    ]
