"""What remains of the input projection in the time of a recurrent layer: a product of width 1 over all steps.

The original does not count the projection, and neither oneDNN nor PyTorch can leave it out, so the input has width 1.
Here the layer and that product alone (m = gates · hidden, n = steps · batch, k = 1) are measured in one run.

Run: python benchmarks/input_projection.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deepbench.core import units
from deepbench.results import summary
from deepbench.results.file import read_results

LAYERS = (("vanilla", 1, 1760, 16, 50), ("lstm", 4, 512, 16, 25), ("gru", 3, 1536, 1, 187), ("lstm", 4, 256, 1, 150))


def main() -> None:
    """Print one line per layer."""
    pairs = [
        (
            f"recurrent cell={cell} hidden={hidden} batch={batch} timesteps={steps} forward f32 onednn",
            f"gemm m={gates * hidden} n={steps * batch} k=1 f32 onednn beta=0",
        )
        for cell, gates, hidden, batch, steps in LAYERS
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder, "out.jsonl")
        words = [text for pair in pairs for text in pair]
        command = [sys.executable, "-m", "deepbench", "run", *words, "-o", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = read_results(path)
        times = [s.estimate.time_s for s in summary.summarize(found.records, found.order) if s.estimate]
    for i, (layer, _) in enumerate(pairs):
        whole, product = times[2 * i], times[2 * i + 1]
        print(f"{layer:75} {units.seconds(whole):>9}, product {units.seconds(product):>9}: {product / whole:.1%}")


if __name__ == "__main__":
    main()
