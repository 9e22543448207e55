"""What tracing costs: the traced step over the step that nobody watches, in turn, for the networks of `networks.py`.

python benchmarks/tracing.py [SECONDS]     of each network, 5 by default

Asked: at most three times the step.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.networks.traces import program  # noqa: E402
from deepbench.networks.traces.from_torch import record_step  # noqa: E402

NETWORKS = Path(__file__).parent / "networks.py"

CHOSEN = (
    ("mlp", True, {}),
    ("resnet", True, {"depth": "18", "image": "112", "batch": "4"}),
    ("resnet", False, {"depth": "50", "image": "224", "batch": "1"}),
    ("bert", True, {"width": "256", "layers": "4", "sequence": "128", "batch": "8", "words": "8000", "masked": "20"}),
    ("decoder", False, {}),
    ("deepspeech2", True, {"hidden": "256", "batch": "4", "frames": "301", "padded": "1", "labels": "20"}),
    ("dlrm", True, {"batch": "512", "most_rows": "50000", "dim": "32"}),
    ("gnmt", True, {"width": "256", "words": "4000", "steps": "20", "batch": "16"}),
)


def seconds(run: object) -> float:
    """Of one call."""
    assert callable(run), "it is a step"
    begin = perf_counter()
    run()
    return perf_counter() - begin


def main() -> None:
    """See the top of this file."""
    import torch

    torch.set_num_threads(1)
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    print("network                     step    traced  ratio (quartiles)")
    for name, is_training, settings in CHOSEN:
        made = program.load(f"{NETWORKS}:{name}", settings, is_training)
        made.run()
        ratios, plain = list[float](), list[float]()
        end = perf_counter() + budget
        while perf_counter() < end or len(ratios) < 3:
            plain.append(seconds(made.run))
            traced = seconds(lambda run=made.run, modules=made.modules: record_step(run, modules))
            ratios.append(traced / plain[-1])
        low, middle, high = statistics.quantiles(ratios, n=4)
        step = statistics.median(plain)
        title = f"{name}, {'training' if is_training else 'inference'}"
        print(f"{title:<24}{step * 1e3:7.1f} ms{step * middle * 1e3:7.1f} ms  {middle:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
